"""Descriptors of tens of thousands of buffers: published, found and used; refused where they are too long; and made with work that grows as
they do."""

import sys

import tool
from metadata_cases import Stores, published
from metadata_servers import Etcd, Master, Redis, Web

ELIMIT = -2009
PAGE = 4096


class Large(Stores):
    MANY = 20000

    def is_published(self, target, name, count):
        last = b'"addr":%d,' % (target.address(name) + (count - 1) * PAGE)
        return last in self.server.ask("GET", "mooncake/ram/target")


class Many:
    def test_found_and_written_to(self):
        target, source = self.start("target"), self.start("source")
        self.assertEqual(target.ranges("many", self.MANY * PAGE, self.MANY, self.MANY)["error"], 0)
        tool.until("the last one is published", lambda: self.is_published(target, "many", self.MANY))
        segment = source.open("target")["segment"]
        source.fill("memory", 0, PAGE, 5)
        last = (self.MANY - 1) * PAGE
        self.assertCompleted(source.transfer("write", segment, target.address("many") + last, "memory", 0, PAGE))
        self.assertTrue(target.holds("many", last, PAGE, 5, 0))
        beyond = source.transfer("write", segment, target.address("many") + last + PAGE - 8, "memory", 0, 16)
        self.assertEqual((beyond["status"], beyond["effect"]), ("FAILED", "NONE"), "a buffer ends where it ends")
        self.assertEqual(target.quit(), 0)
        self.assertIsNone(self.server.ask("GET", "mooncake/ram/target"))


class ManyOverRedis(Many, Large):
    def setUp(self):
        self.server = Redis()

    def test_longer_than_the_server_takes(self):
        self.server.ask("CONFIG", "SET", "maxmemory", "3mb")
        target = self.start("target")
        former = self.server.ask("GET", "mooncake/ram/target")
        target.ranges("many", self.MANY * PAGE, self.MANY, self.MANY)
        self.assertIn("maxmemory", published(target, ELIMIT)["why"])
        self.assertEqual(self.server.ask("GET", "mooncake/ram/target"), former)
        self.server.ask("CONFIG", "SET", "maxmemory", "0")
        published(target)
        self.assertTrue(self.is_published(target, "many", self.MANY))


class ManyOverHttp(Many, Large):
    def setUp(self):
        self.server = Master()


class ManyOverEtcd(Many, Large):
    def setUp(self):
        self.server = Etcd()


class TooLong(Large):
    """neap-master with a limit that an engine learns of when it is reached."""

    def setUp(self):
        self.server = Master("--http_metadata_value_max=16K")

    def test_longer_than_the_server_takes(self):
        target, source = self.start("target"), self.start("source")
        former = self.server.ask("GET", "mooncake/ram/target")
        target.ranges("many", 1000 * PAGE, 1000, 1000)
        why = published(target, ELIMIT)["why"]
        for word in ("--http_metadata_value_max", "16384 bytes", "larger"):
            self.assertIn(word, why)
        self.assertGreater(int(why.split("a value of ")[1].split(" bytes")[0]), 30000)
        self.assertEqual(self.server.ask("GET", "mooncake/ram/target"), former, "what was right stays until the new one is there")
        self.transfer(source, target)
        self.server.kill()
        self.server.flags = ()
        self.server.start()
        published(target)
        self.assertTrue(self.is_published(target, "many", 1000))
        segment = source.open("target")["segment"]
        self.assertCompleted(source.transfer("write", segment, target.address("many") + 999 * PAGE, "memory", 0, PAGE))

    def test_longer_than_any_store_takes(self):
        """That is known before anything is sent, so nothing is registered: neither of the call, nor in the store."""
        name = "n" * 200
        target = self.start(name)
        refused = target.ranges("many", 60000 * PAGE, 60000, 60000)
        self.assertEqual(refused["error"], ELIMIT, refused)
        for word in ("bytes", "4194304", "larger"):
            self.assertIn(word, refused["why"])


class Work(Large):
    """How much an engine allocates for n and for 2n ranges, and sends to the store. That is counted; no time is judged."""

    def setUp(self):
        self.server = Web()

    def cost(self, name, count, batch, *turns):
        target = self.start(name)
        before = self.server.written
        ranges = target.ranges("many", count * PAGE, count, batch, *turns)
        self.assertEqual(ranges["error"], 0, ranges)
        last = b'"addr":%d,' % (ranges["address"] + (count - 1) * PAGE)
        key = "/metadata?key=mooncake%2Fram%2F" + name
        tool.until("the last one is published", lambda: last in self.server.values[key])
        length = len(self.server.values[key])
        sys.stderr.write("    %d ranges, %s%s: allocated %d bytes for each, %d at once; the document's %d bytes sent %.1f times\n" %
                         (count, "%d a call" % batch, " and turn" if turns else "", ranges["allocated_bytes"] // count,
                          ranges["held_most_bytes"] // count, length, (self.server.written - before) / length))
        return ranges["allocated_bytes"], ranges["held_most_bytes"], self.server.written - before, length

    def test_ranges_of_a_turn(self):
        for batch in (1, 2, 7, 5000):
            half, held, _, _ = self.cost("half%d" % batch, 5000, batch)
            whole, whole_held, sent, length = self.cost("whole%d" % batch, 10000, batch)
            self.assertLess(whole, 3 * half, "work that grows faster than what is registered")
            self.assertLess(whole_held, 3 * held)
            self.assertLess(whole, 1000 * 10000)
            self.assertLess(sent, 3 * length, "a document for each call")

    def test_ranges_of_many_turns(self):
        """A document is sent at most as often as the store answers, so that is told and not judged. Whether one is held at the worst moment
        depends on that too."""
        _, held, _, length = self.cost("half", 5000, 1, "turns")
        _, whole_held, _, _ = self.cost("whole", 10000, 1, "turns")
        self.assertLess(whole_held, 3 * max(held, length))


if __name__ == "__main__":
    tool.main()
