"""Neap beside the measuring rod, iperf3 and UCX: rows of all of them interleaved, medians, and ratios taken within each round.

The rod (tests/bench/rod) moves the same bytes with two bare processes. A ratio compares two runs of one round, so that a machine that
flips between a fast and a slow state does not decide it."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import tool

SIZES = {4096: 128, 65536: 16, 1048576: 16}  # block size: requests outstanding, as the reference's published figures have it
PARTS = ["throughput", "latency", "idle", "metadata"]


def congestion_of_this_machine():
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        return file.read().strip()


def size_text(size):
    return "%d MiB" % (size >> 20) if size >= 1 << 20 else "%d KiB" % (size >> 10)


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def text(value, digits=3):
    return "-" if value is None else "%.*f" % (digits, value)


class Stepped:
    """A program that measures one row for each line we send."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def step(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("%s ended with %s" % (self.process.args[0], self.process.wait()))
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


class Iperf:
    """iperf3 with one stream. It sends from one buffer, so its memory is hot."""

    def __init__(self, seconds):
        self.port, self.seconds = tool.free_port(), seconds
        self.server = subprocess.Popen(["iperf3", "-s", "-p", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)

    def run(self, size, congestion):
        done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-P", "1", "-l", str(size), "-C", congestion, "-J", "-t",
                               str(max(1, round(self.seconds)))], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e9
        except (ValueError, KeyError):
            return None

    def end(self):
        self.server.kill()
        self.server.wait()


