"""The RDMA transport on Soft-RoCE in bad conditions: other MTUs and addresses, processes killed in each state of an endpoint; with NEAP_FULL
also cables that are pulled for long, loss, delay, many peers and 1 GiB. Runs as root in the guest of tools/rxe-run."""

import contextlib
import json
import signal
import sys
import threading
import time
import unittest

from rdma import MIB, SOURCE, TARGET, Rdma, shell, tool

full = unittest.skipUnless(tool.FULL, "NEAP_FULL")


@contextlib.contextmanager
def changed(there, back):
    """Each of them is a list of command lines."""
    try:
        for line in there:
            shell(*line.split())
        yield
    finally:
        for line in back:
            shell(*line.split())


class Links(Rdma):
    def test_one_end_has_a_smaller_mtu(self):
        """Frames of 1500 bytes at one device: an MTU of 1024 there and 4096 at the peer's. Both take the smaller one; else no piece would come
        through. Some are repeated when the emulated machine has lost packets."""
        with changed(["ip link set %s2 mtu 1500" % end for end in ("nic", "sw")], ["ip link set %s2 mtu 4200" % end for end in ("sw", "nic")]):
            target, source, segment = self.pair(8 * MIB, targets=("rxe0",), sources=("rxe2",))
            for opcode in ("write", "read"):
                source.fill("memory", 0, 8 * MIB, 6)
                self.assertCompleted(source.transfer(opcode, segment, target.address("memory"), "memory", 0, 8 * MIB))
                self.assertTrue(source.holds("memory", 0, 8 * MIB, 6) and target.holds("memory", 0, 8 * MIB, 6))
            sys.stderr.write("    of 256 pieces %d were repeated\n" % source.ask("devices")["repeats"])

    def test_addresses_with_holes(self):
        """The address at index 1 has gone; the one that came for it, or the one of IPv6, is used."""
        with changed(["ip addr flush dev nic2 scope global", "ip addr add 10.77.1.3/16 dev nic2", "ip addr add 10.77.0.3/24 dev nic2",
                      "ip addr del 10.77.1.3/16 dev nic2"],
                     ["ip addr flush dev nic2 scope global", "ip addr add 10.77.0.3/24 dev nic2"]):
            target, source, segment = self.pair(MIB, targets=("rxe0",), sources=("rxe2",), name="127.0.0.1")
            self.works(source, target, segment, 7)
            self.assertGreater(sum(self.sent(source).values()), 0)


