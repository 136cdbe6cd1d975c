"""Metadata servers for tests: each one real, of our own, on free ports of loopback, and without anything that stays behind. They have
start, stop (signal), kill, remove and ask("GET" | "SET" | "DEL", key[, value]) in common; `url` is what an engine is given."""

import base64
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from urllib.parse import quote

import tool


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
        tool.send_signal(self.process, number)

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

    def __init__(self, *flags):
        self.flags = flags
        self.port = tool.free_port()
        self.url = "http://127.0.0.1:%d/metadata" % self.port
        self.start()

    def start(self):
        self.process = subprocess.Popen([tool.program("neap-master"), "--rpc_port=0", "--metrics_port=0", "--first",
                                         "--enable_http_metadata_server", "--http_metadata_server_port=%d" % self.port, *self.flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if "metadata" not in self.process.stdout.readline():
            raise AssertionError("neap-master did not start")

    def request(self, method, key, body=None):
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
        tool.send_signal(self.process, number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def remove(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


class Web:
    """An HTTP metadata server of Python's, that can be unwell: `status` instead of what is right; `pause`, seconds between the bytes of an
    answer; `short`, so many bytes of its body do not come; `hangs_up` instead of an answer. `written` counts the bytes that were put."""

    status, pause, short, hangs_up = None, 0, 0, False
    scheme, host = "http", "127.0.0.1"

    def __init__(self):
        self.values, self.written = {}, 0
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # who does not trust us, or has waited long enough, hangs up
        self.port = self.http.server_port
        self.url = "%s://%s:%d/metadata" % (self.scheme, self.host, self.port)
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
                if server.short:
                    body, self.close_connection = body[:-server.short], True
                if not server.pause:
                    self.wfile.write(body)
                for i in range(len(body) if server.pause else 0):
                    time.sleep(server.pause)
                    self.wfile.write(body[i:i + 1])

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if server.hangs_up:
                    self.close_connection = True
                elif server.status:
                    self.say(server.status)
                elif self.command == "PUT":
                    server.values[self.path] = body
                    server.written += len(body)
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


class Https(Web):
    """With a certificate for localhost that nobody else vouches for."""

    scheme, host = "https", "localhost"

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="neap-https-")
        self.certificate = make_certificate(self.folder, "localhost", "-addext", "subjectAltName=DNS:localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.certificate + ".key")
        super().__init__()
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)

    def remove(self):
        super().remove()
        shutil.rmtree(self.folder, ignore_errors=True)


class ScriptedRedis:
    """Speaks as much of Redis as engines need, without the notices of changes, and says what it is told to: `replies` has one for each verb
    that is to get another than the right one, e.g. {"GET": "-MOVED 1 127.0.0.1:1"}; `pause` is in seconds between the bytes of a reply."""

    def __init__(self):
        self.values, self.replies, self.pause, self.asked = {}, {}, 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = "redis://127.0.0.1:%d" % self.port
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as stream:
                for line in stream:
                    words = [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                    self.send(connection, self.reply(words[0].decode().upper(), *words[1:]))
        except (OSError, ValueError):
            pass

    def send(self, connection, reply):
        if not self.pause:
            connection.sendall(reply)
        for i in range(len(reply) if self.pause else 0):
            time.sleep(self.pause)
            connection.sendall(reply[i:i + 1])

    def reply(self, verb, key=None, value=None, *_):
        self.asked.append((verb, key))
        if verb in self.replies:
            return self.replies[verb].encode() + b"\r\n"
        if verb == "GET":
            found = self.values.get(key)
            return b"$-1\r\n" if found is None else b"$%d\r\n%s\r\n" % (len(found), found)
        if verb == "SET":
            self.values[key] = value
        if verb in ("EXISTS", "DEL"):
            there = key in self.values
            if verb == "DEL":
                self.values.pop(key, None)
            return b":%d\r\n" % there
        return {"PING": b"+PONG\r\n", "SET": b"+OK\r\n"}.get(verb, b"-ERR unknown command\r\n")

    def remove(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def make_certificate(folder, name, *words):
    """The path of a new one; its key is beside it."""
    if not shutil.which("openssl"):
        raise unittest.SkipTest("openssl is not installed")
    path = os.path.join(folder, name + ".pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-keyout", path + ".key", "-out", path, "-subj", "/CN=" + name, *words], check=True, capture_output=True)
    return path


class Certificates:
    """An authority of our own, and what it vouches for: a server called localhost, and a client."""

    def __init__(self, folder):
        self.authority = make_certificate(folder, "authority")
        self.server, self.client = (
            make_certificate(folder, name, "-CA", self.authority, "-CAkey", self.authority + ".key", "-addext", "basicConstraints=CA:FALSE",
                             "-addext", "subjectAltName=DNS:localhost", "-addext", "extendedKeyUsage=serverAuth,clientAuth")
            for name in ("server", "client"))  # both uses: etcd's gateway calls etcd with the server's

    def context(self):
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.client, self.client + ".key")
        return context


def in_base64(text):
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


class EtcdRefused(Exception):
    """etcd answered with an error."""


class EtcdMember:
    """One etcd process. What it has written stays over a kill, until `forget`."""

    def __init__(self, folder, number, certificates, flags):
        self.name, self.certificates, self.flags = "m%d" % number, certificates, flags
        self.folder = os.path.join(folder, self.name)
        self.log = self.folder + ".log"
        self.port, self.peer_port = tool.free_port(), tool.free_port()
        self.peer = "%s=http://127.0.0.1:%d" % (self.name, self.peer_port)
        self.scheme = "https" if certificates else "http"

    def start(self, cluster, port=None):
        """Does not wait: one of several members is not there before the others are. `port`: another one than its own, where nobody looks."""
        self.at = port or self.port
        client, peer = "%s://127.0.0.1:%d" % (self.scheme, self.at), self.peer.split("=")[1]
        tls = ["--cert-file", self.certificates.server, "--key-file", self.certificates.server + ".key"] if self.certificates else []
        if "--client-cert-auth" in self.flags:
            tls += ["--trusted-ca-file", self.certificates.authority]  # alone it would ask for certificates too
        self.process = subprocess.Popen(
            ["etcd", "--name", self.name, "--data-dir", self.folder, "--unsafe-no-fsync", "--logger", "zap", "--log-outputs", self.log,
             "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, *tls, *self.flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def call(self, path, body=None, headers=None):
        """POST of a JSON object, or GET; the answer's text. OSError, HTTPException or EtcdRefused."""
        if self.certificates:
            connection = http.client.HTTPSConnection("localhost", self.at, timeout=tool.PATIENCE, context=self.certificates.context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.at, timeout=tool.PATIENCE)
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers or {})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise EtcdRefused(text)
        return text

    def is_well(self):
        """Answers, and has a leader."""
        if self.process.poll() is not None:
            with open(self.log) as file:
                raise AssertionError("etcd ended: " + file.read()[-500:])
        try:
            return json.loads(self.call("/health"))["health"] == "true"
        except (OSError, http.client.HTTPException, EtcdRefused):
            return False

    def is_leader(self):
        return "etcd_server_is_leader 1\n" in self.call("/metrics")

    def count(self, *methods):
        """How many calls of these methods of its key-value service it has seen."""
        return sum(int(line.split()[-1]) for line in self.call("/metrics").splitlines()
                   if any(line.startswith('grpc_server_started_total{grpc_method="%s"' % method) for method in methods))

    def said(self, *words):
        with open(self.log) as file:
            return any(all(word in line for word in words) for line in file)

    def signal(self, number):
        tool.send_signal(self.process, number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def forget(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Etcd:
    """An etcd of one or several members. A start finds nothing of what was there, as with the other servers, unless it is told to keep it.
    With `password` it has users from the beginning: root, and `neap`, who may read and write what begins with mooncake/."""

    USER, ROOT = "neap", "root"

    def __init__(self, *flags, members=1, password=None, certificates=False):
        if not shutil.which("etcd"):
            raise unittest.SkipTest("etcd is not installed")
        self.folder = tempfile.mkdtemp(prefix="neap-etcd-")
        self.certificates = Certificates(self.folder) if certificates else None
        self.members = [EtcdMember(self.folder, i, self.certificates, flags) for i in range(members)]
        host = "https://localhost" if certificates else "127.0.0.1"
        self.url = "etcd://" + ",".join("%s:%d" % (host, member.port) for member in self.members)
        self.port = self.members[0].port
        self.token = None
        try:
            self.start()
            if password:
                self.add_users(password)
        except BaseException:
            self.remove()
            raise

    def start(self, keep=False, port=None):
        for member in self.members:
            if not keep:
                member.forget()
            member.start(",".join(each.peer for each in self.members), port)
        for member in self.members:
            tool.until("etcd answers", member.is_well)

    def start_again(self, member):
        """One that was killed, with what it had."""
        member.start(",".join(each.peer for each in self.members))
        tool.until("the member answers", member.is_well)

    def leader(self):
        return tool.until("a leader", lambda: next((member for member in self.running() if member.is_leader()), None))

    def running(self):
        return [member for member in self.members if member.process.poll() is None]

    def able(self):
        """None: they elect a leader just now."""
        return next((member for member in self.running() if member.is_well()), None)

    def call(self, path, **body):
        """By the first member that is able to; as root when there are users."""
        for again in (False, True):
            try:
                headers = {"Authorization": self.token} if self.token else {}
                return json.loads(tool.until("a member is able to", self.able).call("/v3/" + path, body, headers))
            except EtcdRefused as refused:
                if again or not self.token or "token" not in str(refused):
                    raise
                self.enter()

    def ask(self, verb, key, value=None):
        if verb == "SET":
            return self.call("kv/put", key=in_base64(key), value=in_base64(value))
        if verb == "DEL":
            return self.call("kv/deleterange", key=in_base64(key))
        found = self.call("kv/range", key=in_base64(key)).get("kvs")
        return base64.b64decode(found[0].get("value", "")) if found else None

    def keys(self):
        every = self.call("kv/range", key="AA==", range_end="AA==", keys_only=True)
        return sorted(base64.b64decode(found["key"]).decode() for found in every.get("kvs", []))

    def compact(self):
        """Forgets all that is not the latest."""
        revision = self.call("kv/range", key="AA==")["header"]["revision"]
        self.call("kv/compaction", revision=revision, physical=True)

    # --- users

    def add_users(self, password):
        mooncake = {"permType": "READWRITE", "key": in_base64("mooncake/"), "range_end": in_base64("mooncake0")}
        for user, secret in (("root", self.ROOT), (self.USER, password)):
            self.call("auth/user/add", name=user, password=secret)
            self.call("auth/role/add", name=user)
            self.call("auth/user/grant", user=user, role=user)
        self.call("auth/role/grant", name=self.USER, perm=mooncake)
        self.call("auth/enable")
        self.enter()

    def enter(self):
        self.token = None
        self.token = self.call("auth/authenticate", name="root", password=self.ROOT)["token"]

    def change_password(self, password):
        """What was given for the old one ends with it."""
        self.call("auth/user/changepw", name=self.USER, password=password)

    # --- its end

    def signal(self, number):
        for member in self.running():
            member.signal(number)

    def kill(self):
        for member in self.running():
            member.kill()

    def remove(self):
        for member in self.members:
            if hasattr(member, "process") and member.process.poll() is None:
                member.signal(signal.SIGCONT)
                member.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
