"""Metadata stores as they really are: redis-server and neap-master's HTTP server, found, killed, stopped, emptied, with passwords; two
processes that find each other there and transfer."""

import http.client
import http.server
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import tool

ETAKEN, EREJECTED, EMETADATA = -2020, -104, -200


class Redis:
    """A redis-server of our own on a free loopback port, without persistence."""

    def __init__(self, *flags):
        if not shutil.which("redis-server"):
            raise unittest.SkipTest("redis-server is not installed")
        self.flags = flags
        self.folder = tempfile.mkdtemp(prefix="neap-redis-")
        self.port = tool.free_port()
        self.url = "redis://127.0.0.1:%d" % self.port
        self.start()

    def start(self):
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
                                         *self.flags], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        tool.until("redis-server listens", self.listens)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return self.process.poll() is not None

    def ask(self, *words, auth=()):
        """One command; the reply as bytes, bulk strings without their frame, None for nil."""
        with socket.create_connection(("127.0.0.1", self.port), tool.PATIENCE) as connection:
            stream = connection.makefile("rwb")
            reply = None
            for command in ([auth] if auth else []) + [words]:
                stream.write(b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in
                                                                 (str(word).encode() for word in command)))
                stream.flush()
                reply = self.read(stream)
            return reply

    def read(self, stream):
        line = stream.readline().rstrip(b"\r\n")
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else stream.read(length + 2)[:-2]
        if line[:1] == b"*":
            return [self.read(stream) for _ in range(int(line[1:]))]
        return line

    def keys(self, **options):
        return sorted(key.decode() for key in self.ask("KEYS", "*", **options))

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def remove(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Master:
    """neap-master's HTTP metadata server."""

    def __init__(self):
        self.port = tool.free_port()
        self.url = "http://127.0.0.1:%d/metadata" % self.port
        self.start()

    def start(self):
        self.process = subprocess.Popen([tool.program("neap-master"), "--rpc_port=0", "--metrics_port=0", "--first",
                                         "--enable_http_metadata_server", "--http_metadata_server_port=%d" % self.port],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if "metadata" not in self.process.stdout.readline():
            raise AssertionError("neap-master did not start")

    def request(self, method, key, body=None):
        from urllib.parse import quote
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=tool.PATIENCE)
        connection.request(method, "/metadata?key=" + quote(key, safe=""), body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def ask(self, verb, key, value=None):
        status, text = self.request({"GET": "GET", "SET": "PUT", "DEL": "DELETE"}[verb], key, value)
        return text if verb == "GET" and status == 200 else None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def remove(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


def published(started, error=0, timeout=None):
    return started.wait("publication", error=error, timeout=timeout)


class Stores(tool.Case):
    """What both kinds of store have in common."""

    def start(self, name, *flags, wait=True, env=None):
        started = tool.Tool("metadata=" + self.server.url, "local_name=" + name, "metadata_ms=1000", "metadata_refresh_ms=500", *flags, env=env)
        self.assertIsNone(started.failed)
        started.buffer("memory", 1 << 20)
        if wait:
            published(started)
        return started

    def tearDown(self):
        try:
            super().tearDown()
        finally:
            self.server.remove()

    def transfer(self, source, target):
        segment = source.open(target.name)["segment"]
        target.zero("memory", 0, 65536)
        source.fill("memory", 0, 65536, 7)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 65536))
        self.assertTrue(target.holds("memory", 0, 65536, 7))
        source.ask("close", segment)


class Common:
    def test_found_and_taken_back(self):
        target, source = self.start("target"), self.start("source/with/%41&#+?=slashes")
        self.assertEqual(target.name, "target")
        self.assertIn(b'"rpc_port":%d' % target.handshake_port, self.server.ask("GET", "mooncake/rpc_meta/target"))
        self.assertIn(b'"tcp_data_port":%d' % target.data_port, self.server.ask("GET", "mooncake/ram/target"))
        self.assertIn(b'"name":"source/with/%41&#+?=slashes"', self.server.ask("GET", "mooncake/source/with/%41&#+?=slashes"))
        self.transfer(source, target)
        self.transfer(target, source)
        missing = source.ask("open", "nobody", event="opened")
        self.assertEqual(missing["error"], EMETADATA)
        self.assertIn("there is none of this name", missing["why"])
        self.assertEqual(target.quit(), 0)
        self.assertIsNone(self.server.ask("GET", "mooncake/rpc_meta/target"))
        self.assertIsNone(self.server.ask("GET", "mooncake/ram/target"))
        self.assertEqual(source.ask("open", "target", event="opened")["error"], EMETADATA)

    def test_memory_registered_later(self):
        target, source = self.start("target"), self.start("source")
        target.buffer("more", 1 << 16)
        address = b"%d" % target.address("more")
        tool.until("the new range is published", lambda: address in self.server.ask("GET", "mooncake/ram/target"))
        segment = source.open("target")["segment"]
        self.assertCompleted(source.transfer("write", segment, target.address("more"), "memory", 0, 4096))

    def test_a_server_that_came_back_empty(self):
        target, source = self.start("target"), self.start("source")
        self.server.kill()
        unreachable = source.ask("open", "target", event="opened")
        self.assertLess(unreachable["error"], 0)
        self.assertNotEqual(unreachable["error"], EMETADATA)
        began = time.monotonic()
        self.server.start()
        tool.until("both are published again", lambda: self.server.ask("GET", "mooncake/ram/target") and self.server.ask("GET", "mooncake/ram/source"))
        sys_stderr("    published again %.2f s after the restart" % (time.monotonic() - began))
        self.transfer(source, target)

    def test_a_server_that_stands_still(self):
        target, source = self.start("target"), self.start("source")
        segment = source.open("target")["segment"]
        self.server.signal(signal.SIGSTOP)
        late = source.ask("open", "another", event="opened")
        self.assertLess(late["error"], 0)
        self.assertNotEqual(late["error"], EMETADATA)
        for _ in range(20):  # the loop is not held up
            self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        self.server.signal(signal.SIGCONT)
        tool.until("it is found again", lambda: source.ask("open", "another", event="opened")["error"] == EMETADATA)
        self.transfer(source, target)

    def test_started_before_the_server(self):
        self.server.kill()
        target = self.start("target", wait=False)
        self.assertLess(target.wait("publication")["error"], 0)
        self.server.start()
        published(target)
        self.transfer(self.start("source"), target)

    def test_a_name_that_is_taken(self):
        first, second = self.start("same"), self.start("same", wait=False)
        self.assertIn("has this name, and lives", published(second, ETAKEN)["why"])
        before = self.server.ask("GET", "mooncake/rpc_meta/same")
        self.transfer(self.start("source"), first)
        self.assertEqual(second.quit(), 0)
        self.assertEqual(self.server.ask("GET", "mooncake/rpc_meta/same"), before)

    def test_a_crash_and_a_new_start(self):
        source, target = self.start("source"), self.start("target")
        self.transfer(source, target)
        segment = source.open("target")["segment"]
        target.kill()
        self.assertIsNotNone(self.server.ask("GET", "mooncake/rpc_meta/target"))
        again = self.start("target")
        self.assertNotEqual(again.instance, target.instance)
        tool.until("the new one is reached through the old segment", lambda: source.transfer(
            "write", segment, again.address("memory"), "memory", 0, 4096)["status"] == "COMPLETED")


class OverRedis(Common, Stores):
    def setUp(self):
        self.server = Redis()

    def test_clusters_do_not_see_each_other(self):
        self.start("target", "metadata_cluster=one")
        source = self.start("target", "metadata_cluster=two")
        self.assertEqual(self.server.keys(), ["mooncake/one/ram/target", "mooncake/one/rpc_meta/target", "mooncake/two/ram/target",
                                              "mooncake/two/rpc_meta/target"])
        self.assertEqual(source.ask("open", "nobody", event="opened")["error"], EMETADATA)

    def test_another_database(self):
        self.start("target", env={"MC_REDIS_DB_INDEX": "5"})
        self.assertEqual(self.server.keys(), [])
        other = self.start("other", wait=False, env={"MC_REDIS_DB_INDEX": "99"})
        self.assertIn("MC_REDIS_DB_INDEX", published(other, EREJECTED)["why"])

    def test_leases(self):
        target = self.start("target", "metadata_lease_ms=1000")
        self.assertTrue(target.quiet("publication", seconds=2.5))
        self.assertEqual(len(self.server.keys()), 2)
        target.kill()
        tool.until("what a crash left behind goes", lambda: not self.server.keys())

    def test_connections_that_are_killed(self):
        target, source = self.start("target"), self.start("source")
        for _ in range(5):
            self.server.ask("CLIENT", "KILL", "TYPE", "normal")
            self.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            self.transfer(source, target)
        self.server.ask("FLUSHALL")
        tool.until("published again", lambda: len(self.server.keys()) == 4)

    def test_told_of_changes(self):
        """Once it is watched an open needs no round trip; a change is seen by the next open."""
        target, source = self.start("target"), self.start("source")
        tool.until("the store tells of changes", lambda: b"TRACKING" in self.server.ask("CLIENT", "LIST").upper() or
                   b"sub=1" in self.server.ask("CLIENT", "LIST"))
        def gets():
            for line in self.server.ask("INFO", "commandstats").split(b"\r\n"):
                if line.startswith(b"cmdstat_get:"):
                    return int(line.split(b"calls=")[1].split(b",")[0])
        def asks_nothing():
            segment = source.open("target")["segment"]
            source.ask("close", segment)
            before = gets()
            segment = source.open("target")["segment"]
            source.ask("close", segment)
            return gets() == before
        tool.until("an open that asks nothing", asks_nothing)
        self.server.ask("SET", "mooncake/ram/target", "null")
        tool.until("the change is seen", lambda: source.ask("open", "target", event="opened")["error"] == EMETADATA)

    def test_no_password_given(self):
        self.server.ask("CONFIG", "SET", "requirepass", "secret")
        target = self.start("target", wait=False)
        self.assertIn("MC_REDIS_PASSWORD", published(target, EREJECTED)["why"])
        self.server.ask("CONFIG", "SET", "requirepass", "", auth=("AUTH", "secret"))
        published(target)

class Numbers(Stores):
    """Figures, not judged."""

    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server:
            super().tearDown()

    def figures(self, what, act):
        times = []
        for _ in range(300):
            began = time.monotonic()
            act()
            times.append(time.monotonic() - began)
        times.sort()
        sys_stderr("    %-50s p50 %.3f ms, p99 %.3f ms" % (what, times[150] * 1e3, times[296] * 1e3))

    def measure(self, server, bare):
        self.server = server
        target, source = self.start("target"), self.start("source")

        def open_and_close():
            source.ask("close", source.open("target")["segment"])

        kind = type(server).__name__
        self.figures(kind + ": bare round trip", bare)
        self.figures(kind + ": open of a name that is not there", lambda: source.ask("open", "nobody", event="opened"))
        self.figures(kind + ": open and close, not watched or watched", open_and_close)
        self.figures(kind + ": a command to the tool and back", source.stats)
        del target

    def test_redis(self):
        server = Redis()
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            stream = connection.makefile("rwb")

            def bare():
                stream.write(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
                stream.flush()
                server.read(stream)

            self.measure(server, bare)

    def test_http(self):
        server = Master()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)

        def bare():
            connection.request("GET", "/metadata?key=k")
            connection.getresponse().read()

        self.measure(server, bare)
        connection.close()


class OverRedisWithUsers(Stores):
    PASSWORD = 'p w@:/#%"\\'

    def setUp(self):
        self.server = Redis()
        self.server.ask("ACL", "SETUSER", "neap", "on", ">" + self.PASSWORD, "~mooncake/*", "&*", "+@all")
        self.server.ask("CONFIG", "SET", "requirepass", "root")

    def as_user(self, name, password, **options):
        return self.start(name, env={"MC_REDIS_USERNAME": "neap", "MC_REDIS_PASSWORD": password}, **options)

    def test_right(self):
        target, source = self.as_user("target", self.PASSWORD), self.as_user("source", self.PASSWORD)
        self.transfer(source, target)
        self.transfer(self.start("plain", env={"MC_REDIS_PASSWORD": "root"}), target)

    def test_wrong(self):
        target = self.as_user("target", "not it", wait=False)
        event = published(target, EREJECTED)
        self.assertIn("MC_REDIS_USERNAME", event["why"])
        self.assertNotIn("not it", event["why"])
        self.server.ask("ACL", "SETUSER", "neap", ">not it", auth=("AUTH", "root"))
        published(target)

    def test_changed_while_running(self):
        target = self.as_user("target", self.PASSWORD)
        self.server.ask("ACL", "SETUSER", "neap", "resetpass", ">new", auth=("AUTH", "root"))
        self.server.ask("CLIENT", "KILL", "USER", "neap", auth=("AUTH", "root"))
        published(target, EREJECTED)
        self.server.ask("ACL", "SETUSER", "neap", ">" + self.PASSWORD, auth=("AUTH", "root"))
        published(target)

    def test_without_rights(self):
        self.server.ask("ACL", "SETUSER", "neap", "-set", auth=("AUTH", "root"))
        target = self.as_user("target", self.PASSWORD, wait=False)
        self.assertIn("NOPERM", published(target, EREJECTED)["why"])


class OverRedisReplica(Stores):
    def setUp(self):
        self.server = Redis("--replicaof", "127.0.0.1 1", "--replica-read-only", "yes")

    def test_a_replica(self):
        target = self.start("target", wait=False)
        self.assertIn("primary", published(target, EREJECTED)["why"])


class OverHttp(Common, Stores):
    def setUp(self):
        self.server = Master()


class Https:
    """An HTTPS metadata server of Python's, with a certificate for localhost that nobody else vouches for."""

    def __init__(self):
        if not shutil.which("openssl"):
            raise unittest.SkipTest("openssl is not installed")
        self.folder = tempfile.mkdtemp(prefix="neap-https-")
        self.certificate = os.path.join(self.folder, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-keyout", self.certificate + ".key", "-out", self.certificate, "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.certificate + ".key")
        self.values, self.status = {}, None
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # who does not trust us hangs up
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.http.server_port
        self.url = "https://localhost:%d/metadata" % self.port
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def handler(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def say(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if 300 <= status < 400:
                    self.send_header("Location", "https://localhost:1/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if server.status:
                    self.say(server.status)
                elif self.command == "PUT":
                    server.values[self.path] = body
                    self.say(200)
                elif self.path not in server.values:
                    self.say(404)
                else:
                    self.say(200, server.values.pop(self.path) if self.command == "DELETE" else server.values[self.path])

            do_GET = do_PUT = do_DELETE = serve

            def log_message(self, *_):
                pass

        return Handler

    def remove(self):
        self.http.shutdown()
        self.http.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)


class OverHttps(Stores):
    def setUp(self):
        self.server = Https()

    def trusting(self, name, **options):
        return self.start(name, "metadata_ca_file=" + self.server.certificate, **options)

    def test_found_and_taken_back(self):
        target, source = self.trusting("target"), self.trusting("source")
        self.assertIn("/metadata?key=mooncake%2Frpc_meta%2Ftarget", self.server.values)
        self.transfer(source, target)
        target.quit()
        self.assertNotIn("/metadata?key=mooncake%2Frpc_meta%2Ftarget", self.server.values)

    def test_certificates_are_checked(self):
        stranger = self.start("stranger", wait=False)
        self.assertIn("certificate", published(stranger, EREJECTED)["why"])
        self.server.url = self.server.url.replace("localhost", "127.0.0.1")
        elsewhere = self.trusting("elsewhere", wait=False)
        self.assertIn("127.0.0.1", published(elsewhere, EREJECTED)["why"])
        self.assertEqual(self.server.values, {})

    def test_a_server_that_is_not_well(self):
        target = self.trusting("target")
        for status, said in ((302, "redirects"), (500, "not well"), (404, "there is none"), (403, "does not let us")):
            self.server.status = status
            answer = target.ask("open", "another", event="opened")
            self.assertIn(said, answer["why"])
            self.assertEqual(answer["error"] == EMETADATA, status == 404)
        self.server.status = None
        tool.until("published again", lambda: len(self.server.values) == 2)


def sys_stderr(text):
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    tool.main()
