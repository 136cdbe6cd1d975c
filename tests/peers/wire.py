"""The Mooncake Transfer Engine's wire, written from its description alone: no code and no constant comes from the C side."""

import json
import socket
import struct

CONNECTION, METADATA, NOTIFY, PROBE = 0, 1, 2, 3
READ, WRITE, ACKNOWLEDGED = 0, 1, 0x80
STATUS_OK = bytes.fromhex("00000000 5654434d")
STATUS_REJECTED = bytes.fromhex("01000000 5654434d")


class Closed(Exception):
    """The other side closed in the middle of something."""


def take(sock, count):
    """Exactly count bytes."""
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise Closed("%d bytes short" % count)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def take_into(sock, view):
    while len(view):
        got = sock.recv_into(view, min(len(view), 1 << 20))
        if not got:
            raise Closed("%d bytes short" % len(view))
        view = view[got:]


def frame(kind, document, newline=False):
    """A handshake frame. kind None is the old protocol, which has no type byte. document: bytes, or something to write as JSON."""
    text = document if isinstance(document, bytes) else json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    body = (b"" if kind is None else bytes([kind])) + text + (b"\n" if newline else b"")
    return struct.pack("<Q", len(body)) + body


def take_frame(sock, limit=1 << 20):
    """(kind, text) of a frame; kind None for the old protocol."""
    length = struct.unpack("<Q", take(sock, 8))[0]
    if not 0 < length <= limit:
        raise ValueError("frame of %d bytes" % length)
    body = take(sock, length)
    if body[0] <= 3:
        return body[0], body[1:]
    return None, body


def header(size, address, opcode, padding=b"\0" * 7):
    return struct.pack("<QQB", size, address, opcode) + padding


def split_header(data):
    size, address, opcode = struct.unpack("<QQB", data[:17])
    return size, address, opcode, data[17:24]


def reset(sock):
    """Closes with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def split_name(name):
    """("::1", 15000) of "[::1]:15000"."""
    host, port = name.rsplit(":", 1)
    return host.strip("[]"), int(port)


_MASK = (1 << 64) - 1


def _mix(x):
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def pattern(offset, length, seed):
    """Bytes [offset, offset + length) of the test pattern of a seed: 512-byte sectors that are alike but for their mixed number."""
    rest = struct.pack("<63Q", *(_mix(seed * 64 + i) for i in range(1, 64)))
    key = _mix(seed)
    first, last = offset // 512, (offset + length + 511) // 512
    data = b"".join(struct.pack("<Q", _mix(number ^ key)) + rest for number in range(first, last))
    skip = offset - first * 512
    return data[skip:skip + length]
