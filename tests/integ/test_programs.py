"""The programs as a newcomer meets them: flags, messages, exit statuses, manual pages, what they print."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import tool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from target import Target

OK, FAILED, USAGE, START = 0, 1, 2, 3
BENCH_KEYS = ["operation", "block_size", "batch_size", "threads", "lanes", "gb_per_s", "requests_per_s", "p50_us", "p99_us", "p999_us",
              "cpu_s_per_gib_initiator", "cpu_s_per_gib_target", "syscalls_per_request", "verified"]
SHORT = ["--duration=0.1", "--warmup=0.02", "--buffer_size=8M"]


class Served:
    """A program in target mode; the words of its segment line."""

    def __init__(self, name, *arguments):
        self.process = subprocess.Popen([tool.program(name), "--mode=target"] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        self.line = self.process.stdout.readline()
        words = self.line.split()
        self.facts = dict(zip(words[::2], words[1::2]))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=tool.PATIENCE)
        return self.process.returncode, out, err


class Programs(unittest.TestCase):
    def run_ok(self, *arguments, **options):
        done = tool.run_program(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (OK, ""), (arguments, done.stdout, done.stderr))
        return done.stdout

    # --- flags and manuals

    def test_help_and_manual_name_the_same_flags(self):
        for name in ("neap-example", "neap-bench", "neap-master"):
            help_text = self.run_ok(name, "--help")
            flags = set(re.findall(r"^  --([a-z_]+)", help_text, re.M))
            with open(os.path.join(tool.SOURCE, "man", name + ".1")) as file:
                manual = file.read().replace("\\-", "-")
            documented = set(re.findall(r"^\.BI? --([a-z_]+)(?:=.*)?$", manual, re.M)) - {"flag"}
            documented |= set(re.findall(r"^\.BR --([a-z_]+) ", manual, re.M)) | set(re.findall(r'" --([a-z_]+)$', manual, re.M))
            self.assertEqual(flags - documented, set(), name + ": in --help, not in the manual")
            self.assertEqual(documented - flags, set(), name + ": in the manual, not in --help")

    def test_wrong_flags_say_what_is_allowed(self):
        for arguments, words in ((["--blok_size=4K"], ["--block_size"]), (["--threads=0"], ["1 to 64"]), (["--operation=append"], ["write|read"]),
                                 (["--block_size=4Q"], ["4096", "64K"]), (["--duration=soon"], ["seconds"]), (["extra"], ["--name=value"]),
                                 (["--mode=initiator"], ["--segment_id", "segment"]), (["--block_size=2G", "--buffer_size=1M"], ["--buffer_size"]),
                                 (["--batch_size=1,2", "--block_size=4K"], ["--batch_size"]), (["--mode"], ["value"])):
            done = tool.run_program("neap-bench", *arguments)
            self.assertEqual(done.returncode, USAGE, arguments)
            self.assertEqual(done.stdout, "")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_flags_in_both_spellings(self):
        with Served("neap-example", "--buffer-size", "1M", "-handshake_port", "0") as served:
            self.assertEqual(served.facts["size"], str(1 << 20))

    def test_a_bad_variable_stops_the_start(self):
        done = tool.run_program("neap-example", env={"MC_TCP_STATUS_TIMEOUT_SEC": "soon"})
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("MC_TCP_STATUS_TIMEOUT_SEC", done.stderr)
        self.assertIn("soon", done.stderr)

    # --- starting

    def test_healthy_start_prints_no_error(self):
        for name in ("neap-example", "neap-bench"):
            with Served(name, "--buffer_size=1M") as served:
                self.assertRegex(served.line, r"^segment 127\.0\.0\.1:\d+ data_port \d+ buffer 0x[0-9a-f]+ size 1048576$")
                self.assertEqual(served.end(), (OK, "", ""))
            with Served(name, "--buffer_size=1M") as served:
                self.assertEqual(served.end(signal.SIGINT), (OK, "", ""))

    def test_listens_where_it_was_told(self):
        with Served("neap-example", "--buffer_size=1M") as served:
            listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout.split()
            ports = {served.facts["segment"].rsplit(":", 1)[1], served.facts["data_port"]}
            self.assertEqual({word for word in listening if word.rsplit(":", 1)[-1] in ports}, {"127.0.0.1:" + port for port in ports})

    def test_ready_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "ready")
            with Served("neap-example", "--buffer_size=1M", "--ready-file=" + path) as served:
                with open(path) as file:
                    self.assertEqual(file.read(), served.facts["segment"] + "\n")
            done = tool.run_program("neap-example", "--buffer_size=1M", "--ready_file=/nowhere/ready")
            self.assertEqual(done.returncode, START)
            self.assertIn("/nowhere/ready", done.stderr)

    def test_a_start_that_cannot_serve(self):
        with Served("neap-example", "--buffer_size=1M") as served:
            port = served.facts["segment"].rsplit(":", 1)[1]
            for flag in ("--handshake_port=" + port, "--data_port=" + served.facts["data_port"]):
                done = tool.run_program("neap-example", "--buffer_size=1M", flag)
                self.assertEqual((done.returncode, done.stdout), (START, ""))
                self.assertIn(flag.split("=")[1], done.stderr)
        for name in ("192.0.2.1", "a b", "[::1", ""):
            done = tool.run_program("neap-example", "--buffer_size=1M", "--local_server_name=" + name)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            if done.returncode == OK or not done.stderr:
                self.fail("%r was taken: %s" % (name, done))

    def test_metadata_services(self):
        """A connection string that this build cannot serve is refused by name, with what it has."""
        for text in ("rediss://127.0.0.1:6379", "carrier-pigeon://x", "p2phandshake", ""):
            done = tool.run_program("neap-example", "--buffer_size=1M", "--metadata_server=" + text)
            self.assertIn(done.returncode, (USAGE, START), (text, done))
            self.assertIn("P2PHANDSHAKE", done.stderr, text)
        for text in ("redis://me:secret@127.0.0.1", "redis://127.0.0.1/3", "http://127.0.0.1:8080/metadata?x=y", "http://me:secret@h/m",
                     "me:secret@h:2379", "etcd://h/3"):
            done = tool.run_program("neap-example", "--buffer_size=1M", "--metadata_server=" + text)
            self.assertIn(done.returncode, (USAGE, START), (text, done))
            self.assertNotIn("secret", done.stderr, text)
        port = tool.free_port()
        done = tool.run_program("neap-example", "--buffer_size=1M", "--metadata_server=redis://127.0.0.1:%d" % port, "--publish_seconds=0.5")
        self.assertEqual(done.returncode, START)
        self.assertIn("waited 0.5 s for it (--publish_seconds", done.stderr)
        self.assertIn("redis://127.0.0.1:%d" % port, done.stderr)

    # --- transfers

    def test_example(self):
        with Served("neap-example", "--buffer_size=4M") as served:
            for arguments in ((), ("--transfer_size=3333333",), ("--file=" + os.path.join(tool.SOURCE, "tests/data/conversation_trace.jsonl"),)):
                out = self.run_ok("neap-example", "--mode=initiator", "--segment_id=" + served.facts["segment"], "--buffer_size=4M", *arguments)
                self.assertRegex(out, r"(?s)WRITE \d+ bytes.*READ +\d+ bytes.*verified: all \d+ bytes")
            done = tool.run_program("neap-example", "--mode=initiator", "--segment_id=" + served.facts["segment"], "--buffer_size=8M",
                                    "--transfer_size=8M")
            self.assertEqual(done.returncode, START)
            self.assertIn("--buffer_size", done.stderr)
            self.assertEqual(served.end(), (OK, "", ""))

    def test_example_with_a_plain_peer(self):
        for proto in (1, 2):
            with Target(1 << 20, proto=proto) as target:
                out = self.run_ok("neap-example", "--mode=initiator", "--segment_id=" + target.name, "--buffer_size=1M", "--transfer_size=500000")
                self.assertIn("verified", out)

    def test_nobody_there(self):
        name = "127.0.0.1:%d" % tool.free_port()
        for program, extra in (("neap-example", []), ("neap-bench", SHORT)):
            done = tool.run_program(program, "--mode=initiator", "--segment_id=" + name, *extra)
            self.assertEqual(done.returncode, START)
            self.assertIn(name, done.stderr)
            self.assertIn("refused", done.stderr)

    def test_bench_pair(self):
        for framing in ("neap", "v2", "v1") if tool.SLOW == 1 else ("neap",):
            out = self.run_ok("neap-bench", "--json", "--verify", "--block_size=512,4K,100000", "--batch_size=16", "--framing=" + framing, *SHORT)
            rows = [json.loads(line) for line in out.splitlines()]
            self.assertEqual([(row["operation"], row["block_size"]) for row in rows],
                             [(operation, size) for operation in ("write", "read") for size in (512, 4096, 100000)])
            for row in rows:
                for key in BENCH_KEYS:
                    self.assertIn(key, row)
                    self.assertIsNotNone(row[key], (key, row))
                self.assertIs(row["verified"], True)
                self.assertGreater(row["gb_per_s"], 0)
                self.assertLessEqual(row["p50_us"], row["p99_us"])
                self.assertEqual(row["failed"], 0)

    def test_bench_shapes(self):
        shapes = [["--wait_batch"], ["--threads=2", "--lanes=2"], ["--hot"], ["--busy"], ["--pin"], ["--batch_size=1"], ["--block_size=8M"]]
        for flags in shapes if tool.SLOW == 1 else shapes[:2]:
            out = self.run_ok("neap-bench", "--json", "--verify", "--operation=write", "--block_size=4K", *SHORT, *flags)
            for line in out.splitlines():
                self.assertIs(json.loads(line)["verified"], True, flags)

    def test_bench_table_and_plot(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "plot.svg")
            out = self.run_ok("neap-bench", "--plot=" + path, "--verify", *SHORT)
            self.assertEqual(len(re.findall(r"^(?:write|read) .* equal$", out, re.M)), 6, out)
            with open(path) as file:
                svg = file.read()
            import xml.dom.minidom
            document = xml.dom.minidom.parseString(svg)
            self.assertEqual(len(document.getElementsByTagName("circle")), 6)

    def test_bench_with_two_processes_and_a_plain_target(self):
        with Served("neap-bench", "--buffer_size=8M") as served:
            out = self.run_ok("neap-bench", "--mode=initiator", "--segment_id=" + served.facts["segment"], "--json", "--block_size=64K", *SHORT)
            self.assertEqual(len(out.splitlines()), 2)
            self.assertEqual(served.end(), (OK, "", ""))
        with Target(1 << 20) as target:
            done = tool.run_program("neap-bench", "--mode=initiator", "--segment_id=" + target.name, "--json", "--verify", "--block_size=4K",
                                    "--operation=write", "--buffer_size=1M", "--duration=0.1", "--warmup=0")
            self.assertEqual(done.returncode, OK, done)
            row = json.loads(done.stdout)
            self.assertIsNone(row["cpu_s_per_gib_target"])
            self.assertIs(row["verified"], True)
            self.assertIn("does not answer", done.stderr)

    def test_bench_reports_failures(self):
        """The target dies in the middle: the row says so and the exit status does."""
        with Served("neap-bench", "--buffer_size=8M") as served:
            initiator = subprocess.Popen([tool.program("neap-bench"), "--mode=initiator", "--segment_id=" + served.facts["segment"],
                                          "--duration=60", "--block_size=4K", "--buffer_size=8M"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True)
            for _ in range(3):
                initiator.stdout.readline()  # the head: the load has begun or is about to
            served.process.kill()
            out, err = initiator.communicate(timeout=tool.PATIENCE)
            self.assertEqual(initiator.returncode, FAILED, err)
            self.assertIn(served.facts["segment"], err)

    def test_signals_end_a_measurement(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            bench = subprocess.Popen([tool.program("neap-bench"), "--duration=60", "--buffer_size=8M"], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
            for _ in range(3):
                bench.stdout.readline()
            bench.send_signal(number)
            bench.communicate(timeout=tool.PATIENCE)
            self.assertEqual(bench.returncode, FAILED)


if __name__ == "__main__":
    tool.main()