class States(Rdma):
    """One of two processes is killed as soon as an endpoint of its enters a state; the other one ends all it has honestly, lets go of its
    half, and serves the next."""

    def states(self):
        machines = {machine["name"]: machine for machine in json.loads(tool.run_program("neap-fsm", "json").stdout)["machines"]}
        return [state["name"] for state in machines["rdma_endpoint"]["states"] if state["name"] != "IDLE"]

    def moves(self, one, other, segments, rounds):
        """Both write to each other and drop their endpoints, until one is dead or the rounds are over."""
        dead = threading.Event()

        def go(process, peer, segment):
            try:
                for _ in range(rounds):
                    if dead.is_set():
                        return
                    tags = [process.submit(opcode, segment, peer.address("memory"), "memory", 0, MIB) for opcode in ("write", "read")]
                    for tag in tags:
                        self.ends_honestly(process, process.outcome(tag))
                    process.ask("drop_endpoints")
            except tool.Died:
                if process.process.poll() is None:
                    raise
                dead.set()

        failures = []

        def guarded(*words):
            try:
                go(*words)
            except Exception as error:  # of this thread, told by the other
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=words) for words in ((one, other, segments[0]), (other, one, segments[1]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def killed_in(self, state):
        """True when it came about."""
        victim = self.start(("rxe0",), env={"NEAP_KILL_AT": "rdma_endpoint." + state})
        other = self.start(("rxe2",), "progress_ms=5000")
        for process in (victim, other):
            self.ready(process, 1)
            self.settle(process, "memory", MIB)
        self.moves(victim, other, (self.opened(victim, other), self.opened(other, victim)), 40 if tool.FULL else 10)
        came = victim.process.poll() == -signal.SIGKILL
        after = self.start(("rxe1",))
        self.ready(after, 1)
        self.settle(after, "memory", MIB)
        self.works(other, after, self.opened(other, after), 11)
        self.works(after, other, self.opened(after, other), 12)
        other.ask("drop_endpoints")
        after.ask("drop_endpoints")
        tool.until("no endpoint is left", lambda: not self.endpoints(other))
        self.assertEqual((other.quit(), after.quit()), (0, 0))
        if not came:
            victim.quit()
        return came

    def test_killed_in_each_state(self):
        reached, states = [], self.states() if tool.FULL else ["CONNECTING", "READY", "DESTROYING"]
        for state in states:
            with self.subTest(state=state):
                if self.killed_in(state):
                    reached.append(state)
        print("    killed in %s; not reached: %s" % (" ".join(reached), " ".join(set(states) - set(reached)) or "none"))
        self.assertGreaterEqual(set(reached), {"CONNECTING", "READY", "DESTROYING"})


@full
class Weather(Rdma):
    def under(self, there, back, seconds, all_complete=False):
        """Writes and reads while it lasts; each ends, what is said to be moved is; and afterwards all is well."""
        target, source, segment = self.pair(8 * MIB, 4 * MIB, "progress_ms=5000")
        target.fill("memory", 4 * MIB, 4 * MIB, 1)
        self.both_carry(source, target, segment)
        seen = {}
        with changed(there, back):
            end, seed = time.monotonic() + seconds, 20
            while time.monotonic() < end:
                seed += 1
                for opcode, offset in (("write", 0), ("read", 4 * MIB)):
                    source.fill("memory", 0, 4 * MIB, seed)
                    outcome = source.transfer(opcode, segment, target.address("memory") + offset, "memory", 0, 4 * MIB)
                    self.ends_honestly(source, outcome)
                    seen[outcome["status"]] = seen.get(outcome["status"], 0) + 1
                    if outcome["status"] == "COMPLETED":
                        right = target.holds("memory", 0, 4 * MIB, seed) if offset == 0 else source.holds("memory", 0, 4 * MIB, 1, offset)
                        self.assertTrue(right, outcome)
        print("    %s: %s" % (self.id(), seen))
        if all_complete:
            self.assertEqual(set(seen), {"COMPLETED"})
        self.works(source, target, segment, 5)
        self.both_carry(source, target, segment)

    def test_one_cable_is_pulled_for_longer_than_the_retries(self):
        self.under(["ip link set sw2 down"], ["ip link set sw2 up"], 20)

    def test_all_cables_are_pulled_for_longer_than_the_retries(self):
        self.under(["ip link set sw2 down", "ip link set sw3 down"], ["ip link set sw2 up", "ip link set sw3 up"], 20)

    def netem(self, *what):
        return (["tc qdisc add dev sw%d root netem %s" % (i, " ".join(what)) for i in range(4)],
                ["tc qdisc del dev sw%d root" % i for i in range(4)], 30)

    def test_five_percent_are_lost(self):
        self.under(*self.netem("loss", "5%"))

    def test_a_delay_of_one_and_a_half_seconds(self):
        """Longer than the retries of a queue pair."""
        self.under(*self.netem("delay", "1500ms"))


@full
class Size(Rdma):
    def test_one_gib(self):
        size = 1024 * MIB
        target, source, segment = self.pair(size)
        source.fill("memory", 0, size, 1)
        self.assertCompleted(source.transfer("write", segment, target.address("memory"), "memory", 0, size, timeout=20 * tool.PATIENCE))
        self.assertTrue(target.holds("memory", 0, size, 1))
        target.fill("memory", 0, size, 2)
        self.assertCompleted(source.transfer("read", segment, target.address("memory"), "memory", 0, size, timeout=20 * tool.PATIENCE))
        self.assertTrue(source.holds("memory", 0, size, 2))

    def test_sixty_four_paths_and_room_for_sixteen(self):
        """16 peers with four devices each, from one device whose connections are limited: those that are idle make room."""
        source = self.start(("rxe3",), "endpoints_max=16")
        self.ready(source, 1)
        self.settle(source, "memory", MIB)
        peers = [self.start(tuple("rxe%d" % ((first + i) % 4) for i in range(4))) for first in list(range(4)) * 4]
        for peer in peers:
            self.ready(peer, 4)
            self.settle(peer, "memory", MIB)
        segments = [self.opened(source, peer) for peer in peers]
        # All at once: there is more than there is room for, and they take turns.
        tags = [source.submit("write", segment, peer.address("memory"), "memory", 0, MIB) for peer, segment in zip(peers, segments)]
        for tag in tags:
            self.assertCompleted(source.outcome(tag))
        for round_number in range(3):
            source.fill("memory", 0, MIB, round_number + 1)
            for peer, segment in zip(peers, segments):
                self.assertCompleted(source.transfer("write", segment, peer.address("memory"), "memory", 0, MIB))
                self.assertLessEqual(self.endpoints(source), 2 * 16 + 16)  # those that leave are counted beside their successors
                self.assertTrue(peer.holds("memory", 0, MIB, round_number + 1))
        tool.until("those that leave are gone", lambda: self.endpoints(source) <= 16)


if __name__ == "__main__":
    tool.main()
