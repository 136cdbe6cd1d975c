"""What 1,000 connected peers cost that do nothing: wake-ups, CPU time, memory; and what a pending request costs.

The process that is looked at holds 1,000 opened segments with a lane each, and serves 1,000 connections besides. The peers are one
Python process's sockets: the cheapest thing that answers."""

import json
import os
import selectors
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import tool

PEERS = 1000
BASE = 0x5A0000000000


class Peers(threading.Thread):
    """`count` segments: a handshake port for each, one data port for all, in one loop."""

    def __init__(self, count):
        super().__init__(daemon=True)
        self.selector = selectors.DefaultSelector()
        self.data = self._listen(self._accept_data)
        self.data_port = self.data.getsockname()[1]
        self.names = ["127.0.0.1:%d" % self._listen(self._accept_handshake).getsockname()[1] for _ in range(count)]
        self.stall = False

    def _listen(self, accept):
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, accept)
        return sock

    def _accept_handshake(self, listener):
        sock, _ = listener.accept()
        name = "127.0.0.1:%d" % listener.getsockname()[1]
        sock.settimeout(5)
        length = struct.unpack("<Q", sock.recv(8, socket.MSG_WAITALL))[0]
        sock.recv(length, socket.MSG_WAITALL)
        body = b"\x01" + json.dumps({"name": name, "protocol": "tcp", "tcp_data_port": self.data_port, "tcp_proto_version": 2, "timestamp": "",
                                     "buffers": [{"name": name, "addr": BASE, "length": 1 << 30}]}).encode()
        sock.sendall(struct.pack("<Q", len(body)) + body)
        sock.shutdown(socket.SHUT_WR)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, self._wait_for_close)

    def _wait_for_close(self, sock):
        if not sock.recv(4096):
            self.selector.unregister(sock)
            sock.close()

    def _accept_data(self, listener):
        sock, _ = listener.accept()
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, self._serve)

    def _serve(self, sock):
        """Writes of 8 bytes alone; all that came is answered."""
        got = sock.recv(1 << 16)
        if not got:
            self.selector.unregister(sock)
            sock.close()
        elif not self.stall:
            sock.sendall(struct.pack("<Q", 0x4D43545600000000) * (len(got) // 32))

    def run(self):
        while True:
            for key, _ in self.selector.select():
                key.data(key.fileobj)


def resident_kb(pid):
    with open("/proc/%d/status" % pid) as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return None


def cpu_seconds(pid):
    with open("/proc/%d/schedstat" % pid) as file:
        return int(file.read().split()[0]) / 1e9


def connect_as_client(target, address):
    """A served connection that has completed a request."""
    sock = socket.create_connection(("127.0.0.1", target.data_port))
    sock.sendall(struct.pack("<QQB7x", 8, address, 0x81) + b"12345678")
    if sock.recv(8, socket.MSG_WAITALL) != struct.pack("<Q", 0x4D43545600000000):
        raise AssertionError("refused")
    return sock


def measure(seconds, peers=PEERS):
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    plain = Peers(peers)
    plain.start()
    subject = tool.Tool()
    address = subject.buffer("memory", 1 << 20)
    subject.fill("memory", 0, 1 << 20, 1)
    before = resident_kb(subject.pid)
    segments = [subject.open(name)["segment"] for name in plain.names]
    opened = resident_kb(subject.pid)
    for segment in segments:
        subject.batch(subject.submit("write", segment, BASE, "memory", 0, 8, quiet=1))
    connected = resident_kb(subject.pid)
    clients = [connect_as_client(subject, address) for _ in range(peers)]
    served = resident_kb(subject.pid)
    first = subject.stats()
    time.sleep(0.2)  # until its answer is out
    cpu = cpu_seconds(subject.pid)
    time.sleep(seconds)
    cpu = cpu_seconds(subject.pid) - cpu
    second = subject.stats()
    plain.stall = True
    pending = 100000
    subject.submit("write", segments[0], BASE, "memory", 0, 8, count=pending, quiet=1)
    loaded = resident_kb(subject.pid)
    subject.process.kill()
    subject.process.wait()
    del clients
    return {"peers": peers, "seconds": seconds, "lanes": second["lanes"], "sessions": second["sessions"],
            "wakeups": second["wakeups"] - first["wakeups"], "timers_fired": second["timers_fired"] - first["timers_fired"],
            "cpu_seconds": cpu,
            "bytes_per_segment": (opened - before) * 1024 / peers, "bytes_per_lane": (connected - opened) * 1024 / peers,
            "bytes_per_session": (served - connected) * 1024 / peers, "bytes_per_pending_request": (loaded - served) * 1024 / pending}


def show(row):
    print("\nIdle: %d lanes and %d served connections for %g s: %d wake-ups (the question itself is one), %d timers, CPU %.4f %%" %
          (row["lanes"], row["sessions"], row["seconds"], row["wakeups"], row["timers_fired"], 100 * row["cpu_seconds"] / row["seconds"]))
    print("Resident memory that each adds, in bytes: opened segment %.0f, its lane %.0f, served connection %.0f, pending request %.0f" %
          (row["bytes_per_segment"], row["bytes_per_lane"], row["bytes_per_session"], row["bytes_per_pending_request"]))


if __name__ == "__main__":
    show(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 10))
