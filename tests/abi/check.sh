#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh SOURCE BUILD CC: the library in BUILD against the interface that was released last, which tests/abi/released
# keeps: its header, and its version-info. What that library exported is made again from the header.
set -eu
source=$1
build=$2
cc=$3
here=$(dirname "$0")
released=$here/released
version_info='s/.*libtmaclient_la_LDFLAGS.*-version-info \([0-9:]*\).*/\1/p'

say() { printf 'abi-check: %s\n' "$*"; }
die() { printf 'abi-check: %s\n' "$*" >&2; exit 1; }

for tool in abidiff readelf dpkg-gensymbols; do
	command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install abigail-tools binutils dpkg-dev"
done
version() { sed -n 's/^#define TMA_VERSION_\(MAJOR\|MINOR\|PATCH\) *//p' "$1" | paste -sd .; }
exports() { nm -D --defined-only "$1/libtmaclient.so" | sed -n 's/.* \(tma_.*\)/\1/p' | LC_ALL=C sort; }

before=$(cat "$released/version-info")
after=$(sed -n "$version_info" "$source/client/Makemodule.am")
name=$(version "$released/tmaclient.h")
base=$build/abi/released
now=$build/abi/now
rm -rf "$base" "$now"
mkdir -p "$base" "$now/debian"
cp "$released/tmaclient.h" "$base"
current=${before%%:*}
sh "$here/stub.sh" "$base" "libtmaclient.so.$((current - ${before##*:}))" "$cc"
cp "$build/.libs/libtmaclient.so" "$source/client/tmaclient.h" "$now"
readelf -S "$now/libtmaclient.so" | grep -q '\.debug_info' || die "$build is built without -g: nothing can be compared"
sh "$here/compare.sh" "$base" "$now" ||
	die "it differs from $name: see tests/abi/Makemodule.am for what was not released yet, or only grew"

# New symbols require the soname's next version, and an entry in the package's list.
exports "$base" >"$base/exports"
added=$(exports "$now" | LC_ALL=C comm -13 "$base/exports" -)
if [ -n "$added" ]; then
	say "new since $name:" $added
	if [ "$(version "$source/client/tmaclient.h")" != "$name" ] && [ "$before" = "$after" ]; then
		die "functions were added: raise current and age in libtmaclient's -version-info $after"
	fi
fi
cp "$source/systemd/debian/control" "$source/systemd/debian/changelog" "$source/systemd/debian/libtmaclient1.symbols" \
	"$now/debian"
(cd "$now" && dpkg-gensymbols -c4 -q -plibtmaclient1 -elibtmaclient.so -Idebian/libtmaclient1.symbols -O/dev/null) ||
	die "systemd/debian/libtmaclient1.symbols is not what the library exports"
say "compatible with $name, version-info $before then, $after now"
