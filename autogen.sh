#!/bin/sh
# Makes ./configure. Needs autoconf, automake, pkg-config.
cd "$(dirname "$0")" || exit 1
exec autoreconf --install --force --warnings=all,no-portability,no-obsolete
