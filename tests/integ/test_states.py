"""The processes of a store, killed and stopped at every state of their machines: a master and clients, a few puts and gets, and one of
them does what NEAP_STOP_AT or NEAP_KILL_AT say. What was said is true, nothing hangs, nothing is left over."""

import json
import random
import re
import signal
import threading
import time
import traceback
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import cluster
import tool
from cluster import Cluster
from tool import until

OK, FAILED, UNREACHED, NO_KEY = 0, 1, 3, 4
DEADLINE = 6 * tool.SLOW  # of each operation
HANG = DEADLINE + tool.PATIENCE  # one that is not through by then ignores its deadline
SIZES = {"small": 1000, "large": 900000, "late": 3000000, "reuse": 3000000}  # late: more than is sent in a turn
STOPPED = 1.5 * cluster.LEASE_MS / 1000  # longer than any lease
COMMON = ["--verify=crc32c", "--local_buffer_size=8M",
          '--tiered_backend_config={"tiers":[{"type":"DRAM","capacity":"32MB","priority":100,"slab_size":"2MB"}]}']
DISK = ('--tiered_backend_config={"tiers":[{"type":"DRAM","capacity":"4MB","priority":100,"slab_size":"2MB"},'
        '{"type":"STORAGE","capacity":"64MB","priority":1,"storage_filepath":"%s"}]}')

# Whose machine it is, and what is done so that it gets about (Scene.do_...).
MACHINES = {
    "store_put": [("accessor", "values")], "store_get": [("accessor", "values")], "key_removal": [("accessor", "values")],
    "rpc_channel": [("accessor", "values")], "rpc_call": [("accessor", "values")],
    "write_record": [("owner", "values")], "pin_record": [("owner", "values")], "move_record": [("owner", "values")],
    "tier_move": [("owner", "disk")], "announcer": [("owner", "values")], "rpc_session": [("owner", "values"), ("master", "values")],
    "store_life": [("owner", "values")], "directory_life": [("master", "recovery")], "client_life": [("master", "values")],
}
# What does not come about by values alone.
OTHERWISE = {
    "store_put.KEEPING": [("accessor", "here")], "store_put.SETTLING": [("accessor", "here")], "store_get.FETCHING": [("accessor", "here")],
    "store_put.REVOKING": [("accessor", "late")], "store_put.WRITING": [("accessor", "values"), ("accessor", "reuse")],
    "rpc_channel.LEAVING": [("accessor", "restart")], "rpc_channel.BACKOFF": [("accessor", "restart")],
    "rpc_channel.IDLE": [("accessor", "restart")],
    "write_record.QUARANTINED": [("owner", "orphan")], "write_record.GONE": [("owner", "orphan")],
    "move_record.BRINGING": [("owner", "disk")],
    "announcer.REGISTERING": [("owner", "restart")], "announcer.BEGINNING": [("owner", "restart")],
    "announcer.ENDING": [("owner", "restart")], "announcer.PAUSED": [("owner", "alone")],
    "client_life.DISCONNECTED": [("master", "silence")], "client_life.CRASHED": [("master", "silence")],
    "client_life.LEAVING": [("master", "farewell")], "client_life.GONE": [("master", "farewell")],
    "directory_life.CLOSED": [("master", "values")],
}
# What happens to the other one meanwhile.
BESIDES = {"late": ("owner", {"NEAP_STOP_AT": "write_record.GRANTED"}), "orphan": ("accessor", {"NEAP_KILL_AT": "store_put.COMMITTING"})}
ENGINES = ("stream_connect stream_listen region grant slice batch segment engine_life tcp_peer tcp_lane handshake_session handshake_call "
           "segment_fetch tcp_session publisher http_call etcd_call etcd_token etcd_watch redis_call redis_link rdma_device rdma_region rdma_queue "
           "rdma_endpoint rdma_slab rdma_peer rdma_rail").split()
