#!/bin/sh
# In the guest, as root: the suite over real verbs, and what neap-client shows of the devices.
cd "$NEAP_BUILD" || exit 1
failed=0
fail() { echo "FAIL: $*"; failed=1; }

CK_FORK=no ASAN_OPTIONS=detect_leaks=0 timeout 180 tests/rxe/rxe_suite || fail "rxe_suite"

shown=/run/topology.json
./neap-client topology --all >$shown || fail "neap-client topology --all"
[ "$(grep -c '"verbs": {"usable": true, "port": 1, "status": "ACTIVE", "mtu_bytes": 4096, "gid_index": 1, ' $shown)" = 2 ] ||
	{ fail "the devices are not shown as usable"; cat $shown; }

# Without permission: one clear line for each device.
chmod 600 /dev/infiniband/uverbs*
setpriv --reuid 65534 --regid 65534 --clear-groups ./neap-client topology --all >$shown 2>&1
[ "$(grep -c 'no permission: let this user read and write /dev/infiniband/uverbs' $shown)" = 2 ] || { fail "no permission"; cat $shown; }
exit $failed
