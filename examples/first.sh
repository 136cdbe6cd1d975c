#!/bin/sh
# Runs two of the first program: one serves, the other reads from it. first.sh [PROGRAM]
: "${NEAP_BUILD:=build}"
program=${1:-$NEAP_BUILD/examples/first}
work=$(mktemp -d) || exit 1
"$program" >"$work/name" 2>"$work/errors" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
tries=0
while [ ! -s "$work/name" ]; do
	tries=$((tries + 1))
	if [ $tries -gt 100 ] || ! kill -0 $server 2>/dev/null; then
		echo "the server printed no name:"
		cat "$work/errors"
		exit 1
	fi
	sleep 0.1
done
answer=$(timeout 20 "$program" "$(cat "$work/name")" 2>&1)
echo "$answer"
[ "$answer" = "hello from another process" ] && [ ! -s "$work/errors" ]
