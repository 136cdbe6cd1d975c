#!/bin/sh
# Boots a machine with two Soft-RoCE rails and runs in_guest.sh there. 77: it cannot run here, and why.
"$NEAP_SOURCE/tools/rxe-run" -n 2 -m 1024 -t 240 "$NEAP_SOURCE/tests/rxe/in_guest.sh"
result=$?
[ $result = 77 ] && echo "SKIP: no machine for Soft-RoCE: ./run check --full installs the packages named above"
exit $result