# not the store's: tests/integ/test_stopped_peers.py, test_restarts.py and test_metadata.py
BEGINS = "a machine begins in it and does not come back"
HOLDS = "the transport has to keep a buffer for that; TCP gives a transfer up with its connection, and lets go of the buffer at once"
BEYOND = {
    "store_put.NEW": BEGINS, "store_get.NEW": BEGINS, "key_removal.NEW": BEGINS, "rpc_call.NEW": BEGINS, "rpc_session.IDLE": BEGINS,
    "write_record.NEW": BEGINS, "pin_record.NEW": BEGINS, "move_record.NEW": BEGINS, "tier_move.NEW": BEGINS, "announcer.IDLE": BEGINS,
    "store_life.OPEN": BEGINS, "directory_life.NEW": BEGINS, "client_life.UNKNOWN": BEGINS,
    "directory_life.RECOVERING": "a master is in it before it is open, when nothing is watched yet; test_a_master_that_recovers does it by hand",
    "store_put.HOLDING": HOLDS, "store_get.HOLDING": HOLDS, "move_record.HOLDING": HOLDS,
    "rpc_session.FULL": "a connection with more calls under way than it may have; unit tests of the RPC",
    "tier_move.LEAVING": "a value is removed in the very moment in which its bytes go to a disk; unit test_owner_lower",
}
# What is tried in every check; the rest with NEAP_FULL=1.
KILLED = """store_put.WRITING+ store_put.COMMITTING store_get.MOVING+ write_record.SEALING write_record.QUARANTINED move_record.MOVING+
            announcer.SENDING client_life.LEAVING""".split()
STOPPED_AT = "store_put.WRITING+ store_put.REVOKING store_get.READING+ write_record.CHECKING pin_record.PINNED+ rpc_session.GREETING".split()


def value(key, number):
    return random.Random("%s %d" % (key, number)).randbytes(SIZES.get(key.split("/")[0], 300000))


def tables():
    """{machine: {state: what the library's table has of it}}."""
    made = json.loads(tool.run_program("neap-fsm", "json").stdout)
    return {machine["name"]: {state["name"]: state for state in machine["states"]} for machine in made["machines"]}


