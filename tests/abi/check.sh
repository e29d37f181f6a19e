#!/bin/sh
# check.sh SOURCE BUILD CC: the library in BUILD against that of the last tag; while there is none, of the commit that
# last touched its version-info. That one is built once and kept in BUILD/abi.
set -eu
source=$1
build=$2
cc=$3
here=$(dirname "$0")
version_info='s/.*libtmaclient_la_LDFLAGS.*-version-info \([0-9:]*\).*/\1/p'

say() { printf 'abi-check: %s\n' "$*"; }
die() { printf 'abi-check: %s\n' "$*" >&2; exit 1; }

for tool in abidiff readelf git dpkg-gensymbols; do
	command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install abigail-tools binutils git dpkg-dev"
done
commit=
if name=$(git -C "$source" describe --tags --abbrev=0 2>/dev/null); then
	commit=$(git -C "$source" rev-parse "$name^{commit}")
	released=yes
else
	commit=$(git -C "$source" log -1 --format=%H -G'libtmaclient_la_LDFLAGS.*-version-info' -- client/Makemodule.am) ||
		die "$source is no git checkout: there is no library to compare with"
	name=$(git -C "$source" log -1 --format='%h (%s)' "$commit")
	released=no
fi

# The library of a commit, alone.
base=$build/abi/$commit
if [ ! -e "$base/done" ]; then
	say "builds the library of $name"
	rm -rf "$base"
	mkdir -p "$base/tree"
	git -C "$source" archive "$commit" | tar -x -C "$base/tree"
	(
		cd "$base/tree"
		autoreconf --install
		./configure -q --with-cuda=no CC="$cc" CFLAGS='-g -O1'
		make -s -j "$(nproc)" libtmaclient.la
	) >"$base/log" 2>&1 || { tail -n 40 "$base/log" >&2; die "$name does not build"; }
	cp "$base/tree/.libs/libtmaclient.so" "$base/tree/client/tmaclient.h" "$base/tree/client/Makemodule.am" "$base"
	rm -rf "$base/tree"
	touch "$base/done"
fi

now=$build/abi/now
rm -rf "$now"
mkdir -p "$now"
cp "$build/.libs/libtmaclient.so" "$source/client/tmaclient.h" "$now"
readelf -S "$now/libtmaclient.so" | grep -q '\.debug_info' || die "$build is built without -g: nothing can be compared"
sh "$here/compare.sh" "$base" "$now"

# What is new is for the soname's next version, and for the package's list.
exports() { nm -D --defined-only "$1/libtmaclient.so" | sed -n 's/.* \(tma_.*\)/\1/p' | LC_ALL=C sort; }
exports "$base" >"$base/exports"
added=$(exports "$now" | LC_ALL=C comm -13 "$base/exports" -)
before=$(sed -n "$version_info" "$base/Makemodule.am")
after=$(sed -n "$version_info" "$source/client/Makemodule.am")
if [ -n "$added" ]; then
	say "new since $name:" $added
	if [ $released = yes ] && [ "$before" = "$after" ]; then
		die "functions were added: raise current and age in libtmaclient's -version-info $after"
	fi
fi
package=$now/debian
mkdir -p "$package"
cp "$source/systemd/debian/control" "$source/systemd/debian/changelog" "$source/systemd/debian/libtmaclient0.symbols" \
	"$package"
(cd "$now" && dpkg-gensymbols -c4 -q -plibtmaclient0 -elibtmaclient.so -Idebian/libtmaclient0.symbols -O/dev/null) ||
	die "systemd/debian/libtmaclient0.symbols is not what the library exports"
say "compatible with $name, version-info $before then, $after now"
