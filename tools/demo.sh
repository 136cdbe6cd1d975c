#!/bin/sh
# demo.sh BUILD_DIR [--metadata redis|etcd|http|p2p] [--protocol tcp|rdma]: two processes on loopback. Sends a file and 1 GiB of patterned
# memory, WRITE then READ, verifies every byte, prints the benchmark's table. They find each other through the metadata server that is named,
# which is started for it; p2p: without one. rdma: over devices, on the machine of tools/demo_rdma.sh, and 64 MiB. Exit status 0 when all is
# equal.
build=${1:?build directory}
shift
kind=p2p protocol=tcp
while [ $# -gt 0 ]; do
	case $1 in
	--metadata) kind=${2:?which one} ;;
	--protocol) protocol=${2:?which one} ;;
	*) echo "demo.sh does not know $1"; exit 2 ;;
	esac
	shift 2
done
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

# packets: what each device has sent so far
packets() {
	for device in /sys/class/infiniband/rxe*; do
		printf '%s %s\n' "${device##*/}" "$(cat "$device/ports/1/hw_counters/sent_pkts")"
	done
}

if [ $protocol = rdma ]; then
	size=64M size_text='64 MiB' bench='--buffer_size=64M --block_size=4K,64K,1M'
	target_flags='--protocol=rdma --device_name=rxe0,rxe1' initiator_flags='--protocol=rdma --device_name=rxe2,rxe3'
else
	size=1G size_text='1 GiB' bench=--buffer_size=256M target_flags='' initiator_flags=''
fi
if [ "$kind" != p2p ]; then
	metadata_start "$kind" || exit 3
fi
say "-- segments are published in: $metadata"
say "-- a target with $size_text of memory, in a process of its own"
# shellcheck disable=SC2086
"$build/neap-example" --mode=target --metadata_server="$metadata" $target_flags --buffer_size=$size --ready_file="$scratch/name" >"$scratch/target" &
target=$!
tries=0
while [ ! -s "$scratch/name" ]; do
	kill -0 "$target" 2>/dev/null || { say "the target did not start"; exit 3; }
	tries=$((tries + 1))
	[ $tries -gt 1200 ] && { say "the target was not ready within 2 min"; exit 3; }
	sleep 0.1
done
name=$(cat "$scratch/name")
sed 's/^/   /' "$scratch/target"
say "   keys: $(metadata_keys "$name")"

[ $protocol = rdma ] && packets >"$scratch/before"
say "-- an initiator that writes and reads back a file: ${trace##*/}"
# shellcheck disable=SC2086
"$build/neap-example" --mode=initiator --metadata_server="$metadata" $initiator_flags --segment_id="$name" --file="$trace" --buffer_size=16M || exit
say "-- ... and $size_text of test pattern"
# shellcheck disable=SC2086
"$build/neap-example" --mode=initiator --metadata_server="$metadata" $initiator_flags --segment_id="$name" --buffer_size=$size --transfer_size=$size || exit
kill "$target"
wait "$target" || { say "the target ended with status $?"; exit 1; }
target=
if [ $protocol = rdma ]; then
	say "-- how many packets each device has sent for that: file and test pattern written from rxe2 and rxe3, read back from rxe0 and rxe1"
	packets | while read -r device now; do
		sent=$((now - $(sed -n "s/^$device //p" "$scratch/before")))
		printf '   %-5s %d\n' "$device" "$sent"
		[ "$sent" -gt 0 ] || { say "$device sent nothing"; exit 1; }
	done || exit
fi

say "-- throughput and latency, pipelined, every byte compared after each row"
# shellcheck disable=SC2086
"$build/neap-bench" --metadata_server="$metadata" --protocol=$protocol $bench --duration=1 --verify || exit
say "-- all bytes equal"
