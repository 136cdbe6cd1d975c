"""A store on machines with RDMA devices: two owners on rxe0 and rxe1, accessors on rxe2 and rxe3. Puts are FORWARD, accessors and owners are
stopped for longer than their leases, and the memory of what was put has its next use at once. No byte is ever wrong, over devices or not.
Runs as root in the guest of tools/rxe-run."""

import glob
import signal
import time

from rdma import MIB, SOURCE, TARGET, Rdma, tool
from cluster import Cluster

ROUNDS = 400 if tool.FULL else 20
STOPS = 40 if tool.FULL else 4
LEASE_MS = 500
TIER = '{"tiers":[{"type":"DRAM","capacity":"64MB","priority":100,"slab_size":"16MB"}]}'


def packets():
    """What each device has sent."""
    counts = {}
    for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"):
        with open(path) as file:
            counts[path.split("/")[4]] = int(file.read())
    return counts


class Accessor(tool.Tool):
    binary = "tests/integ/store_tool"


class Store(Rdma):
    def cluster(self):
        flags = ["--tiered_backend_config=" + TIER, "--p2p_key_lease_duration_ms=%d" % LEASE_MS]
        group = Cluster(2, "--protocol=rdma", "--device_names=" + ",".join(TARGET), *flags)
        self.addCleanup(group.__exit__)
        return group

    def accessor(self, group, name, put, get, rounds=ROUNDS, marks=1):
        return Accessor("master=127.0.0.1:%d" % group.port, "name=" + name, "size=%d" % MIB, "put=" + put, "get=" + get, "rounds=%d" % rounds,
                        "marks=%d" % marks, "protocol=rdma", "device_filter=" + ",".join(SOURCE))

    def ended(self, accessor, rounds=ROUNDS):
        seen = accessor.wait("ended", timeout=tool.PATIENCE + 20 * rounds * tool.SLOW)
        self.assertEqual((seen["wrong"], seen["lost"], seen["returned"]), (0, 0, 0), seen)
        self.assertEqual(seen["completed"] + seen["refused"], rounds, seen)
        self.assertEqual(accessor.process.wait(tool.PATIENCE), 0, seen)
        print("    %s: %d completed, %d refused, %d MiB over devices" % (self.id(), seen["completed"], seen["refused"], seen["on_devices"] // MIB))
        return seen

    def test_stopped_beyond_the_lease_while_memory_is_used_again(self):
        group = self.cluster()
        load = self.accessor(group, "load", "forward", "forward")
        accessor = self.accessor(group, "stopped", "forward", "reverse", marks=STOPS)
        receivers = [accessor.process] + [client.process for client in group.clients]
        for number in range(STOPS):
            accessor.wait("mark", timeout=tool.PATIENCE + 20 * ROUNDS * tool.SLOW)
            process = receivers[number % 3] if number % 2 else accessor.process
            process.send_signal(signal.SIGSTOP)
            time.sleep(2 * LEASE_MS / 1000)  # it is what happens, not a wait for something
            process.send_signal(signal.SIGCONT)
        self.ended(accessor)
        self.ended(load)
        for put, get in (("forward", "forward"), ("reverse", "reverse")):
            before = packets()
            seen = self.ended(self.accessor(group, put, put, get, 20), 20)
            after = packets()
            print("    %s: packets of each device: %s" % (put, {name: after[name] - before[name] for name in after}))
            self.assertGreater(seen["completed"], 0)
            self.assertTrue(put == "reverse" or seen["on_devices"], "who asks has moved them over devices: %s" % seen)


if __name__ == "__main__":
    tool.main()
