#!/bin/sh
# Each test that docs/CONFORMANCE.md names exists.
: "${NEAP_SOURCE:?}"
list=$(grep -o '`test_[a-z_]*: [a-z0-9_]*`' "$NEAP_SOURCE/docs/CONFORMANCE.md" | tr -d '`' | sort -u)
[ "$(printf '%s\n' "$list" | grep -c .)" -gt 50 ] || { echo "the page names hardly a test"; exit 1; }
printf '%s\n' "$list" | {
	failed=0
	while IFS=': ' read -r suite name; do
		grep -q "^START_TEST($name)" "$NEAP_SOURCE/tests/unit/$suite.c" || { echo "there is no test $suite: $name"; failed=1; }
	done
	exit $failed
}
