#!/bin/sh
# neap-model finds what breaks without each protection, and the way that it prints can be followed again. That nothing breaks with all of
# them is what the program itself checks when it is run as a test.
: "${NEAP_SOURCE:?} ${NEAP_BUILD:?}"
tool=$NEAP_BUILD/tests/model/neap-model
work=$NEAP_BUILD/tests/model/work
rm -rf "$work" && mkdir -p "$work" || exit 1
failed=0

fail() {
	echo "FAILED: $*"
	failed=1
}

# expect STATUS PATTERN COMMAND...
expect() {
	status=$1 pattern=$2
	shift 2
	"$@" >"$work/out" 2>&1
	got=$?
	if [ $got != "$status" ] || ! grep -q -- "$pattern" "$work/out"; then
		fail "$* gave $got (wanted $status) and:"
		head -20 "$work/out"
	fi
}

expect 0 '^invariants$' "$tool" --list
cp "$work/out" "$work/list"
sed -n '/^invariants$/,$s/^  \([A-Z0-9]*\) .*/\1/p' "$work/list" >"$work/invariants"
protections=$(sed -n '/^protections/,/^invariants/s/^  \([a-z-]*\) .*/\1/p' "$work/list")
[ "$(echo "$protections" | wc -w)" -ge 24 ] || fail "too few protections are listed: $protections"

for protection in $protections; do
	expect 1 '^violated: ' "$tool" --without "$protection"
	cp "$work/out" "$work/$protection"
	violated=$(grep '^violated: ' "$work/$protection")
	invariant=${violated#violated: } invariant=${invariant%%:*}
	grep -qx -- "$invariant" "$work/invariants" || fail "$protection: '$violated' names no invariant"
	grep -q "^without $protection$" "$work/$protection" || fail "$protection: its trace does not say what was taken away"
	expect 1 "^$violated\$" "$tool" --replay "$work/$protection"
	# the last event is what breaks it: without it nothing is violated yet
	last=$(grep -n '^ *[0-9][0-9]*  ' "$work/$protection" | tail -1 | cut -d: -f1)
	sed "${last},\$d" "$work/$protection" >"$work/shorter"
	expect 0 'nothing violated$' "$tool" --replay "$work/shorter"
	# with the protection the same schedule is harmless, or not possible at all
	sed "/^without $protection\$/d" "$work/$protection" >"$work/protected"
	"$tool" --replay "$work/protected" >"$work/out" 2>&1
	[ $? != 1 ] || fail "$protection: the same schedule breaks something with it, too"
	echo "without $protection: $violated"
done

expect 2 "there is no scenario 'nonsense'" "$tool" --scenario nonsense
expect 2 "there is no protection 'nonsense'" "$tool" --without nonsense
expect 2 '^neap-model \[' "$tool" nonsense
expect 2 'not all: --states-max' "$tool" --scenario forward-get --states-max 100
expect 2 'No such file' "$tool" --replay "$work/missing"
printf 'scenario settle\n   1  start 2 0\n' >"$work/wrong"
expect 2 'is not possible there' "$tool" --replay "$work/wrong"
printf '   1  start 0 0\n' >"$work/wrong"
expect 2 'comes before the events' "$tool" --replay "$work/wrong"
expect 0 '^settle .* states' "$tool" --scenario settle --faults 1 --cells

[ $failed = 1 ] || rm -rf "$work"
exit $failed
