#!/bin/sh
# demo.sh BUILD_DIR [--metadata redis|etcd|http|p2p]: two processes on loopback. Sends a file and 1 GiB of patterned memory, WRITE then READ,
# verifies every byte, prints the benchmark's table. They find each other through the metadata server that is named, which is started for
# it; p2p: without one. Exit status 0 when all is equal.
build=${1:?build directory}
source=$(cd "$(dirname "$0")/.." && pwd)
trace=$source/tests/data/conversation_trace.jsonl
scratch=$(mktemp -d) || exit 3
target=
clean() {
	[ -n "$target" ] && kill "$target" 2>/dev/null && wait "$target" 2>/dev/null
	metadata_stop
	rm -rf "$scratch"
}
. "$source/tools/demo_metadata.sh"
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "$*"; }

if [ "${2:-}" = --metadata ]; then
	metadata_start "${3:?which one}" || exit 3
fi
say "-- segments are published in: $metadata"
say "-- a target with 1 GiB of memory, in a process of its own"
"$build/neap-example" --mode=target --metadata_server="$metadata" --buffer_size=1G --ready_file="$scratch/name" >"$scratch/target" &
target=$!
tries=0
while [ ! -s "$scratch/name" ]; do
	kill -0 "$target" 2>/dev/null || { say "the target did not start"; exit 3; }
	tries=$((tries + 1))
	[ $tries -gt 300 ] && { say "the target was not ready within 30 s"; exit 3; }
	sleep 0.1
done
name=$(cat "$scratch/name")
sed 's/^/   /' "$scratch/target"
say "   keys: $(metadata_keys "$name")"

say "-- an initiator that writes and reads back a file: ${trace##*/}"
"$build/neap-example" --mode=initiator --metadata_server="$metadata" --segment_id="$name" --file="$trace" --buffer_size=16M || exit
say "-- ... and 1 GiB of test pattern"
"$build/neap-example" --mode=initiator --metadata_server="$metadata" --segment_id="$name" --buffer_size=1G --transfer_size=1G || exit
kill "$target"
wait "$target" || { say "the target ended with status $?"; exit 1; }
target=

say "-- throughput and latency, pipelined, every byte compared after each row"
"$build/neap-bench" --metadata_server="$metadata" --buffer_size=256M --duration=1 --verify || exit
say "-- all bytes equal"
