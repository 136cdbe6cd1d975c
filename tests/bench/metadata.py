"""What metadata stores cost: opens of segments that the engine has not seen, beside a bare round trip to the same server; opens at once;
how soon all is well after a fault; what an idle engine keeps open and how often it wakes. For each back-end that this machine has."""

import http.client
import os
import signal
import socket
import statistics
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import tool
from idle import Peers
from metadata_servers import Etcd, Master, Redis, in_base64

NAMES = 1000
REFRESH_MS = 1000  # of the engines that recover: HTTP servers tell nothing, so this is how soon a loss is seen there


class P2P:
    """No server: the peers answer for themselves."""

    name, url, recovers = "p2p", "P2PHANDSHAKE", False

    def __init__(self):
        self.peers = Peers(NAMES)
        self.peers.start()
        self.names = self.peers.names

    def fill(self, template):
        pass

    def bare(self):
        host, port = self.names[0].split(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(struct.pack("<Q", 3) + b"\x01{}")
            length = struct.unpack("<Q", sock.recv(8, socket.MSG_WAITALL))[0]
            sock.recv(length, socket.MSG_WAITALL)

    def remove(self):
        pass


class Stored:
    """Segments that exist in the store alone: copies of a living one's, under other names."""

    recovers = True

    def __init__(self, server):
        self.server = server
        self.url = server.url
        self.names = ["name%d" % i for i in range(NAMES)]
        self.connect()

    def fill(self, template):
        descriptor, address = (self.server.ask("GET", "mooncake/%s/%s" % (kind, template)) for kind in ("ram", "rpc_meta"))
        for name in self.names:
            self.server.ask("SET", "mooncake/ram/" + name, descriptor.replace(b'"%s"' % template.encode(), b'"%s"' % name.encode()).decode())
            self.server.ask("SET", "mooncake/rpc_meta/" + name, address.decode())

    def remove(self):
        self.server.remove()


class OverRedis(Stored):
    name = "redis"

    def __init__(self):
        super().__init__(Redis())

    def connect(self):
        self.stream = socket.create_connection(("127.0.0.1", self.server.port)).makefile("rwb")

    def bare(self):
        self.stream.write(b"*2\r\n$3\r\nGET\r\n$18\r\nmooncake/ram/name0\r\n")
        self.stream.flush()
        self.server.read(self.stream)


class OverHttp(Stored):
    name = "http"

    def __init__(self):
        super().__init__(Master())

    def connect(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port)

    def bare(self):
        self.connection.request("GET", "/metadata?key=mooncake%2Fram%2Fname0")
        self.connection.getresponse().read()


class OverEtcd(Stored):
    name = "etcd"

    def __init__(self):
        super().__init__(Etcd())

    def connect(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.members[0].port)

    def bare(self):
        self.connection.request("POST", "/v3/kv/range", '{"key":"%s"}' % in_base64("mooncake/ram/name0"))
        self.connection.getresponse().read()


def start(store, name, *flags):
    """An engine that is published; None where the back-end is not in this build."""
    flags = ("metadata=" + store.url, *flags) + (("local_name=" + name,) if store.recovers else ())
    started = tool.Tool(*flags)
    if started.failed:
        return None
    started.buffer("memory", 1 << 20)
    if store.recovers:
        started.wait("publication", error=0)
    return started


def percentiles(times):
    times = sorted(times)
    return times[len(times) // 2], times[len(times) * 99 // 100]


def timed(act):
    began = time.monotonic()
    act()
    return (time.monotonic() - began) * 1e3


def opens(store, round_number):
    """Each name once, one after the other, by an engine that has seen none; then all at once, by another one."""
    one = start(store, "one%d" % round_number)
    times = [one.ask("open", name, event="opened") for name in store.names]
    every = start(store, "every%d" % round_number)
    began = time.monotonic()
    for name in store.names:
        every.send("open", name)
    outcomes = [every.wait("opened") for _ in store.names]
    took = time.monotonic() - began
    if any(opened["error"] for opened in times + outcomes):
        raise SystemExit("%s: a segment could not be opened" % store.name)
    one.quit()
    every.quit()
    p50, p99 = percentiles([opened["ms"] for opened in times])
    bare50, bare99 = percentiles([timed(store.bare) for _ in range(NAMES)])
    return {"open_p50_ms": p50, "open_p99_ms": p99, "bare_p50_ms": bare50, "bare_p99_ms": bare99, "opens_per_second": NAMES / took}


def published(server, name):
    return server.ask("GET", "mooncake/ram/" + name) and server.ask("GET", "mooncake/rpc_meta/" + name)


def recovery(store, round_number):
    """From the server's first answer until the engine's keys are there again, or until an open says what it should."""
    engine = start(store, "recovers%d" % round_number, "metadata_ms=1000", "metadata_refresh_ms=%d" % REFRESH_MS)
    server = store.server
    server.kill()
    time.sleep(1)
    server.start()
    restarted = timed(lambda: tool.until("published again", lambda: published(server, engine.name)))
    server.signal(signal.SIGSTOP)
    engine.ask("open", "nobody", event="opened")
    time.sleep(1)
    server.signal(signal.SIGCONT)
    continued = timed(lambda: tool.until("known again", lambda: "none of this name" in engine.ask("open", "nobody", event="opened")["why"]))
    engine.quit()
    store.connect()
    return {"restarted_empty_ms": restarted, "continued_ms": continued}


def sockets(pid):
    folder, count = "/proc/%d/fd" % pid, 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(os.path.join(folder, name)).startswith("socket:")
        except OSError:
            pass
    return count


def idle(stores, seconds):
    """One engine at each, that is published and has a segment open, with the settings that it has by itself; all at the same time."""
    engines = [(store, start(store, "idle")) for store in stores]
    for store, engine in engines:
        engine.open(store.names[0])
    first = [engine.stats() for _, engine in engines]
    time.sleep(seconds)
    held = {}
    for (store, engine), before in zip(engines, first):
        after = engine.stats()
        held[store.name] = {"descriptors": after["descriptors"], "sockets": sockets(engine.pid),
                            "wakeups_per_minute": (after["wakeups"] - before["wakeups"] - 1) * 60 / seconds}  # one is the question
        engine.quit()
    return held


def measure_store(store, rounds):
    target = start(store, "template")
    if not target:
        return {"name": store.name, "skipped": "not in this build"}
    store.fill("template")
    row = {"name": store.name, "opens": [opens(store, i) for i in range(rounds)]}
    if store.recovers:
        row["recovery"] = [recovery(store, i) for i in range(rounds)]
        tool.until("the template is published again", lambda: published(store.server, "template"), 60)
        store.fill("template")
    target.quit()
    return row


def measure(rounds, idle_seconds):
    rows, stores = [], []
    try:
        for make in (P2P, OverRedis, OverHttp, OverEtcd):
            try:
                stores.append(make())
                rows.append(measure_store(stores[-1], rounds))
            except unittest.SkipTest as skipped:
                rows.append({"name": make.name, "skipped": str(skipped)})
        usable = {row["name"]: row for row in rows if "skipped" not in row}
        if idle_seconds:
            for name, held in idle([store for store in stores if store.name in usable], idle_seconds).items():
                usable[name]["idle"] = held
    finally:
        for store in stores:
            store.remove()
    return rows


def middle(runs, key):
    return statistics.median(run[key] for run in runs) if runs else None


def cell(value, form="%.3f"):
    return "-" if value is None else form % value


def show(rows):
    print("\nMetadata stores: opens of segments that the engine has not seen, beside a bare round trip (of Python) to the same server; ms")
    form = "%-6s %9s %9s | %9s %9s | %9s | %10s %10s | %5s %7s %9s"
    print(form % ("", "open p50", "p99", "bare p50", "p99", "opens/s", "empty ms", "stopped ms", "fds", "sockets", "wakes/min"))
    for row in rows:
        if "skipped" in row:
            print("%-6s %s" % (row["name"], row["skipped"]))
            continue
        runs, after, rest = row["opens"], row.get("recovery", []), row.get("idle", {})
        print(form % (row["name"], cell(middle(runs, "open_p50_ms")), cell(middle(runs, "open_p99_ms")), cell(middle(runs, "bare_p50_ms")),
                      cell(middle(runs, "bare_p99_ms")), cell(middle(runs, "opens_per_second"), "%.0f"),
                      cell(middle(after, "restarted_empty_ms"), "%.0f"), cell(middle(after, "continued_ms"), "%.0f"),
                      cell(rest.get("descriptors"), "%d"), cell(rest.get("sockets"), "%d"), cell(rest.get("wakeups_per_minute"), "%.1f")))
    print("empty: the server was killed and is back without its data; stopped: it stood still for two seconds; from its first answer until all is "
          "well, engines that look every %d ms. fds, sockets, wakes: of an engine that is published and has one segment open" % REFRESH_MS)


if __name__ == "__main__":
    show(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 60))
