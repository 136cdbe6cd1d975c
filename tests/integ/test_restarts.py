"""Peers that go, come back, and are replaced by others."""

import os
import sys
import time

import tool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from target import Target

SIZE = 1 << 20
SAME_ADDRESSES = ("setarch", "-R")  # without address randomisation two such processes have their memory at one place


class Restarts(tool.Case):
    def pair(self, *flags, **options):
        port = tool.free_port()
        target = tool.Tool("handshake_port=%d" % port, **options)
        target.buffer("memory", SIZE)
        source = tool.Tool(*flags, **options)
        source.buffer("memory", SIZE)
        return port, target, source

    def test_killed_and_back_at_the_same_address_with_other_memory(self):
        port, target, source = self.pair("retries=2")
        opened = source.open(target.name)
        old = target.address("memory")
        source.fill("memory", 0, SIZE, 1)
        self.assertCompleted(source.transfer("write", opened["segment"], old, "memory", 0, SIZE))
        target.kill()
        dead = source.transfer("write", opened["segment"], old, "memory", 0, 4096)
        self.assertEqual(dead["status"], "FAILED", dead)
        self.assertIn(target.name, dead["text"])

        back = tool.Tool("handshake_port=%d" % port)
        self.assertEqual(back.name, target.name)
        back.buffer("other", 3 * SIZE)
        back.fill("other", 0, 3 * SIZE, 2)
        failures = 0
        for _ in range(10):
            address = source.open(target.name)["buffers"][0][0]
            outcome = source.transfer("write", opened["segment"], address, "memory", 0, 4096)
            failures += outcome["status"] != "COMPLETED"
            time.sleep(0.02)
        self.assertLessEqual(failures, 1)
        self.assertEqual(address, back.address("other"))
        self.assertTrue(back.holds("other", 0, 4096, 1))
        self.assertTrue(back.holds("other", 4096, 3 * SIZE - 4096, 2))
        wrong = source.transfer("write", opened["segment"], old, "memory", 0, 4096)
        self.assertEqual((wrong["status"], wrong["effect"]), ("FAILED", "NONE"), wrong)

    def test_killed_in_the_middle(self):
        """What was under way fails once; nothing is said to be stored that is not."""
        for opcode in ("write", "read"):
            port, target, source = self.pair("retries=2")
            target.buffer("large", 1 << 32)
            source.buffer("large", 1 << 32)
            opened = source.open(target.name)
            tag = source.submit(opcode, opened["segment"], target.address("large"), "large", 0, 1 << 32)
            time.sleep(0.05)
            target.kill()
            outcome = source.outcome(tag)
            # TIMEOUT: nobody can say what became of the bytes that were under way
            self.assertIn((outcome["status"], outcome["buffer"]), (("FAILED", "YOURS"), ("TIMEOUT", "YOURS")), outcome)
            self.assertTrue(source.quiet("outcome", "buffer_released", seconds=0.1))
            self.assertEqual(source.stats()["pending"], 0)

    def test_port_taken_over_by_another_process(self):
        port, target, source = self.pair("retries=2")
        opened = source.open(target.name)
        self.assertCompleted(source.transfer("write", opened["segment"], target.address("memory"), "memory", 0, 4096))
        old, data_port = target.address("memory"), target.data_port
        target.kill()
        other = tool.Tool("handshake_port=%d" % port, "data_port=%d" % data_port)
        other.buffer("theirs", SIZE)
        other.fill("theirs", 0, SIZE, 9)
        source.fill("memory", 0, SIZE, 1)
        for _ in range(3):
            outcome = source.transfer("write", opened["segment"], old, "memory", 0, 4096)
            self.assertEqual((outcome["status"], outcome["effect"]), ("FAILED", "NONE"), outcome)
        self.assertTrue(other.holds("theirs", 0, SIZE, 9))

    def test_thirty_two_at_once_have_names_of_their_own(self):
        count = 32 if tool.SLOW == 1 else 8  # a sanitized process takes seconds to start
        processes = tool.Tool.several(count)
        self.assertEqual(len({process.name for process in processes}), count)
        self.assertEqual(len({process.instance for process in processes}), count)

    def test_a_fixed_port_in_use_is_refused_by_name(self):
        first = tool.Tool()
        second = tool.Tool("handshake_port=%d" % first.handshake_port)
        self.assertIsNotNone(second.failed)
        self.assertIn(str(first.handshake_port), second.failed["why"])

    def test_many_idle_lanes_do_not_cost_many_failures(self):
        """Sixteen connections are open when the peer is restarted; the next transfer succeeds."""
        port, target, source = self.pair("lanes=16", "retries=2", prefix=SAME_ADDRESSES)
        opened = source.open(target.name)
        tag = source.submit("write", opened["segment"], target.address("memory"), "memory", 0, 65536, count=64, quiet=1)
        self.assertBatchCompleted(source.batch(tag))
        target.kill()
        back = tool.Tool("handshake_port=%d" % port, "data_port=%d" % target.data_port, prefix=SAME_ADDRESSES)
        self.assertEqual(back.buffer("memory", SIZE), target.address("memory"))
        source.fill("memory", 0, 4096, 5)
        self.assertCompleted(source.transfer("write", opened["segment"], back.address("memory"), "memory", 0, 4096))
        self.assertTrue(back.holds("memory", 0, 4096, 5))

    def test_many_idle_lanes_to_a_plain_peer(self):
        source = tool.Tool("lanes=16", "retries=2")
        source.buffer("memory", SIZE)
        with Target(SIZE) as target:
            opened = source.open(target.name)
            tag = source.submit("write", opened["segment"], target.base, "memory", 0, 16384, count=64, stride=16384, quiet=1)
            self.assertBatchCompleted(source.batch(tag))
            ports = target.handshake_port, target.data_port
        with Target(SIZE, ports=ports) as back:
            self.assertCompleted(source.transfer("write", opened["segment"], back.base, "memory", 0, 4096))

    def test_a_burst_after_the_peer_closed_idle_connections(self):
        count = 10000 if tool.FULL else 2000
        source = tool.Tool("lanes=4")
        source.buffer("memory", SIZE)
        with Target(SIZE, idle_close=0.3) as target:
            opened = source.open(target.name)
            self.assertCompleted(source.transfer("write", opened["segment"], target.base, "memory", 0, 16384))
            time.sleep(0.6)
            tag = source.submit("write", opened["segment"], target.base, "memory", 0, 16384, count=count, quiet=1)
            self.assertBatchCompleted(source.batch(tag, timeout=60 * tool.SLOW))


if __name__ == "__main__":
    tool.main()
