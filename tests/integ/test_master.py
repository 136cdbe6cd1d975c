"""neap-master as a process: flags and messages, metadata over HTTP as engines use it, strangers, figures, the directory over its RPC,
liveness, signals, restarts."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from urllib.parse import quote

import tool

OK, FAILED, USAGE, START = 0, 1, 2, 3
NOT_IN_TIME = "the client did not close in time"
SECOND = tool.SLOW  # short times of the tests, longer where the build is slow


class Client(tool.Tool):
    """A client of the master; does nothing by itself."""

    binary = "tests/integ/master_tool"

    def __init__(self, master, *flags, **options):
        super().__init__("master=" + master.address, *flags, **options)

    def do(self, *words, event=None):
        return self.ask(*words, event=event or {"add": "announce", "remove": "announce", "many": "announce"}.get(words[0], words[0]))


class Master:
    def __init__(self, *flags, rpc_port=0, env=None):
        arguments = [tool.program("neap-master"), "--rpc_port=%d" % rpc_port, "--enable_http_metadata_server", "--http_metadata_server_port=0"]
        if not any("metrics_port" in flag for flag in flags):
            arguments.append("--metrics_port=0")
        self.process = subprocess.Popen(arguments + ["--" + flag for flag in flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(env or {})))
        self.line = self.process.stdout.readline()
        found = re.match(r"neap-master: serving on (127\.0\.0\.1:(\d+))(?:, metrics http://127\.0\.0\.1:(\d+)/metrics)?"
                         r", metadata http://127\.0\.0\.1:(\d+)/metadata$", self.line)
        if not found:
            self.process.kill()
            raise AssertionError("%r %s" % (self.line, self.process.communicate()[1]))
        self.address, self.rpc_port, self.http_port = found.group(1), int(found.group(2)), int(found.group(4))
        self.metrics_port = int(found.group(3)) if found.group(3) else None

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                out, err = self.process.communicate(timeout=tool.PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
                raise
            if kind is None and (self.process.returncode != OK or "ERROR" in err or "anitizer" in err):
                raise AssertionError("ended with %s: %s" % (self.process.returncode, err))
        else:
            self.process.communicate()

    def end(self, number=signal.SIGTERM, timeout=None):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout or tool.PATIENCE)
        return self.process.returncode, out, err

    def ask(self, method, path, body=None, headers=None, port=None):
        """(status, type, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=tool.PATIENCE)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read()
        finally:
            connection.close()

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def metadata(self, method, key, body=None):
        status, _, answer = self.ask(method, "/metadata?key=" + quote(key, safe=""), body)
        return status, answer

    def raw(self, data, half_close=False):
        """What comes back for these bytes, until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.http_port), timeout=tool.PATIENCE) as peer:
            answer = b""
            try:
                peer.sendall(data)
                if half_close:
                    peer.shutdown(socket.SHUT_WR)
                while True:
                    piece = peer.recv(65536)
                    if not piece:
                        return answer
                    answer += piece
            except (ConnectionResetError, BrokenPipeError):
                return answer

    def metrics(self):
        return parse_metrics(self.get("/metrics")[2].decode())


def parse_metrics(text):
    """{name or name{labels}: value}; fails on what is not Prometheus's text format."""
    values, types, current = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in types, "HELP twice: " + name
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
        else:
            found = re.match(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\d+)$', line)
            assert found, line
            base = re.sub(r"_(bucket|sum|count)$", "", found.group(1)) if types.get(current) == "histogram" else found.group(1)
            assert base == current, "%s under %s" % (line, current)
            series = found.group(1) + (found.group(2) or "")
            assert series not in values, "twice: " + series
            values[series] = int(found.group(3))
    return values


