"""etcd as it really is: one member and three, with users and tokens that end, over TLS, stopped, killed, compacted."""

import json
import signal

import tool
from metadata_cases import EMETADATA, EREJECTED, ETAKEN, Common, Stores, published
from metadata_servers import Etcd


class Etcds(Stores):
    """What the kinds of etcd have in common."""

    def finds(self, source, name):
        opened = source.ask("open", name, event="opened")
        if not opened["error"]:
            source.ask("close", opened["segment"])
        return opened["error"] == 0

    def asks_nothing(self, source, name):
        """Whether an open of a name that was opened before asks the store nothing."""
        def calls():
            return sum(member.count("Range", "Txn") for member in self.server.running())

        self.finds(source, name)
        before = calls()
        return self.finds(source, name) and calls() == before

    def sees_changes(self, source, name):
        """The next open of a name that was opened before, and is watched, sees that its descriptor has changed."""
        tool.until("an open that asks nothing", lambda: self.asks_nothing(source, name))
        self.server.ask("SET", "mooncake/ram/" + name, "null")
        tool.until("the change is seen", lambda: source.ask("open", name, event="opened")["error"] == EMETADATA)


class OverEtcd(Common, Etcds):
    def setUp(self):
        self.server = Etcd()

    def quietly(self, name):
        """One that does not look by itself within the test."""
        return self.start(name, "metadata_refresh_ms=600000")

    def test_without_a_scheme(self):
        self.server.url = self.server.url.split("://")[1]
        self.transfer(self.start("source"), self.start("target"))

    def test_clusters_do_not_see_each_other(self):
        self.start("target", "metadata_cluster=one")
        source = self.start("target", "metadata_cluster=two")
        self.assertEqual(self.server.keys(), ["mooncake/one/ram/target", "mooncake/one/rpc_meta/target", "mooncake/two/ram/target",
                                              "mooncake/two/rpc_meta/target"])
        self.assertEqual(source.ask("open", "nobody", event="opened")["error"], EMETADATA)

    def test_leases(self):
        target = self.start("target", "metadata_lease_ms=2000")
        leases = self.server.call("lease/leases")["leases"]
        self.assertTrue(leases)
        self.assertTrue(target.quiet("publication", seconds=3.5))
        self.assertEqual(len(self.server.keys()), 2)
        self.assertEqual(self.server.call("lease/leases")["leases"], leases, "kept alive, not made anew")
        target.kill()
        tool.until("what a crash left behind goes", lambda: not self.server.keys())
        tool.until("the leases go", lambda: not self.server.call("lease/leases").get("leases"))

    def test_a_clean_end_leaves_no_lease(self):
        target = self.start("target", "metadata_lease_ms=600000")
        self.assertTrue(self.server.call("lease/leases")["leases"])
        self.assertEqual(target.quit(), 0)
        self.assertEqual(self.server.keys(), [])
        tool.until("its leases are given back", lambda: not self.server.call("lease/leases").get("leases"))

    def test_told_of_changes(self):
        """Once it is watched an open needs no round trip; a change is seen by the next open."""
        self.quietly("target")
        self.sees_changes(self.quietly("source"), "target")

    def test_compaction_while_watching(self):
        self.quietly("target")
        source = self.quietly("source")
        tool.until("an open that asks nothing", lambda: self.asks_nothing(source, "target"))
        for i in range(300):
            self.server.ask("SET", "mooncake/other", str(i))
        self.server.compact()
        self.sees_changes(source, "target")

    def test_compaction_of_what_a_watch_has_not_seen(self):
        """The watch is lost, and what happened since is forgotten before it can be made again: nothing may be taken for unchanged."""
        target = self.quietly("target")
        source = self.quietly("source")
        tool.until("an open that asks nothing", lambda: self.asks_nothing(source, "target"))
        target.stop()  # it would write its own again
        self.server.kill()
        self.server.start(keep=True, port=tool.free_port())
        for i in range(100):
            self.server.ask("SET", "mooncake/ram/target", "null" if i == 99 else str(i))
        self.server.compact()
        self.server.kill()
        self.server.start(keep=True)
        tool.until("the change is seen", lambda: source.ask("open", "target", event="opened")["error"] == EMETADATA)
        target.kill()
        self.start("target")
        self.sees_changes(source, "target")

    def test_kept_over_a_restart(self):
        """Its own keys that come back are no conflict."""
        target, source = self.quietly("target"), self.quietly("source")
        self.server.kill()
        self.server.start(keep=True)
        tool.until("it is found", lambda: self.finds(source, "target"))
        self.transfer(source, target)
        self.assertTrue(target.quiet("publication", seconds=0, error=ETAKEN))


