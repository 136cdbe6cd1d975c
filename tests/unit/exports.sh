#!/bin/sh
# The shared library exports what the public headers declare with NEAP_API: nothing is missing, nothing internal leaks.
: "${NEAP_SOURCE:?} ${NEAP_BUILD:?}"
work=$NEAP_BUILD/tests/unit/exports
library=$NEAP_BUILD/libneap.so
[ -e "$library" ] || { echo "there is no shared library in this build"; exit 77; }
nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | grep '^neap_\|^[a-z]' | sort -u >"$work.has"
cat "$NEAP_SOURCE"/include/neap/*.h | grep '^NEAP_API' | grep -o 'neap_[a-z0-9_]*(' | tr -d '(' | sort -u >"$work.says"
[ -s "$work.says" ] || { echo "found no declarations"; exit 1; }
diff "$work.says" "$work.has" >"$work.diff"
status=$?
sed -n 's/^< /declared, not exported: /p; s/^> /exported, not declared: /p' "$work.diff"
rm -f "$work.has" "$work.says" "$work.diff"
exit $status
