"""A target that behaves as Mooncake releases do, old and new, and as broken ones do: it serves one thing at a time and waits."""

import json
import socket
import threading
import time

import wire


class Target:
    """Serves memory at made-up addresses. Options, each a behaviour seen in some release or fault:

    proto: 2, 1, or None (the descriptor says nothing)
    knows_v2: False: an old server, which takes every opcode but 1 for a READ
    close_each: closes after each request
    newline: replies end in a newline
    trailing: more bytes after the JSON of a reply
    silent: accepts handshakes and never answers
    null: has no descriptor to give
    extra: further keys of the descriptor
    stall: "header", "payload" or "status": stops at that point until go() is called
    bad_status: sends this instead of a status
    late_reset: when it refuses, it lets the payload come and then resets
    refuse: a set of addresses it refuses though it advertises them
    idle_close: closes data connections after so many seconds without a request
    """

    BASE = 0x5A0000000000

    def __init__(self, size=1 << 20, host="127.0.0.1", proto=2, knows_v2=True, close_each=False, newline=True, trailing=b"", silent=False,
                 null=False, extra=None, stall=None, bad_status=None, late_reset=False, refuse=(), idle_close=None, ports=None, base=None,
                 check_range=True):
        self.__dict__.update(proto=proto, knows_v2=knows_v2, close_each=close_each, newline=newline, trailing=trailing, silent=silent,
                             null=null, extra=extra or {}, stall=stall, bad_status=bad_status, late_reset=late_reset, refuse=set(refuse),
                             idle_close=idle_close, check_range=check_range)
        self.base = self.BASE if base is None else base
        self.memory = bytearray(size)
        self.host = host
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.resume = threading.Event()
        self.stalled = threading.Event()  # someone waits for go()
        self.lock = threading.Lock()
        self.requests = []      # (connection, opcode, address, size, padding)
        self.notifies = []
        self.handshakes = 0
        self.connections = 0
        self.open_connections = set()
        self.stopping = False
        handshake_port, data_port = ports or (0, 0)
        self.handshake_socket = self._listen(handshake_port)
        self.data_socket = self._listen(data_port)
        self.handshake_port = self.handshake_socket.getsockname()[1]
        self.data_port = self.data_socket.getsockname()[1]
        self.name = "%s:%d" % ("[%s]" % host if ":" in host else host, self.handshake_port)
        self.threads = [threading.Thread(target=self._handshakes, daemon=True), threading.Thread(target=self._accept_data, daemon=True)]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def _listen(self, port):
        sock = socket.socket(self.family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.host, port))
        sock.listen(128)
        return sock

    def go(self):
        """Ends a stall."""
        self.resume.set()

    def stop(self):
        self.stopping = True
        self.resume.set()
        for sock in (self.handshake_socket, self.data_socket):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self.drop_connections()
        for thread in self.threads:
            thread.join(10)

    def drop_connections(self, with_reset=False):
        """Ends every data connection."""
        with self.lock:
            socks = list(self.open_connections)
        for sock in socks:
            try:
                if with_reset:
                    wire.reset(sock)
                else:
                    sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    # --- handshakes: one at a time, to the end of each

    def descriptor(self):
        document = {"name": self.name, "protocol": "tcp", "tcp_data_port": self.data_port,
                    "timestamp": time.strftime("%Y-%m-%d %H:%M:%S.000001"),
                    "buffers": [{"name": self.name, "addr": self.base, "length": len(self.memory)}]}
        if self.proto is not None:
            document["tcp_proto_version"] = self.proto
        document.update(self.extra)
        return document

    def _handshakes(self):
        while not self.stopping:
            try:
                sock, _ = self.handshake_socket.accept()
            except OSError:
                return
            try:
                sock.settimeout(5)
                self._handshake(sock)
            except (OSError, ValueError, wire.Closed):
                pass
            sock.close()

    def _handshake(self, sock):
        self.handshakes += 1
        kind, text = wire.take_frame(sock)
        if self.silent:
            sock.recv(1)
            return
        request = json.loads(text)
        sock.sendall(self._reply(kind, request))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):  # the client closes first
            pass

    def _reply(self, kind, request):
        if kind == wire.METADATA:
            answer = None if self.null else self.descriptor()
        elif kind == wire.NOTIFY:
            self.notifies.append((request["name"], request["notify_msg"]))
            answer = {"name": "", "notify_msg": "success"}
        elif kind == wire.PROBE:
            answer = {"status": "success"}
        else:
            answer = {"local_gid": "", "local_lid": 0, "local_nic_path": "", "payload": "", "peer_nic_path": "", "qp_num": [],
                      "reply_msg": ""}
        text = json.dumps(answer, separators=(",", ":"), sort_keys=True).encode() + self.trailing
        return wire.frame(kind, text, self.newline)

    # --- data: a thread a connection, one request after the other

    def _accept_data(self):
        while not self.stopping:
            try:
                sock, _ = self.data_socket.accept()
            except OSError:
                return
            self.connections += 1
            with self.lock:
                self.open_connections.add(sock)
            threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True).start()

    def _serve(self, sock, number):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(self.idle_close)
            while self._serve_one(sock, number) and not self.close_each:
                sock.settimeout(self.idle_close)
        except (OSError, wire.Closed):
            pass
        with self.lock:
            self.open_connections.discard(sock)
        sock.close()

    def _stop_at(self, point):
        if self.stall == point:
            self.stalled.set()
            self.resume.wait()

    def _serve_one(self, sock, number):
        size, address, opcode, padding = wire.split_header(wire.take(sock, 24))
        sock.settimeout(None)
        self.requests.append((number, opcode, address, size, padding))
        acknowledged = self.knows_v2 and opcode & wire.ACKNOWLEDGED
        is_write = (opcode & 0x7F if self.knows_v2 else opcode) == wire.WRITE
        self._stop_at("header")
        offset = address - self.base
        if size == 0 or (self.check_range and not 0 <= offset <= len(self.memory) - size) or address in self.refuse:
            return self._refuse(sock, size, is_write, acknowledged)
        view = memoryview(self.memory)[offset:offset + size]
        if is_write:
            self._receive(sock, view)
        self._stop_at("status")
        if acknowledged:
            sock.sendall(self.bad_status or wire.STATUS_OK)
        if not is_write:
            half = len(view) // 2
            if self.stall == "payload":
                sock.sendall(view[:half])
                self._stop_at("payload")
                view = view[half:]
            sock.sendall(view)
        return True

    def _receive(self, sock, view):
        if self.stall == "payload":
            half = len(view) // 2
            wire.take_into(sock, view[:half])
            self._stop_at("payload")
            view = view[half:]
        wire.take_into(sock, view)

    def _refuse(self, sock, size, is_write, acknowledged):
        if self.late_reset and is_write:
            wire.take(sock, size)
        if acknowledged:
            sock.sendall(wire.STATUS_REJECTED)
        if self.late_reset:
            time.sleep(0.05)  # lets the status arrive first
            wire.reset(sock)
        return False