class OverEtcdCluster(Etcds):
    def setUp(self):
        self.server = Etcd(members=3)

    def goes_on(self, source, target):
        """All that is done with a store, while members are missing."""
        tool.until("it is found", lambda: self.finds(source, target.name))
        self.transfer(source, target)
        newcomer = self.start("newcomer")
        tool.until("the newcomer is found", lambda: self.finds(source, "newcomer"))
        self.assertEqual(newcomer.quit(), 0)
        tool.until("it is gone", lambda: source.ask("open", "newcomer", event="opened")["error"] == EMETADATA)

    def test_each_member_is_lost_once(self):
        target, source = self.start("target"), self.start("source")
        for member in self.server.members:
            member.kill()
            self.goes_on(source, target)
            self.server.start_again(member)

    def test_the_leader_is_lost(self):
        target, source = self.start("target"), self.start("source")
        lost = self.server.leader()
        lost.kill()
        self.goes_on(source, target)
        self.server.start_again(lost)
        self.goes_on(source, target)

    def test_watched_through_a_member_that_is_lost(self):
        self.start("target")
        source = self.start("source", "metadata_refresh_ms=600000")
        for member in self.server.members:
            tool.until("an open that asks nothing", lambda: self.asks_nothing(source, "target"))
            member.kill()
            self.server.ask("SET", "mooncake/ram/target", "null")
            tool.until("the change is seen", lambda: source.ask("open", "target", event="opened")["error"] == EMETADATA)
            self.server.ask("DEL", "mooncake/ram/target")  # its owner looks every half second, and writes it again
            tool.until("it is found again", lambda: self.finds(source, "target"))
            self.server.start_again(member)

    def test_two_members_stopped(self):
        """Without a majority nothing can be said: never that there is none. Transfers go on."""
        target, source = self.start("target"), self.start("source")
        segment = source.open("target")["segment"]
        self.meet(source, target, segment)
        for member in self.server.members[:2]:
            member.signal(signal.SIGSTOP)
        late = source.ask("open", "another", event="opened")
        self.assertLess(late["error"], 0)
        self.assertNotEqual(late["error"], EMETADATA)
        for _ in range(20):
            self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        self.server.signal(signal.SIGCONT)
        tool.until("it is known again", lambda: source.ask("open", "another", event="opened")["error"] == EMETADATA)
        self.goes_on(source, target)

    def test_a_member_that_is_not_there_from_the_start(self):
        self.server.members[0].kill()
        target, source = self.start("target"), self.start("source")
        self.goes_on(source, target)


class EtcdsWithUsers(Etcds):
    PASSWORD = 'p w@:/#%"\\'
    FLAGS = ()

    def setUp(self):
        self.server = Etcd(*self.FLAGS, password=self.PASSWORD)

    def as_user(self, name, password, *flags, **options):
        return self.start(name, *flags, env={"MC_ETCD_USERNAME": "neap", "MC_ETCD_PASSWORD": password}, **options)


