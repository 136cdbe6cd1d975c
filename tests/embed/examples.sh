#!/bin/sh
# The programs of docs/EMBEDDING.md: taken out of the page, compiled as a user would, and run.
set -u
doc=$NEAP_SOURCE/docs/EMBEDDING.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: "${USER_CC:=cc}" "${USER_CXX:=c++}" "${CFLAGS:=}" # `make check` sets them, with the sanitizers of the library
library=$NEAP_BUILD/libneap.so
[ -e "$library" ] || { echo "skipped: $library is not built"; exit 77; }

# extract NAME FILE
extract() {
	awk -v mark="<!-- example $1 -->" '$0 == mark { found = 1; next }
		found && /^```c/ { inside = 1; next } inside && /^```/ { exit } inside' "$doc" >"$2"
	[ -s "$2" ] || { echo "FAIL: no example $1 in $doc"; return 1; }
}

# try NAME COMPILER SUFFIX EXPECTED-LINES FLAGS...
try() {
	name=$1 compiler=$2 suffix=$3 expected=$4
	shift 4
	extract "$name" "$work/$name.$suffix" || return 1
	# shellcheck disable=SC2086
	$compiler -Wall -Wextra $CFLAGS -I"$NEAP_SOURCE/include" "$work/$name.$suffix" -o "$work/$name" "$library" \
		-Wl,-rpath,"$NEAP_BUILD" "$@" || { echo "FAIL: $name does not compile"; return 1; }
	timeout 20 "$work/$name" >"$work/$name.out" || { echo "FAIL: $name answers $?"; return 1; }
	[ "$(grep -c . "$work/$name.out")" -eq "$expected" ] || { echo "FAIL: $name printed:"; cat "$work/$name.out"; return 1; }
	echo "ok: $name"
}

worst=0
try run "$USER_CC" c 3 || worst=1
try epoll "$USER_CC" c 3 || worst=1
try ev "$USER_CC" c 4 -fno-strict-aliasing -lev || worst=1
# shellcheck disable=SC2046
if pkg-config --exists libuv; then try uv "$USER_CC" c 4 $(pkg-config --cflags --libs libuv) || worst=1; fi
# shellcheck disable=SC2046
if pkg-config --exists glib-2.0; then try glib "$USER_CC" c 4 $(pkg-config --cflags --libs glib-2.0) || worst=1; fi
if echo '#include <asio.hpp>' | $USER_CXX -std=c++17 -fsyntax-only -x c++ - 2>/dev/null; then
	try asio "$USER_CXX -std=c++17" cpp 4 -lpthread || worst=1
fi
exit $worst
