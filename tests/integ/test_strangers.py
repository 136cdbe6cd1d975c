"""Whoever reaches a port: what they send is refused before it touches anything, and honest peers do not notice."""

import json
import os
import socket
import struct
import sys
import threading
import time

import tool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import initiator
import wire

SIZE = 1 << 16


class Strangers(tool.Case):
    def setUp(self):
        self.tool = tool.Tool("first_header_ms=1000", "handshake_ms=1000")
        self.memory = self.tool.buffer("all", 8 * SIZE, "plain")
        self.left = self.tool.part("left", "all", SIZE, SIZE)
        self.right = self.tool.part("right", "all", 2 * SIZE, SIZE)
        self.closed = self.tool.part("closed", "all", 4 * SIZE, SIZE, "closed")
        self.granted = self.tool.part("granted", "all", 6 * SIZE, SIZE, "grant")
        self.gone = self.tool.part("gone", "all", 7 * SIZE, SIZE)
        self.tool.ask("unregister", "gone", event="released")
        self.tool.fill("all", 0, 8 * SIZE, 1)

    def refused(self, opcode, address, size):
        """True when the server answered with a refusal or closed, and read no payload into memory."""
        with initiator.connect("127.0.0.1", self.tool.data_port, timeout=5) as sock:
            try:
                sock.sendall(wire.header(size, address, opcode) + b"\xee" * min(size, 4096))
                sock.shutdown(socket.SHUT_WR)
                answer = b""
                while len(answer) < 4096:
                    part = sock.recv(4096)
                    if not part:
                        break
                    answer += part
            except socket.timeout:
                return False
            except OSError:  # reset
                return True
            return answer in (b"", wire.STATUS_REJECTED)

    def test_addresses_that_are_not_ours(self):
        top = 1 << 64
        cases = [(0, 8), (1, 8), (self.left - 1, 8), (self.left - 4096, 4096), (self.right + SIZE, 1), (self.right + SIZE - 4, 8),
                 (self.left + SIZE - 4, 8), (self.left, 2 * SIZE), (self.left, top - 1), (self.left, 1 << 63), (top - 4, 8), (top - 8, 8),
                 (self.left, top - self.left), (self.closed, 8), (self.granted, 8), (self.gone, 8), (self.left, 0)]
        for address, size in cases:
            for opcode in (0x00, 0x01, 0x80, 0x81):
                self.assertTrue(self.refused(opcode, address, size), (hex(address), size, opcode))
        self.assertTrue(self.tool.holds("all", 0, 8 * SIZE, 1))

    def test_unknown_opcodes_write_nothing(self):
        for opcode in (0x02, 0x7F, 0x82, 0xFF, 0xFE):
            with initiator.connect("127.0.0.1", self.tool.data_port) as sock:
                sock.sendall(wire.header(64, self.left, opcode) + b"\xee" * 64)
                try:
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
                except socket.timeout:
                    raise
                except OSError:  # reset
                    pass
        self.assertTrue(self.tool.holds("all", 0, 8 * SIZE, 1))

    def test_what_is_refused_is_refused_to_neap_peers_too(self):
        source = tool.Tool("retries=1")
        source.buffer("memory", SIZE)
        opened = source.open(self.tool.name)
        self.assertEqual(sorted(buffer[0] for buffer in opened["buffers"]), [self.left, self.right])
        for address in (0, self.left - 1, self.right + SIZE, self.left + SIZE - 4, self.closed, self.granted, self.gone, (1 << 64) - 4):
            for opcode in ("write", "read"):
                source.tags += 1
                source.send(opcode, "x%d" % source.tags, opened["segment"], address, "memory", 0, 8)
                if source.wait("submitted")["error"] == 0:
                    outcome = source.wait("outcome")
                    self.assertEqual((outcome["status"], outcome["effect"]), ("FAILED", "NONE"), (hex(address), outcome))
        self.assertTrue(self.tool.holds("all", 0, 8 * SIZE, 1))

    def test_a_grant_opens_what_it_says_and_nothing_else(self):
        source = tool.Tool("retries=1")
        source.buffer("memory", SIZE)
        segment = source.open(self.tool.name)["segment"]
        token = self.tool.ask("grant", "granted", 4096, 8192)["token"]
        source.fill("memory", 0, SIZE, 2)
        self.assertCompleted(source.transfer("write", segment, self.granted + 4096, "memory", 0, 8192, grant=token))
        for address, size, secret in ((self.granted + 4095, 8192, token), (self.granted + 4096, 8193, token),
                                      (self.granted + 4096, 16, token[:-1] + ("0" if token[-1] != "0" else "1"))):
            outcome = source.transfer("write", segment, address, "memory", 0, size, grant=secret)
            self.assertEqual((outcome["status"], outcome["effect"]), ("FAILED", "NONE"), outcome)
        self.tool.ask("end_grant", token, event="grant_ended")
        outcome = source.transfer("write", segment, self.granted + 4096, "memory", 0, 8192, grant=token)
        self.assertEqual((outcome["status"], outcome["effect"]), ("FAILED", "NONE"), outcome)
        self.assertTrue(self.tool.holds("granted", 4096, 8192, 2, 0))
        self.assertTrue(self.tool.holds("all", 6 * SIZE, 4096, 1))
        self.assertTrue(self.tool.holds("all", 6 * SIZE + 12288, SIZE - 12288, 1))

    # --- the handshake port

    def strange_frames(self):
        yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        yield bytes.fromhex("160301020001000001fc0303") + b"\xaa" * 512  # a TLS ClientHello begins so
        for length in (0, 1, (1 << 20) + 1, 1 << 63, (1 << 64) - 1):
            yield struct.pack("<Q", length) + b"\x01"
        yield struct.pack("<Q", 1 << 20) + b"\x01" + b" " * ((1 << 20) - 1)
        yield wire.frame(4, b"{}")
        yield wire.frame(0xFF, b"{}")
        yield wire.frame(wire.NOTIFY, b"[" * 100000)
        yield wire.frame(wire.NOTIFY, b'{"a":' * 100000)
        yield wire.frame(wire.CONNECTION, b"[1,2,3]")
        yield wire.frame(wire.CONNECTION, {"payload": {"a": 1}, "qp_num": [-1, "x"], "local_nic_path": 7})
        yield wire.frame(wire.NOTIFY, {"name": {"a": 1}, "notify_msg": []})
        yield wire.frame(wire.NOTIFY, b'{"name":"a","name":"b","notify_msg":NaN}')
        yield wire.frame(wire.NOTIFY, b'{"name":5,"notify_msg":"x"}')
        yield wire.frame(wire.NOTIFY, b"\xff\xfe\x00")
        yield wire.frame(None, b'{"half')

    def test_strange_frames(self):
        for request in self.strange_frames():
            with initiator.connect("127.0.0.1", self.tool.handshake_port, timeout=5 * tool.SLOW) as sock:
                try:
                    sock.sendall(request)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65536):
                        pass
                except socket.timeout:
                    raise
                except OSError:  # reset
                    pass
        self.assertEqual(initiator.handshake(self.tool.name, wire.PROBE, {})[1], {"status": "success"})

    def test_a_thousand_silent_strangers(self):
        """Each is closed at its own deadline; honest ones are served meanwhile."""
        count = 1000 if tool.FULL else 300
        strangers = []
        for i in range(count):
            sock = initiator.connect("127.0.0.1", self.tool.handshake_port)
            sock.sendall(struct.pack("<Q", 100)[:i % 9])
            strangers.append(sock)
        times = []
        for _ in range(100):
            began = time.monotonic()
            self.assertEqual(initiator.handshake(self.tool.name, wire.PROBE, {})[0], wire.PROBE)
            times.append(time.monotonic() - began)
        self.assertLess(sorted(times)[98], 2 * tool.SLOW)  # of those 100 none may wait for the strangers
        began = time.monotonic()
        for sock in strangers:
            sock.settimeout(10 * tool.SLOW)
            try:
                self.assertEqual(sock.recv(1), b"")
            except ConnectionResetError:
                pass
            sock.close()
        self.assertLess(time.monotonic() - began, 5 * tool.SLOW)

    def test_one_byte_a_time(self):
        with initiator.connect("127.0.0.1", self.tool.handshake_port) as sock:
            began = time.monotonic()
            with self.assertRaises(OSError):
                for byte in struct.pack("<Q", 1000) + b"\x01" + b" " * 999:
                    sock.sendall(bytes([byte]))
                    time.sleep(0.02)
            self.assertLess(time.monotonic() - began, 4 * tool.SLOW)

    def test_data_connections_that_never_ask(self):
        socks = [initiator.connect("127.0.0.1", self.tool.data_port) for _ in range(50)]
        for i, sock in enumerate(socks):
            sock.sendall(wire.header(8, self.left, 0x80)[:i % 24])
        for sock in socks:
            sock.settimeout(5 * tool.SLOW)
            try:
                self.assertEqual(sock.recv(1), b"")
            except ConnectionResetError:
                pass
            sock.close()


if __name__ == "__main__":
    tool.main()
