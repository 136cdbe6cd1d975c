"""Neap asks; the Python peer serves as Mooncake releases do, and as broken peers do."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import initiator
import tool
import wire
from target import Target

SIZE = 1 << 20


class NeapAsInitiator(tool.Case):
    def start(self, *flags):
        neap = tool.Tool("connect_ms=3000", *flags)
        neap.buffer("memory", SIZE)
        return neap

    def move(self, neap, segment, base, seed, sizes=(1, 4096, 65537, 300000)):
        """Writes and reads back, each size at its own place."""
        for i, size in enumerate(sizes):
            neap.fill("memory", 0, size, seed + i)
            self.assertCompleted(neap.transfer("write", segment, base + i, "memory", 0, size))
            neap.zero("memory", 0, size)
            self.assertCompleted(neap.transfer("read", segment, base + i, "memory", 0, size))
            self.assertTrue(neap.holds("memory", 0, size, seed + i))

    def test_each_kind_of_target(self):
        kinds = [dict(proto=2), dict(proto=1), dict(proto=None), dict(proto=1, knows_v2=False), dict(proto=None, knows_v2=False, close_each=True),
                 dict(proto=2, newline=False), dict(proto=2, trailing=b"\n \n"),
                 dict(proto=2, extra={"unknown": [1, {"a": None}], "priority_matrix": None})]
        neap = self.start()
        for i, kind in enumerate(kinds):
            with self.subTest(kind=kind), Target(SIZE, **kind) as target:
                opened = neap.open(target.name)
                self.assertFalse(opened["is_neap"])
                self.assertEqual(opened["buffers"], [[target.base, SIZE]])
                self.move(neap, opened["segment"], target.base, 10 * i)
                v2 = kind["proto"] == 2
                self.assertEqual({bool(request[1] & 0x80) for request in target.requests}, {v2})
                self.assertEqual({request[4] for request in target.requests}, {b"\0" * 7})
                if not kind.get("close_each"):
                    self.assertLessEqual(target.connections, 2)
                neap.ask("close", opened["segment"])

    def test_old_framing_on_request(self):
        neap = self.start("v1")
        with Target(SIZE, proto=2) as target:
            opened = neap.open(target.name)
            self.move(neap, opened["segment"], target.base, 1)
            self.assertFalse(any(request[1] & 0x80 for request in target.requests))

    def test_many_requests_at_once(self):
        neap = self.start()
        for kind in (dict(proto=2), dict(proto=1), dict(proto=1, knows_v2=False, close_each=True)):
            with self.subTest(kind=kind), Target(SIZE, **kind) as target:
                opened = neap.open(target.name)
                neap.fill("memory", 0, SIZE, 5)
                tag = neap.submit("write", opened["segment"], target.base, "memory", 0, 1024, count=200, stride=1024, quiet=1)
                self.assertBatchCompleted(neap.batch(tag))
                self.assertEqual(bytes(target.memory[:200 * 1024]), wire.pattern(0, 200 * 1024, 5))
                neap.zero("memory", 0, SIZE)
                tag = neap.submit("read", opened["segment"], target.base, "memory", 0, 1024, count=200, stride=1024, quiet=1)
                self.assertBatchCompleted(neap.batch(tag))
                self.assertTrue(neap.holds("memory", 0, 200 * 1024, 5))

    def test_refused_request_is_the_only_one_that_fails(self):
        """The peer advertises a range and refuses part of it; what stands around it in the pipeline succeeds."""
        for late in (False, True):
            neap = self.start()
            with self.subTest(late=late), Target(SIZE, late_reset=late, refuse=[Target.BASE + 5 * 4096]) as target:
                opened = neap.open(target.name)
                neap.fill("memory", 0, SIZE, 2)
                tag = neap.submit("write", opened["segment"], target.base, "memory", 0, 4096, count=10, stride=4096)
                outcomes = {}
                for _ in range(10):
                    outcome = neap.outcome(tag)
                    outcomes[outcome["index"]] = outcome
                self.assertEqual({index for index, outcome in outcomes.items() if outcome["status"] != "COMPLETED"}, {5})
                self.assertEqual(outcomes[5]["status"], "FAILED")
                self.assertIn("refused", outcomes[5]["text"])
                self.assertEqual(bytes(target.memory[:5 * 4096]), wire.pattern(0, 5 * 4096, 2))
                self.assertEqual(bytes(target.memory[6 * 4096:10 * 4096]), wire.pattern(6 * 4096, 4 * 4096, 2))

    def test_stalls_end_at_the_progress_deadline(self):
        for point in ("header", "payload", "status"):
            for opcode in ("write", "read"):
                neap = self.start("progress_ms=400")
                with self.subTest(point=point, opcode=opcode), Target(SIZE, stall=point) as target:
                    opened = neap.open(target.name)
                    outcome = neap.transfer(opcode, opened["segment"], target.base, "memory", 0, SIZE)
                    self.assertIn(outcome["status"], ("TIMEOUT", "FAILED"), outcome)
                    self.assertEqual(outcome["buffer"], "YOURS", outcome)
                    self.assertGreater(outcome["ms"], 300)
                    self.assertLess(outcome["ms"], 3000 * tool.SLOW)
                    self.assertIn("progress", outcome["text"])
                    target.go()

    def test_bad_status(self):
        for status in (bytes.fromhex("0200000056544 34d".replace(" ", "")), b"HTTP/1.1", b"\0" * 8):
            neap = self.start("retries=1", "progress_ms=1000")
            with self.subTest(status=status), Target(SIZE, bad_status=status) as target:
                opened = neap.open(target.name)
                outcome = neap.transfer("write", opened["segment"], target.base, "memory", 0, 4096)
                self.assertEqual(outcome["status"], "FAILED", outcome)

    def test_handshakes_that_fail(self):
        neap = self.start("handshake_ms=500")
        for kind, word in ((dict(silent=True), ""), (dict(null=True), ""), (dict(extra={"protocol": "nvmeof"}), "nvmeof"),
                           (dict(extra={"tcp_data_port": "12"}), "tcp_data_port"), (dict(extra={"buffers": 5}), "buffers")):
            with self.subTest(kind=kind), Target(SIZE, **kind) as target:
                opened = neap.ask("open", target.name, event="opened")
                self.assertLess(opened["error"], 0)
                self.assertIn(word, opened["why"])
                self.assertIn(target.name, opened["why"])

    def test_idle_close_is_not_seen_by_the_next_transfer(self):
        neap = self.start()
        with Target(SIZE, idle_close=0.2) as target:
            opened = neap.open(target.name)
            for i in range(3):
                neap.fill("memory", 0, 4096, i)
                self.assertCompleted(neap.transfer("write", opened["segment"], target.base, "memory", 0, 4096))
                time.sleep(0.5)
            self.assertEqual(bytes(target.memory[:4096]), wire.pattern(0, 4096, 2))
            self.assertGreaterEqual(target.connections, 3)

    def test_dropped_connections(self):
        """A READ is repeated on a new connection; so is a WRITE whose connection the peer itself ended."""
        for with_reset in (False, True):
            neap = self.start()
            with self.subTest(with_reset=with_reset), Target(SIZE) as target:
                opened = neap.open(target.name)
                for opcode in ("write", "read", "write", "read"):
                    self.assertCompleted(neap.transfer(opcode, opened["segment"], target.base, "memory", 0, 4096))
                    target.drop_connections(with_reset)

    def test_stale_descriptor_of_a_neap_that_is_now_a_plain_server(self):
        """The descriptor still promises the Neap level. Three kinds of plain server answer the hello in three ways."""
        promise = {"neap": {"instance": "00" * 16, "boot": "00" * 16, "level": 1, "caps": [], "ports": [], "version": 1}}
        for kind in (dict(proto=2), dict(proto=None, knows_v2=False), dict(proto=None, knows_v2=False, stall="header")):
            neap = self.start("progress_ms=1500", "connect_ms=700")
            with self.subTest(kind=kind), Target(SIZE, **kind) as target:
                target.extra = dict(tcp_proto_version=2, neap=dict(promise["neap"], ports=[target.data_port]))
                opened = neap.open(target.name)
                self.assertTrue(opened["is_neap"])
                target.extra = {}
                tag = neap.submit("write", opened["segment"], target.base, "memory", 0, 4096)
                if kind.get("stall"):  # silence until the hello's deadline
                    self.assertTrue(target.stalled.wait(tool.PATIENCE))
                    target.stall = None
                self.assertCompleted(neap.outcome(tag))
                self.assertCompleted(neap.transfer("read", opened["segment"], target.base, "memory", 0, 4096))
                self.assertFalse(neap.open(target.name)["is_neap"])
                target.go()

    def test_notify(self):
        neap = self.start()
        with Target(SIZE) as target:
            opened = neap.open(target.name)
            self.assertEqual(neap.ask("notify", opened["segment"], "me", "hello", event="notified")["error"], 0)
            self.assertEqual(target.notifies, [("me", "hello")])

    def test_acknowledged_old_writes_are_stored(self):
        """A completed write to a peer without acknowledgements is there, whichever kind of old server it is. 2.4 MB, many rounds."""
        rounds, size = (400, 2400000) if tool.FULL else (20, 2400000)
        for kind in (dict(proto=2), dict(proto=1), dict(proto=1, knows_v2=False, close_each=True)):
            neap = tool.Tool()
            neap.buffer("memory", size)
            with self.subTest(kind=kind), Target(size, **kind) as target:
                opened = neap.open(target.name)
                for i in range(rounds):
                    neap.fill("memory", 0, size, i)
                    self.assertCompleted(neap.transfer("write", opened["segment"], target.base, "memory", 0, size))
                    seen = bytes(target.memory)
                    if i % 5 == 0 or tool.FULL:
                        self.assertEqual(seen, wire.pattern(0, size, i))
                    else:
                        self.assertEqual(seen[-512:], wire.pattern(size - 512, 512, i))


if __name__ == "__main__":
    tool.main()
