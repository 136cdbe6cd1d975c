"""What real metadata servers say to the back-ends' machines is recorded, in calm and in trouble, and played again without the server: the
machines must then do the same, byte for byte. Recordings that are kept (tests/data/recordings) are played too, so that a change of the
machines is seen where no server is. NEAP_KEEP_RECORDINGS=FOLDER keeps those of this run."""

import glob
import os
import shutil
import subprocess
import tempfile
import unittest

import tool
from metadata_servers import Etcd, Master, Redis

KEPT = os.path.join(tool.SOURCE, "tests", "data", "recordings")
KEY = "mooncake/k"


class Recorder:
    """A back-end that is told what to do, step by step."""

    def __init__(self, path, *connection):
        self.process = subprocess.Popen([tool.program("tests/integ/record_tool"), "record", path, *connection], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def step(self, *words):
        """Its outcome: error and value."""
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("record_tool ended at %r" % (words,))
        error, _, text = line.rstrip("\n").partition(" ")
        if error in ("done", "late:"):
            return (0, "") if error == "done" else (None, text)
        return int(error), text

    def end(self):
        self.process.stdin.close()
        self.process.wait(tool.PATIENCE)
        self.process.stdout.close()
        return self.process.returncode


class Recordings(unittest.TestCase):
    def record(self, name, server, story, *user):
        """Lets `story(step, server)` happen, then plays it."""
        self.addCleanup(server.remove)
        folder = os.environ.get("NEAP_KEEP_RECORDINGS") or tempfile.mkdtemp(prefix="neap-recordings-")
        if "NEAP_KEEP_RECORDINGS" not in os.environ:
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, name)
        recorder = Recorder(path, server.url, *user)
        try:
            story(recorder.step, server)
        finally:
            ended = recorder.end()
        self.assertEqual(ended, 0)
        server.remove()
        self.play(path)

    def play(self, path):
        played = subprocess.run([tool.program("tests/integ/record_tool"), "play", path], capture_output=True, text=True, timeout=tool.PATIENCE)
        self.assertEqual(played.returncode, 0, "%s: %s" % (path, played.stderr))

    def calm(self, step, server):
        self.assertLess(step("get", KEY)[0], 0)
        self.assertEqual(step("set", KEY, "one")[0], 0)
        self.assertEqual(step("get", KEY), (0, "one"))
        self.assertEqual(step("touch", KEY, 0)[0], 0)
        self.assertEqual(step("create", "mooncake/rpc_meta/n", "one")[0], 0)
        self.assertEqual(step("create", "mooncake/rpc_meta/n", "two")[0], -2020)
        self.assertEqual(step("remove", KEY)[0], 0)
        self.assertEqual(step("remove", KEY)[0], 0)
        self.assertLess(step("touch", KEY, 0)[0], 0)

    def leases_and_changes(self, step, server):
        self.assertEqual(step("lease", KEY, 5000, "one")[0], 0)
        self.assertEqual(step("touch", KEY, 5000)[0], 0)
        self.assertEqual(step("get", KEY), (0, "one"))
        self.assertEqual(step("watch", KEY), (0, ""))
        self.assertEqual(step("get", KEY), (0, "one"))
        server.ask("SET", KEY, "other")
        self.assertEqual(step("changed"), (0, ""))
        self.assertEqual(step("get", KEY), (0, "other"))
        self.assertEqual(step("lease", KEY, 5000, "two")[0], 0)
        self.assertEqual(step("remove", KEY)[0], 0)

    def lost_and_found(self, step, server):
        """The server goes away, comes back empty, and stands still for a while."""
        self.assertEqual(step("set", KEY, "one")[0], 0)
        server.kill()
        self.assertLess(step("get", KEY)[0], 0)
        server.start()
        tool.until("it is reached again", lambda: step("get", KEY)[0] == -200)
        server.signal(19)
        self.assertLess(step("set", KEY, "two")[0], 0)
        server.signal(18)
        tool.until("it is reached again", lambda: step("set", KEY, "three")[0] == 0)
        self.assertEqual(step("get", KEY), (0, "three"))


