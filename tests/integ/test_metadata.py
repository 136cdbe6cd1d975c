"""Metadata stores as they really are: redis-server and neap-master's HTTP server, found, killed, stopped, emptied, with passwords; two
processes that find each other there and transfer."""

import socket
import unittest

import tool
from metadata_cases import EMETADATA, EREJECTED, Common, Stores, published
from metadata_servers import Https, Master, Redis


class OverRedis(Common, Stores):
    def setUp(self):
        self.server = Redis()

    def test_clusters_do_not_see_each_other(self):
        self.start("target", "metadata_cluster=one")
        source = self.start("target", "metadata_cluster=two")
        self.assertEqual(self.server.keys(), ["mooncake/one/ram/target", "mooncake/one/rpc_meta/target", "mooncake/two/ram/target",
                                              "mooncake/two/rpc_meta/target"])
        self.assertEqual(source.ask("open", "nobody", event="opened")["error"], EMETADATA)

    def test_another_database(self):
        self.start("target", env={"MC_REDIS_DB_INDEX": "5"})
        self.assertEqual(self.server.keys(), [])
        other = self.start("other", wait=False, env={"MC_REDIS_DB_INDEX": "99"})
        self.assertIn("MC_REDIS_DB_INDEX", published(other, EREJECTED)["why"])

    def test_leases(self):
        target = self.start("target", "metadata_lease_ms=1000")
        self.assertTrue(target.quiet("publication", seconds=2.5))
        self.assertEqual(len(self.server.keys()), 2)
        target.kill()
        tool.until("what a crash left behind goes", lambda: not self.server.keys())

    def test_connections_that_are_killed(self):
        target, source = self.start("target"), self.start("source")
        for _ in range(5):
            self.server.ask("CLIENT", "KILL", "TYPE", "normal")
            self.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            self.transfer(source, target)
        self.server.ask("FLUSHALL")
        tool.until("published again", lambda: len(self.server.keys()) == 4)

    def test_told_of_changes(self):
        """Once it is watched an open needs no round trip; a change is seen by the next open."""
        target, source = self.start("target"), self.start("source")
        tool.until("the store tells of changes", lambda: b"TRACKING" in self.server.ask("CLIENT", "LIST").upper() or
                   b"sub=1" in self.server.ask("CLIENT", "LIST"))
        def gets():
            for line in self.server.ask("INFO", "commandstats").split(b"\r\n"):
                if line.startswith(b"cmdstat_get:"):
                    return int(line.split(b"calls=")[1].split(b",")[0])
        def asks_nothing():
            segment = source.open("target")["segment"]
            source.ask("close", segment)
            before = gets()
            segment = source.open("target")["segment"]
            source.ask("close", segment)
            return gets() == before
        tool.until("an open that asks nothing", asks_nothing)
        target.stop()  # it would put its own back
        self.server.ask("SET", "mooncake/ram/target", "null")
        tool.until("the change is seen", lambda: source.ask("open", "target", event="opened")["error"] == EMETADATA)
        target.proceed()

    def test_no_password_given(self):
        self.server.ask("CONFIG", "SET", "requirepass", "secret")
        target = self.start("target", wait=False)
        self.assertIn("MC_REDIS_PASSWORD", published(target, EREJECTED)["why"])
        self.server.ask("CONFIG", "SET", "requirepass", "", auth=("AUTH", "secret"))
        published(target)


class WhatRedisTells(unittest.TestCase):
    """What metadata/redis.c and the simulated server (tests/support/sim_redis_server.c) take for granted."""

    def setUp(self):
        self.redis = Redis()
        self.addCleanup(self.redis.remove)
        self.ours, self.theirs, self.tracker = (self.stream() for _ in range(3))
        identity = self.ask(self.tracker, "CLIENT", "ID")[1:].decode()
        self.ask(self.tracker, "SUBSCRIBE", "__redis__:invalidate")
        self.assertEqual(self.ask(self.ours, "CLIENT", "TRACKING", "ON", "REDIRECT", identity, "NOLOOP"), b"+OK")

    def stream(self):
        connection = socket.create_connection(("127.0.0.1", self.redis.port), tool.PATIENCE)
        self.addCleanup(connection.close)
        stream = connection.makefile("rwb")
        self.addCleanup(stream.close)
        return stream

    def ask(self, stream, *words):
        stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
        stream.flush()
        return self.redis.read(stream)

    def told(self):
        """The keys that we were told of until now: a notice of one more comes behind them."""
        self.ask(self.ours, "GET", "last")
        self.ask(self.theirs, "SET", "last", "x")
        keys = []
        while b"last" not in keys:
            keys += self.redis.read(self.tracker)[2] or [None]
        return keys[:-1]

    def test_a_key_that_was_read_is_told_once(self):
        self.ask(self.ours, "GET", "k")
        self.ask(self.theirs, "SET", "k", "1")
        self.ask(self.theirs, "SET", "k", "2")
        self.assertEqual(self.told(), [b"k"])

    def test_what_we_change_ourselves_is_forgotten(self):
        for change in ("SET", "k", "1"), ("PEXPIRE", "k", "100000"), ("DEL", "k"):
            self.ask(self.ours, "GET", "k")
            self.ask(self.ours, *change)
            self.ask(self.theirs, "SET", "k", "2")
            self.assertEqual(self.told(), [], change)

    def test_what_has_no_effect_is_no_change(self):
        self.ask(self.ours, "GET", "k")
        self.ask(self.ours, "DEL", "k")
        self.ask(self.theirs, "SET", "k", "1")
        self.assertEqual(self.told(), [b"k"])
        self.ask(self.ours, "GET", "k")
        self.ask(self.ours, "SET", "k", "2", "NX")
        self.ask(self.theirs, "DEL", "k")
        self.assertEqual(self.told(), [b"k"])

    def test_a_look_whether_it_is_there_is_a_read(self):
        self.ask(self.theirs, "SET", "k", "1")
        self.ask(self.ours, "PEXPIRE", "k", "100000")
        self.ask(self.ours, "EXISTS", "k")
        self.ask(self.theirs, "DEL", "k")
        self.assertEqual(self.told(), [b"k"])

    def test_everything_is_lost(self):
        self.ask(self.ours, "GET", "k")
        self.ask(self.theirs, "FLUSHALL")
        self.assertEqual(self.told(), [None])

    def test_a_tracker_that_is_not_there(self):
        self.assertEqual(self.ask(self.theirs, "CLIENT", "TRACKING", "ON", "REDIRECT", "777", "NOLOOP"),
                         b"-ERR The client ID you want redirect to does not exist")


