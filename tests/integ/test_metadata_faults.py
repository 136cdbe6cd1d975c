"""Metadata servers that stop, that the network forgets, that are slow, and that answer wrongly. What was open goes on being transferred;
what cannot be known is said to be unknown, never missing; and all is well again when the server is."""

import signal
import sys
import threading
import time
import unittest

import tool
from metadata_cases import EMETADATA, EREJECTED, Stores, published
from metadata_servers import Etcd, Master, Redis, ScriptedRedis, Web

HELD_S = 30 if tool.FULL else 1.5  # how long a server stands still
BYTE_S = 1 if tool.FULL else 0.02  # a server that sends a byte in so long needs longer than a call has for a descriptor, either way


class Beside(threading.Thread):
    """Two engines of the same store that transfer all the while. Each transfer has to complete; how long they took is told, not judged."""

    def __init__(self, case):
        super().__init__(daemon=True)
        self.case, self.failed, self.times = case, None, []
        self.over = threading.Event()
        self.target, self.source = case.start("beside"), case.start("besides")
        self.segment = self.source.open("beside")["segment"]
        case.meet(self.source, self.target, self.segment)

    def run(self):
        try:
            while not self.over.wait(0.005):  # others need the machine too
                self.times.append(self.case.meet(self.source, self.target, self.segment)["ms"])
        except AssertionError as failed:
            self.failed = failed

    def __enter__(self):
        self.start()

    def __exit__(self, *failure):
        self.over.set()
        self.join()
        if not failure[0]:
            self.case.assertIsNone(self.failed)
            self.case.assertGreater(len(self.times), 0)
        times = sorted(self.times) or [0]
        sys.stderr.write("    beside %s: %d transfers of 4 KiB, p50 %.3f ms, p99 %.3f ms\n" %
                         (self.case.id().split(".", 1)[1], len(self.times), times[len(times) // 2], times[len(times) * 99 // 100]))


class Faults(Stores):
    """An open of a name that nobody has tells what the engine knows of the store."""

    def lives(self):
        self.target, self.source = self.start("target"), self.start("source")
        self.segment = self.source.open("target")["segment"]
        self.meet(self.source, self.target, self.segment)  # while the store is well
        return Beside(self)

    def opens(self, name="another"):
        opened = self.source.ask("open", name, event="opened")
        if not opened["error"]:
            self.source.ask("close", opened["segment"])
        return opened

    def assertUnknown(self, *said):
        opened = self.opens()
        self.assertLess(opened["error"], 0)
        self.assertNotEqual(opened["error"], EMETADATA, "what is not known is not missing")
        for word in said:
            self.assertIn(word, opened["why"])
        self.meet(self.source, self.target, self.segment)

    def well_again(self):
        """What is asked is known, what is new is published, and found."""
        tool.until("it is known again", lambda: self.opens()["error"] == EMETADATA)
        newcomer = self.start("newcomer")
        tool.until("the newcomer is found", lambda: self.opens("newcomer")["error"] == 0)
        self.transfer(self.source, newcomer)
        self.transfer(self.source, self.target)


class Silent(Faults):
    """The server and all engines in a network namespace, whose packets can vanish."""

    def setUp(self):
        self.namespace = tool.Namespace()
        self.addCleanup(self.namespace.remove)
        self.namespace.enter()
        self.addCleanup(self.namespace.leave)
        self.server = self.Server()


class Common:
    def test_stopped_and_continued(self):
        with self.lives():
            self.server.signal(signal.SIGSTOP)
            end = time.monotonic() + HELD_S
            while time.monotonic() < end:
                self.assertUnknown()
            self.server.signal(signal.SIGCONT)
            self.well_again()


class CommonSilent:
    def test_packets_that_vanish(self):
        """No connection ends, no answer comes, no new connection is made."""
        with self.lives():
            self.namespace.drop("tcp", "dport", str(self.server.port))
            self.namespace.drop("tcp", "sport", str(self.server.port))
            self.assertUnknown()
            self.namespace.mend()
            self.well_again()

    def test_connections_that_are_forgotten(self):
        """As a balancer does that forgets an idle connection: new ones work, and are made without being asked to."""
        with self.lives():
            forgotten = self.connections()
            self.assertGreater(len(forgotten), 0)
            self.forget(forgotten)
            self.well_again()
            self.assertTrue(set(self.connections()) - set(forgotten))

    def forget(self, ports):
        for end in ("sport", "dport"):
            self.namespace.drop("tcp", end, "{%s}" % ",".join(ports))

    def connections(self):
        """The ports at the engines' end of their connections to the server."""
        lines = self.namespace.run("ss", "-Htnp", "state", "established", "dport", "= :%d" % self.server.port).stdout.splitlines()
        return [line.split()[2].rsplit(":", 1)[1] for line in lines if '"transfer_tool"' in line]  # etcd has some to itself


class RedisFaults(Common, Faults):
    def setUp(self):
        self.server = Redis()


class HttpFaults(Common, Faults):
    def setUp(self):
        self.server = Master()


class EtcdFaults(Common, Faults):
    def setUp(self):
        self.server = Etcd()


class RedisSilent(CommonSilent, Silent):
    Server = Redis

    @unittest.skipUnless(tool.FULL, "half a minute until TCP notices; with NEAP_FULL=1")
    def test_the_watch_is_forgotten(self):
        """Only the connection that tells of changes: nothing is ever sent on it, so the probes of TCP have to notice."""
        with self.lives():
            self.source.ask("close", self.segment)  # what is open is known anyhow
            watches = [line.split(b"addr=")[1].split()[0].rsplit(b":", 1)[1].decode()
                       for line in self.server.ask("CLIENT", "LIST", "TYPE", "pubsub").splitlines() if b"addr=" in line]
            self.assertEqual(self.opens("target")["error"], 0)
            self.assertGreater(len(watches), 0)
            self.forget(watches)
            self.target.kill()  # it would write it again
            self.server.ask("SET", "mooncake/ram/target", "null")
            self.assertEqual(self.opens("target")["error"], 0, "nobody can know yet")
            tool.until("the change is seen", lambda: self.opens("target")["error"] == EMETADATA, seconds=60 * tool.SLOW)


class EtcdSilent(CommonSilent, Silent):
    Server = Etcd

    def asks_nothing(self):
        asked = self.server.members[0].count("Range", "Txn")
        return self.opens("target")["error"] == 0 and self.server.members[0].count("Range", "Txn") == asked

    @unittest.skipUnless(tool.FULL, "it takes its time until it is noticed; with NEAP_FULL=1")
    def test_the_watch_is_forgotten(self):
        """And all other connections of an engine that asks nothing, because it would be told."""
        target, self.source = (self.start(name, "metadata_refresh_ms=600000") for name in ("target", "source"))
        tool.until("an open that asks nothing", self.asks_nothing)
        self.forget(self.connections())
        target.kill()
        self.server.ask("SET", "mooncake/ram/target", "null")
        began = time.monotonic()
        tool.until("the change is seen", lambda: self.opens("target")["error"] == EMETADATA, seconds=120 * tool.SLOW)
        sys.stderr.write("    noticed after %.1f s\n" % (time.monotonic() - began))


class HttpSilent(CommonSilent, Silent):
    Server = Master


class Slow:
    def test_a_byte_now_and_then(self):
        """Longer than a call has: unknown, and nobody else waits for it."""
        with self.lives():
            self.server.pause = BYTE_S
            self.assertLess(self.opens("beside")["error"], 0)
            self.assertNotEqual(self.opens("beside")["error"], EMETADATA)
            self.server.pause = 0
            self.well_again()

    def test_slow_but_in_time(self):
        self.start("target")
        self.source = self.start("source", "metadata_ms=20000")
        self.server.pause = 0.001
        self.assertEqual(self.opens("target")["error"], 0)


class RedisScripted(Slow, Faults):
    def setUp(self):
        self.server = ScriptedRedis()

    def test_error_replies(self):
        with self.lives():
            for error, verbs, said in (("-NOAUTH Authentication required.", ["GET", "PING"], "MC_REDIS_PASSWORD"),
                                       ("-MOVED 3999 127.0.0.1:6381", ["GET"], "cluster"),
                                       ("-LOADING Redis is loading the dataset in memory", ["GET"], "reading its data")):
                self.server.replies = {verb: error for verb in verbs}
                self.assertUnknown(said)
                self.server.replies = {}
                tool.until("it is known again", lambda: self.opens()["error"] == EMETADATA)
            self.well_again()

    def test_loading_at_the_start(self):
        """As after a restart: calls wait for it until their deadlines."""
        self.server.replies = {"PING": "-LOADING Redis is loading the dataset in memory"}
        target = self.start("target", wait=False)
        self.assertIn("reading its data", target.wait("publication")["why"])
        self.server.replies = {}
        published(target)

    def test_readonly(self):
        """It became a replica: what was published stays to be read, what is new waits for a primary."""
        with self.lives():
            self.server.replies = {"SET": "-READONLY You can't write against a read only replica."}
            self.target.buffer("more", 4096)
            self.assertIn("primary", published(self.target, EREJECTED)["why"])
            self.assertEqual(self.opens("target")["error"], 0)
            self.server.replies = {}
            published(self.target)
            self.well_again()

    def test_an_error_is_not_repeated(self):
        """A command that was answered has been answered; only one whose connection was lost is sent again."""
        self.target, self.source = (self.start(name, "metadata_refresh_ms=600000") for name in ("target", "source"))
        self.server.replies = {"GET": "-NOPERM no"}
        del self.server.asked[:]
        self.assertLess(self.opens()["error"], 0)
        asked = lambda: [key for verb, key in self.server.asked if verb == "GET" and "another" in str(key)]  # publishers look at their own
        tool.until("both keys were asked for", lambda: len(asked()) >= 2)  # the first error ends the open
        self.assertEqual(len(set(asked())), len(asked()), asked())


class HttpScripted(Slow, Faults):
    def setUp(self):
        self.server = Web()

    def test_statuses(self):
        with self.lives():
            for status, said in ((301, "redirects"), (307, "redirects"), (403, "does not let us"), (409, "200 is expected"),
                                 (413, "longer than it takes"), (500, "not well"), (503, "not well")):
                self.server.status = status
                self.assertUnknown(str(status), said)
            self.server.status = None
            self.well_again()

    def test_shorter_than_it_says(self):
        with self.lives():
            self.server.short = 1
            for _ in range(3):
                self.assertLess(self.opens("beside")["error"], 0)
                self.assertNotEqual(self.opens("beside")["error"], EMETADATA)
            self.server.short = 0
            self.well_again()

    def test_hangs_up_instead_of_an_answer(self):
        with self.lives():
            descriptors = self.source.stats()["descriptors"]
            self.server.hangs_up = True
            for _ in range(20):
                self.assertUnknown()
            self.assertLessEqual(self.source.stats()["descriptors"], descriptors + 4, "the connections that ended are let go")
            self.server.hangs_up = False
            self.well_again()


if __name__ == "__main__":
    tool.main()
