"""An application that forks while it has connections, and whose child keeps all descriptors."""

import sys
import time

import tool

FORKED = -2006


class Fork(tool.Case):
    def test_a_child_may_not_use_what_it_inherits(self):
        target, source = tool.Tool(), tool.Tool("lanes=10")
        target.buffer("memory", 1 << 20)
        source.buffer("memory", 1 << 20)
        segment = source.open(target.name)["segment"]
        tag = source.submit("write", segment, target.address("memory"), "memory", 0, 4096, count=100, quiet=1)
        self.assertBatchCompleted(source.batch(tag))
        child = source.ask("fork", event="child")
        self.assertEqual((child["run"], child["submit"]), (FORKED, FORKED))
        source.wait("forked")

        # The parent goes on, with the connections it has and with new ones, and does not spin when it closes what the child still has.
        source.fill("memory", 0, 4096, 4)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4096))
        self.assertEqual(source.ask("close", segment)["error"], 0)
        time.sleep(0.3)
        before = source.stats()
        time.sleep(0.5)
        after = source.stats()
        self.assertLessEqual(after["wakeups"] - before["wakeups"], 3 + after["timers_fired"] - before["timers_fired"])
        segment = source.open(target.name)["segment"]
        self.assertCompleted(source.transfer("read", segment, target.address("memory"), "memory", 0, 4096))
        self.assertTrue(source.holds("memory", 0, 4096, 4))


if __name__ == "__main__":
    tool.main()
