"""What tests of the RDMA transport between processes have in common: Soft-RoCE rails in the guest of tools/rxe-run, of which targets have
rxe0 and rxe1 and sources rxe2 and rxe3."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import tool  # noqa: E402

MIB = 1 << 20
TARGET, SOURCE = ("rxe0", "rxe1"), ("rxe2", "rxe3")
tool.PATIENCE = 180 * tool.SLOW  # for what never comes: the machine is emulated, beside other work
ENDED = ("COMPLETED", "FAILED", "TIMEOUT")


def shell(*words):
    subprocess.run(words, check=True, capture_output=True)


class Rdma(tool.Case):
    def start(self, devices, *flags, name=None, **options):
        return tool.Tool("protocol=rdma", "device_filter=" + ",".join(devices),
                         "local_name=" + (name or "10.77.0.%d" % (int(devices[0][3:]) + 1)), *flags, **options)

    def pair(self, target_bytes, source_bytes=None, *flags, targets=TARGET, sources=SOURCE, name=None):
        target, source = self.start(targets, *flags, name=name), self.start(sources, *flags, name=name)
        self.ready(target, len(targets))
        self.ready(source, len(sources))
        self.settle(target, "memory", target_bytes)
        self.settle(source, "memory", source_bytes or target_bytes)
        return target, source, self.opened(source, target)

    def opened(self, source, target):
        opened = source.open(target.name)
        self.assertEqual(opened["protocol"], "rdma", opened)
        return opened["segment"]

    def ready(self, process, count):
        tool.until("devices", lambda: sum(device["usable"] for device in self.devices(process).values()) == count)

    def devices(self, process):
        return {device["name"]: device for device in process.ask("devices")["devices"]}

    def endpoints(self, process):
        return process.ask("devices")["endpoints"]

    def settle(self, process, name, size, make="buffer"):
        getattr(process, make)(name, size)
        self.settled(process, name)

    def settled(self, process, name):
        event = process.ask("settle", name, event="settled")
        self.assertEqual(event["error"], 0, event)

    def sent(self, process):
        return {name: device["bytes"] for name, device in self.devices(process).items()}

    def load(self, source, target, segment, seconds):
        """Writes of 4 MiB until the time is over; how many there were, and that each was completed."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, 4 * MIB))
            count += 1
        return count

    def both_carry(self, source, target, segment):
        def carried():
            before = self.sent(source)
            self.load(source, target, segment, 0.5)
            after = self.sent(source)
            return all(after[rail] > before[rail] for rail in SOURCE) and after
        tool.until("both rails are in use", carried)

    def ends_honestly(self, source, outcome):
        """Whatever it is, and the buffer is ours in the end."""
        self.assertIn(outcome["status"], ENDED, outcome)
        if outcome["buffer"] == "HELD":
            source.wait("buffer_released")

    def works(self, source, target, segment, seed):
        """At last, however often it takes: what was broken is whole."""
        def once():
            source.fill("memory", 0, MIB, seed)
            outcome = source.transfer("write", segment, target.address("memory"), "memory", 0, MIB)
            self.ends_honestly(source, outcome)
            return outcome["status"] == "COMPLETED"
        tool.until("it works again", once)
        self.assertTrue(target.holds("memory", 0, MIB, seed))
