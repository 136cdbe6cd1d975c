#!/bin/sh
# The store's first program: a cluster of one, and a member of a master's cluster.
: "${NEAP_BUILD:?}"
expect() {
	printf '%s\n' "$1" | diff -u - "$work/out" || { echo "FAIL: $2"; exit 1; }
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"; [ -z "${master:-}" ] || kill "$master" 2>/dev/null' EXIT
timeout 20 "$NEAP_BUILD/examples/store" >"$work/out" || { echo "FAIL: it answers $?"; exit 1; }
expect 'created
hello from the store' 'a cluster of one'
timeout 20 "$NEAP_BUILD/examples/store" 127.0.0.1 >"$work/out" 2>&1 && { echo "FAIL: an address without a port is taken"; exit 1; }
grep -q 'host:port' "$work/out" || { echo "FAIL: it does not say what is wrong:"; cat "$work/out"; exit 1; }
"$NEAP_BUILD/neap-master" --rpc_port 0 --metrics_port 0 --ready_file "$work/ready" --first >"$work/master" 2>&1 &
master=$!
for _ in $(seq 100); do [ -s "$work/ready" ] && break; sleep 0.1; done
port=$(grep -o '127\.0\.0\.1:[0-9]*' "$work/ready" "$work/master" | head -n 1 | sed 's/.*://')
[ -n "$port" ] || { echo "FAIL: no master:"; cat "$work/ready" "$work/master"; exit 1; }
timeout 20 "$NEAP_BUILD/examples/store" "127.0.0.1:$port" >"$work/out" || { echo "FAIL: with a master it answers $?"; cat "$work/out"; exit 1; }
expect 'created
hello from the store' 'a member of a cluster'
