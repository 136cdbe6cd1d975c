"""What every metadata store has to do, whichever it is: engines that publish there, find each other and transfer."""

import signal
import sys
import time

import tool

ETAKEN, EREJECTED, EMETADATA = -2020, -104, -200
RANGE_NOT_REMOTE = 8  # enum neap_cause


def published(started, error=0, timeout=None):
    return started.wait("publication", error=error, timeout=timeout)


class Stores(tool.Case):
    """What the tests of each store have in common."""

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

    def meet(self, source, target, segment, length=4096):
        """A write. What was published before the memory was registered may be all there is yet."""
        def attempt():
            outcome = source.transfer("write", segment, target.address("memory"), "memory", 0, length)
            return outcome if outcome["cause"] != RANGE_NOT_REMOTE else None

        outcome = tool.until("the memory is published", attempt)
        self.assertCompleted(outcome)
        return outcome

    def transfer(self, source, target):
        segment = source.open(target.name)["segment"]
        target.zero("memory", 0, 65536)
        source.fill("memory", 0, 65536, 7)
        self.meet(source, target, segment, 65536)
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
        sys.stderr.write("    published again %.2f s after the restart\n" % (time.monotonic() - began))
        self.transfer(source, target)

    def test_a_server_that_stands_still(self):
        target, source = self.start("target"), self.start("source")
        segment = source.open("target")["segment"]
        self.meet(source, target, segment)
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
