#!/bin/sh
# rdma_rig.sh: in the guest of tools/rxe-run: Neap's transport beside perftest, from rxe2 to rxe0, in turns; medians, and ratios of the runs
# of each round. Both have two queue pairs and as many bytes under way. The machine is emulated: only the ratios tell anything.
# RDMA_ROUNDS (5) and RDMA_SECONDS (2) of each run.
cd "${NEAP_BUILD:?}" || exit 1
rounds=${RDMA_ROUNDS:-5} seconds=${RDMA_SECONDS:-2} port=18600
scratch=$(mktemp -d) || exit 3
target='' server=''
# shellcheck disable=SC2086
trap 'kill $target $server 2>/dev/null; rm -rf "$scratch"' EXIT

# outstanding BYTES: as neap-bench has it
outstanding() { if [ "$1" -le 16384 ]; then echo 128; else echo 16; fi; }

# perftest OPERATION BYTES: GB/s
perftest() {
	port=$((port + 1))
	flags="-x 1 -q 2 -s $2 -t $(outstanding "$2") -D $seconds -F -p $port --report_gbits"
	# shellcheck disable=SC2086
	"ib_$1_bw" -d rxe0 $flags >"$scratch/server" 2>&1 &
	server=$!
	until grep -q ":$(printf '%04X' $port) 00000000:0000 0A" /proc/net/tcp; do
		kill -0 $server 2>/dev/null || { cat "$scratch/server" >&2; return 1; }
		sleep 0.1
	done
	# shellcheck disable=SC2086
	timeout 120 "ib_$1_bw" -d rxe2 $flags 10.77.0.1 >"$scratch/client" 2>&1 || { cat "$scratch/client" >&2; return 1; }
	wait $server
	server=''
	awk -v size="$2" '$1 == size { print $4 / 8 }' "$scratch/client"
}

# neap OPERATION BYTES: GB/s
neap() {
	timeout 120 ./neap-bench --mode=initiator --protocol=rdma --device_name=rxe2 --segment_id="$segment" --buffer_size=256M --json --quiet \
		--operation="$1" --block_size="$2" --batch_size="$(outstanding "$2")" --duration="$seconds" 2>"$scratch/errors" >"$scratch/row" || {
		cat "$scratch/errors" >&2
		return 1
	}
	sed 's/.*"gb_per_s":\([^,]*\).*/\1/' "$scratch/row"
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
sent() { cat /sys/class/infiniband/rxe2/ports/1/hw_counters/sent_pkts; }

./neap-bench --mode=target --protocol=rdma --device_name=rxe0 --buffer_size=256M --ready_file="$scratch/ready" >/dev/null &
target=$!
until [ -s "$scratch/ready" ]; do
	kill -0 $target 2>/dev/null || exit 3
	sleep 0.1
done
segment=$(cat "$scratch/ready")
before=$(sent)
printf '%-6s %9s %12s %12s %8s %16s\n' operation bytes perftest neap ratio 'of each round'
for operation in write read; do
	for bytes in 4096 65536 1048576 8388608; do
		: >"$scratch/theirs" && : >"$scratch/ours" && : >"$scratch/ratios"
		i=0
		while [ $i -lt "$rounds" ]; do
			i=$((i + 1))
			theirs=$(perftest $operation $bytes) && ours=$(neap $operation $bytes) && [ -n "$theirs" ] && [ -n "$ours" ] || exit 1
			echo "$theirs" >>"$scratch/theirs" && echo "$ours" >>"$scratch/ours"
			echo "$ours $theirs" | awk '{ if ($2 > 0.001) printf "%.3f\n", $1 / $2; else print "none" }' >>"$scratch/ratios"
		done
		printf '%-6s %12d %7.3f GB/s %7.3f GB/s %8s %s\n' $operation $bytes "$(median <"$scratch/theirs")" "$(median <"$scratch/ours")" \
			"$(median <"$scratch/ratios")" "  $(sort -g "$scratch/ratios" | tr '\n' ' ')"
	done
done
[ "$(sent)" -gt "$before" ] || { echo "nothing went over the device"; exit 1; }