def run_ucx(size, seconds):
    """GB/s of ucx_perftest's put over TCP; None where it is not installed or fails."""
    port = tool.free_port()
    env = dict(os.environ, UCX_TLS="tcp,self", UCX_NET_DEVICES="lo")
    count = max(200, int(seconds * 1e9 / size)) if size >= 65536 else int(seconds * 100000)
    server = subprocess.Popen(["ucx_perftest", "-p", str(port)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        done = subprocess.run(["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", "ucp_put_bw", "-s", str(size), "-n", str(count), "-w",
                               "100", "-f"], env=env, capture_output=True, text=True, timeout=60)
        # the last line: iterations, latencies (percentile, average, overall), MB/s (average, overall), messages/s
        words = [line.split() for line in done.stdout.splitlines() if line.split() and line.split()[0].isdigit()][-1]
        return float(words[-3]) * 1048576 / 1e9
    except (IndexError, ValueError, subprocess.TimeoutExpired):
        return None
    finally:
        server.kill()
        server.wait()


def have(name):
    return any(os.access(os.path.join(path, name), os.X_OK) for path in os.environ["PATH"].split(":"))


def throughput(options):
    """Rows of {operation, block size}: neap level, plain v2, rod best and naive, iperf3, UCX."""
    common = [tool.program("neap-bench"), "--json", "--step", "--quiet", "--repeat=1000000", "--duration=%g" % options.seconds,
              "--warmup=0.1", "--congestion=" + options.congestion, "--buffer_size=" + options.buffer,
              "--block_size=4K,64K,1M", "--batch_size=128,16,16"]
    neap = Stepped(*common, "--framing=neap")
    plain = Stepped(*common, "--framing=v2")
    rod = Stepped(tool.program("tests/bench/rod"), "--step", "--seconds=%g" % options.seconds, "--buffer_size=" + options.buffer)
    iperf = Iperf(options.seconds) if have("iperf3") else None
    rows = {}
    for _ in range(options.rounds):
        for operation in ("write", "read"):
            for size, batch in SIZES.items():
                row = rows.setdefault((operation, size), {"neap": [], "v2": [], "best": [], "same": [], "naive": [], "iperf3": [], "ucx": []})
                run = "%s %%s %d %%d %s sleep" % (operation, size, options.congestion)
                row["best"].append(rod.step(run % ("best", 0)))
                row["neap"].append(neap.step())
                row["same"].append(rod.step(run % ("best", batch)))
                row["naive"].append(rod.step(run % ("naive", batch)))
                row["v2"].append(plain.step())
                if operation == "write":
                    row["iperf3"].append(iperf.run(size, options.congestion) if iperf else None)
                    row["ucx"].append(run_ucx(size, options.seconds) if have("ucx_perftest") else None)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for program in (neap, plain, rod):
        program.end()
    if iperf:
        iperf.end()
    return rows


def speed(runs):
    return [None if run is None else run["gb_per_s"] if isinstance(run, dict) else run for run in runs]


def ratio(over, under):
    """The median of the ratios within each round."""
    return median([a / b for a, b in zip(speed(over), speed(under)) if a is not None and b])


def of(runs, key):
    return median([run[key] for run in runs])


def print_throughput(rows, options):
    print("\nThroughput, one lane, one reactor a side, congestion control %s, medians of %d rounds of %g s; GB/s, and what Neap has over it" %
          (options.congestion, options.rounds, options.seconds))
    print("rod: the best way with its best number of requests outstanding; same: with ours; naive: a simple loop")
    print("%-6s %7s %6s | %6s %6s |" % ("", "block", "batch", "neap", "v2") + "|".join(
        " %6s %5s %5s " % (name, "neap/", "v2/") for name in ("rod", "same", "naive", "iperf3", "ucx")))
    for (operation, size), row in rows.items():
        print("%-6s %7s %6d | %6s %6s |" % (operation, size_text(size), SIZES[size], text(median(speed(row["neap"]))),
                                            text(median(speed(row["v2"])))) +
              "|".join(" %6s %5s %5s " % (text(median(speed(row[name]))), text(ratio(row["neap"], row[name]), 2),
                                          text(ratio(row["v2"], row[name]), 2)) for name in ("best", "same", "naive", "iperf3", "ucx")))
    print("\nSystem calls per request, CPU seconds per GiB; initiator / target")
    for (operation, size), row in rows.items():
        line = "%-6s %7s" % (operation, size_text(size))
        for name, title in (("neap", "neap"), ("v2", "v2"), ("best", "rod"), ("same", "same")):
            line += " | %-4s %s / %s, %s / %s s" % (
                title, text(of(row[name], "syscalls_per_request")), text(of(row[name], "syscalls_per_request_target")),
                text(of(row[name], "cpu_s_per_gib_initiator"), 2), text(of(row[name], "cpu_s_per_gib_target"), 2))
        print(line)


def latency(options):
    """One 4 KiB WRITE at a time, sleeping and busy, beside the rod's bare ping-pong of the same bytes."""
    rows = {}
    for wait in ("sleep", "spin"):
        row = rows[wait] = {"neap": [], "v2": [], "pingpong": []}
        for _ in range(options.rounds):
            rod = subprocess.run([tool.program("tests/bench/rod"), "--what=pingpong", "--pin", "--seconds=%g" % options.seconds,
                                  "--buffer_size=64M", "--congestion=" + options.congestion] + (["--spin"] if wait == "spin" else []),
                                 capture_output=True, text=True, check=True)
            row["pingpong"].append(json.loads(rod.stdout))
            for framing in ("neap", "v2"):
                done = subprocess.run([tool.program("neap-bench"), "--json", "--operation=write", "--block_size=4K", "--batch_size=1", "--pin",
                                       "--quiet", "--buffer_size=64M", "--duration=%g" % options.seconds, "--warmup=0.1", "--framing=" + framing,
                                       "--congestion=" + options.congestion] + (["--busy"] if wait == "spin" else []),
                                      capture_output=True, text=True, check=True)
                row[framing].append(json.loads(done.stdout))
    return rows


def print_latency(rows):
    print("\nOne 4 KiB WRITE at a time, each side on a CPU of its own: p50 / p99 in microseconds, and p50 over the bare ping-pong's")
    for wait, row in rows.items():
        pingpong = [run["p50_us"] for run in row["pingpong"]]
        line = "%-5s ping-pong %s / %s" % (wait, text(median(pingpong), 1), text(of(row["pingpong"], "p99_us"), 1))
        for framing in ("neap", "v2"):
            mine = [run["p50_us"] for run in row[framing]]
            line += " | %s %s / %s, %s" % (framing, text(median(mine), 1), text(of(row[framing], "p99_us"), 1),
                                          text(median([a / b for a, b in zip(mine, pingpong) if b]), 2))
        print(line)


def main():
    parser = argparse.ArgumentParser(prog="bench.sh BUILD_DIR", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each row (default 5)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each run (default 0.4)")
    parser.add_argument("--buffer", default="1G", help="memory on each side (default 1G)")
    parser.add_argument("--congestion", default="reno", help="TCP congestion control of all programs (default reno; this machine's own: %s)" %
                        congestion_of_this_machine())
    parser.add_argument("--idle-seconds", type=float, default=20, help="how long to watch 1,000 idle peers, and three times as "
                        "long an engine at each metadata store (default 20; 0: not)")
    parser.add_argument("--only", choices=PARTS, help="only this part; as a word by itself too")
    parser.add_argument("part", nargs="?", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--json", default=os.path.join(tool.BUILD, "bench.json"), help="where the figures of every run go")
    options = parser.parse_args()
    options.only = options.only or options.part
    results = {"congestion": options.congestion, "rounds": options.rounds, "seconds": options.seconds}
    print("# %s, %d CPUs, kernel %s, congestion control %s (default here: %s)" %
          (time.strftime("%Y-%m-%d %H:%M"), os.cpu_count(), os.uname().release, options.congestion, congestion_of_this_machine()))
    if options.only in (None, "throughput"):
        rows = throughput(options)
        print_throughput(rows, options)
        results["throughput"] = [{"operation": operation, "block_size": size, "runs": row} for (operation, size), row in rows.items()]
    if options.only in (None, "latency"):
        rows = latency(options)
        print_latency(rows)
        results["latency"] = rows
    if options.only in (None, "idle") and options.idle_seconds:
        import idle
        results["idle"] = idle.measure(options.idle_seconds)
        idle.show(results["idle"])
    if options.only in (None, "metadata"):
        import metadata
        results["metadata"] = metadata.measure(options.rounds, 3 * options.idle_seconds)  # they look every 30 s
        metadata.show(results["metadata"])
    with open(options.json, "w") as file:
        json.dump(results, file, indent=1)
    print("\nevery run: %s" % options.json)


if __name__ == "__main__":
    main()
