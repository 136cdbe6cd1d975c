#!/bin/sh
# What is generated into the tree says what the tables and the sources say now.
: "${NEAP_SOURCE:?} ${NEAP_BUILD:?}"
fresh=$NEAP_BUILD/tests/unit/docs-fresh
rm -rf "$fresh" && mkdir -p "$fresh" || exit 1
failed=0

"$NEAP_BUILD/neap-fsm" docs "$fresh" || exit 1
diff -ru "$NEAP_SOURCE/docs/fsm" "$fresh" || { echo "docs/fsm is out of date: ./run docs"; failed=1; }

# the first program in README.md is the one that is compiled and run
awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$NEAP_SOURCE/README.md" >"$fresh.c"
diff -u "$NEAP_SOURCE/examples/first.c" "$fresh.c" || { echo "README.md does not show examples/first.c as it is"; failed=1; }
rm -rf "$fresh" "$fresh.c"
exit $failed
