"""Bytes are where they should be, of one writer, and in the right process."""

import os
import sys
import threading

import tool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import initiator
import wire


class Integrity(tool.Case):
    def test_completed_means_readable_by_others(self):
        """A write, then a look from a third process, many times: never an old or torn sector."""
        size = 2400000
        rounds = 400 if tool.FULL else 40
        target = tool.Tool()
        base = target.buffer("memory", size)
        for flags in ((), ("plain",), ("v1",), ("checksum",)):
            source = tool.Tool(*flags)
            source.buffer("memory", size)
            segment = source.open(target.name)["segment"]
            with initiator.Segment(target.name) as reader:
                for i in range(rounds):
                    source.fill("memory", 0, size, i)
                    self.assertCompleted(source.transfer("write", segment, base, "memory", 0, size))
                    self.assertTrue(target.holds("memory", 0, size, i), (flags, i))
                    if i % 10 == 0:
                        self.assertEqual(reader.read(base, size), wire.pattern(0, size, i))

    def test_two_writers(self):
        """Two processes write to one range again and again; each byte is one of theirs, and the rest is untouched."""
        size, rounds = 1 << 20, 20
        target = tool.Tool()
        base = target.buffer("memory", 3 * size)
        target.fill("memory", 0, 3 * size, 99)
        writers = [tool.Tool(), tool.Tool()]
        for i, writer in enumerate(writers):
            writer.buffer("memory", size)
            writer.fill("memory", 0, size, i)
            writer.segment = writer.open(target.name)["segment"]
        for _ in range(rounds):
            tags = [(writer, writer.submit("write", writer.segment, base + size, "memory", 0, size)) for writer in writers]
            for writer, tag in tags:
                self.assertCompleted(writer.outcome(tag))
        with initiator.Segment(target.name) as reader:
            seen = reader.read(base + size, size)
        theirs = wire.pattern(0, size, 0), wire.pattern(0, size, 1)
        for at in range(0, size, 512):
            sector = seen[at:at + 512]
            if sector not in (theirs[0][at:at + 512], theirs[1][at:at + 512]):
                for i, byte in enumerate(sector):
                    self.assertIn(byte, (theirs[0][at + i], theirs[1][at + i]), at + i)
        self.assertTrue(target.holds("memory", 0, size, 99))
        self.assertTrue(target.holds("memory", 2 * size, size, 99))

    def test_sizes(self):
        """Sizes around every limit there is, at odd places."""
        sizes = [1, 7, 8, 24, 511, 4095, 4096, 16383, 16384, 16385, 32767, 32768, 65535, 65536, 65537, 262143, 262145, 1 << 20, (1 << 22) + 1]
        if tool.FULL:
            sizes.append((2 << 30) + 1)
        target = tool.Tool()
        base = target.buffer("memory", max(sizes) + 64)
        for flags in ((), ("plain",), ("v1",), ("checksum",)):
            source = tool.Tool(*flags)
            source.buffer("memory", max(sizes) + 64)
            segment = source.open(target.name)["segment"]
            for i, size in enumerate(sizes):
                source.fill("memory", 3, size, i)
                target.zero("memory", 0, size + 16)
                self.assertCompleted(source.transfer("write", segment, base + 5, "memory", 3, size))
                self.assertTrue(target.holds("memory", 5, size, i, 3), (flags, size))
                self.assertTrue(target.is_zero("memory", 0, 5) and target.is_zero("memory", size + 5, 11), (flags, size))
                source.zero("memory", 0, size + 16)
                self.assertCompleted(source.transfer("read", segment, base + 5, "memory", 9, size))
                self.assertTrue(source.holds("memory", 9, size, i, 3), (flags, size))
                self.assertTrue(source.is_zero("memory", 0, 9) and source.is_zero("memory", size + 9, 7), (flags, size))

    def test_same_addresses_in_two_processes(self):
        """Local is what has our instance id, not what has our IP address."""
        prefix = ("setarch", "-R")
        target, source = tool.Tool(prefix=prefix), tool.Tool(prefix=prefix)
        self.assertEqual(target.buffer("memory", 1 << 20), source.buffer("memory", 1 << 20))
        source.buffer("data", 1 << 20)
        segment = source.open(target.name)["segment"]
        self.assertNotEqual(segment, 0)
        source.fill("data", 0, 1 << 20, 4)
        source.fill("memory", 0, 1 << 20, 5)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "data", 0, 1 << 20))
        self.assertTrue(target.holds("memory", 0, 1 << 20, 4))
        self.assertTrue(source.holds("memory", 0, 1 << 20, 5))

    def test_our_own_segment(self):
        own = tool.Tool()
        base = own.buffer("memory", 1 << 20)
        own.buffer("data", 1 << 20)
        opened = own.open(own.name)
        self.assertEqual(opened["segment"], 0)
        own.fill("data", 0, 1 << 20, 6)
        self.assertCompleted(own.transfer("write", 0, base, "data", 0, 1 << 20))
        self.assertTrue(own.holds("memory", 0, 1 << 20, 6))
        own.zero("data", 0, 1 << 20)
        self.assertCompleted(own.transfer("read", 0, base, "data", 0, 1 << 20))
        self.assertTrue(own.holds("data", 0, 1 << 20, 6))

    def test_zero_length(self):
        target, source = tool.Tool(), tool.Tool()
        base = target.buffer("memory", 4096)
        source.buffer("memory", 4096)
        segment = source.open(target.name)["segment"]
        outcome = source.transfer("write", segment, base, "memory", 0, 0)
        self.assertEqual((outcome["status"], outcome["bytes"]), ("COMPLETED", 0))
        outcome = source.transfer("write", segment, base + 10000, "memory", 0, 0)
        self.assertEqual(outcome["status"], "FAILED")


if __name__ == "__main__":
    tool.main()
