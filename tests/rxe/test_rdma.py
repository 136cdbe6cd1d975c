"""The RDMA transport between processes, on Soft-RoCE. Runs as root in the guest of tools/rxe-run. Long rounds with NEAP_FULL."""

import random
import threading
import time

from rdma import MIB, SOURCE, TARGET, Rdma, shell, tool


class Transfers(Rdma):
    def test_all_sizes_both_ways_on_both_rails(self):
        """1 byte to 64 MiB, unaligned too, verified byte by byte."""
        size = 64 * MIB
        target, source, segment = self.pair(size + 4096)
        before = self.sent(source)
        for number, (length, shift) in enumerate([(1, 0), (7, 3), (4096, 0), (65536, 0), (65537, 1), (81920, 0), (81921, 5), (MIB + 5, 5),
                                                  (8 * MIB, 0), (size, 0)]):
            source.fill("memory", 0, length, number + 1)
            self.assertCompleted(source.transfer("write", segment, target.address("memory") + shift, "memory", 0, length))
            self.assertTrue(target.holds("memory", shift, length, number + 1, 0), length)
            source.zero("memory", 0, length)
            self.assertCompleted(source.transfer("read", segment, target.address("memory") + shift, "memory", 0, length))
            self.assertTrue(source.holds("memory", 0, length, number + 1, 0), length)
        after = self.sent(source)
        for rail in SOURCE:
            self.assertGreater(after[rail] - before[rail], MIB, "both rails carry: %s" % after)

    def test_many_requests_in_one_batch(self):
        target, source, segment = self.pair(16 * MIB)
        source.fill("memory", 0, 16 * MIB, 9)
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 4096, count=4096, stride=4096, quiet=1)
        self.assertBatchCompleted(source.batch(tag))
        self.assertTrue(target.holds("memory", 0, 16 * MIB, 9))

    def test_a_range_that_is_not_registered_there(self):
        target, source, segment = self.pair(MIB)
        outcome = source.transfer("write", segment, target.address("memory") + MIB, "memory", 0, 4096)
        self.assertEqual((outcome["status"], outcome["effect"]), ("FAILED", "NONE"), outcome)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))

    def test_a_key_that_has_ended(self):
        """The range is unregistered behind the source's back: refused there, found out with a fresh descriptor, and others go on."""
        target, source, segment = self.pair(MIB)
        self.settle(target, "other", MIB)
        self.assertCompleted(source.transfer("write", segment, target.address("other"), "memory", 0, 4096))
        target.send("unregister other")
        target.wait("released")
        outcome = source.transfer("write", segment, target.address("other"), "memory", 0, 65536)
        self.assertEqual((outcome["status"], outcome["buffer"]), ("FAILED", "YOURS"), outcome)
        self.assertTrue(target.is_zero("other", 4096, MIB - 4096))
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 65536))

    def test_a_key_that_has_ended_and_another_for_the_same_range(self):
        """The source's descriptor has the old key, and a segment says nothing of the change: it reads the descriptor anew by itself."""
        target, source, segment = self.pair(MIB)
        self.settle(target, "arena", MIB)
        self.assertCompleted(source.transfer("write", segment, target.address("arena"), "memory", 0, 4096))
        target.send("unregister arena")
        target.wait("released")
        target.part("again", "arena", 0, MIB)
        self.settled(target, "again")
        source.fill("memory", 0, MIB, 4)
        outcome = source.transfer("write", segment, target.address("again"), "memory", 0, MIB)
        if outcome["status"] != "COMPLETED":  # once, while the descriptor is under way
            self.ends_honestly(source, outcome)
            self.assertCompleted(source.transfer("write", segment, target.address("again"), "memory", 0, MIB))
        self.assertTrue(target.holds("again", 0, MIB, 4))


