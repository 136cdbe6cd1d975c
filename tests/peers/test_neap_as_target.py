"""Neap serves; the Python peer asks as Mooncake releases do."""

import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import initiator
import tool
import vectors
import wire

SIZE = 1 << 20


class NeapAsTarget(tool.Case):
    def setUp(self):
        self.tool = tool.Tool()
        self.base = self.tool.buffer("memory", SIZE)

    def exchange(self, request, reply_size, port=None):
        """Sends bytes; (what came back, whether the server then closed)."""
        with initiator.connect("127.0.0.1", port or self.tool.data_port, timeout=5) as sock:
            sock.sendall(request)
            reply = b""
            while len(reply) < reply_size:
                part = sock.recv(reply_size - len(reply))
                if not part:
                    return reply, True
                reply += part
            sock.settimeout(0.1)
            try:
                return reply, sock.recv(1) == b""
            except socket.timeout:
                return reply, False
            except ConnectionResetError:
                return reply, True

    def test_handshake_vectors(self):
        port = self.tool.handshake_port
        cases = [(vectors.PROBE_REQUEST, vectors.PROBE_REPLY),
                 (wire.frame(wire.NOTIFY, {"name": "a", "notify_msg": "b"}), vectors.NOTIFY_REPLY),
                 (wire.frame(wire.CONNECTION, {"local_nic_path": "a@b", "peer_nic_path": "c@d", "qp_num": [1, 2], "local_gid": "", "local_lid": 0,
                                               "reply_msg": "", "payload": ""}), vectors.CONNECTION_REPLY),
                 (wire.frame(None, {"local_nic_path": "a@b", "peer_nic_path": "c@d", "qp_num": [], "reply_msg": ""}),
                  vectors.CONNECTION_REPLY_OLD)]
        for request, reply in cases:
            self.assertEqual(self.exchange(request, len(reply), port), (reply, True))
        self.assertEqual(self.tool.ask("take", event="notify")["message"], "b")

    def test_data_vectors(self):
        data = bytes(range(8))
        self.assertEqual(self.exchange(vectors.write_v2(self.base, data), 8), (vectors.WRITTEN, False))
        self.assertEqual(self.exchange(vectors.read_v2(self.base), 16), (vectors.WRITTEN + data, False))
        self.assertEqual(self.exchange(vectors.write_v2(self.base - 1, data), 8), (vectors.REJECTED, True))
        self.assertEqual(self.exchange(vectors.read_v2(self.base + SIZE - 7), 8), (vectors.REJECTED, True))
        self.assertEqual(self.exchange(wire.header(0, self.base, 0x80), 8), (vectors.REJECTED, True))
        self.assertEqual(self.exchange(wire.header(8, self.base, 0x82), 16), (vectors.WRITTEN + data, False))
        self.assertEqual(self.exchange(wire.header(8, self.base, 0x80)[:17], 0), (b"", False))

    def test_descriptor(self):
        document = initiator.descriptor(self.tool.name)
        self.assertEqual(document["name"], self.tool.name)
        self.assertEqual(document["protocol"], "tcp")
        self.assertEqual(document["tcp_data_port"], self.tool.data_port)
        self.assertEqual(document["tcp_proto_version"], 2)
        self.assertEqual([(buffer["addr"], buffer["length"]) for buffer in document["buffers"]], [(self.base, SIZE)])
        for buffer in document["buffers"]:
            self.assertTrue(buffer["name"])
        self.assertRegex(document["timestamp"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
        self.assertEqual(initiator.handshake(self.tool.name, wire.METADATA, {})[1]["name"], self.tool.name)

    def test_each_kind_of_initiator(self):
        for version in (1, 2):
            for pooled in (True, False):
                for padding in (b"\0" * 7, initiator.GARBAGE):
                    self.tool.zero("memory", 0, SIZE)
                    with initiator.Segment(self.tool.name, version, pooled, padding) as segment:
                        for i, size in enumerate((1, 7, 4096, 65536, 65537, 200000)):
                            data = wire.pattern(0, size, 40 + i)
                            segment.write(self.base + i * 10, data)
                            self.assertEqual(segment.read(self.base + i * 10, size), data)
                            self.assertTrue(self.tool.holds("memory", i * 10, size, 40 + i, 0))

    def test_mixed_framing_pipelined(self):
        """Many requests of both framings sent before the first answer is read."""
        sent, expected = b"", b""
        for i in range(200):
            data = wire.pattern(i * 512, 512, 7)
            acknowledged = i % 3
            opcode = 0x80 if acknowledged else 0
            sent += wire.header(512, self.base + i * 512, opcode | 1, initiator.GARBAGE) + data
            sent += wire.header(512, self.base + i * 512, opcode, initiator.GARBAGE)
            expected += (wire.STATUS_OK if acknowledged else b"") + (wire.STATUS_OK if acknowledged else b"") + data
        with initiator.connect("127.0.0.1", self.tool.data_port) as sock:
            threading.Thread(target=sock.sendall, args=(sent,), daemon=True).start()
            self.assertEqual(wire.take(sock, len(expected)), expected)
        self.assertTrue(self.tool.holds("memory", 0, 200 * 512, 7))

    def test_old_write_acknowledged_by_a_read_of_its_end(self):
        data = wire.pattern(0, 4096, 3)
        with initiator.connect("127.0.0.1", self.tool.data_port) as sock:
            sock.sendall(wire.header(4096, self.base, wire.WRITE) + data + wire.header(1, self.base + 4095, wire.READ))
            self.assertEqual(wire.take(sock, 1), data[-1:])
        self.assertTrue(self.tool.holds("memory", 0, 4096, 3))

    def test_idle_connection_stays(self):
        with initiator.Segment(self.tool.name) as segment:
            segment.write(self.base, b"x" * 100)
            time.sleep(1.5)
            segment.write(self.base + 100, b"y" * 100)
            self.assertEqual(segment.read(self.base, 200), b"x" * 100 + b"y" * 100)

    def test_silent_and_half_closing_clients_disturb_nobody(self):
        silent = [initiator.connect("127.0.0.1", port) for port in [self.tool.handshake_port, self.tool.data_port] * 20]
        half = initiator.connect("127.0.0.1", self.tool.data_port)
        half.sendall(wire.header(8, self.base, 0x81) + b"12345678")
        half.shutdown(socket.SHUT_WR)
        self.assertEqual(wire.take(half, 8), wire.STATUS_OK)
        began = time.monotonic()
        with initiator.Segment(self.tool.name) as segment:
            segment.write(self.base, b"abc")
        self.assertLess(time.monotonic() - began, 2 * tool.SLOW)
        for sock in silent + [half]:
            sock.close()

    def test_a_client_that_is_cut_in_the_middle(self):
        data = wire.pattern(0, 65536, 9)
        for cut in (1, 17, 24, 25, 30000):
            for how in (wire.reset, lambda sock: sock.close()):
                sock = initiator.connect("127.0.0.1", self.tool.data_port)
                sock.sendall((wire.header(65536, self.base, 0x81) + data)[:cut])
                how(sock)
        with initiator.Segment(self.tool.name) as segment:
            segment.write(self.base, data)
            self.assertEqual(segment.read(self.base, 65536), data)


class ProgramsAsTargets(unittest.TestCase):
    """The example and the benchmark, as targets of the Python peer."""

    def test_programs(self):
        import subprocess
        for name in ("neap-example", "neap-bench"):
            with self.subTest(name):
                process = subprocess.Popen([tool.program(name), "--mode=target", "--buffer_size=4M"], stdout=subprocess.PIPE, text=True)
                try:
                    words = process.stdout.readline().split()
                    facts = dict(zip(words[::2], words[1::2]))
                    base = int(facts["buffer"], 16)
                    self.assertEqual(int(facts["size"]), 4 << 20)
                    data = wire.pattern(0, 100000, 5)
                    with initiator.Segment(facts["segment"]) as segment:
                        self.assertEqual(segment.port, int(facts["data_port"]))
                        segment.write(base + 1000, data)
                        self.assertEqual(segment.read(base + 1000, len(data)), data)
                finally:
                    process.terminate()
                    self.assertEqual(process.wait(tool.PATIENCE), 0)
                    process.stdout.close()


if __name__ == "__main__":
    tool.main()
