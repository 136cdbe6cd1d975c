"""Networks that swallow packets, have no IPv4, or more than one address. Each in a network namespace of its own."""

import time

import tool


class Networks(tool.Case):
    def setUp(self):
        self.namespace = tool.Namespace()
        self.addCleanup(self.namespace.remove)

    def start(self, *flags):
        started = tool.Tool(*flags, prefix=self.namespace.prefix)
        if not started.failed:
            started.buffer("memory", 1 << 20)
        return started

    def block(self, port):
        self.namespace.drop("tcp", "dport", str(port))

    def test_black_hole(self):
        """One peer's packets vanish; transfers to it fail at the connect deadline, transfers to another go on."""
        source, healthy, dead = self.start("connect_ms=800", "handshake_ms=800", "retries=1"), self.start(), self.start()
        good = source.open(healthy.name)["segment"]
        bad = source.open(dead.name)["segment"]
        times = []
        for _ in range(50):
            times.append(source.transfer("write", good, healthy.address("memory"), "memory", 0, 4096)["ms"])
        self.block(dead.data_port)
        self.block(dead.handshake_port)
        tag = source.submit("write", bad, dead.address("memory"), "memory", 0, 4096)
        meanwhile = []
        for _ in range(100):
            outcome = source.transfer("write", good, healthy.address("memory"), "memory", 0, 4096)
            self.assertCompleted(outcome)
            meanwhile.append(outcome["ms"])
        self.assertTrue(source.quiet("outcome", tag=tag, seconds=0))
        self.assertLess(sorted(meanwhile)[95], max(20 * tool.SLOW, 4 * max(times)))
        outcome = source.outcome(tag)
        self.assertIn(outcome["status"], ("FAILED", "TIMEOUT"), outcome)
        self.assertIn(dead.name, outcome["text"])
        self.assertLess(outcome["ms"], 5000 * tool.SLOW)
        opened = source.ask("open", "127.0.0.1:%d" % dead.data_port, event="opened")
        self.assertLess(opened["error"], 0)
        self.assertGreaterEqual(opened["ms"], 700)

    def test_silent_loss_of_an_established_connection(self):
        source, target = self.start("progress_ms=500", "connect_ms=500", "handshake_ms=500", "retries=1"), self.start()
        segment = source.open(target.name)["segment"]
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        self.block(target.data_port)
        outcome = source.transfer("write", segment, target.address("memory"), "memory", 0, 4096)
        self.assertIn(outcome["status"], ("TIMEOUT", "FAILED"), outcome)
        self.assertLess(outcome["ms"], 3000 * tool.SLOW)
        self.namespace.mend()
        end = time.monotonic() + tool.PATIENCE
        while source.transfer("write", segment, target.address("memory"), "memory", 0, 4096)["status"] != "COMPLETED":
            self.assertLess(time.monotonic(), end, "never well again")

    def test_no_ipv4_anywhere(self):
        self.namespace.run("ip", "addr", "flush", "dev", "lo", check=False)
        self.namespace.run("ip", "-6", "addr", "add", "::1/128", "dev", "lo", "nodad", check=False)
        self.assertNotIn("127.0.0.1", self.namespace.run("ip", "addr").stdout)
        target, source = self.start("local_name=::1"), self.start("local_name=[::1]")
        self.assertIsNone(target.failed)
        self.assertTrue(target.name.startswith("[::1]:"), target.name)
        segment = source.open(target.name)["segment"]
        source.fill("memory", 0, 1 << 20, 3)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 1 << 20))
        self.assertTrue(target.holds("memory", 0, 1 << 20, 3))
        example = self.namespace.run(tool.program("neap-example"), "--mode=initiator", "--local_server_name=::1", "--segment_id=" + target.name,
                                     "--buffer_size=1M", check=False)
        self.assertEqual(example.returncode, 0, example.stderr)
        self.assertIsNotNone(self.start("local_name=127.0.0.1").failed)

    def test_several_addresses(self):
        """The address that was named is published and listened on; the others are not."""
        for i in (1, 2, 3):
            self.namespace.run("ip", "addr", "add", "10.77.%d.1/24" % i, "dev", "lo")
        target = self.start("local_name=10.77.2.1")
        self.assertTrue(target.name.startswith("10.77.2.1:"), target.name)
        listening = self.namespace.run("ss", "-Hltn").stdout.split()
        bound = sorted(word for word in listening if word.endswith((":%d" % target.handshake_port, ":%d" % target.data_port)))
        self.assertEqual(bound, sorted("10.77.2.1:%d" % port for port in (target.handshake_port, target.data_port)))
        source = self.start("local_name=10.77.3.1")
        segment = source.open(target.name)["segment"]
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        everywhere = self.start("local_name=10.77.1.1", "bind_address=0.0.0.0")
        self.assertTrue(everywhere.name.startswith("10.77.1.1:"))
        for name in ("0.0.0.0", "::"):
            failed = self.start("local_name=" + name).failed
            self.assertIsNotNone(failed, "%s was published as an address to reach us at" % name)
            self.assertIn(name, failed["why"])
        elsewhere = self.start("local_name=192.0.2.1", "bind_address=192.0.2.1").failed
        self.assertIn("192.0.2.1", elsewhere["why"])


if __name__ == "__main__":
    tool.main()
