#!/bin/sh
# bench.sh BUILD_DIR [ARGUMENT...]: the benchmarks beside the ceilings of this machine; arguments as tests/bench/bench.py --help says.
build=${1:?build directory}
shift
source=$(cd "$(dirname "$0")/.." && pwd)
make -s -C "$build" neap-bench neap-master tests/bench/rod tests/integ/transfer_tool >/dev/null || exit
PYTHONDONTWRITEBYTECODE=1 NEAP_SOURCE=$source NEAP_BUILD=$build exec python3 "$source/tests/bench/bench.py" "$@"
