"""Drives transfer_tool and other programs from tests: starts them, sends commands, waits for events with a deadline."""

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest

BUILD = os.environ.get("NEAP_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
SOURCE = os.environ.get("NEAP_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FULL = bool(os.environ.get("NEAP_FULL"))
SLOW = float(os.environ.get("CK_TIMEOUT_MULTIPLIER") or 1)  # how much slower than usual this build is
PATIENCE = 20 * SLOW  # for things that come at once when all is well


def program(name):
    return os.path.join(BUILD, name)


def _stands_still(pid):
    for task in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/stat" % (pid, task)) as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "T":
                    return False
        except FileNotFoundError:
            return False  # a thread that has just ended
    return True


def stop(pid):
    """All its threads have stopped when this returns: one that still runs may answer what is asked next."""
    os.kill(pid, signal.SIGSTOP)
    while not _stands_still(pid):
        time.sleep(0.001)


def send_signal(process, number):
    if number == signal.SIGSTOP:
        stop(process.pid)
    else:
        process.send_signal(number)


class Died(AssertionError):
    pass


class Tool:
    """A transfer_tool process. Each event it prints is a dict; wait() takes the next one that fits and drops none: events that did
    not fit stay for later waits."""

    everyone = []
    binary = "tests/integ/transfer_tool"

    def __init__(self, *flags, prefix=(), env=None, wait=True):
        arguments = list(prefix) + [program(self.binary)] + ["--" + flag for flag in flags]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=dict(os.environ, **(env or {})))
        Tool.everyone.append(self)
        self.queue = queue.Queue()
        self.kept = []
        self.tags = 0
        self.buffers = {}
        threading.Thread(target=self._pump, daemon=True).start()
        if wait:
            self.started()

    def started(self):
        """Waits until it is ready, or has failed to start."""
        first = self.wait("ready", "failed")
        self.failed = first if first["event"] == "failed" else None
        self.name = first.get("name")
        self.instance = first.get("instance")
        self.handshake_port = first.get("handshake_port")
        self.data_port = first.get("data_port")
        self.pid = first.get("pid")
        return self

    @classmethod
    def several(cls, count, *flags):
        """Starts them at once."""
        return [started.started() for started in [cls(*flags, wait=False) for _ in range(count)]]

    def _pump(self):
        for line in self.process.stdout:
            try:
                self.queue.put(json.loads(line))
            except ValueError:
                self.queue.put({"event": "garbage", "line": line})
        self.queue.put(None)

    def send(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Died("transfer_tool is gone (%s)" % self.process.poll())

    def wait(self, *events, timeout=None, **fields):
        """The next event of these kinds whose fields are as given."""
        def fits(event):
            return event["event"] in events and all(event.get(key) == value for key, value in fields.items())

        for event in self.kept:
            if fits(event):
                self.kept.remove(event)
                return event
        end = time.monotonic() + (PATIENCE if timeout is None else timeout)
        while True:
            try:
                event = self.queue.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise Died("no %s %s; kept back: %s" % ("/".join(events), fields or "", self.kept[-5:])) from None
            if event is None:
                self.queue.put(None)
                raise Died("transfer_tool ended (%s) before %s %s; kept back: %s" %
                           (self.process.wait(), "/".join(events), fields or "", self.kept[-5:]))
            if fits(event):
                return event
            self.kept.append(event)

    def quiet(self, *events, seconds, **fields):
        """True when no such event comes for so long."""
        try:
            self.wait(*events, timeout=seconds, **fields)
        except Died:
            return self.process.poll() is None
        return False

    def ask(self, verb, *words, event=None, timeout=None, **fields):
        self.send(verb, *words)
        return self.wait(event or verb, timeout=timeout, **fields)

    # --- memory

    def buffer(self, name, size, access="open"):
        event = self.ask("buffer", name, size, access)
        if event["error"]:
            raise AssertionError(event)
        self.buffers[name] = event
        return event["address"]

    def part(self, name, parent, offset, size, access="open"):
        event = self.ask("part", name, parent, offset, size, access, event="buffer")
        if event["error"]:
            raise AssertionError(event)
        self.buffers[name] = event
        return event["address"]

    def loop(self, name, size):
        """A buffer of any size over a little memory."""
        event = self.ask("loop", name, size, event="buffer")
        if event["error"]:
            raise AssertionError(event)
        self.buffers[name] = event
        return event["address"]

    def ranges(self, name, size, count, batch, *turns):
        """`size` bytes registered as `count` ranges, `batch` in each call; "turns": with a turn of the reactor after each. Not judged."""
        event = self.buffers[name] = self.ask("ranges", name, size, count, batch, *turns)
        return event

    def address(self, name):
        return self.buffers[name]["address"]

    def fill(self, name, offset, length, seed):
        self.ask("fill", name, offset, length, seed)

    def zero(self, name, offset, length):
        self.ask("zero", name, offset, length)

    def holds(self, name, offset, length, seed, origin=None):
        """True when the range holds the pattern of that seed."""
        words = (name, offset, length, seed) + (() if origin is None else (origin,))
        return self.ask("check", *words)["equal"]

    def is_zero(self, name, offset, length):
        return self.ask("check_zero", name, offset, length)["equal"]

    # --- segments and transfers

    def open(self, name, timeout=None):
        event = self.ask("open", name, event="opened", timeout=timeout)
        if event["error"]:
            raise AssertionError("open %s: %s" % (name, event))
        return event

    def submit(self, opcode, segment, address, buffer, offset, length, **options):
        self.tags += 1
        tag = "t%d" % self.tags
        self.send(opcode, tag, segment, address, buffer, offset, length, *("%s=%s" % item for item in options.items()))
        event = self.wait("submitted", "bad_command")
        if event["event"] != "submitted" or event["error"]:
            raise AssertionError("%s refused: %s" % (opcode, event))
        return tag

    def outcome(self, tag, timeout=None):
        return self.wait("outcome", tag=tag, timeout=timeout)

    def batch(self, tag, timeout=None):
        return self.wait("batch", tag=tag, timeout=timeout)

    def transfer(self, opcode, *words, timeout=None, **options):
        """Submits one request and waits for its outcome."""
        return self.outcome(self.submit(opcode, *words, **options), timeout)

    def stats(self):
        return self.ask("stats")

    # --- life

    def stop(self):
        stop(self.pid)

    def proceed(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def quit(self, timeout=None):
        """Closes the engine and ends; the exit status."""
        if self.process.poll() is None:
            self.send("quit")
            self.process.wait(PATIENCE if timeout is None else timeout)
        return self.process.returncode

    def discard(self):
        if self.process.poll() is None:
            try:
                os.kill(self.process.pid, signal.SIGCONT)
                self.process.stdin.close()
                self.process.wait(PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except OSError:
            pass


class Case(unittest.TestCase):
    """Ends every tool a test started, and looks that each still could end cleanly."""

    def tearDown(self):
        tools, Tool.everyone = Tool.everyone, []
        for tool in tools:
            tool.discard()
        for tool in tools:
            if tool.process.returncode not in (0, 3, -signal.SIGKILL):
                self.fail("transfer_tool ended with %s" % tool.process.returncode)

    def assertCompleted(self, outcome):
        self.assertEqual((outcome["status"], outcome["effect"], outcome["buffer"]), ("COMPLETED", "ALL", "YOURS"), outcome)

    def assertBatchCompleted(self, batch):
        self.assertEqual(batch["completed"], batch["total"], batch)


def until(what, holds, seconds=None):
    """Waits until holds() is true; tells what it saw last."""
    end = time.monotonic() + (PATIENCE if seconds is None else seconds)
    while True:
        seen = holds()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError("%s: not within its time; last seen: %r" % (what, seen))
        time.sleep(0.02)


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Namespace:
    """A network namespace with its loopback up; raises SkipTest where that is not permitted."""

    count = 0

    def __init__(self):
        Namespace.count += 1
        self.name = "neap-%d-%d" % (os.getpid(), Namespace.count)
        if os.geteuid() != 0:
            raise unittest.SkipTest("network namespaces need root")
        made = subprocess.run(["ip", "netns", "add", self.name], capture_output=True, text=True)
        if made.returncode:
            raise unittest.SkipTest("cannot make a network namespace: " + made.stderr.strip())
        self.prefix = ("ip", "netns", "exec", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *arguments, check=True):
        return subprocess.run(list(self.prefix) + list(arguments), check=check, capture_output=True, text=True)

    def enter(self):
        """What this thread makes and starts from now on is in it, until `leave`."""
        self.outside = open("/proc/thread-self/ns/net")
        with open("/run/netns/" + self.name) as inside:
            self._set(inside)

    def leave(self):
        self._set(self.outside)
        self.outside.close()

    def _set(self, namespace):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")

    def nft(self, *words):
        result = self.run("nft", *words, check=False)
        if result.returncode:
            raise unittest.SkipTest("nft is not permitted: " + result.stderr.strip().splitlines()[0])

    def drop(self, *rule):
        """Packets that fit the rule vanish, until `mend`."""
        self.nft("add", "table", "inet", "t")
        self.nft("add", "chain", "inet", "t", "out", "{ type filter hook output priority 0; }")
        self.nft("add", "rule", "inet", "t", "out", *rule, "drop")

    def mend(self):
        self.nft("flush", "ruleset")

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


def run_program(name, *arguments, timeout=None, env=None):
    return subprocess.run([program(name)] + list(arguments), capture_output=True, text=True, env=dict(os.environ, **(env or {})),
                          timeout=60 * SLOW if timeout is None else timeout)


class _Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        sys.stderr.write("    %.1f s %s\n" % (time.monotonic() - self.began, test.id()))


def main():
    """Runs the tests of the calling file. Exit status 77 when all were skipped. The last line counts as libcheck does."""
    runner = unittest.TextTestRunner(verbosity=0, resultclass=_Result)
    result = unittest.main(module="__main__", testRunner=runner, exit=False).result
    skipped = len(result.skipped)
    ran = result.testsRun - skipped
    for test, reason in result.skipped:
        print("skipped %s: %s" % (test.id(), reason))
    good = ran - len(result.failures) - len(result.errors)
    print("%d%%: Checks: %d, Failures: %d, Errors: %d" % (100 * good // ran if ran else 100, ran, len(result.failures), len(result.errors)))
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if ran == 0 else 0)
