#!/bin/sh
# demo_rdma.sh BUILD_DIR [--metadata redis|etcd|http|p2p]: the demonstration over RDMA devices: in a small virtual machine with four of them
# in software (tools/rxe-run). Exit status 0 when all bytes are equal, 77 when there is no such machine here.
build=${1:?build directory}
shift
source=$(cd "$(dirname "$0")/.." && pwd)
echo "-- a virtual machine with four RDMA devices in software (Soft-RoCE); it is emulated: times in it tell nothing but what was slower"
# shellcheck disable=SC2016 # for the shell there
DEMO_BUILD=$build DEMO_SOURCE=$source DEMO_ARGUMENTS="$*" exec "$source/tools/rxe-run" -n 4 -m 3072 -t 1200 '
	rdma link show | sed "s/^/   /"
	"$DEMO_SOURCE/tools/demo.sh" "$DEMO_BUILD" --protocol rdma $DEMO_ARGUMENTS && "$DEMO_SOURCE/tools/demo_store.sh" "$DEMO_BUILD" --protocol rdma'
