#!/bin/sh
# Boots a machine with four Soft-RoCE rails, once, and runs in_guest.sh there. 77: it cannot run here, and why. Nothing in it waits for less
# than minutes for what never comes: the machine is emulated, and other tests run beside it.
skip() { echo "SKIP: no machine for Soft-RoCE here: $*"; exit 77; }
# An emulated machine with sanitizers does not do the long rounds in any useful time.
[ -n "${CK_TIMEOUT_MULTIPLIER:-}" ] && unset NEAP_FULL
guest_mib=2048
[ -n "${NEAP_FULL:-}" ] && guest_mib=6144
available_mib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
[ "$available_mib" -ge $((guest_mib + 512)) ] || skip "$available_mib MiB of memory are available, it needs $((guest_mib + 512))"
unset NEAP_COVERAGE # what the guest writes is lost
run=$NEAP_SOURCE/tools/rxe-run
"$run" -n 4 -m $guest_mib -t $((${NEAP_TEST_TIMEOUT:-900} - 20)) "$NEAP_SOURCE/tests/rxe/in_guest.sh"
result=$?
[ $result = 77 ] && skip "$("$run" true 2>&1)"
exit $result
