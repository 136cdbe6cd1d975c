"""Peers that stop moving: SIGSTOP in the middle, and going on after everyone has given up."""

import os
import sys
import time

import tool

LARGE = 1 << 32  # address space; only what moved before the stop becomes memory


class StoppedPeers(tool.Case):
    def pair(self, *flags):
        target, source = tool.Tool(), tool.Tool(*flags)
        target.buffer("memory", LARGE)
        source.buffer("memory", LARGE)
        return target, source, source.open(target.name)["segment"]

    def assertTimedOut(self, outcome, after_ms):
        self.assertEqual((outcome["status"], outcome["buffer"]), ("TIMEOUT", "YOURS"), outcome)
        self.assertGreaterEqual(outcome["ms"], after_ms)
        self.assertLess(outcome["ms"], after_ms + 500 * tool.SLOW)

    def test_stopped_in_the_middle_of_a_read(self):
        """The bytes that arrive after the peer goes on do not touch the buffer, which has a new use."""
        for framing in ("", "plain"):
            target, source, segment = self.pair(*([framing] if framing else []))
            tag = source.submit("read", segment, target.address("memory"), "memory", 0, LARGE, deadline_ms=600)
            time.sleep(0.05)
            target.stop()
            self.assertTimedOut(source.outcome(tag), 600)
            source.fill("memory", 0, 64 << 20, 7)
            target.proceed()
            self.assertCompleted(source.transfer("read", segment, target.address("memory"), "memory", LARGE - 4096, 4096))
            time.sleep(0.2)
            self.assertTrue(source.holds("memory", 0, 64 << 20, 7))
            self.assertTrue(source.quiet("outcome", seconds=0.05))

    def test_stopped_in_the_middle_of_a_write(self):
        """When the target goes on and takes its memory back, the late bytes do not reach it any more."""
        for framing in ("", "plain"):
            target, source, segment = self.pair(*([framing] if framing else []))
            tag = source.submit("write", segment, target.address("memory"), "memory", 0, LARGE, deadline_ms=600)
            time.sleep(0.05)
            target.stop()
            outcome = source.outcome(tag)
            self.assertTimedOut(outcome, 600)
            self.assertIn(outcome["effect"], ("UNKNOWN", "PARTIAL"))
            target.send("unregister memory")
            target.proceed()
            target.wait("released")
            target.fill("memory", 0, 64 << 20, 8)
            time.sleep(0.2)
            self.assertTrue(target.holds("memory", 0, 64 << 20, 8))

    def test_progress_deadline_without_a_deadline_of_the_batch(self):
        target, source, segment = self.pair("progress_ms=500")
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, LARGE)
        time.sleep(0.05)
        target.stop()
        outcome = source.outcome(tag)
        self.assertEqual(outcome["status"], "TIMEOUT", outcome)
        self.assertIn("500 ms", outcome["text"])

    def test_nothing_completes_while_the_peer_is_stopped(self):
        """Acknowledged means stored: a kilobyte fits into the socket's buffer, and still is not done."""
        for framing in ("", "plain", "v1"):
            target, source, segment = self.pair(*([framing] if framing else []))
            source.fill("memory", 0, 1024, 3)
            self.assertCompleted(source.transfer("write", segment, target.address("memory") + 4096, "memory", 0, 1024))
            target.stop()
            tag = source.submit("write", segment, target.address("memory"), "memory", 0, 1024)
            self.assertTrue(source.quiet("outcome", seconds=0.3), framing)
            target.proceed()
            self.assertCompleted(source.outcome(tag))
            self.assertTrue(target.holds("memory", 0, 1024, 3))

    def test_buffer_reuse_after_time_out_and_cancel_many_times(self):
        rounds = 1000 if tool.FULL else 30
        size = 1 << 20
        target, source, segment = self.pair()
        address = target.address("memory")
        self.assertCompleted(source.transfer("read", segment, address, "memory", 0, size))
        descriptors = source.stats()["descriptors"]
        for i in range(rounds):
            target.stop()
            if i % 2:
                outcome = source.transfer("read", segment, address, "memory", 0, size, deadline_ms=20)
                self.assertEqual(outcome["status"], "TIMEOUT", outcome)
            else:
                tag = source.submit("read", segment, address, "memory", 0, size)
                source.ask("cancel", tag)
                outcome = source.outcome(tag)
                self.assertEqual(outcome["status"], "CANCELED", outcome)
            if outcome["buffer"] == "HELD":
                source.wait("buffer_released")
            source.fill("memory", 0, size, i)
            target.proceed()
            self.assertCompleted(source.transfer("read", segment, address, "memory", size, 4096))
            self.assertTrue(source.holds("memory", 0, size, i))
        stats = source.stats()
        self.assertEqual((stats["pending"], stats["batches"]), (0, 0), stats)
        self.assertLessEqual(stats["descriptors"], descriptors + 1)
        self.assertEqual(stats["submitted"], stats["completed"] + stats["failed"] + stats["timed_out"] + stats["canceled"])

    def test_closing_with_a_thousand_transfers_in_flight(self):
        target, source, segment = self.pair("drain_ms=500")
        target.stop()
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 1 << 20, count=1000, stride=1 << 20, quiet=1)
        source.send("open", target.name.replace(str(target.handshake_port), str(target.data_port)))  # a handshake that hangs as well
        source.send("quit")
        batch = source.batch(tag)
        self.assertEqual(batch["canceled"], 1000, batch)
        self.assertLess(source.wait("engine_closed")["ms"], 500 + 1000 * tool.SLOW)
        self.assertEqual(source.process.wait(tool.PATIENCE), 0)

    def test_closing_the_segment_with_transfers_in_flight(self):
        target, source, segment = self.pair("drain_ms=500")
        target.stop()
        tag = source.submit("read", segment, target.address("memory"), "memory", 0, 1 << 20, count=100, stride=1 << 20, quiet=1)
        self.assertEqual(source.ask("close", segment)["error"], 0)
        self.assertEqual(source.batch(tag)["canceled"], 100)
        target.proceed()
        self.assertGreater(source.open(target.name)["segment"], 0)


if __name__ == "__main__":
    tool.main()