class Starting(unittest.TestCase):
    def refused(self, *flags, env=None, status=USAGE):
        done = tool.run_program("neap-master", *flags, env=env)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_wrong_flags_say_what_is_allowed(self):
        for flags, words in ((["--deployment_mode=Centralization"], ["--deployment_mode", "Centralization", "P2P"]),
                             (["--rpc_port=65536"], ["--rpc_port", "65536", "0 to 65535"]), (["--client_ttl=0"], ["--client_ttl", "86400"]),
                             (["--client_ttl=5", "--client_crashed_ttl=4.5"], ["--client_crashed_ttl", "4.5", "5 "]),
                             (["--keys_max=0"], ["--keys_max", "1 to"]), (["--keys_max=many"], ["many", "1 to"]), (["--metrics_prot=1"], ["--metrics_port"]),
                             (["--http_metadata_value_max=2M", "--http_metadata_bytes_max=1M"], ["--http_metadata_value_max", "1048576"]),
                             (["--max_client_per_key=-1"], ["--max_client_per_key"]), (["--rpc_port"], ["needs a value"])):
            message = self.refused(*flags)
            for word in words:
                self.assertIn(word, message)

    def test_what_the_reference_has_and_this_has_not(self):
        for flags, word in ((["--enable_ha"], "--enable_ha"), (["--enable_ha=true"], "announce"), (["--enable_oplog=1"], "--enable_oplog"),
                            (["--etcd_endpoints", "a:1"], "--etcd_endpoints"), (["--config_path=x.yaml"], "NEAP_MASTER_"),
                            (["--root_fs_dir=/x"], "--root_fs_dir")):
            self.assertIn(word, self.refused(*flags))
        with Master("first", "enable_ha=false", "rpc_thread_num=4", "rpc_conn_timeout_seconds=0", "cluster_id=x", "deployment_mode=p2p") as master:
            self.assertEqual(master.get("/health")[0], 200)
            code, _, err = master.end()
            self.assertEqual(code, OK)
            self.assertEqual([line.split()[1] for line in err.splitlines()], ["--rpc_thread_num", "--rpc_conn_timeout_seconds", "--cluster_id"])

    def test_variables(self):
        self.assertIn("NEAP_MASTER_CLIENT_TTL=soon", self.refused(env={"NEAP_MASTER_CLIENT_TTL": "soon"}))
        self.assertIn("86400", self.refused(env={"NEAP_MASTER_CLIENT_TTL": "1000000"}))
        port = tool.free_port()
        with Master("first", env={"NEAP_MASTER_METRICS_HOST": "127.0.0.1", "NEAP_MASTER_RPC_PORT": "1", "NEAP_MASTER_QUIET": ""},
                    rpc_port=port) as master:
            self.assertEqual(master.rpc_port, port)  # the flag wins

    def test_listens_on_loopback_only(self):
        port = tool.free_port()
        with Master("metrics_port=%d" % port) as master:
            self.assertEqual(master.metrics_port, port)
            listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout.split()
            ports = {str(master.rpc_port), str(master.http_port), str(port)}
            self.assertEqual({word for word in listening if word.rsplit(":", 1)[-1] in ports}, {"127.0.0.1:" + one for one in ports})
            self.assertEqual(master.get("/health", port=port)[0], 200)
            self.assertEqual(master.get("/metadata?key=a", port=port)[0], 404)  # not there

    def test_ready_file_and_quiet(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "ready")
            process = subprocess.Popen([tool.program("neap-master"), "--rpc_port=0", "--metrics_port=0", "--quiet", "--ready_file=" + path],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            tool.until("ready file", lambda: os.path.exists(path))
            with open(path) as file:
                self.assertRegex(file.read(), r"^127\.0\.0\.1:\d+\n$")
            process.terminate()
            self.assertEqual(process.communicate(timeout=tool.PATIENCE), (b"", b""))
            self.assertEqual(process.returncode, OK)
            self.assertIn("/nowhere/x", self.refused("--rpc_port=0", "--metrics_port=0", "--ready_file=/nowhere/x", status=START))

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
            port = taken.getsockname()[1]
            for flags, name in ((["--rpc_port=%d" % port, "--metrics_port=0"], "--rpc_port"), (["--rpc_port=0", "--metrics_port=%d" % port], "--metrics_port"),
                                (["--rpc_port=0", "--metrics_port=0", "--enable_http_metadata_server", "--http_metadata_server_port=%d" % port],
                                 "--http_metadata_server_port")):
                message = self.refused(*flags, status=START)
                self.assertIn(name, message)
                self.assertIn(str(port), message)
                self.assertIn("another", message)
        message = self.refused("--rpc_address=192.0.2.1", "--rpc_port=0", "--metrics_port=0", status=START)
        self.assertIn("192.0.2.1", message)
        self.assertIn("ip addr", message)
        self.assertIn("--rpc_address=no.such.host.invalid", self.refused("--rpc_address=no.such.host.invalid", "--metrics_port=0", status=START))


class Metadata(unittest.TestCase):
    def test_as_engines_use_it(self):
        value = b'{"name":"a:1","protocol":"tcp","buffers":[]}'
        with Master() as master:
            ram, rpc = "mooncake/ram/nodeA:23456", "mooncake/rpc_meta/nodeA:23456"
            self.assertEqual(master.metadata("GET", ram)[0], 404)
            self.assertEqual(master.metadata("PUT", ram, value)[0], 200)
            self.assertEqual(master.metadata("PUT", ram, value + b"\n")[0], 200)  # replaced
            status, kind, body = master.get("/metadata?key=mooncake%2Fram%2FnodeA%3A23456")
            self.assertEqual((status, kind, body), (200, "application/json", value + b"\n"))
            self.assertEqual(master.get("/metadata?key=mooncake%2fram%2fnodeA%3a23456")[2], value + b"\n")
            self.assertEqual(master.get("/metadata?key=mooncake/ram/nodeA:23456")[2], value + b"\n")
            self.assertEqual(master.metadata("PUT", rpc, b'{"rpc_port":1}')[0], 200)
            self.assertEqual(master.metadata("PUT", rpc, b'{"rpc_port":1}')[0], 200)  # a repetition
            status, body = master.metadata("PUT", rpc, b'{"rpc_port":2}')
            self.assertEqual(status, 400)
            self.assertIn(b"rpc_meta", body)
            self.assertEqual(master.metadata("GET", rpc), (200, b'{"rpc_port":1}'))
            self.assertEqual(master.metadata("DELETE", rpc)[0], 200)
            self.assertEqual(master.metadata("DELETE", rpc)[0], 404)
            self.assertEqual(master.metadata("PUT", rpc, b'{"rpc_port":2}')[0], 200)
            for path in ("/metadata", "/metadata?", "/metadata?key", "/metadata?key=", "/metadata?kez=a"):
                for method in ("GET", "PUT", "DELETE"):
                    self.assertEqual(master.ask(method, path, b"x" if method == "PUT" else None)[0], 400, path)
            self.assertEqual(master.get("/health")[0], 200)

    def test_bytes_are_kept(self):
        every = bytes(range(256))
        with Master() as master:
            for key in ("a%00b", "a", "a%00", "%F0%9F%90%9A", "%ff", "+", "%20"):
                path = "/metadata?key=" + key
                self.assertEqual(master.ask("PUT", path, every + key.encode())[0], 200)
            self.assertEqual(master.metrics()["neap_master_metadata_entries"], 7)
            self.assertEqual(master.get("/metadata?key=a")[2], every + b"a")
            self.assertEqual(master.get("/metadata?key=a%00b")[2], every + b"a%00b")
            self.assertEqual(master.get("/metadata?other=1&key=%2B")[2], every + b"+")
            self.assertEqual(master.metadata("PUT", "empty", b"")[0], 200)
            self.assertEqual(master.metadata("GET", "empty"), (200, b""))

    def test_one_connection_many_requests(self):
        with Master() as master:
            connection = http.client.HTTPConnection("127.0.0.1", master.http_port, timeout=tool.PATIENCE)
            for i in range(200):
                connection.request("PUT", "/metadata?key=k%d" % (i % 7), body=b"v" * i)
                self.assertEqual(connection.getresponse().read(), b"metadata updated\n")
                connection.request("GET", "/metadata?key=k%d" % (i % 7))
                self.assertEqual(connection.getresponse().read(), b"v" * i)
                connection.request("GET", "/get_key_count")  # answered later than asked
                self.assertEqual(connection.getresponse().read(), b"0\n")
            connection.close()
            answers = master.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5 + b"GET /get_key_count HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            self.assertEqual(answers.count(b"200 OK"), 6)  # sent in one piece

    def test_bounds(self):
        with Master("http_metadata_entries_max=3", "http_metadata_value_max=1024", "http_metadata_bytes_max=4096") as master:
            for i in range(3):
                self.assertEqual(master.metadata("PUT", "k%d" % i, b"x" * 1000)[0], 200)
            self.assertEqual(master.metadata("PUT", "k3", b"x")[0], 507)
            self.assertEqual(master.metadata("PUT", "k0", b"x" * 1024)[0], 200)
            self.assertEqual(master.metadata("PUT", "k0", b"x" * 1025)[0], 413)
            self.assertEqual(len(master.metadata("GET", "k0")[1]), 1024)
            self.assertEqual(master.metadata("DELETE", "k1")[0], 200)
            self.assertEqual(master.metadata("PUT", "K" * 2000, b"x" * 500)[0], 507)  # bytes in all
            self.assertEqual(master.metadata("PUT", "k3", b"x" * 1000)[0], 200)
            found = master.metrics()
            self.assertEqual((found["neap_master_metadata_entries"], found["neap_master_metadata_bytes"]), (3, 6 + 1024 + 2000))
            self.assertEqual(found["neap_master_metadata_refused_total"], 2)


class Strangers(unittest.TestCase):
    def test_what_is_no_request(self):
        with Master("http_idle_timeout=2") as master:
            for path in ("/metadata?key=%", "/metadata?key=%4", "/metadata?key=%zz", "/metadata?key=a%g0", "/metadata?%=a",
                         "/metadata?" + "&".join("a%d=b" % i for i in range(17))):
                for method in ("GET", "PUT", "DELETE"):
                    self.assertEqual(master.ask(method, path, b"x")[0], 400, path)
            self.assertEqual(master.get("/metadata?key=" + "k" * 4096)[0], 404)
            self.assertEqual(master.get("/metadata?key=" + "k" * 4097)[0], 400)
            for path in ("/metadata?key=" + "k" * 100000, "/" + "x" * 100000):
                self.assertIn(master.raw(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n")[:13],
                              (b"HTTP/1.1 414 ", b"HTTP/1.1 431 ", b""))
            self.assertIn(master.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: %s\r\n" % (b"y" * 100000) + b"\r\n")[9:12], (b"431", b"413", b""))
            for data in (b"\r\n\r\n\r\n", b"\0" * 1000, b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc",
                         b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                         b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                         b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                         b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"):
                self.assertNotIn(b"200 OK", master.raw(data, half_close=True), data)
            self.assertEqual(master.metadata("GET", "a")[0], 404)
            self.assertEqual(master.get("/health")[0], 200)

    def test_paths_and_methods(self):
        with Master() as master:
            for path in ("/", "/metrics%00", "/metrics/", "//metrics", "/../metrics", "/METRICS", "*"):
                self.assertEqual(master.get(path)[0], 404, path)
            for method, path, allowed in (("POST", "/metadata?key=a", "GET, HEAD, PUT, DELETE"), ("DELETE", "/metrics", "GET, HEAD"),
                                          ("BREW", "/health", "GET, HEAD"), ("VERYLONGMETHODNAME", "/health", "GET, HEAD"), ("OPTIONS", "/health", "GET, HEAD")):
                connection = http.client.HTTPConnection("127.0.0.1", master.http_port, timeout=tool.PATIENCE)
                connection.request(method, path)
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.getheader("Allow")), (405, allowed))
                connection.close()
            for path in ("/health", "/metrics", "/get_key_count", "/metadata?key=a"):
                connection = http.client.HTTPConnection("127.0.0.1", master.http_port, timeout=tool.PATIENCE)
                connection.request("HEAD", path)
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.read()), (404 if "metadata" in path else 200, b""))
                self.assertGreater(int(answer.getheader("Content-Length")), 0)
                connection.close()
            self.assertEqual(master.ask("GET", "/health", b"a body")[0], 413)

    def test_bodies_that_are_too_long(self):
        with Master("http_metadata_value_max=64K") as master:
            self.assertEqual(master.metadata("PUT", "a", b"x" * 65536)[0], 200)
            self.assertEqual(master.metadata("PUT", "a", b"x" * 65537)[0], 413)
            self.assertEqual(master.metadata("PUT", "nowhere", b"x" * 200000)[0], 413)
            # told before a byte of the body was sent
            answer = master.raw(b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
            self.assertIn(b" 413 ", answer[:20])
            answer = master.raw(b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 70000\r\n\r\n")
            self.assertIn(b" 413 ", answer[:20])
            chunked = b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.assertIn(b" 413 ", master.raw(chunked + b"10000\r\n" + b"y" * 65536 + b"\r\n1\r\nz\r\n0\r\n\r\n")[:20])
            self.assertEqual(master.raw(chunked + (b"10000\r\n" + b"y" * 65536 + b"\r\n") * 100), b"")  # it goes on and on
            self.assertIn(b" 200 ", master.raw(chunked + b"10000\r\n" + b"y" * 65536 + b"\r\n0\r\n\r\n")[:20])
            self.assertEqual(master.metadata("GET", "a"), (200, b"y" * 65536))

    def test_slow_ones_do_not_stand_in_the_way(self):
        idle = round(2 * SECOND)  # no turn of the loop below is as long
        with Master("http_idle_timeout=%d" % idle, "http_request_timeout=%d" % (3 * idle)) as master:
            silent = [socket.create_connection(("127.0.0.1", master.http_port)) for _ in range(50)]
            heads = [socket.create_connection(("127.0.0.1", master.http_port)) for _ in range(10)]
            bodies = [socket.create_connection(("127.0.0.1", master.http_port)) for _ in range(10)]
            readers = [socket.create_connection(("127.0.0.1", master.http_port)) for _ in range(5)]
            for peer in readers:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)  # and reads nothing
            for peer in heads:
                peer.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
            for peer in bodies:
                peer.sendall(b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n")
            self.assertEqual(master.get("/health")[0], 200)
            for peer in silent + heads + bodies:  # it was answered while all of them were still waited for
                peer.setblocking(False)
                self.assertRaises(BlockingIOError, peer.recv, 1)
            slow = heads[1:] + bodies
            for _ in range(2):  # a byte now and then keeps a connection longer than silence does, twice over ...
                tool.until("the silent ones are closed", lambda: self.are_closed(master, silent, heads + bodies))
                silent.append(socket.create_connection(("127.0.0.1", master.http_port)))
                silent[-1].setblocking(False)
            heads[0].setblocking(True)
            heads[0].sendall(b"\r\n\r\n")
            self.assertIn(b" 200 ", heads[0].recv(100))
            tool.until("the slow ones are closed", lambda: self.are_closed(master, slow, slow))  # ... but not for ever
            for peer in silent + heads + bodies + readers:
                peer.close()

    def are_closed(self, master, peers, slow):
        """Whether these are all closed. The slow ones send a byte, and somebody else is served."""
        for peer in slow:
            try:
                peer.send(b"x")
            except OSError:
                pass  # it is closed
        self.assertEqual(master.get("/health")[0], 200)
        return all(self.is_closed(peer) for peer in peers)

    @staticmethod
    def is_closed(peer):
        try:
            return peer.recv(65536) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def test_more_connections_than_may_be(self):
        port = tool.free_port()
        with Master("metrics_port=%d" % port, "http_idle_timeout=1") as master:
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            self.assertEqual(master.get("/health", port=port)[0], 200)  # once some of them have been silent for too long
            for peer in silent:
                peer.close()

    def test_strangers_at_the_rpc_port(self):
        with Master("first") as master:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"\xff" * 4096, b"\x16\x03\x01"):
                with socket.create_connection(("127.0.0.1", master.rpc_port), timeout=tool.PATIENCE) as peer:
                    peer.sendall(data)
                    peer.shutdown(socket.SHUT_WR)
                    try:
                        while peer.recv(4096):
                            pass
                    except ConnectionResetError:
                        pass
            tool.until("all are gone", lambda: master.metrics()["neap_master_rpc_connections"] == 0)

    def test_descriptors_do_not_wait(self):
        with Master() as master:
            with socket.create_connection(("127.0.0.1", master.http_port)) as peer, socket.create_connection(("127.0.0.1", master.rpc_port)):
                tool.until("the connection", lambda: "neap_master_rpc_connections 1" in master.get("/metrics")[2].decode())
                peer.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b"200", peer.recv(100))
                folder = "/proc/%d/" % master.process.pid
                sockets = 0
                for fd in os.listdir(folder + "fd"):
                    try:
                        with open(folder + "fdinfo/" + fd) as info:
                            flags = int(re.search(r"flags:\s*(\d+)", info.read()).group(1), 8)
                        if not os.readlink(folder + "fd/" + fd).startswith("socket:"):
                            continue
                    except FileNotFoundError:
                        continue  # a connection of the test's, closed meanwhile
                    sockets += 1
                    self.assertTrue(flags & os.O_NONBLOCK, fd)
                    self.assertTrue(flags & os.O_CLOEXEC, fd)
                self.assertGreaterEqual(sockets, 4)


