#!/bin/sh
# The lints find what they are for: each is given something wrong and something right.
: "${NEAP_SOURCE:?} ${NEAP_BUILD:?}"
tools=$NEAP_SOURCE/tools
work=$NEAP_BUILD/tests/unit/tools-test
rm -rf "$work" && mkdir -p "$work" || exit 1
failed=0
cc=${CC:-cc}

# finds PATTERN COMMAND...: the command must fail and print PATTERN
finds() {
	pattern=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "FAILED: $* found nothing (wanted: $pattern)"
		failed=1
	elif ! grep -q -- "$pattern" "$work/out"; then
		echo "FAILED: $* did not print: $pattern"
		cat "$work/out"
		failed=1
	fi
}

clean() {
	if ! "$@" >"$work/out" 2>&1; then
		echo "FAILED: $* found:"
		cat "$work/out"
		failed=1
	fi
}

object() { cat >"$work/$1.c" && "$cc" -c -o "$work/$1.o" "$work/$1.c"; }

# --- nonblocking-lint
object waits <<'END' || exit 1
#include <poll.h>
int f(void) { return poll(0, 0, 1000); }
END
object fine <<'END' || exit 1
#include <stdlib.h>
void *f(void) { return malloc(3); }
END
finds 'waits.o: poll' "$tools/nonblocking-lint" "$work/waits.o"
clean "$tools/nonblocking-lint" "$work/fine.o"
finds 'fine.o: malloc' "$tools/nonblocking-lint" --pure "$work/fine.o"
echo 'waits.o poll  # a reason' >"$work/allow"
clean "$tools/nonblocking-lint" --allow "$work/allow" "$work/waits.o"
echo 'waits.o poll' >"$work/allow"
finds 'no reason given' "$tools/nonblocking-lint" --allow "$work/allow" "$work/waits.o"

# --- globals-lint
object global <<'END' || exit 1
static int counter;
static const char *const names[] = {"a", "b"};
const char *f(void) { return names[counter++]; }
END
object local <<'END' || exit 1
static const char *const names[] = {"a", "b"};
const char *f(int i) { return names[i]; }
END
finds 'global.o: counter in .bss' "$tools/globals-lint" "$work/global.o"
clean "$tools/globals-lint" "$work/local.o"

# --- tidy, over a tree of its own
tree=$work/tree
mkdir -p "$tree/fsm" "$tree/include" "$tree/apps" "$tree/tests/unit" "$tree/examples" "$tree/docs"
printf 'fsm/a.c\n' >"$tree/fsm/sources.am"
: >"$tree/include/sources.am"
source_file() { cat >"$tree/fsm/a.c"; }
source_file <<'END'
/* strcpy(a, b); m->state = 3; in a comment is no fault, nor is "exit(1)" in a string */
int f(const char *text)
{
	return text[0] == 's' && m->state == 3;
}
END
clean "$tools/tidy" "$tree"
echo 'int f(void) { m->state = 3; }' | source_file
finds 'a.c:1: a state is written only by' "$tools/tidy" "$tree"
echo 'int f(void) { strcpy(a, b); }' | source_file
finds 'a.c:1: unbounded or hidden-state call' "$tools/tidy" "$tree"
echo 'int f(void) { return atoi(a); }' | source_file
finds 'a.c:1: text to number' "$tools/tidy" "$tree"
echo 'int f(void) { printf("x"); }' | source_file
finds 'a.c:1: the library writes to its log' "$tools/tidy" "$tree"
echo 'int f(void) { exit(1); }' | source_file
finds 'a.c:1: the library calls back' "$tools/tidy" "$tree"
{ echo 'int f(void)' && echo '{' && yes '	x();' | head -80 && echo '}'; } | source_file
finds 'a.c:2: a function of 80 lines' "$tools/tidy" "$tree"
yes 'int x;' | head -1001 | source_file
finds 'a.c: 1001 lines' "$tools/tidy" "$tree"
printf '/* %s */\n' "TO""DO" | source_file
finds 'a.c:1: unfinished work' "$tools/tidy" "$tree"
printf 'int x; \n' | source_file
finds 'a.c:1: blanks at the end' "$tools/tidy" "$tree"
echo 'int x;' | source_file
: >"$tree/fsm/b.c"
finds 'fsm/b.c: in no sources.am' "$tools/tidy" "$tree"
rm "$tree/fsm/b.c"
echo 'see [b](b.md) and [http](http://x.invalid/)' >"$tree/docs/a.md"
finds 'docs/a.md: links to b.md' "$tools/tidy" "$tree"
: >"$tree/docs/b.md"
clean "$tools/tidy" "$tree"
mkdir "$tree/store"
echo 'M(first)' >"$tree/store/catalog.c"
printf 'store/catalog.c fsm/first_fsm.h fsm/second_fsm.h' >>"$tree/fsm/sources.am"
echo '#define FSM first' >"$tree/fsm/first_fsm.h"
clean "$tools/tidy" "$tree"
echo '#define FSM second' >"$tree/fsm/second_fsm.h"
finds 'second is not in store/catalog.c' "$tools/tidy" "$tree"

# --- test-report
mkdir -p "$work/build/tests/unit"
report() { printf '%s\n' "$2" >"$work/build/tests/unit/$1.log"; printf ':test-result: %s\n' "$3" >"$work/build/tests/unit/$1.trs"; }
report one '80%: Checks: 5, Failures: 1, Errors: 0' 'FAIL one (exit status: 1)'
report two '100%: Checks: 7, Failures: 0, Errors: 0' 'PASS two'
report three 'no redis-server
SKIP three (exit status: 77)' 'SKIP three'
report four 'killed' 'FAIL four (exit status: 137)'
[ "$("$tools/test-report" "$work/build" | tail -1)" = '11 2 1' ] || { echo "FAILED: test-report"; "$tools/test-report" "$work/build"; failed=1; }
"$tools/test-report" "$work/build" | grep -q 'skipped tests/unit/three: no redis-server' || { echo "FAILED: reason of a skip"; failed=1; }

rm -rf "$work"
exit $failed
