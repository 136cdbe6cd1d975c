#!/bin/sh
# bench.sh BUILD_DIR [ARGUMENT...]: the benchmarks beside the ceilings of this machine; arguments as tests/bench/bench.py --help says.
# bench.sh BUILD_DIR rdma: what a piece of a request costs in RDMA's machines, here; then throughput beside perftest's, on software devices in
# a virtual machine.
build=${1:?build directory}
shift
source=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1 NEAP_SOURCE="$source" NEAP_BUILD="$build"
if [ "${1:-}" = rdma ]; then
	make -s -C "$build" neap-bench tests/bench/bench_rdma >/dev/null || exit
	"$build/tests/bench/bench_rdma" || exit
	echo
	exec "$source/tools/rxe-run" -n 4 -m 2048 -t 1800 "$source/tests/bench/rdma_rig.sh"
fi
make -s -C "$build" neap-bench neap-master tests/bench/rod tests/integ/transfer_tool >/dev/null || exit
exec python3 "$source/tests/bench/bench.py" "$@"
