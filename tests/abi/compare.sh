#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare.sh OLD NEW: whether programs built with the library in OLD run with the one in NEW: both are directories
# with a libtmaclient.so that has debugging information, and its tmaclient.h. Prints what differs in what the header
# declares. Exits with 0 when they do, or when the soname says that they do not; with 1 when they do not and it does
# not say so; with 2 when that cannot be told.
set -u
old=$1
new=$2

soname() { readelf -d "$1/libtmaclient.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
compare() { abidiff --headers-dir1 "$old" --headers-dir2 "$new" --drop-private-types "$@" "$old/libtmaclient.so" "$new/libtmaclient.so"; }

# Any difference in what existed before is incompatible; symbols may be added.
compare --no-added-syms
rc=$?
if [ $((rc & 3)) != 0 ] || [ -z "$(soname "$old")" ] || [ -z "$(soname "$new")" ]; then
	echo "abi-check: abidiff failed" >&2
	exit 2
elif [ $rc = 0 ]; then
	exit 0
elif [ "$(soname "$old")" != "$(soname "$new")" ]; then
	echo "abi-check: incompatible, as $(soname "$new") after $(soname "$old") says"
	exit 0
fi
echo "abi-check: incompatible: raise current and set revision and age to 0 in libtmaclient's -version-info" >&2
exit 1