def is_stopped(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Happened(Exception):
    pass


class Scene:
    """A cluster of two clients: the accessor, through which everything is asked, and the owner, where all that it puts goes."""

    def __init__(self, role, script, at, variable):
        self.role, self.script = role, script
        self.env = {variable: at}
        self.kills = variable == "NEAP_KILL_AT"
        self.fired, self.other_fired, self.may_go_on, self.over = (threading.Event() for _ in range(4))
        self.may_go_on.set()
        self.watchers = []
        self.tried, self.kept, self.removed = {}, {}, set()

    # --- the process that it happens to

    def options(self, role):
        other, env = BESIDES.get(self.script, (None, None))
        if role == self.role:
            return {"env": self.env, "begun": lambda process: self.watch(process, self.fired), "may_die": True}
        return {"env": env, "begun": lambda process: self.watch(process, self.other_fired)} if role == other else {}

    def watch(self, process, fired):
        self.watchers.append(threading.Thread(target=self.attend, args=(process, fired), daemon=True))
        self.watchers[-1].start()

    def attend(self, process, fired):
        """Notes that it stopped or died. One that stopped goes on when its leases, and those it was given, have ended."""
        while not self.over.wait(0.002):
            if process.process.poll() is not None:
                if process.process.returncode == -signal.SIGKILL:
                    fired.set()
                return
            if is_stopped(process.process.pid):
                fired.set()
                self.over.wait(STOPPED)
                self.may_go_on.wait()
                process.signal(signal.SIGCONT)
                return

    def is_dead(self):
        return self.kills and self.fired.is_set()

    def revive(self):
        """Those that were killed, anew, where they were."""
        if self.group.master.process.poll() is not None:
            self.group.restart_master()
        for which, dead in enumerate(self.group.clients):
            if dead.process.poll() is not None:
                dead.kill()
                self.group.clients[which] = cluster.Client(self.group, *self.flags[which], "--client_rpc_port=%d" % dead.rpc_port)

    # --- operations

    @property
    def owner(self):
        return self.group.clients[0]

    @property
    def accessor(self):
        return self.group.clients[1]

    def ask(self, client, *words, data=None):
        """What it came to. It comes to something, and says why when it failed."""
        done = client.run(*words, "--deadline=%g" % DEADLINE, data=data, timeout=HANG)
        assert done.returncode in (OK, FAILED, UNREACHED, NO_KEY), (words, done)
        assert done.returncode == OK or done.stderr, (words, done)
        return done

    def put(self, key, *flags, through=None):
        """Every put of a key has another value."""
        tries = self.tried.setdefault(key, [])
        tries.append(value(key, len(tries)))
        done = self.ask(through or self.accessor, "put", key, *flags, data=tries[-1])
        assert done.returncode != NO_KEY, done
        if done.returncode == OK:
            self.kept[key] = tries[-1]
            self.removed.discard(key)
        return done

    def get(self, key, *flags, through=None):
        """One of the values that were put, and the one of which it was said that it is kept."""
        done = self.ask(through or self.accessor, "get", key, *flags)
        if done.returncode == OK:
            assert done.stdout in self.tried[key], "%s: wrong bytes" % key
            assert key not in self.kept or done.stdout == self.kept[key], "%s: not the value that was acknowledged" % key
            assert key not in self.removed, "%s: removed, and there" % key
        elif done.returncode == NO_KEY:
            assert key not in self.kept or self.is_lost(key), "%s: acknowledged, and said not to be there" % key
        return done

    def is_lost(self, key):
        """Whether it may be gone: with the process that had it."""
        return self.is_dead() and (self.role == "owner" or self.script == "here")

    def remove(self, key):
        kept = self.kept.pop(key, None)
        done = self.ask(self.accessor, "rm", key)
        if done.returncode == OK and kept:
            self.removed.add(key)

    # --- what is done

    def do_values(self, directions=("reverse", "forward")):
        for direction in directions:
            way = "--direction=" + direction
            yield self.put(direction, way)
            yield self.get(direction, way)
        yield self.put("small")
        yield self.get("small")
        done = self.put("forward")
        assert b"OBJECT_ALREADY_EXISTS" in done.stderr or self.fired.wait(tool.PATIENCE), done
        yield done
        yield self.remove("small")

    do_here = do_alone = do_values

    def do_forward(self):
        """What happens in both directions happens in the other one first."""
        yield from self.do_values(("forward", "reverse"))

    def do_disk(self):
        """More than memory holds; the first are on the disk then."""
        for i in range(8):
            yield self.put("large/%d" % i)
        for i in range(4):
            yield self.get("large/%d" % i, "--direction=" + ("reverse", "forward")[i % 2])

    def do_late(self):
        """The owner's grant comes when its lease is over."""
        yield self.put("forward", "--direction=forward")
        assert self.other_fired.is_set()
        yield self.get("forward")

    def do_reuse(self):
        """While the accessor does not get on with its write the owner gives the memory to other values, which then are what it holds."""
        self.may_go_on.clear()
        slow = threading.Thread(target=self.put, args=("late", "--direction=forward"))
        slow.start()
        assert self.fired.wait(tool.PATIENCE)
        until("the reservation to end", lambda: not self.left_over([self.owner]))
        for i in range(2):
            assert self.put("reuse/%d" % i, through=self.owner).returncode == OK
        self.may_go_on.set()
        slow.join(HANG)
        for i in range(2):
            yield self.get("reuse/%d" % i, through=self.owner)

    def do_orphan(self):
        """The accessor dies with a reservation."""
        yield self.put("kept")
        yield self.put("orphan", "--direction=forward")
        assert self.other_fired.wait(tool.PATIENCE)
        yield self.fired.wait(tool.PATIENCE)

    def do_silence(self):
        """A third one dies."""
        yield self.put("kept")
        third = self.group.add(*COMMON)
        third.kill()
        yield self.lose(third)

    def do_farewell(self):
        """A third one leaves."""
        yield self.put("kept")
        third = self.group.add(*COMMON)
        third.signal(signal.SIGTERM)
        yield self.lose(third)

    def lose(self, third):
        assert third.wait() in (OK, FAILED, -signal.SIGKILL), third.said()
        third.kill()
        self.group.clients.remove(third)
        self.fired.wait(tool.PATIENCE)

    def do_restart(self):
        """The master leaves, and comes back knowing nothing."""
        yield self.put("kept")
        self.group.master.signal(signal.SIGTERM)
        assert self.group.master.wait() == OK
        yield self.get("kept")
        self.group.restart_master()
        yield self.fired.wait(tool.PATIENCE)

    def do_recovering(self):
        """A master that does not know yet what there is."""
        yield self.put("kept")
        port = tool.free_port()
        self.group.master.kill()
        self.group.master = self.group.start_master("--metrics_port=%d" % port)
        with urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=tool.PATIENCE) as answer:
            assert answer.read() == b"RECOVERING\n"
        self.group.master.signal(signal.SIGKILL if self.kills else signal.SIGSTOP)
        self.fired.set()
        yield self.get("kept")
        if not self.kills:
            time.sleep(STOPPED)
            self.group.master.signal(signal.SIGCONT)

    def do_recovery(self):
        """A master that is killed, and what its successor comes to."""
        yield self.put("kept")
        self.group.master.kill()
        self.group.master = self.group.start_master(**self.options("master"))
        yield self.fired.wait(tool.PATIENCE)

    def begin(self):
        self.flags = [COMMON + ["--remote_weight=%d" % (self.script != without)] for without in ("reuse", "here")]
        if self.script == "disk":
            self.flags[0].append(DISK % self.group.path("disk"))
        if self.script == "alone":
            self.group.master.kill()
        for role, flags in zip(("owner", "accessor"), self.flags):
            if role == "accessor" and self.script == "alone":
                self.group.restart_master()
            if not self.group.add(*flags, **self.options(role)).line:
                assert self.fired.wait(tool.PATIENCE) and self.kills, "it ended by itself: " + self.group.clients[-1].said()
            if self.is_dead():
                self.revive()

    def talk(self):
        for _ in getattr(self, "do_" + self.script)():
            if self.is_dead():
                return

    # --- what holds afterwards

    def until(self, what, holds):
        """Or until it happens, if it was still to happen when it was begun to look."""
        def look():
            if self.fresh and self.fired.is_set():
                raise Happened(what)
            return holds()

        return until(what, look)

    def check(self):
        self.heal()
        self.check_values()
        self.check_fresh_puts()
        self.until("leases, quarantine and operations to end", lambda: not self.left_over())

    def heal(self):
        self.revive()
        if self.fired.is_set() and not self.kills:
            for watcher in self.watchers:
                watcher.join(STOPPED)
        for client in self.group.clients:
            self.until("a client to be in step with its master", client.is_full)

    def check_values(self):
        for key in self.kept:
            for client in self.group.clients:
                if self.is_lost(key):
                    self.get(key, through=client)
                else:
                    self.until(key + ", which was acknowledged", lambda: self.get(key, through=client).returncode == OK)
        for key in set(self.tried) - set(self.kept):
            self.until("a definite word about " + key, lambda: self.get(key).returncode in (OK, NO_KEY))

    def check_fresh_puts(self):
        """Each key takes another value, or has one: the two agree."""
        for key in self.tried:
            if self.is_lost(key):
                self.kept.pop(key, None)
            kept = self.kept.get(key)
            said = self.until("a put of %s to end in a definite way" % key, lambda: self.definite(key))
            got = self.until("the value of " + key, lambda: self.found(key))
            if said == "exists":
                assert got in self.tried[key][:-1] and (not kept or got == kept), key
            else:
                assert got == self.tried[key][-1], key

    def definite(self, key):
        done = self.put(key)
        return "stored" if done.returncode == OK else "exists" if b"OBJECT_ALREADY_EXISTS" in done.stderr else None

    def found(self, key):
        done = self.get(key)
        return done.stdout if done.returncode == OK else None

    def left_over(self, clients=None):
        names = ("pending_writes", "committing_writes", "quarantined_writes", "quarantined_bytes", "pins", "moves")
        wanted = {"neap_store_" + name for name in names} | {"neap_store_tier_quarantined_bytes", "neap_local_transfers", "mooncake_p2p_inflight",
                                                             "mooncake_p2p_peer_inflight"}
        lines = [line for client in clients or self.group.clients for line in client.http("/metrics")[1].decode().splitlines()]
        found = [line for line in lines if line.split("{")[0].split(" ")[0] in wanted]
        assert len(found) >= len(wanted), found
        return [line for line in found if not line.endswith(" 0")]

    def end(self):
        """All of them leave, first the one it happens to: the last occasion for it."""
        fresh = not self.fired.is_set()
        parts = {"owner": self.owner, "accessor": self.accessor, "master": self.group.master}
        for role in sorted(parts, key=lambda role: role != self.role):
            parts[role].signal(signal.SIGTERM)
            code = parts[role].wait()
            allowed = [OK] if not fresh or role != self.role else [OK, -signal.SIGKILL] if self.kills else [OK, FAILED]
            assert code in allowed, (role, code, parts[role].said())

    def run(self):
        """Whether it came to that state."""
        first = self.options("master") if not self.script.startswith("recover") else {}
        with Cluster(0, **first) as self.group:
            try:
                self.begin()
                self.talk()
                self.fresh = not self.fired.is_set()
                try:
                    self.check()
                except Exception:
                    if not (self.fresh and self.fired.is_set()):
                        raise
                    self.fresh = False
                    self.check()  # it happened only now
                self.end()
            finally:
                self.over.set()
                self.may_go_on.set()
        return self.fired.is_set()


