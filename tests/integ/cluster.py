"""A cluster of real processes on loopback: a neap-master and some neap-clients, whose ports are read from what they print."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import tool

TIER = '{"tiers":[{"type":"DRAM","capacity":"512MB","priority":100,"slab_size":"64MB"}]}'
LEASE_MS = 500


class Process:
    """`begun` is called with it as soon as it runs, before it is ready. With `may_die` one that ends before it is ready is no error: it
    has no `line` then."""

    def __init__(self, arguments, ready, log, env=None, begun=None, may_die=False):
        self.arguments = arguments
        self.log = log
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ, **(env or {})))
        if begun:
            begun(self)
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(tool.PATIENCE)
        self.line = lines[0] if lines else ""
        if not re.search(ready, self.line) and not (may_die and not self.line):
            self.kill()
            raise AssertionError("%s did not start: %r %s" % (arguments[0], self.line, self.said()))

    def said(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def signal(self, number):
        tool.send_signal(self.process, number)

    def wait(self, seconds=None):
        return self.process.wait(tool.PATIENCE if seconds is None else seconds)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Client(Process):
    def __init__(self, cluster, *flags, **options):
        super().__init__([tool.program("neap-client"), "--master_server_address=127.0.0.1:%d" % cluster.port, "--port=0",
                          "--client_rpc_port=0", "--http_port=0", "--heartbeat_ms=100", "--p2p_key_lease_duration_ms=%d" % LEASE_MS,
                          "--p2p_key_lease_scan_interval_ms=100", "--tiered_backend_config=" + TIER] + list(flags), "^neap-client ready ",
                         cluster.log(), **options)
        words = self.line.split()
        facts = dict(zip(words[2::2], words[3::2])) or {"port": 0, "client_rpc_port": 0, "http_port": 0}
        self.port, self.rpc_port, self.http_port = (int(facts[name]) for name in ("port", "client_rpc_port", "http_port"))
        self.rpc = "127.0.0.1:%d" % self.rpc_port

    def run(self, *words, data=None, timeout=None, text=False):
        return subprocess.run([tool.program("neap-client"), words[0], "--port=%d" % self.port] + list(words[1:]), input=data,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout or 3 * tool.PATIENCE)

    def put(self, key, data, *flags):
        done = self.run("put", key, *flags, data=data)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def get(self, key, *flags):
        done = self.run("get", key, *flags)
        return done.stdout if done.returncode == 0 else (done.returncode, done.stderr.decode())

    def health(self):
        done = self.run("health")
        return dict(line.split(" ", 1) for line in done.stdout.decode().splitlines()) if done.returncode == 0 else {}

    def is_full(self):
        return self.health().get("health") == "FULL"

    def http(self, path, data=None, method=None):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.http_port, path), data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=tool.PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


class Cluster:
    def __init__(self, clients=3, *flags, master_flags=(), **master_options):
        self.directory = tempfile.TemporaryDirectory()
        self.logs = []
        self.port = tool.free_port()
        self.clients = []
        self.master = self.start_master("--first", *master_flags, **master_options)
        for _ in range(clients):
            self.add(*flags)

    def log(self):
        self.logs.append(open(os.path.join(self.directory.name, "log%d" % len(self.logs)), "w"))
        return self.logs[-1]

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def start_master(self, *flags, **options):
        return Process([tool.program("neap-master"), "--rpc_port=%d" % self.port, "--metrics_port=0", "--client_ttl=1",
                        "--client_crashed_ttl=3"] + list(flags), "serving on", self.log(), **options)

    def restart_master(self):
        self.master.kill()
        self.master = self.start_master()

    def add(self, *flags, **options):
        self.clients.append(Client(self, *flags, **options))
        return self.clients[-1]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.clients + [self.master]:
            process.kill()
        for log in self.logs:
            log.close()
        self.directory.cleanup()
