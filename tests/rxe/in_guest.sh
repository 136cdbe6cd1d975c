#!/bin/sh
# In the guest, as root: the suite over real verbs, what neap-client shows of the devices, and the transport between processes.
cd "$NEAP_BUILD" || exit 1
exec 2>&1 # two streams would meet again in the middle of lines
export ASAN_OPTIONS=detect_leaks=0
checks=0 failed=0

# check WHAT COMMAND...: counted as libcheck counts its own, at the end
check() {
	what=$1
	shift
	checks=$((checks + 1))
	"$@" || { echo "FAIL: $what"; failed=$((failed + 1)); }
}

shown=/run/topology.json
nics=$(ls /sys/class/infiniband | wc -l)
usable='"verbs": {"usable": true, "port": 1, "status": "ACTIVE", "mtu_bytes": 4096, "gid_index": 1, '
shows_all_as_usable() {
	./neap-client topology --all >$shown && [ "$(grep -c "$usable" $shown)" = "$nics" ] || { cat $shown; return 1; }
}
# One clear line for each device.
says_no_permission() {
	chmod 600 /dev/infiniband/uverbs*
	setpriv --reuid 65534 --regid 65534 --clear-groups ./neap-client topology --all >$shown 2>&1
	chmod 666 /dev/infiniband/uverbs*
	[ "$(grep -c 'no permission: let this user read and write /dev/infiniband/uverbs' $shown)" = "$nics" ] || { cat $shown; return 1; }
}
status=0
check "neap-client topology --all" shows_all_as_usable
check "neap-client topology --all without permission" says_no_permission
echo "$((100 * (checks - failed) / checks))%: Checks: $checks, Failures: $failed, Errors: 0"
[ $failed = 0 ] || status=1
CK_FORK=no tests/rxe/rxe_suite || status=1
for script in test_rdma test_rdma_faults test_rdma_store; do python3 "$NEAP_SOURCE/tests/rxe/$script.py" || status=1; done
exit $status