class Directory(tool.Case):
    def test_calls(self):
        with Master("first") as master:
            one, two = Client(master, "id=1", "port=1001"), Client(master, "id=2", "port=1002")
            self.assertEqual(one.do("add", "early", 10)["error"], "CLIENT_NOT_FOUND")
            self.assertEqual(one.do("register")["error"], "OK")
            self.assertEqual(two.do("register")["error"], "OK")
            self.assertEqual(one.do("heartbeat", 1000)["status"], "HEALTHY")
            self.assertEqual(one.do("add", "a", 10)["item"], "OK")
            self.assertEqual(one.do("add", "a", 10)["item"], "REPLICA_ALREADY_EXISTS")
            self.assertEqual(two.do("add", "a", 10)["item"], "REPLICA_NUM_EXCEEDED")
            found = two.do("replicas", "a")
            self.assertEqual((found["item"], found["count"], found["port"], found["size"]), ("OK", 1, 1001, 10))
            self.assertEqual(two.do("exist", "b")["item"], "OBJECT_NOT_FOUND")
            self.assertEqual(two.do("route", "a", 5)["item"], "REPLICA_NUM_EXCEEDED")
            self.assertEqual(set(two.do("route", "b", 5)["ports"]), {1001, 1002})
            self.assertEqual(one.do("route", "b", 1 << 40)["item"], "NO_AVAILABLE_CANDIDATE")
            self.assertEqual(one.do("mount", 8)["error"], "OK")
            self.assertEqual(one.do("unmount", 8)["error"], "OK")
            self.assertEqual(two.do("pretend", 1, one.do("stats")["instance"])["error"], "ILLEGAL_CLIENT")
            self.assertEqual(two.do("client", 1)["status"], "HEALTHY")
            round_ = one.do("begin")["round"]
            self.assertEqual(one.do("end", round_)["dropped"], 1)
            self.assertEqual(two.do("exist", "a")["item"], "OBJECT_NOT_FOUND")
            self.assertEqual(one.do("unregister")["error"], "OK")
            self.assertEqual(two.do("client", 1)["status"], "UNDEFINED")
            self.assertEqual(two.do("list", "(")["error"], "INVALID_PARAMS")
            values = master.metrics()
            self.assertEqual(values["master_register_client_requests_total"], 2)
            self.assertEqual(values["neap_master_clients_left_total"], 1)
            self.assertEqual(values["neap_master_service_strangers_total"], 1)
            self.assertEqual(values["master_active_clients"], 1)
            self.assertEqual(values["master_add_replica_requests_total"], 3)
            self.assertEqual(values["master_add_replica_failures_total"], 1)

    def test_unlimited_clients_per_key(self):
        with Master("first", "max_client_per_key=0") as master:
            for number in range(1, 4):
                client = Client(master, "id=%d" % number, "port=%d" % (2000 + number))
                client.do("register")
                self.assertEqual(client.do("add", "a", 10)["item"], "OK")
            self.assertEqual(client.do("replicas", "a")["count"], 3)

    def test_questions_over_http(self):
        with Master("first") as master:
            client = Client(master)
            client.do("register")
            odd = ['q"uote', "b\\ack", "new\nline", "t\tab", "\x01\x7f", "sch\u00f6n", "comma"]
            for key in odd:
                self.assertEqual(client.do("add", quote(key, safe="") if key != "schön" else "sch%c3%b6n", 77)["item"], "OK")
            self.assertEqual(client.do("add", "bad%ff%c3", 1)["item"], "OK")
            self.assertEqual(master.get("/get_key_count")[2], b"8\n")
            self.assertEqual(json.loads(master.get("/get_key_count?format=json")[2]), {"keys": 8, "replicas": 8, "complete": True})
            lines = master.get("/get_all_keys")[2].split(b"\n")
            self.assertEqual(sorted(lines[:-1]), sorted([b'q"uote', b"b\\\\ack", b"new\\nline", b"t\\x09ab", b"\\x01\\x7f", "schön".encode(), b"comma", b"bad\xff\xc3"]))
            listed = json.loads(master.get("/get_all_keys?format=json")[2].decode())
            self.assertEqual(sorted(listed["keys"]), sorted(odd + ["bad\ufffd\ufffd"]))
            asked = json.loads(master.get("/batch_query_keys?keys=" + quote(",".join(odd + ["missing"]), safe=""))[2].decode())
            self.assertTrue(asked["success"])
            self.assertEqual(set(asked["data"]), set(odd + ["missing"]))
            self.assertEqual(asked["data"]["missing"], {"ok": False, "error": "OBJECT_NOT_FOUND"})
            place = asked["data"]['q"uote']["values"][0]
            self.assertEqual((place["ip_address"], place["rpc_port"], place["object_size"]), ("127.0.0.1", 12345, 77))
            for path in ("/batch_query_keys", "/batch_query_keys?keys=", "/batch_query_keys?keys=,,,", "/batch_query_keys?keys=" + "a," * 1001,
                         "/get_all_keys?limit=0", "/get_all_keys?limit=-1", "/get_all_keys?limit=x"):
                self.assertEqual(master.get(path)[0], 400, path)
            for first in range(0, 6000, 2000):
                self.assertEqual(client.do("many", "k", first, 2000)["failed"], 0)
            self.assertEqual(master.get("/get_key_count")[2], b"6008\n")
            keys = master.get("/get_all_keys")[2].decode("latin1").split("\n")
            self.assertTrue({"k%d" % i for i in range(6000)} <= set(keys))
            self.assertEqual(len(keys), 6009)
            self.assertEqual(len(json.loads(master.get("/get_all_keys?format=json&limit=2500")[2])["keys"]), 2500)
            self.assertEqual(len(client.do("list", "^k1..$")["keys"]), 100)
            self.assertEqual(master.metrics()["master_key_count"], 6008)

    def test_figures(self):
        with Master("first") as master:
            memory, disk = Client(master, "id=1", "capacity=1M"), Client(master, "id=2", "port=1002", "capacity=8M", "memory_type=1")
            for client, used in ((memory, 1000), (disk, 5000)):
                client.do("register")
                client.do("heartbeat", used)
            memory.do("many", "k", 0, 10)
            memory.do("exist", "k0")
            memory.do("exist", "none")
            memory.do("replicas", "k1")
            memory.do("replicas", "none")
            values = master.metrics()
            expected = {"master_key_count": 10, "master_active_clients": 2, "neap_master_healthy_clients": 2, "neap_master_recovering": 0,
                        "master_total_capacity_bytes": 1 << 20, "master_allocated_bytes": 1000, "master_total_file_capacity_bytes": 8 << 20,
                        "master_allocated_file_size_bytes": 5000, "master_heartbeat_requests_total": 2, "master_batch_exist_key_requests_total": 2,
                        "master_batch_exist_key_items_total": 2, "master_batch_exist_key_failures_total": 0, "total_get_nums_": 2, "valid_get_nums_": 1,
                        "master_add_replica_requests_total": 10, "neap_master_rpc_connections": 4,
                        'segment_allocated_bytes{segment="segment \\"1\\"",id="00000000000000010000000000000007"}': 1000,
                        'segment_total_capacity_bytes{segment="segment \\"2\\"",id="00000000000000020000000000000007"}': 8 << 20}
            self.assertEqual({name: values.get(name) for name in expected}, expected)
            for series, count in values.items():
                if "_bucket{" in series and 'le="+Inf"' in series:
                    method = re.search(r'method="(\w+)"', series).group(1)
                    buckets = [values[name] for name in values if name.startswith("neap_master_call_latency_us_bucket") and '"%s"' % method in name]
                    self.assertEqual(buckets, sorted(buckets), method)
                    self.assertEqual(count, values['neap_master_call_latency_us_count{method="%s"}' % method])
            self.assertEqual(values['neap_master_call_latency_us_count{method="Heartbeat"}'], 2)
            status, kind, _ = master.get("/metrics")
            self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            self.assertRegex(master.get("/metrics/summary")[2].decode(), r"(?m)^master_key_count +10$")

    def test_silence(self):
        """A silent client is disconnected, comes back with one heartbeat, and counts as crashed when it does not."""
        ttl = 0.5 * SECOND
        with Master("first", "client_ttl=%g" % ttl, "client_crashed_ttl=%g" % (4 * ttl)) as master:
            silent, witness = Client(master, "id=1", "port=1001"), Client(master, "id=2", "port=1002")
            silent.do("register")
            silent.do("add", "a", 10)
            tool.until("disconnected", lambda: witness.do("client", 1)["status"] == "DISCONNECTED")
            self.assertEqual(witness.do("replicas", "a")["item"], "REPLICA_IS_NOT_READY")
            self.assertEqual(witness.do("exist", "a")["item"], "OK")
            self.assertEqual(witness.do("route", "b", 5)["item"], "NO_AVAILABLE_CANDIDATE")
            self.assertEqual(silent.do("add", "b", 10)["item"], "CLIENT_UNHEALTHY")
            self.assertEqual(silent.do("heartbeat", 10)["status"], "HEALTHY")
            self.assertEqual(witness.do("replicas", "a")["item"], "OK")
            self.assertEqual(silent.do("stats")["welcomes"], 1)
            tool.until("crashed", lambda: witness.do("client", 1)["status"] == "UNDEFINED")
            self.assertEqual(witness.do("exist", "a")["item"], "OBJECT_NOT_FOUND")
            values = master.metrics()
            self.assertEqual((values["master_clients_disconnected_total"], values["master_clients_recovered_total"], values["master_clients_crashed_total"]),
                             (2, 1, 1))
            self.assertEqual(values["neap_master_rpc_connections"], 1)  # the witness's; those of the crashed one were ended
            self.assertEqual(silent.do("heartbeat", 10)["status"], "UNDEFINED")
            self.assertEqual(silent.do("register")["error"], "OK")
            self.assertEqual(silent.do("add", "a", 10)["item"], "OK")

    def test_a_stopped_client_is_let_go(self):
        ttl = 0.4 * SECOND
        with Master("first", "client_ttl=%g" % ttl) as master:
            client = Client(master)
            client.do("register")
            client.stop()
            tool.until("crashed", lambda: master.metrics()["master_clients_crashed_total"] == 1)
            tool.until("its connections are gone", lambda: master.metrics()["neap_master_rpc_connections"] == 0)
            client.proceed()
            tool.until("back", lambda: client.do("register")["error"] == "OK")

    # --- ends

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Master("first", env={"MC_LOG_LEVEL": "INFO"}) as master:
                clients = [Client(master, "id=%d" % i, "port=%d" % (1000 + i)) for i in range(1, 4)]
                for client in clients:
                    client.do("register")
                with socket.create_connection(("127.0.0.1", master.http_port)) as idle:
                    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /he")
                    idle.recv(100)
                    code, out, err = master.end(number)
                    self.assertEqual((code, out), (OK, ""))
                    self.assertNotIn(NOT_IN_TIME, err)  # all have heard the goodbye and closed; it waited for nobody
                    self.assertNotIn("WARNING", err)
                self.assertEqual(clients[0].do("count")["error"], "RPC_FAIL")

    def test_the_end_does_not_wait_for_a_stopped_client(self):
        with Master("first", env={"MC_LOG_LEVEL": "INFO"}) as master:
            client = Client(master)
            client.do("register")
            client.stop()
            code, _, err = master.end()  # and the client stands still all the while
            self.assertEqual(code, OK)
            self.assertEqual(err.count(NOT_IN_TIME), 1, err)  # it has one connection
            client.proceed()

    def test_trace(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            with Master("first", "trace_file=" + path) as master:
                client = Client(master)
                client.do("register")
                master.process.send_signal(signal.SIGUSR1)
                tool.until("a trace", lambda: os.path.exists(path))
                tool.until("neap-fsm", lambda: "trace" in tool.run_program("neap-fsm", "--help").stdout)
                tool.until("the client in the trace", lambda: "client_life" in tool.run_program("neap-fsm", "trace", path).stdout)
                self.assertEqual(client.do("count")["error"], "OK")
                code, _, err = master.end()
                self.assertEqual(code, OK)
                self.assertIn(path, err)

    # --- a master that begins anew

    def test_killed_and_started_again(self):
        ttl = 0.5 * SECOND
        flags = ["client_ttl=%g" % ttl, "client_crashed_ttl=%g" % (2 * ttl), "announce_timeout=%g" % (20 * SECOND)]
        with Master("first", *flags) as master:
            holder = Client(master, "id=1", "port=1001")
            self.assertEqual(master.get("/health")[2], b"OK\n")
            epoch = holder.do("register", "holds")["epoch"]
            stamp = holder.do("add", "a", 10)["stamp"]
            self.assertEqual(stamp[0], epoch)
            master.process.kill()
            master.process.wait()
        with Master(*flags, rpc_port=master.rpc_port) as master:
            asker = Client(master, "id=2", "port=1002")
            self.assertEqual(master.get("/health")[2], b"RECOVERING\n")
            self.assertEqual(json.loads(master.get("/health?format=json")[2])["status"], "RECOVERING")
            self.assertEqual(asker.do("exist", "a")["item"], "REPLICA_IS_NOT_READY")
            self.assertEqual(asker.do("route", "a", 10)["item"], "REPLICA_IS_NOT_READY")
            tool.until("the holder is back", lambda: holder.do("heartbeat", 0)["error"] == "OK")
            self.assertEqual(holder.do("heartbeat", 0)["status"], "UNDEFINED")
            again = holder.do("register", "holds")
            self.assertGreater(again["epoch"], epoch)
            self.assertTrue(again["announce_all"])
            self.assertEqual(holder.do("add", "new", 10)["item"], "REPLICA_IS_NOT_READY")
            round_ = holder.do("begin")["round"]
            self.assertEqual(holder.do("add", "a", 10, *stamp)["item"], "OK")
            self.assertEqual(asker.do("replicas", "a")["count"], 1)
            self.assertEqual(json.loads(master.get("/batch_query_keys?keys=zz")[2])["data"]["zz"]["error"], "REPLICA_IS_NOT_READY")
            # longer than client_crashed_ttl: it waits for the announcement that was promised
            end = time.monotonic() + 3 * ttl
            while time.monotonic() < end:
                holder.do("heartbeat", 0, again["epoch"])
                time.sleep(0.05)
            self.assertEqual(asker.do("exist", "zz")["item"], "REPLICA_IS_NOT_READY")
            self.assertEqual(master.metrics()["neap_master_owing_clients"], 1)
            holder.do("end", round_)
            tool.until("recovered", lambda: asker.do("exist", "zz")["item"] == "OBJECT_NOT_FOUND")
            self.assertEqual(master.get("/health")[2], b"OK\n")
            self.assertEqual(asker.do("exist", "a")["item"], "OK")


if __name__ == "__main__":
    tool.main()
