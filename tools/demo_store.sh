#!/bin/sh
# demo_store.sh BUILD_DIR [--protocol tcp|rdma]: a master and three clients on loopback. Plays the first minutes of a conversation trace against
# them, REVERSE and then FORWARD; one client is killed in the middle of the second. Compares every byte that is read. rdma: on the machine of
# tools/demo_rdma.sh, where all takes longer, and with less. Exit status 0 when all was right.
build=${1:?build directory}
protocol=tcp
if [ "${2:-}" = --protocol ]; then protocol=${3:?which one}; fi
source=$(cd "$(dirname "$0")/.." && pwd)
trace=$source/tests/data/conversation_trace.jsonl
minutes=${DEMO_MINUTES:-2} seconds=12 deadline=2 client_ttl=2 patience=20 memory_mib=512 flags='' replay_flags=''
if [ "$protocol" = rdma ]; then
	minutes=${DEMO_MINUTES:-1} seconds=20 deadline=20 client_ttl=10 patience=120 memory_mib=64
	flags='--protocol=rdma --device_names=rxe0,rxe1' replay_flags='--protocol=rdma --device_names=rxe2,rxe3'
fi
scratch=$(mktemp -d) || exit 3
processes=
# shellcheck disable=SC2034 # some are reached by number
port='' port1='' port2='' port3='' pid1='' pid2='' pid3=''
clean() {
	# shellcheck disable=SC2086
	[ -n "$processes" ] && kill -9 $processes 2>/dev/null
	wait 2>/dev/null
	rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "$*"; }

# until_there WHAT FILE PATTERN: waits for a line in a file
until_there() {
	tries=0
	while ! grep -q "$3" "$2" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -gt $((10 * patience)) ] && { say "$1 was not ready within $patience s"; cat "$scratch"/*.err; exit 3; }
		sleep 0.1
	done
}

# word FILE NAME: the word behind NAME in the line a client prints when it is ready
word() { sed -n "s/.* $2 \([^ ]*\).*/\1/p" "$1" | head -1; }

say "-- neap-master: who holds what"
"$build/neap-master" --first --rpc_port=0 --metrics_port=0 --client_ttl=$client_ttl --ready_file="$scratch/master" >"$scratch/master.out" 2>"$scratch/master.err" &
processes=$!
until_there "the master" "$scratch/master" :
master=$(cat "$scratch/master")
say "   at $master"

say "-- three neap-clients with $memory_mib MiB each"
tiers='{"tiers": [{"type": "DRAM", "capacity": "'$memory_mib'MB", "priority": 100}]}'
for i in 1 2 3; do
	# shellcheck disable=SC2086
	"$build/neap-client" $flags --master_server_address="$master" --port=0 --client_rpc_port=0 --http_port=0 --tiered_backend_config="$tiers" \
		--p2p_key_lease_duration_ms=2000 >"$scratch/client$i" 2>"$scratch/client$i.err" &
	processes="$processes $!"
	eval "pid$i=$!"
done
for i in 1 2 3; do
	until_there "client $i" "$scratch/client$i" ready
	sed 's/^neap-client /   /' "$scratch/client$i"
	eval "port$i=$(word "$scratch/client$i" port)"
done

say "-- the command line: put at one, get at another"
printf 'a value\n' | "$build/neap-client" put greeting --port="$port1" || exit 1
"$build/neap-client" get greeting --port="$port3" || exit 1

# figures ROW...: of each client that still answers
figures() {
	for name in "$@"; do
		printf '   %-20s' "$name"
		for i in 1 2 3; do
			eval "port=\$port$i"
			value=$("$build/neap-client" health --port="$port" 2>/dev/null | sed -n "s/^$name //p")
			printf ' %14s' "${value:-killed}"
		done
		printf '\n'
	done
}
say "-- the first $minutes minutes of a conversation trace, 64 KiB blocks: got, or put when they are not there; every byte compared"
# play DIRECTION FLAG...: in the background; its table goes to a file
play() {
	direction=$1
	shift
	# shellcheck disable=SC2086
	"$build/neap-client" replay --trace="$trace" --minutes="$minutes" --seconds=$seconds --deadline=$deadline --direction="$direction" \
		--master_server_address="$master" $replay_flags "$@" >"$scratch/table" &
	replay=$!
	processes="$processes $replay"
}

# played: waits for it and shows what came of it
played() {
	wait "$replay"
	status=$?
	sed 's/^/   /' "$scratch/table"
	[ $status = 0 ] || { say "the replay ended with status $status"; exit 1; }
	say "   leases, quarantine and eviction at clients 1, 2, 3:"
	[ -n "$flags" ] && say "   packets that devices have sent so far: $(cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | paste -sd ' ')"
	figures keys bytes pending_writes pins expired_writes expired_pins quarantined_writes quarantined_bytes evicted
}

say "-- REVERSE: the owners of values move the bytes"
play reverse
played

say "-- FORWARD: whoever asks moves them; client 3 is killed (-9) in the middle"
play forward --half_file="$scratch/half"
while kill -0 "$replay" 2>/dev/null && [ ! -e "$scratch/half" ]; do sleep 0.05; done
kill -9 "$pid3"
played

say "-- what became of the value at client 1, and of the keys of client 3: right or gone, never wrong"
"$build/neap-client" stat greeting --port="$port1" --deadline=$((deadline + 3))
"$build/neap-client" ls --port="$port1" | wc -l | sed 's/^ */   keys that the master still lists: /'

say "-- SIGTERM: the others drain and end"
kill "$pid1" "$pid2"
wait "$pid1" || { say "client 1 ended with status $?"; exit 1; }
wait "$pid2" || { say "client 2 ended with status $?"; exit 1; }
say "-- all bytes equal"
