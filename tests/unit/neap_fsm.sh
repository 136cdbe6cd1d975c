#!/bin/sh
# The neap-fsm program: what it prints, and its exit status for each way to be wrong.
: "${NEAP_SOURCE:?} ${NEAP_BUILD:?}"
tool=$NEAP_BUILD/neap-fsm
work=$NEAP_BUILD/tests/unit/neap-fsm-test
rm -rf "$work" && mkdir -p "$work" || exit 1
failed=0

# expect STATUS PATTERN COMMAND...
expect() {
	status=$1 pattern=$2
	shift 2
	"$@" >"$work/out" 2>&1
	got=$?
	if [ $got != "$status" ] || ! grep -q -- "$pattern" "$work/out"; then
		echo "FAILED: $* gave $got (wanted $status) and:"
		head -20 "$work/out"
		failed=1
	fi
}

expect 0 '^stream_connect .* transitions' "$tool" list
expect 0 '^CONNECTING (WAIT, timeout' "$tool" show stream_connect
expect 0 '^digraph stream_listen' "$tool" dot stream_listen
expect 0 '^stateDiagram-v2' "$tool" mermaid stream_listen
expect 0 '"name": "stream_connect"' "$tool" json
expect 0 ' 0 faults$' "$tool" check
expect 0 '^usage:' "$tool" --help
expect 0 '^neap-fsm [0-9]' "$tool" --version
expect 2 'there is no machine nonsense' "$tool" show nonsense
expect 2 '^usage:' "$tool"
expect 2 '^usage:' "$tool" nonsense
expect 2 '^usage:' "$tool" trace a b
expect 1 'cannot write .*/README.md' "$tool" docs "$work/missing"
expect 2 'cannot read' "$tool" coverage "$work/missing"
expect 2 'cannot read' "$tool" trace "$work/missing"
echo garbage >"$work/garbage"
expect 1 'not a whole trace dump' "$tool" trace "$work/garbage"
expect 2 'line 1 is not' "$tool" coverage "$work/garbage"
expect 1 'never taken: IDLE x NAME -> RESOLVING' "$tool" coverage /dev/null
[ -w /dev/full ] && expect 1 'cannot write' sh -c "'$tool' list >/dev/full"

# all transitions, taken twice by two tests: then the gate opens, and an impossible one closes it again
"$tool" json | "${PYTHON:-python3}" -c '
import json, sys
for machine in json.load(sys.stdin)["machines"]:
    for state in machine["states"]:
        for event, cell in zip(machine["events"], state["cells"]):
            if isinstance(cell, dict):
                print(machine["name"], state["name"], event, 1)
print("a_machine_of_a_test STATE EVENT 3")' >"$work/all" || failed=1
cat "$work/all" "$work/all" >"$work/twice"
expect 0 ' 0 faults$' "$tool" coverage "$work/twice"
sed 1d "$work/all" >"$work/but-one"
expect 1 ' 1 faults$' "$tool" coverage "$work/but-one"
echo 'stream_connect DONE NUMERIC 1' >>"$work/all"
expect 1 'impossible, yet hit: DONE x NUMERIC' "$tool" coverage "$work/all"
echo 'stream_connect DONE NOSUCHEVENT 1' >"$work/old"
expect 2 'does not have' "$tool" coverage "$work/old"

rm -rf "$work"
exit $failed