class Rails(Rdma):
    def test_a_link_goes_down_under_load_and_comes_back(self):
        target, source, segment = self.pair(4 * MIB)
        source.fill("memory", 0, 4 * MIB, 5)
        self.both_carry(source, target, segment)
        for link in ("nic2", "nic0"):  # ours, and the peer's
            tag = source.submit("write", segment, target.address("memory"), "memory", 0, 4 * MIB)
            shell("ip", "link", "set", link, "down")
            try:
                self.assertCompleted(source.outcome(tag))
                self.load(source, target, segment, 1)
            finally:
                shell("ip", "link", "set", link, "up")
            self.both_carry(source, target, segment)
            self.assertTrue(target.holds("memory", 0, 4 * MIB, 5))


class Ends(Rdma):
    def test_the_target_is_killed(self):
        target, source, segment = self.pair(64 * MIB)
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 64 * MIB)
        target.kill()
        outcome = source.outcome(tag)
        self.assertIn(outcome["status"], ("TIMEOUT", "FAILED"), outcome)
        if outcome["buffer"] == "HELD":
            source.wait("buffer_released")
        self.assertEqual(source.quit(), 0)

    def test_the_source_is_killed(self):
        """The target lets go of its half, and serves the next one."""
        target, source, segment = self.pair(64 * MIB)
        source.submit("write", segment, target.address("memory"), "memory", 0, 64 * MIB)
        source.kill()
        other = self.start(SOURCE)
        self.ready(other, 2)
        self.settle(other, "memory", MIB)
        segment = other.open(target.name)["segment"]
        other.fill("memory", 0, MIB, 3)
        self.assertCompleted(other.transfer("write", segment, target.address("memory"), "memory", 0, MIB))
        self.assertTrue(target.holds("memory", 0, MIB, 3))

    def test_cut_off_and_a_deadline(self):
        """The deadline ends the request, and then the buffer is ours: what comes when the cables are mended does not reach it."""
        target, source, segment = self.pair(32 * MIB)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        for rail in ("sw0", "sw1"):
            shell("ip", "link", "set", rail, "down")
        try:
            tag = source.submit("read", segment, target.address("memory"), "memory", 0, 32 * MIB, deadline_ms=300)
            outcome = source.outcome(tag)
            self.assertIn(outcome["status"], ("TIMEOUT", "FAILED"), outcome)
            if outcome["buffer"] == "HELD":
                source.wait("buffer_released")
            source.fill("memory", 0, 32 * MIB, 8)
        finally:
            for rail in ("sw0", "sw1"):
                shell("ip", "link", "set", rail, "up")
        self.assertCompleted(source.transfer("read", segment, target.address("memory"), "memory", 0, 4096))
        self.assertTrue(source.holds("memory", 4096, 32 * MIB - 4096, 8, 4096))


class SimultaneousOpen(Rdma):
    ROUNDS = 1000 if tool.FULL else 50

    def test_both_begin_at_the_same_time(self):
        """One connection for each pair of devices survives, and no transfer is lost."""
        a, b = self.start(("rxe0",)), self.start(("rxe2",))
        for process in (a, b):
            self.ready(process, 1)
            self.settle(process, "memory", 65536)
        a.fill("memory", 0, 4096, 1)
        b.fill("memory", 0, 4096, 2)
        for round_number in range(self.ROUNDS):
            to_b, to_a = a.open(b.name)["segment"], b.open(a.name)["segment"]
            tags = {}
            begin = threading.Barrier(2)

            def write(process, segment, address):
                begin.wait()
                time.sleep(random.random() * 0.005)
                tags[process] = process.submit("write", segment, address, "memory", 0, 4096)

            threads = [threading.Thread(target=write, args=(a, to_b, b.address("memory") + 8192)),
                       threading.Thread(target=write, args=(b, to_a, a.address("memory") + 8192))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertCompleted(a.outcome(tags[a]))
            self.assertCompleted(b.outcome(tags[b]))
            a.ask("drop_endpoints")
            b.ask("drop_endpoints")
            tool.until("no endpoint is left", lambda: not (a.ask("devices")["endpoints"] or b.ask("devices")["endpoints"]))
        self.assertTrue(b.holds("memory", 8192, 4096, 1, 0) and a.holds("memory", 8192, 4096, 2, 0), round_number)


if __name__ == "__main__":
    tool.main()