class OverEtcdWithUsers(EtcdsWithUsers):
    def test_right(self):
        target, source = self.as_user("target", self.PASSWORD), self.as_user("source", self.PASSWORD)
        self.transfer(source, target)
        self.assertEqual(target.quit(), 0)
        self.assertEqual(self.server.keys(), ["mooncake/ram/source", "mooncake/rpc_meta/source"])

    def test_wrong(self):
        target = self.as_user("target", "not it", wait=False)
        event = published(target, EREJECTED)
        self.assertIn("MC_ETCD_PASSWORD", event["why"])
        self.assertNotIn("not it", event["why"])
        self.server.change_password("not it")
        published(target)

    def test_changed_while_running(self):
        target, source = self.as_user("target", self.PASSWORD), self.as_user("source", self.PASSWORD)
        self.server.change_password("new")
        self.assertIn("MC_ETCD_PASSWORD", published(target, EREJECTED)["why"])
        self.server.change_password(self.PASSWORD)
        published(target)
        self.transfer(source, target)

    def test_no_user_given(self):
        target = self.start("target", wait=False)
        self.assertIn("MC_ETCD_USERNAME", published(target, EREJECTED)["why"])
        self.server.call("auth/disable")
        published(target)

    def test_without_rights(self):
        self.server.call("auth/user/revoke", name="neap", role="neap")
        target = self.as_user("target", self.PASSWORD, wait=False)
        self.assertIn("permission", published(target, EREJECTED)["why"])
        self.server.call("auth/user/grant", user="neap", role="neap")
        published(target)

    def test_rights_that_do_not_reach_the_keys(self):
        """Of another cluster than the role is for."""
        self.server.call("auth/role/revoke", role="neap", key="bW9vbmNha2Uv", range_end="bW9vbmNha2Uw")
        self.server.call("auth/role/grant", name="neap", perm={"permType": "READ", "key": "bW9vbmNha2Uv", "range_end": "bW9vbmNha2Uw"})
        target = self.as_user("target", self.PASSWORD, wait=False)
        self.assertIn("permission", published(target, EREJECTED)["why"])


class OverEtcdTokens(EtcdsWithUsers):
    """Tokens that end a second after they were last used."""

    FLAGS = ("--auth-token-ttl", "1")

    def test_a_token_that_has_ended(self):
        target, source = (self.as_user(name, self.PASSWORD, "metadata_refresh_ms=600000") for name in ("target", "source"))
        tool.until("the tokens have ended", lambda: self.tokens_ended() >= 2)
        self.assertTrue(self.finds(source, "target"), "an end is no error")
        target.buffer("more", 1 << 16)
        tool.until("the new range is published", lambda: b"%d" % target.address("more") in self.server.ask("GET", "mooncake/ram/target"))
        self.transfer(source, target)
        self.assertTrue(target.quiet("publication", seconds=0))

    def tokens_ended(self):
        with open(self.server.members[0].log) as file:
            return sum(json.loads(line).get("user-name") == "neap" for line in file if "deleted a simple token" in line)


class OverEtcdTls(Etcds):
    def setUp(self):
        self.server = Etcd(certificates=True)

    def trusting(self, name, *flags, **options):
        return self.start(name, "metadata_ca_file=" + self.server.certificates.authority, *flags, **options)

    def test_trusted(self):
        target, source = self.trusting("target"), self.trusting("source")
        self.transfer(source, target)
        target.quit()
        self.assertEqual(self.server.keys(), ["mooncake/ram/source", "mooncake/rpc_meta/source"])

    def test_not_trusted(self):
        stranger = self.start("stranger", wait=False)
        self.assertIn("certificate", published(stranger, EREJECTED)["why"])
        self.assertEqual(self.server.keys(), [])

    def test_of_another_host(self):
        self.server.url = self.server.url.replace("localhost", "127.0.0.1")
        elsewhere = self.trusting("elsewhere", wait=False)
        self.assertIn("127.0.0.1", published(elsewhere, EREJECTED)["why"])
        self.assertEqual(self.server.keys(), [])

    def test_files_that_cannot_be_read(self):
        """No start, and never without TLS."""
        for flags in (["metadata_ca_file=/nonexistent"],
                      ["metadata_ca_file=" + self.server.certificates.authority, "metadata_certificate_file=/nonexistent",
                       "metadata_key_file=/nonexistent"]):
            failed = tool.Tool("metadata=" + self.server.url, *flags).failed
            self.assertIsNotNone(failed)
            self.assertIn("/nonexistent", failed["why"])


class OverEtcdClientCertificates(Etcds):
    def setUp(self):
        self.server = Etcd("--client-cert-auth", certificates=True)
        self.trust = "metadata_ca_file=" + self.server.certificates.authority

    def test_given(self):
        client = self.server.certificates.client
        flags = (self.trust, "metadata_certificate_file=" + client, "metadata_key_file=" + client + ".key")
        target, source = self.start("target", *flags), self.start("source", *flags)
        self.transfer(source, target)

    def test_not_given(self):
        target = self.start("target", self.trust, wait=False)
        self.assertIn("certificate", published(target, EREJECTED)["why"])
        self.assertEqual(self.server.keys(), [])


if __name__ == "__main__":
    tool.main()