def play(role, script, at, variable, comes_about):
    """What was wrong, or None."""
    what = "%s %s=%s" % (role, variable, at)
    try:
        fired = Scene(role, script, at, variable).run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        return "%s: %s: %s (%s)" % (what, type(error).__name__, error, ", ".join("%s:%d" % (one.name, one.lineno) for one in where))
    return None if fired == comes_about else what + (": it came about, and is listed as what does not" if fired else ": it did not come about")


def scenes(variable, states, comes_about=True):
    """For each MACHINE.STATE or MACHINE.STATE+, once for each process that can be in it."""
    for at in states:
        name = at.rstrip("+")
        for role, script in OTHERWISE.get(name, MACHINES[name.split(".")[0]]):
            if script != "reuse" or variable == "NEAP_STOP_AT":  # who is dead writes nothing more
                yield role, script, at, variable, comes_about
            if tool.FULL and comes_about and script == "values" and role != "master":
                yield role, "forward", at, variable, True


class States(unittest.TestCase):
    def play_all(self, scenes):
        with ThreadPoolExecutor(3) as pool:  # they mostly wait
            wrong = [one for one in pool.map(lambda scene: play(*scene), scenes) if one]
        self.assertFalse(wrong, "\n" + "\n".join(wrong))

    def every(self):
        return ["%s.%s" % (machine, state) for machine, all_of_it in tables().items() if machine in MACHINES for state in all_of_it]

    def reached(self):
        return [name + plus for name in self.every() if name not in BEYOND for plus in ("", "+")]

    def test_the_lists_are_those_of_the_tables(self):
        known = tables()
        self.assertEqual(set(known), set(MACHINES) | set(ENGINES))
        self.assertLessEqual(set(OTHERWISE) | set(BEYOND) | {name.rstrip("+") for name in KILLED + STOPPED_AT}, set(self.every()))
        entered = {"%s.%s" % (machine, cell["go"]) for machine, states in known.items() for state in states.values()
                   for cell in state["cells"] if isinstance(cell, dict) and cell["go"] != state["name"]}
        self.assertEqual({name for name in self.every() if name not in entered}, {name for name, why in BEYOND.items() if why == BEGINS})

    def test_killed(self):
        self.play_all(scenes("NEAP_KILL_AT", self.reached() if tool.FULL else KILLED))

    def test_stopped(self):
        self.play_all(scenes("NEAP_STOP_AT", self.reached() if tool.FULL else STOPPED_AT))

    def test_what_does_not_come_about(self):
        if not tool.FULL:
            self.skipTest("only with NEAP_FULL=1")
        self.play_all(scenes("NEAP_KILL_AT", BEYOND, False))

    def test_a_master_that_recovers(self):
        self.play_all(("master", "recovering", "directory_life.RECOVERING", variable, True) for variable in ("NEAP_KILL_AT", "NEAP_STOP_AT"))

    def test_what_cannot_be_followed(self):
        port = tool.free_port()
        for env, word in (({"NEAP_STOP_AT": "announcer"}, "MACHINE.STATE"), ({"NEAP_KILL_AT": "announcer.READY:0"}, "MACHINE.STATE:N"),
                          ({"NEAP_KILL_AT": "announcer.READY:2x"}, "MACHINE.STATE:N"), ({"NEAP_STOP_AT": "announcer.GONE"}, "no such state"),
                          ({"NEAP_STOP_AT": "client_life.GONE"}, "no such machine"),
                          ({"NEAP_STOP_AT": "announcer.READY", "NEAP_KILL_AT": "announcer.READY"}, "both set")):
            done = tool.run_program("neap-client", "--port=0", "--client_rpc_port=0", "--http_port=0",
                                    "--master_server_address=127.0.0.1:%d" % port, env=env)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    tool.main()
