#!/bin/sh
# Gives every file of tests/fuzz/corpus/NAME to the target fuzz_NAME; a crash or a sanitizer's finding fails.
[ -n "$FUZZ_TARGETS" ] || { echo "no fuzz targets are built"; exit 77; }
failed=0
for target in $FUZZ_TARGETS; do
	name=${target##*/fuzz_}
	corpus=$NEAP_SOURCE/tests/fuzz/corpus/$name
	if [ ! -d "$corpus" ]; then
		echo "$name: no corpus in $corpus"
		failed=1
		continue
	fi
	count=$(find "$corpus" -type f | wc -l)
	if find "$corpus" -type f -print0 | xargs -0 -n 500 "$NEAP_BUILD/$target" >"$NEAP_BUILD/$target.replay" 2>&1; then
		echo "$name: $count files"
	else
		tail -60 "$NEAP_BUILD/$target.replay"
		echo "$name: FAILED (one of $count files)"
		failed=1
	fi
done
exit $failed
