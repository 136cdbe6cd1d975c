"""Values are put and got at once, in each pair of directions, thousands of times: undisturbed, and while others move values too and the
processes that bytes go to are stopped now and then. No byte is ever wrong."""

import signal
import time
import unittest

import tool
from cluster import Cluster

ROUNDS = 10000 if tool.FULL else 25
STOPS = 40 if tool.FULL else 2
LEASE_MS = 200
PAIRS = [(put, get) for put in ("reverse", "forward") for get in ("reverse", "forward")]


class Accessor(tool.Tool):
    binary = "tests/integ/store_tool"

    def __init__(self, group, name, size, put, get, rounds=ROUNDS, marks=1):
        super().__init__("master=127.0.0.1:%d" % group.port, "name=" + name, "size=%d" % size, "put=" + put, "get=" + get,
                         "rounds=%d" % rounds, "marks=%d" % marks)


class Integrity(tool.Case):
    def setUp(self):
        self.group = Cluster(2, "--p2p_key_lease_duration_ms=%d" % LEASE_MS)
        self.addCleanup(self.group.__exit__)
        self.seen = dict.fromkeys(("completed", "refused"), 0)

    def tearDown(self):
        print("    %s: %d rounds, %d of them refused" % (self.id(), sum(self.seen.values()), self.seen["refused"]))
        super().tearDown()

    def ended(self, accessor, what):
        """It went through all its rounds, and has seen nothing that is not so."""
        seen = accessor.wait("ended", timeout=tool.PATIENCE + ROUNDS * tool.SLOW)
        self.assertEqual((seen["wrong"], seen["lost"], seen["returned"]), (0, 0, 0), (what, seen))
        self.assertEqual(seen["completed"] + seen["refused"], ROUNDS, what)
        for name in self.seen:
            self.seen[name] += seen[name]
        self.assertEqual(accessor.process.wait(tool.PATIENCE), 0, what)
        return seen

    def undisturbed(self, size):
        for put, get in PAIRS:
            seen = self.ended(Accessor(self.group, "%s-%s-%d" % (put, get, size), size, put, get), (put, get))
            self.assertEqual(seen["completed"], ROUNDS, seen)

    def test_64_kib(self):
        self.undisturbed(65536)

    def test_1_mib(self):
        self.undisturbed(1 << 20)

    def stop(self, process, seconds):
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # it is what happens, not a wait for something
        process.send_signal(signal.SIGCONT)

    def disturbed(self, size):
        """Accessor and owners are stopped in turn, for less than a lease and for more; another accessor does the same rounds beside it."""
        for number, (put, get) in enumerate(PAIRS):
            load = Accessor(self.group, "load-%d-%d" % (size, number), size, get, put)
            accessor = Accessor(self.group, "%s-%s-%d" % (put, get, size), size, put, get, marks=STOPS)
            receivers = [accessor.process] + [client.process for client in self.group.clients]
            for i in range(STOPS):
                accessor.wait("mark", timeout=tool.PATIENCE + ROUNDS * tool.SLOW)
                self.stop(receivers[(i + number) % 3], (1.5 if i % 2 else 0.1) * LEASE_MS / 1000)
            for one in (accessor, load):
                seen = self.ended(one, (put, get))
                self.assertGreater(seen["completed"], 0, seen)

    def test_64_kib_beside_others_that_stop(self):
        self.disturbed(65536)

    def test_1_mib_beside_others_that_stop(self):
        self.disturbed(1 << 20)


if __name__ == "__main__":
    tool.main()
