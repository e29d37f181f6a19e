#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reproducible.sh MAKE DIRECTORY: builds the packages again in a directory of its own, under other circumstances than
# those in DIRECTORY, from a tarball that is made again too, and compares them byte for byte.
set -eu
make=$1
first=$2
count=0

scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-again-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# The zone and the language are such as change dates and the order of names, where those are looked at. ccache
# is left out: its objects could be the first build's own.
umask 027
mkdir -p "$scratch/a/longer path/home"
env TZ=Pacific/Chatham LC_ALL=C.UTF-8 LANGUAGE=de HOME="$scratch/a/longer path/home" USER=somebody CCACHE_DISABLE=1 \
	DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} parallel=3" \
	"$make" --no-print-directory deb DEB_DIR="$scratch/a/second"

for file in "$first"/*.deb "$first"/*.dsc "$first"/*.tar.xz; do
	again=$scratch/a/second/${file##*/}
	if ! cmp "$file" "$again"; then
		# The first difference, in words where diffoscope is there to find them.
		command -v diffoscope >/dev/null && diffoscope --max-report-size 20000 "$file" "$again" || :
		echo "reproducible: ${file##*/} differs" >&2
		exit 1
	fi
	count=$((count + 1))
done
[ "$(find "$first" -name '*.deb' | wc -l)" = "$(find "$scratch/a/second" -name '*.deb' | wc -l)" ] || {
	echo "reproducible: not as many packages as before" >&2
	exit 1
}
echo "reproducible: $count files are the same, byte for byte"
