"""Much of everything: requests, bytes, peers, time."""

import sys
import time

import tool

GIB = 1 << 30


class Load(tool.Case):
    def pair(self, *flags, size=1 << 20):
        target, source = tool.Tool(), tool.Tool(*flags)
        target.buffer("memory", size)
        source.buffer("memory", size)
        return target, source, source.open(target.name)["segment"]

    def test_idle_connections_cost_nothing(self):
        seconds = 60 if tool.FULL else 2
        target = tool.Tool()
        base = target.buffer("memory", 1 << 20)
        sources = tool.Tool.several(20 if tool.SLOW == 1 else 4, "lanes=5")
        for source in sources:
            source.buffer("memory", 1 << 20)
            tag = source.submit("write", source.open(target.name)["segment"], base, "memory", 0, 4096, count=50, quiet=1)
            self.assertBatchCompleted(source.batch(tag))
        self.assertGreaterEqual(target.stats()["sessions"], len(sources))
        time.sleep(0.2)
        before = target.stats()
        time.sleep(seconds)
        after = target.stats()
        woken = after["wakeups"] - before["wakeups"]
        self.assertLessEqual(woken, 3 + after["timers_fired"] - before["timers_fired"], (before, after))
        self.assertLess((after["cpu_ns"] - before["cpu_ns"]) / 1e9, 0.001 * seconds * tool.SLOW + 0.002 * tool.SLOW)

    def test_batch_of_a_hundred_thousand(self):
        target, source, segment = self.pair()
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 64, count=100000, quiet=1)
        self.assertBatchCompleted(source.batch(tag, timeout=60 * tool.SLOW))

    def test_one_request_too_many_submits_nothing(self):
        target, source, segment = self.pair("requests_max=1000")
        source.send("write", "over", segment, target.address("memory"), "memory", 0, 64, "count=1001", "quiet=1")
        self.assertLess(source.wait("submitted", tag="over")["error"], 0)
        self.assertEqual(source.stats()["submitted"], 0)
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 64, count=1000, quiet=1)
        self.assertBatchCompleted(source.batch(tag))

    def test_ten_thousand_to_many_peers(self):
        peers = 100 if tool.FULL else 10 if tool.SLOW == 1 else 4
        source = tool.Tool()
        source.buffer("memory", 1 << 20)
        targets = tool.Tool.several(peers)
        tags = []
        for target in targets:
            base = target.buffer("memory", 1 << 20)
            tags.append(source.submit("write", source.open(target.name)["segment"], base, "memory", 0, 4096, count=10000 // peers, quiet=1))
        for tag in tags:
            self.assertBatchCompleted(source.batch(tag, timeout=60 * tool.SLOW))

    def test_many_slices_while_bytes_move_no_deadline_strikes(self):
        """The progress deadline is shorter than the whole batch takes, and no request fails."""
        count = 300000 if tool.FULL else 8000
        target, source, segment = self.pair("progress_ms=200" if tool.SLOW == 1 else "progress_ms=2000", "requests_max=300000")
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 65536, count=count, quiet=1)
        self.assertBatchCompleted(source.batch(tag, timeout=300 * tool.SLOW))

    def test_descriptors_stay_bounded(self):
        seconds = 600 if tool.FULL else 2
        lanes, peers = 4, 3
        source = tool.Tool("lanes=%d" % lanes)
        source.buffer("memory", 1 << 20)
        targets = tool.Tool.several(peers)
        segments = [source.open(target.name)["segment"] for target in targets if target.buffer("memory", 1 << 20)]
        base = source.stats()["descriptors"]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tags = [source.submit("write", segment, target.address("memory"), "memory", 0, 4096, count=500, quiet=1)
                    for segment, target in zip(segments, targets)]
            for tag in tags:
                self.assertBatchCompleted(source.batch(tag))
            self.assertLessEqual(source.stats()["descriptors"], base + peers * lanes + 2)
            self.assertLessEqual(targets[0].stats()["sessions"], lanes)

    def gigabytes(self, source, segment, base, size):
        """Skips when the machine is too busy to move so much in half a minute."""
        if tool.SLOW > 1:
            self.skipTest("gigabytes are not for sanitized builds")
        probe = 64 << 20
        seconds = source.transfer("write", segment, base, "memory", 0, probe)["ms"] / 1000
        if seconds * size / probe > 30 and not tool.FULL:
            self.skipTest("%.1f GiB would take %d s on this machine now" % (size / GIB, seconds * size / probe))

    def test_more_than_four_gib_in_one_request(self):
        """2^32 is crossed by the length of one request and by the bytes of one lane."""
        size = 6 * GIB if tool.FULL else 4 * GIB + (64 << 20)
        target, source = tool.Tool(), tool.Tool()
        base = target.loop("memory", size)
        source.loop("memory", size)
        segment = source.open(target.name)["segment"]
        self.gigabytes(source, segment, base, size)
        for opcode in ("write", "read") if tool.FULL else ("write",):
            (source if opcode == "write" else target).fill("memory", 0, 32 << 20, 1)
            (target if opcode == "write" else source).zero("memory", 0, 32 << 20)
            outcome = source.transfer(opcode, segment, base, "memory", 0, size, timeout=300)
            self.assertCompleted(outcome)
            self.assertEqual(outcome["bytes"], size)
            self.assertTrue((target if opcode == "write" else source).holds("memory", 0, 32 << 20, 1))
        self.assertEqual(source.stats()["lanes_opened"], 1)

    def test_many_gigabytes_over_one_lane(self):
        pieces = 96 if tool.FULL else 20
        piece = 64 << 20
        target, source = tool.Tool(), tool.Tool()
        base = target.loop("memory", piece)
        source.loop("memory", piece)
        segment = source.open(target.name)["segment"]
        self.gigabytes(source, segment, base, pieces * piece)
        tag = source.submit("write", segment, base, "memory", 0, piece, count=pieces, quiet=1)
        batch = source.batch(tag, timeout=300)
        self.assertBatchCompleted(batch)
        self.assertEqual(batch["bytes"], pieces * piece)
        self.assertEqual(source.stats()["lanes_opened"], 1)

    def test_offsets_beyond_four_gib(self):
        size = 9 * GIB
        target, source, segment = self.pair(size=size)
        for offset in (2 * GIB - 100, 4 * GIB - 100, 4 * GIB + 5, 8 * GIB - 7, size - 65536):
            source.fill("memory", offset, 65536, offset)
            self.assertCompleted(source.transfer("write", segment, target.address("memory") + offset, "memory", offset, 65536))
            self.assertTrue(target.holds("memory", offset, 65536, offset))


if __name__ == "__main__":
    tool.main()