class OfRedis(Recordings):
    def test_calm(self):
        self.record("redis-calm", Redis(), self.calm)

    def test_leases_and_changes(self):
        self.record("redis-leases-and-changes", Redis(), self.leases_and_changes)

    def test_lost_and_found(self):
        self.record("redis-lost-and-found", Redis(), self.lost_and_found)

    def test_users(self):
        def story(step, server):
            self.assertEqual(step("set", KEY, "one")[0], 0)
            server.ask("ACL", "SETUSER", "neap", "resetpass", ">new")
            server.ask("CLIENT", "KILL", "USER", "neap")
            self.assertEqual(step("get", KEY)[0], -104)
            server.ask("ACL", "SETUSER", "neap", ">secret")
            tool.until("it is let in again", lambda: step("get", KEY) == (0, "one"))
            server.ask("ACL", "SETUSER", "neap", "-set")
            self.assertEqual(step("set", KEY, "two")[0], -104)

        server = Redis()
        server.ask("ACL", "SETUSER", "neap", "on", ">secret", "~mooncake/*", "&*", "+@all")
        self.record("redis-users", server, story, "neap", "secret")

    def test_watched_and_lost(self):
        def story(step, server):
            step("set", KEY, "one")
            self.assertEqual(step("watch", KEY), (0, ""))
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            self.assertEqual(step("changed"), (0, ""))
            self.assertEqual(step("watch", KEY), (0, ""))
            server.ask("FLUSHALL")
            self.assertEqual(step("changed"), (0, ""))

        self.record("redis-watched-and-lost", Redis(), story)


class OfHttp(Recordings):
    def test_calm(self):
        self.record("http-calm", Master(), self.calm)

    def test_lost_and_found(self):
        self.record("http-lost-and-found", Master(), self.lost_and_found)


class OfEtcd(Recordings):
    def test_calm(self):
        self.record("etcd-calm", Etcd(), self.calm)

    def test_leases_and_changes(self):
        self.record("etcd-leases-and-changes", Etcd(), self.leases_and_changes)

    def test_lost_and_found(self):
        self.record("etcd-lost-and-found", Etcd(), self.lost_and_found)

    def test_compacted(self):
        def story(step, server):
            step("set", KEY, "one")
            self.assertEqual(step("watch", KEY), (0, ""))
            port = server.members[0].at
            server.kill()
            server.start(keep=True, port=tool.free_port())
            for i in range(20):
                server.ask("SET", KEY, str(i))
            server.compact()
            server.kill()
            server.start(keep=True, port=port)
            self.assertEqual(step("changed"), (0, ""))
            self.assertEqual(step("get", KEY), (0, "19"))

        self.record("etcd-compacted", Etcd(), story)

    def test_a_member_is_lost(self):
        def story(step, server):
            step("set", KEY, "one")
            self.assertEqual(step("watch", KEY), (0, ""))
            server.members[0].kill()
            server.ask("SET", KEY, "two")
            self.assertEqual(step("changed"), (0, ""))
            self.assertEqual(step("get", KEY), (0, "two"))

        self.record("etcd-a-member-is-lost", Etcd(members=3), story)

    def test_users(self):
        def story(step, server):
            self.assertEqual(step("set", KEY, "one")[0], 0)
            self.assertEqual(step("watch", KEY), (0, ""))
            server.change_password("new")
            self.assertEqual(step("get", KEY)[0], -104)
            server.change_password("secret")
            self.assertEqual(step("get", KEY), (0, "one"))
            server.ask("SET", KEY, "two")
            self.assertEqual(step("changed"), (0, ""))

        self.record("etcd-users", Etcd(password="secret"), story, "neap", "secret")


class Kept(Recordings):
    def test_all(self):
        paths = sorted(glob.glob(os.path.join(KEPT, "*-*")))
        self.assertTrue(paths)
        for path in paths:
            with self.subTest(os.path.basename(path)):
                self.play(path)


if __name__ == "__main__":
    tool.main()
