"""An initiator that speaks as Mooncake releases do: a connection for each request or a pooled one, old or acknowledged framing,
whatever bytes its padding happens to hold."""

import json
import socket

import wire

GARBAGE = bytes.fromhex("00a5c3 7f1e0099")


def connect(host, port, timeout=20):
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, proto)
        sock.settimeout(timeout)
        sock.connect(address)
        return sock


def handshake(name, kind, document, newline=True):
    """One request and its reply: (kind, document). Closes after the reply, as clients do."""
    host, port = wire.split_name(name)
    with connect(host, port) as sock:
        sock.sendall(wire.frame(kind, document, newline))
        answer, text = wire.take_frame(sock)
        return answer, json.loads(text)


def descriptor(name):
    """The peer's segment, asked for with a descriptor of our own as Mooncake does."""
    own = {"name": "127.0.0.1:1", "protocol": "tcp", "tcp_data_port": 1, "tcp_proto_version": 2, "buffers": [],
           "timestamp": "2026-01-01 00:00:00.000000"}
    kind, document = handshake(name, wire.METADATA, own)
    if kind != wire.METADATA:
        raise AssertionError("asked for metadata, got type %r" % kind)
    return document


class Refused(Exception):
    pass


class Segment:
    """version: 1 or 2. pooled: one connection for all requests. padding: the seven bytes after the opcode."""

    def __init__(self, name, version=2, pooled=True, padding=GARBAGE):
        self.document = descriptor(name)
        self.host = wire.split_name(self.document["name"])[0]
        self.port = self.document["tcp_data_port"]
        self.version = version
        self.pooled = pooled
        self.padding = padding
        self.sock = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        if self.sock:
            self.sock.close()
            self.sock = None

    def connection(self):
        if not self.sock:
            self.sock = connect(self.host, self.port)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.sock

    def _status(self, sock):
        status = wire.take(sock, 8)
        if status != wire.STATUS_OK:
            raise Refused(status.hex())

    def _request(self, opcode, address, size, payload=b""):
        sock = self.connection()
        if self.version == 2:
            opcode |= wire.ACKNOWLEDGED
        sock.sendall(wire.header(size, address, opcode, self.padding) + payload)
        if self.version == 2:
            self._status(sock)
        return sock

    def write(self, address, data):
        self._request(wire.WRITE, address, len(data), data)
        if not self.pooled:
            self._end()

    def read(self, address, size):
        data = wire.take(self._request(wire.READ, address, size), size)
        if not self.pooled:
            self._end()
        return data

    def _end(self):
        """Closes as a client does that is done: the server sees our end of file and closes."""
        self.sock.shutdown(socket.SHUT_WR)
        if self.sock.recv(1):
            raise AssertionError("bytes after the reply")
        self.close()