class OverRedisWithUsers(Stores):
    PASSWORD = 'p w@:/#%"\\'

    def setUp(self):
        self.server = Redis()
        self.server.ask("ACL", "SETUSER", "neap", "on", ">" + self.PASSWORD, "~mooncake/*", "&*", "+@all")
        self.server.ask("CONFIG", "SET", "requirepass", "root")

    def as_user(self, name, password, **options):
        return self.start(name, env={"MC_REDIS_USERNAME": "neap", "MC_REDIS_PASSWORD": password}, **options)

    def test_right(self):
        target, source = self.as_user("target", self.PASSWORD), self.as_user("source", self.PASSWORD)
        self.transfer(source, target)
        self.transfer(self.start("plain", env={"MC_REDIS_PASSWORD": "root"}), target)

    def test_wrong(self):
        target = self.as_user("target", "not it", wait=False)
        event = published(target, EREJECTED)
        self.assertIn("MC_REDIS_USERNAME", event["why"])
        self.assertNotIn("not it", event["why"])
        self.server.ask("ACL", "SETUSER", "neap", ">not it", auth=("AUTH", "root"))
        published(target)

    def test_changed_while_running(self):
        target = self.as_user("target", self.PASSWORD)
        self.server.ask("ACL", "SETUSER", "neap", "resetpass", ">new", auth=("AUTH", "root"))
        self.server.ask("CLIENT", "KILL", "USER", "neap", auth=("AUTH", "root"))
        published(target, EREJECTED)
        self.server.ask("ACL", "SETUSER", "neap", ">" + self.PASSWORD, auth=("AUTH", "root"))
        published(target)

    def test_without_rights(self):
        self.server.ask("ACL", "SETUSER", "neap", "-set", auth=("AUTH", "root"))
        target = self.as_user("target", self.PASSWORD, wait=False)
        self.assertIn("NOPERM", published(target, EREJECTED)["why"])


class OverRedisReplica(Stores):
    def setUp(self):
        self.server = Redis("--replicaof", "127.0.0.1 1", "--replica-read-only", "yes")

    def test_a_replica(self):
        target = self.start("target", wait=False)
        self.assertIn("primary", published(target, EREJECTED)["why"])


class OverHttp(Common, Stores):
    def setUp(self):
        self.server = Master()


class OverHttps(Stores):
    def setUp(self):
        self.server = Https()

    def trusting(self, name, **options):
        return self.start(name, "metadata_ca_file=" + self.server.certificate, **options)

    def test_found_and_taken_back(self):
        target, source = self.trusting("target"), self.trusting("source")
        self.assertIn("/metadata?key=mooncake%2Frpc_meta%2Ftarget", self.server.values)
        self.transfer(source, target)
        target.quit()
        self.assertNotIn("/metadata?key=mooncake%2Frpc_meta%2Ftarget", self.server.values)

    def test_certificates_are_checked(self):
        stranger = self.start("stranger", wait=False)
        self.assertIn("certificate", published(stranger, EREJECTED)["why"])
        self.server.url = self.server.url.replace("localhost", "127.0.0.1")
        elsewhere = self.trusting("elsewhere", wait=False)
        self.assertIn("127.0.0.1", published(elsewhere, EREJECTED)["why"])
        self.assertEqual(self.server.values, {})

    def test_a_server_that_is_not_well(self):
        target = self.trusting("target")
        for status, said in ((302, "redirects"), (500, "not well"), (404, "there is none"), (403, "does not let us")):
            self.server.status = status
            answer = target.ask("open", "another", event="opened")
            self.assertIn(said, answer["why"])
            self.assertEqual(answer["error"] == EMETADATA, status == 404)
        self.server.status = None
        tool.until("published again", lambda: len(self.server.values) == 2)


if __name__ == "__main__":
    tool.main()
