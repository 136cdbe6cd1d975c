"""neap-client and its command line on a real cluster: a neap-master and neap-clients on loopback, asked, killed and stopped."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cluster
import tool
from cluster import Cluster
from tool import until

OK, FAILED, USAGE, UNREACHED, NO_KEY = 0, 1, 2, 3, 4
START = 3
MIB = 1 << 20


def value(size, seed):
    return random.Random("%d %d" % (size, seed)).randbytes(size)


def client(*arguments, data=None, env=None):
    return subprocess.run([tool.program("neap-client")] + list(arguments), input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=3 * tool.PATIENCE, env=dict(os.environ, **(env or {})))


class Values(unittest.TestCase):
    """One cluster, none of whose clients keeps its own values: all puts cross the network."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(3, "--remote_weight=1", "--verify=crc32c")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()

    def test_values_of_all_sizes_go_both_ways(self):
        for size in (1, 16384, 16385, 65537, 262144, 262145, 3 * MIB + 1, 64 * MIB):
            for direction in ("reverse", "forward"):
                data, key = value(size, 1), "size/%d/%s" % (size, direction)
                writer, reader = random.sample(self.cluster.clients, 2)
                said = writer.put(key, data, "--direction=" + direction)
                self.assertIn("stored, %d bytes" % size, said)
                self.assertNotIn(writer.rpc, said)
                for other in ("reverse", "forward"):
                    self.assertEqual(reader.get(key, "--direction=" + other), data, key)
                    if size < MIB:
                        self.assertEqual(writer.get(key, "--direction=" + other), data, key)
                self.assertEqual(reader.run("rm", key).returncode, OK)

    def test_files_and_pipes(self):
        a, b, c = self.cluster.clients
        source, target = self.cluster.path("source"), self.cluster.path("target")
        data = value(5 * MIB + 7, 2)
        with open(source, "wb") as file:
            file.write(data)
        self.assertEqual(a.run("put", "file", source).returncode, OK)
        self.assertEqual(b.run("get", "file", target).returncode, OK)
        with open(target, "rb") as file:
            self.assertEqual(file.read(), data)
        with open(source, "rb") as file: # a regular file as standard input
            done = subprocess.run([tool.program("neap-client"), "put", "redirected", "--port=%d" % a.port], stdin=file, timeout=tool.PATIENCE)
        self.assertEqual(done.returncode, OK)
        self.assertEqual(c.get("redirected", "-"), data)
        self.assertEqual([name for name in os.listdir(os.path.dirname(target)) if ".part" in name], [])
        done = a.run("put", "long", "--spool_max=1M", data=data)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"--spool_max", done.stderr)
        done = b.run("get", "no such thing", target)
        self.assertEqual(done.returncode, NO_KEY)
        with open(target, "rb") as file: # what was there stays
            self.assertEqual(file.read(), data)
        done = b.run("get", "file", "/nonexistent/x")
        self.assertEqual((done.returncode, b"No such file" in done.stderr), (FAILED, True))
        done = a.run("put", "nothing", "/dev/null")
        self.assertEqual((done.returncode, b"at least one byte" in done.stderr), (FAILED, True))
        done = b.run("get", "file", "/dev/full")
        self.assertEqual((done.returncode, b"No space" in done.stderr), (FAILED, True))

    def test_a_reader_that_leaves_early(self):
        a = self.cluster.clients[0]
        a.put("pipe", value(4 * MIB, 3))
        done = subprocess.run("'%s' get pipe --port=%d | head -c 10 | wc -c" % (tool.program("neap-client"), a.port), shell=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=tool.PATIENCE)
        self.assertEqual(done.stdout.strip(), b"10")

    def test_the_first_value_of_a_key_stays(self):
        a, b, c = self.cluster.clients
        self.assertIn("stored", a.put("once", b"first"))
        self.assertIn("was there already", b.put("once", b"first"))
        done = c.run("put", "once", data=b"other")
        self.assertEqual((done.returncode, b"OBJECT_ALREADY_EXISTS" in done.stderr), (FAILED, True), done.stderr)
        done = c.run("put", "once", data=b"longer one")
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(c.get("once"), b"first")

    def test_many_keys(self):
        a, b, c = self.cluster.clients
        names = ["many/%03d" % i for i in range(120)]
        def put(some, through):
            for name in some:
                through.put(name, name.encode() * 50)
        threads = [threading.Thread(target=put, args=(names[i::3], self.cluster.clients[i])) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        listed = b.run("ls", "^many/").stdout.decode().split()
        self.assertEqual(sorted(listed), names)
        self.assertEqual(len(a.run("ls", "^many/", "--limit=7").stdout.split()), 7)
        for i, name in enumerate(names[::10]):
            self.assertEqual(self.cluster.clients[i % 3].get(name), name.encode() * 50)
        done = c.run("exists", names[3], "many/none", names[4])
        self.assertEqual((done.returncode, done.stdout.decode().splitlines()),
                         (NO_KEY, [names[3] + ": exists", "many/none: no such key", names[4] + ": exists"]))
        done = c.run("exists", "x" * 1025, names[3], "many/none")  # the first is longer than the master's --key_length_max
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(done.stdout.decode().splitlines()[1:], [names[3] + ": exists", "many/none: no such key"])
        done = c.run("rm", "--matching=^many/00")
        self.assertEqual((done.returncode, done.stdout), (OK, b"10 removed\n"), done.stderr)
        self.assertEqual(a.run("exists", "many/001").returncode, NO_KEY)
        self.assertEqual(a.run("exists", "many/011").returncode, OK)

    def test_stat_exists_rm(self):
        a, b, c = self.cluster.clients
        a.put("one", b"12345")
        done = b.run("stat", "one")
        facts = re.match(r"size 5 owner (\S+) generation \d+ crc32c ([0-9a-f]{8}) priority 100 in memory( here)?$", done.stdout.decode())
        self.assertTrue(facts, done.stdout)
        self.assertIn(facts.group(1), (b.rpc, c.rpc))
        self.assertEqual(facts.group(3) is not None, facts.group(1) == b.rpc)
        self.assertEqual(b.run("exists", "one").returncode, OK)
        self.assertEqual(c.run("rm", "one").returncode, OK)
        for asked in ("exists", "stat", "rm", "get"):  # the owner tells the directory a moment later
            until(asked, lambda: b.run(asked, "one").returncode == NO_KEY)
        self.assertEqual(a.run("rm").returncode, USAGE)
        self.assertEqual(a.run("rm", "--matching=").returncode, USAGE)
        self.assertEqual(a.run("rm", "--all", "x").returncode, USAGE)
        done = a.run("rm", "--matching=(")
        self.assertEqual(done.returncode, FAILED)

    def test_keys_of_any_bytes(self):
        a, b, _ = self.cluster.clients
        for key in ("with space", "-dash", "tab\there", "käse", "x" * 1000):
            flags = ("--", key) if key.startswith("-") else (key,)
            self.assertEqual(a.run("put", *flags, data=b"v").returncode, OK, key)
            self.assertEqual(b.run("get", *flags).stdout, b"v", key)
        self.assertIn(b"tab\\x09here", b.run("ls", "^tab").stdout)
        done = a.run("put", "", data=b"v")
        self.assertEqual(done.returncode, USAGE)

    def test_http(self):
        a, b, _ = self.cluster.clients
        data = value(700000, 5)
        self.assertEqual(a.http("/health"), (200, b"FULL\n"))
        self.assertEqual(a.http("/put?key=web%2Fone", data)[0], 200)
        self.assertEqual(b.http("/get?key=web%2Fone"), (200, data))
        self.assertEqual(b.get("web/one"), data)
        self.assertEqual(a.http("/put?key=empty", b"")[0], 400)
        self.assertEqual(a.http("/get?key=none")[0], 404)
        self.assertEqual(a.http("/get")[0], 400)
        self.assertEqual(a.http("/get_all_keys?limit=x")[0], 400)
        self.assertIn("web/one", json.loads(a.http("/get_all_keys")[1]))
        self.assertEqual(len(json.loads(a.http("/get_all_keys?limit=1")[1])), 1)
        self.assertRegex(a.http("/get_key_count")[1], rb"^\d+\n$")
        self.assertEqual(b.http("/remove?key=web%2Fone", b"", "POST")[0], 200)
        self.assertEqual(b.http("/get?key=web%2Fone")[0], 404)
        status, text = a.http("/metrics")
        self.assertEqual(status, 200)
        for name in ("mooncake_p2p_put_requests_total", "mooncake_p2p_peer_inflight", "neap_local_puts_total"):
            self.assertTrue(re.search(r"(?m)^%s(\{[^}]*\})? \d+$" % name, text.decode()), name)
        self.assertEqual(a.http("/metrics/summary")[0], 200)

    # --- strangers and accidents at the local port

    def test_hostile_bytes(self):
        a = self.cluster.clients[0]
        chance = random.Random(7)
        hello = b"NRPC\1\4\0\0" + (40).to_bytes(4, "little")
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"\xff" * 4096, hello, hello + b"\0" * 44 + b"\xdf" * 40, b"\x16\x03\x01" + b"x" * 300,
                     b"NRPC\1\1\0\0\xff\xff\xff\xff" + b"\0" * 44, chance.randbytes(100000)):
            with socket.create_connection(("127.0.0.1", a.port), timeout=tool.PATIENCE) as stranger:
                stranger.sendall(data)
                stranger.settimeout(0.2)
                try:
                    while stranger.recv(65536):
                        pass
                except OSError:
                    pass
        self.assertEqual(a.put("after strangers", b"v")[-1], "\n")
        self.assertIsNone(a.process.poll())

    def test_a_put_that_is_cut_leaves_nothing(self):
        a, b, _ = self.cluster.clients
        given_up = int(a.health()["given_up"])
        path = self.cluster.path("large")
        with open(path, "wb") as file:
            file.truncate(60 * MIB)
        for _ in range(20):
            writer = subprocess.Popen([tool.program("neap-client"), "put", "cut", path, "--port=%d" % a.port], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            until("a transfer of it", lambda: int(a.health()["transfers"]) > 0 or writer.poll() is not None)
            writer.kill()
            writer.wait()
            until("its memory", lambda: (lambda h: h["buffer_free_bytes"] == h["buffer_bytes"])(a.health()))
            if int(a.health()["given_up"]) > given_up:
                break
            a.run("rm", "cut") # it was faster
        else:
            self.fail("no put was caught in the middle")
        self.assertEqual(b.run("exists", "cut").returncode, NO_KEY)
        self.assertIn("stored", a.put("cut", b"another"))

    def test_memory_is_waited_for(self):
        a = self.cluster.clients[0]
        data = value(40 * MIB, 9)
        path = self.cluster.path("forty")
        with open(path, "wb") as file:
            file.write(data)
        writers = [subprocess.Popen([tool.program("neap-client"), "put", "wait/%d" % i, path, "--port=%d" % a.port, "--quiet"]) for i in range(4)]
        self.assertEqual([writer.wait(3 * tool.PATIENCE) for writer in writers], [OK] * 4)
        self.assertEqual(a.run("get", "wait/3").stdout, data)
        done = a.run("put", "too large", data=bytes(65 * MIB))
        self.assertEqual((done.returncode, b"--local_buffer_size" in done.stderr), (FAILED, True))
        a.run("rm", "--matching=^wait/")


class Programs(unittest.TestCase):
    def test_help_and_manual_name_the_same_flags(self):
        with open(os.path.join(tool.SOURCE, "man", "neap-client.1")) as file:
            manual = file.read().replace("\\-", "-")
        documented = set(re.findall(r"^\.(?:BI?|BR) --([a-z_]+)", manual, re.M)) | set(re.findall(r'" --([a-z_]+)', manual))
        flags = set()
        for words in ([], ["put"], ["get"], ["rm"], ["exists"], ["ls"], ["stat"], ["health"], ["replay"], ["topology"]):
            done = client(*(words + ["--help"]))
            self.assertEqual((done.returncode, done.stderr), (OK, b""), words)
            flags |= set(re.findall(r"^  --([a-z_]+)", done.stdout.decode(), re.M))
        self.assertEqual(flags - documented, set(), "in --help, not in the manual")
        self.assertEqual(documented - flags - {"flag"}, set(), "in the manual, not in --help")

    def test_topology_of_a_machine_made_of_files(self):
        with tempfile.TemporaryDirectory() as root:
            def put(path, text):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as file:
                    file.write(text)
            for i, status in enumerate(("4: ACTIVE\n", "1: DOWN\n", "4: ACTIVE\n")):
                device = "class/infiniband/mlx5_%d/" % i
                put(device + "device/numa_node", "%d\n" % (i % 2))
                put(device + "ports/1/state", status)
                put(device + "ports/1/link_layer", "Ethernet\n")
                put(device + "ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a4d:000%d\n" % i)
                put(device + "ports/1/gid_attrs/types/3", "RoCE v2\n")
            for node in (0, 1):
                put("devices/system/node/node%d/cpulist" % node, "0\n")
            done = client("topology", "--sysfs=" + root)
            self.assertEqual((done.returncode, done.stderr), (OK, b""))
            self.assertEqual(json.loads(done.stdout), {"cpu:0": [["mlx5_0", "mlx5_2"], []], "cpu:1": [[], ["mlx5_0", "mlx5_2"]]})

            put("own.json", '{"cpu:0": [["mlx5_2"], ["mlx5_9"]]}')
            done = client("topology", "--sysfs", root, "--all", env={"MC_CUSTOM_TOPO_JSON": root + "/own.json"})
            shown = json.loads(done.stdout)
            self.assertEqual(shown["priority_matrix"], {"cpu:0": [["mlx5_2"], []]})
            self.assertEqual([device["name"] for device in shown["devices"]], ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_9"])
            self.assertEqual(shown["devices"][1]["unusable"], "no port of it is ACTIVE")
            self.assertEqual(shown["devices"][2]["ports"][0]["gid"], "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02")
            self.assertEqual(shown["devices"][2]["ports"][0]["gid_index"], 3)
            self.assertIn("mlx5_9", done.stderr.decode())

            put("own.json", '{"cpu:0": [["mlx5_2"], 7]}')
            self.wrong(2, ["topology", "--sysfs=" + root, "--topology_file=" + root + "/own.json"], ["own.json", "cpu:0[1]", "array"])
            self.wrong(3, ["topology", "--sysfs=" + root + "/nowhere"], ["--sysfs", "nowhere"])

    def wrong(self, status, arguments, words, env=None):
        done = client(*arguments, env=env)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (status, b""), (arguments, said))
        self.assertEqual(len(said.splitlines()), 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_wrong_flags_name_value_and_range(self):
        for arguments, words in (
                (["--port=65536"], ["--port=65536", "0 to 65535"]), (["--port=x"], ["--port=x", "0 to 65535"]), (["--lock_shard_count=1000"], ["power of two"]),
                (["--p2p_key_lease_duration_ms=99"], ["--p2p_key_lease_duration_ms=99 ", "100 to 3600000"]),
                (["--p2p_key_lease_scan_interval_ms=70000"], ["60000"]), (["--p2p_transfer_direction_mode=sideways"], ["reverse, forward"]),
                (["--protocol=ib"], ["tcp, rdma, auto"]), (["--deployment_mode=Centralization"], ["P2P"]),
                (["--deployment_mode=x"], ["P2P"]), (["--master_server_address=etcd://127.0.0.1:1"], ["HOST:PORT"]),
                (["--master_server_address=localhost"], ["--master_server_address=localhost ", "HOST:PORT"]),
                (["--global_segment_size=4GB"], ["--tiered_backend_config"]), (["--redis_cluster_id=x"], ["--master_server_address"]),
                (["--port=7000", "--client_rpc_port=7000"], ["--port", "--client_rpc_port", "7000"]), (["--remote_weight=2"], ["0 to 1"]),
                (["--tiered_backend_config=/nonexistent.json"], ["No such file", "none"]), (["--verify=md5"], ["none|crc32c"]),
                (["--local_buffer_size=1K"], ["1 MiB"]), (["--prot=1"], ["--port"]), (["putt", "k"], ["put", "get"]),
                (["put"], ["KEY"]), (["get", "k", "f", "x"], ["x"]), (["ls", "a", "b"], ["b"]), (["put", "k", "--direction=x"], ["reverse|forward"])):
            self.wrong(USAGE, arguments, words)
        self.wrong(USAGE, ["replay", "--trace=x", "--minutes=long"], ["--minutes=long", "a number"])
        self.assertIn(b"--minutes=MINUTES ", client("replay", "--help").stdout)
        self.wrong(USAGE, [], ["NEAP_CLIENT_PORT=x"], {"NEAP_CLIENT_PORT": "x"})
        self.wrong(USAGE, [], ["MOONCAKE_DM_LOCK_SHARD_COUNT=12", "power of two"], {"MOONCAKE_DM_LOCK_SHARD_COUNT": "12"})
        for words in ([], ["replay", "--trace=" + os.path.join(tool.SOURCE, "tests", "data", "conversation_trace.jsonl")]):
            self.wrong(USAGE, words, ["MC_MIN_RPC_PORT"], {"MC_MIN_RPC_PORT": "1"})

    def test_what_stops_a_start(self):
        free = ["--port=0", "--client_rpc_port=0", "--http_port=0", "--master_server_address=none"]
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for flag in ("port", "client_rpc_port", "http_port"):
                self.wrong(START, [word for word in free if not word.startswith("--%s=" % flag)] + ["--%s=%d" % (flag, port)],
                           ["--" + flag, str(port)])
        self.wrong(START, free + ["--host=0.0.0.0"], ["--bind_address"])
        self.wrong(START, free + ["--host=192.0.2.1"], ["--host=192.0.2.1", "--bind_address"])
        self.wrong(START, free + ['--tiered_backend_config={"tiers":[{"type":"DRAM","capacity":0,"priority":1}]}'], ["capacity"])

    def test_flags_of_others_are_told(self):
        process = subprocess.Popen([tool.program("neap-client"), "--port=0", "--client_rpc_port=0", "--enable_http_server=false", "--threads=4",
                                    "--rpc_thread_num", "16", "--device_names=mlx5_0", "--master_server_address=none"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.assertIn("http_port 0 ", process.stdout.readline())
        process.terminate()
        _, said = process.communicate(timeout=tool.PATIENCE)
        self.assertEqual(process.returncode, OK)
        for flag in ("--threads", "--rpc_thread_num", "--device_names"):
            self.assertIn(flag, said)

    def test_nobody_answers(self):
        port = tool.free_port()
        for words in (["put", "k", "/etc/hostname"], ["get", "k"], ["rm", "k"], ["exists", "k"], ["ls"], ["stat", "k"], ["health"]):
            done = client(*words, "--port=%d" % port)
            self.assertEqual((done.returncode, done.stdout), (UNREACHED, b""), words)
            self.assertIn("neap-client --port %d" % port, done.stderr.decode())
        done = client("get", "k", env={"NEAP_CLIENT_PORT": str(port)})
        self.assertEqual(done.returncode, UNREACHED)

    def test_a_cluster_of_its_own(self):
        process = subprocess.Popen([tool.program("neap-client"), "--port=0", "--client_rpc_port=0", "--http_port=0",
                                    "--master_server_address=none"], stdout=subprocess.PIPE, text=True)
        words = process.stdout.readline().split()
        self.assertEqual(words[-1], "LOCAL_ONLY")
        port = "--port=" + words[words.index("port") + 1]
        self.assertEqual(client("put", "k", port, data=b"alone").returncode, OK)
        self.assertEqual(client("get", "k", port).stdout, b"alone")
        self.assertEqual(client("ls", port).stdout, b"k\n")
        process.terminate()
        self.assertEqual(process.wait(tool.PATIENCE), OK)
        process.stdout.close()


class Faults(unittest.TestCase):
    def fill(self, group, count=30, size=100000):
        values = {"key/%d" % i: value(size, i) for i in range(count)}
        for i, (key, data) in enumerate(values.items()):
            group.clients[i % len(group.clients)].put(key, data)
        return values

    def owners(self, through, values):
        found = {}
        for key in values:
            done = through.run("stat", key)
            if done.returncode == OK:
                found[key] = re.search(rb"owner (\S+)", done.stdout).group(1).decode()
        return found

    def check(self, through, values, may_be_gone=()):
        """Right or gone; returns how many were there."""
        there = 0
        for i, (key, data) in enumerate(values.items()):
            got = through.get(key, "--deadline=%d" % (2 if may_be_gone else 10), "--direction=" + ("reverse", "forward")[i % 2])
            if isinstance(got, tuple):
                self.assertIn(key, may_be_gone, got)
            else:
                self.assertEqual(got, data, key)
                there += 1
        return there

    def test_an_owner_is_killed(self):
        with Cluster(3, "--remote_weight=1") as group:
            a, b, c = group.clients
            values = self.fill(group)
            owners = self.owners(a, values)
            lost = {key for key, owner in owners.items() if owner == c.rpc}
            self.assertTrue(lost)
            c.kill()
            self.check(a, values, lost)
            self.assertIn("stored", a.put("after", b"v"))
            self.assertEqual(b.get("after"), b"v")
            until("the master to give its keys up", lambda: all(a.run("exists", key).returncode == NO_KEY for key in lost))
            for key in lost: # the keys are free again
                self.assertIn("stored", a.put(key, values[key]))
            self.assertEqual(self.check(b, values), len(values))

    def test_the_master_is_killed_and_comes_back_empty(self):
        with Cluster(3, "--remote_weight=1", "--verify=crc32c") as group:
            a, b, c = group.clients
            values = self.fill(group)
            group.restart_master()
            other = {key: bytes(len(data)) for key, data in values.items()}
            for i, key in enumerate(list(other)[:6]): # while it learns: no second version gets in
                done = group.clients[i % 3].run("put", key, "--deadline=1", data=other[key])
                self.assertNotEqual(done.returncode, OK, done.stdout)
            until("all of them known again", lambda: all(client.is_full() for client in group.clients))
            until("an answer about each", lambda: all(b.run("exists", key).returncode == OK for key in values))
            self.assertEqual(self.check(b, values), len(values))
            for key in list(other)[:5]:
                self.assertEqual(c.run("put", key, data=other[key]).returncode, FAILED)
            self.assertEqual(self.check(c, values), len(values))
            until("new keys", lambda: a.run("put", "new", data=b"v").returncode == OK)

    def test_an_owner_stops_longer_than_its_leases(self):
        with Cluster(2, "--remote_weight=1") as group:
            a, b = group.clients
            values = self.fill(group, 6, 300000)
            owners = self.owners(a, values)
            at_b = {key for key, owner in owners.items() if owner == b.rpc}
            b.signal(signal.SIGSTOP)
            began = time.monotonic()
            self.check(a, values, at_b)
            done = a.run("put", "meanwhile", "--deadline=2", data=value(300000, 99)) # its only candidate stands still
            while time.monotonic() - began < 3 * cluster.LEASE_MS / 1000:
                a.health()
            b.signal(signal.SIGCONT)
            until("it is back", b.is_full)
            until("its values", lambda: all(a.run("exists", key).returncode == OK for key in at_b))
            self.assertEqual(self.check(a, values), len(values))
            if done.returncode != OK and b"not known" not in done.stderr:
                got = a.get("meanwhile")
                self.assertTrue(isinstance(got, tuple) or got == value(300000, 99))

    def test_sigterm_drains(self):
        with Cluster(2, "--remote_weight=1") as group:
            a, b = group.clients
            values = self.fill(group, 6)
            b.signal(signal.SIGTERM)
            self.assertEqual(b.wait(), OK, b.said())
            self.assertEqual(b.said(), "")
            self.check(a, values, values)
            group.add()
            until("a put that finds its place", lambda: a.run("put", "after", "--deadline=5", data=b"v").returncode == OK)

    def test_a_second_sigterm_ends_at_once(self):
        with Cluster(2, "--remote_weight=1", "--drain_timeout_ms=600000") as group:
            a, b = group.clients
            a.signal(signal.SIGSTOP)  # b must put the value there, and waits
            writer = subprocess.Popen([tool.program("neap-client"), "put", "stuck", "--port=%d" % b.port], stdin=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            writer.stdin.write(b"v" * 100000)
            writer.stdin.close()
            until("a transfer", lambda: int(b.health()["transfers"]) > 0)
            self.assertEqual(b.http("/health")[0], 200)
            b.signal(signal.SIGTERM)
            until("b drains", lambda: b.http("/health")[0] == 503)
            self.assertEqual(b.health()["health"], "DRAINING")
            self.assertIsNone(b.process.poll())
            b.signal(signal.SIGTERM)
            self.assertEqual(b.wait(), FAILED)
            writer.kill()
            writer.wait()

    def idle_peer(self, port):
        """Says hello like a peer and is silent from then on."""
        peer = socket.create_connection(("127.0.0.1", port), timeout=tool.PATIENCE)
        body = b"\x81\xa8instance\xc4\x10" + b"p" * 16
        peer.sendall(b"NRPC\1\4\0\0" + len(body).to_bytes(4, "little") + bytes(44) + body)
        self.assertEqual(peer.recv(6)[5], 5)  # WELCOME
        return peer

    def test_a_silent_peer_does_not_keep_one_that_ends(self):
        with Cluster(2) as group:
            a, b = group.clients
            with self.idle_peer(a.rpc_port), self.idle_peer(b.rpc_port):
                began = time.monotonic()
                a.signal(signal.SIGTERM)
                self.assertEqual(a.wait(), OK, a.said())
                self.assertLess(time.monotonic() - began, 8)
                b.signal(signal.SIGTERM)
                until("it answers no more", lambda: b.health() == {})
                b.signal(signal.SIGTERM)  # a second one does not wait for the peer
                began = time.monotonic()
                self.assertEqual(b.wait(), FAILED, b.said())
                self.assertLess(time.monotonic() - began, 2)

    def test_a_reader_has_all_the_time_to_drain(self):
        with Cluster(1, "--drain_timeout_ms=6000") as group:
            a = group.clients[0]
            a.put("slow", value(32 * MIB, 1))
            reader = subprocess.Popen([tool.program("neap-client"), "get", "slow", "--port=%d" % a.port], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
            reader.stdout.read(1)
            a.signal(signal.SIGTERM)
            time.sleep(4)  # more than half
            self.assertEqual(len(reader.stdout.read()), 32 * MIB - 1)
            self.assertEqual((reader.wait(), reader.stderr.read()), (OK, b""))
            reader.stdout.close()
            reader.stderr.close()
            self.assertEqual(a.wait(), OK, a.said())

    def test_what_a_silent_master_leaves_open_is_said(self):
        with Cluster(1, "--remote_weight=0") as group:
            a = group.clients[0]
            group.master.signal(signal.SIGSTOP)
            done = a.run("put", "open", "--deadline=2", data=b"v")
            self.assertEqual((done.returncode, b"whether the value was stored is not known" in done.stderr), (FAILED, True), done.stderr)
            done = a.run("stat", "other", "--deadline=2")
            self.assertEqual((done.returncode, b"a deadline passed" in done.stderr), (FAILED, True), done.stderr)
            group.master.signal(signal.SIGCONT)
            until("the value", lambda: a.get("open") == b"v")

    def test_a_start_without_memory_says_so(self):
        for limit in range(400000, 1300001, 75000):
            done = subprocess.run(["bash", "-c", "ulimit -c 0 -v %d; exec timeout 2 '%s' --port=0 --client_rpc_port=0 --http_port=0 "
                                   "--master_server_address=none" % (limit, tool.program("neap-client"))], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=tool.PATIENCE)
            self.assertIn(done.returncode, (START, 124), (limit, done.stderr))
            self.assertEqual(done.returncode == START, b"memory" in done.stderr, (limit, done.stderr))

    def test_a_client_waits_for_its_master(self):
        with Cluster(1) as group:
            group.master.kill()
            at = "the directory at 127.0.0.1:%d does not " % group.port
            until("it is said", lambda: at + "hear this client: it is not reached" in group.clients[0].said())
            lonely = group.add("--heartbeat_ms=100", env={"MC_LOG_LEVEL": "INFO"})
            self.assertIn("health DEGRADED", lonely.line)
            self.assertIn(at + "register this client", lonely.said())
            group.restart_master()
            until("both are known", lambda: all(client.is_full() for client in group.clients))
            self.assertEqual(group.clients[0].said().count(at), 1)  # and not every second
            group.master.signal(signal.SIGSTOP)
            until("it is said", lambda: at + "hear" in lonely.said())
            group.master.signal(signal.SIGCONT)
            until("its end is said too", lambda: "the directory at 127.0.0.1:%d hears this client again" % group.port in lonely.said())


if __name__ == "__main__":
    tool.main()
