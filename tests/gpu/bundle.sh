#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a folder, and an archive of it, that runs on a GPU host: the programs, stripped, and the libraries that
# they need beyond the C library's and the driver's.
#
#   bundle.sh SRCDIR BUILDDIR FOLDER
set -eu
src=$1 build=$2 to=$3
programs='tmad tmactl tests/bench/bench
	tests/gpu/bench/bench_blocks tests/gpu/bench/bench_gpu tests/gpu/bench/bench_host tests/gpu/bench/bench_latency tests/gpu/bench/bench_lists
	tests/gpu/bench/bench_neighbour tests/gpu/bench/bench_offload tests/gpu/bench/bench_tables tests/gpu/bench/compute
	tests/gpu/clients/astray_tmad tests/gpu/clients/clients tests/gpu/conformance/conformance
	property_host property_streams tests/gpu/lists tests/gpu/ranges tests/gpu/transforms tests/seeds/test_seeds'
most=$((60 << 20))

# Libtool makes a program that links one of the project's libraries a wrapper script; the binary is in .libs.
binary_of() {
	hidden=$(dirname "$build/$1")/.libs/$(basename "$1")
	[ -f "$hidden" ] && echo "$hidden" || echo "$build/$1"
}

is_the_systems() {
	case $1 in
	linux-vdso.* | ld-linux* | libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | libcuda.so.*) ;;
	*) return 1 ;;
	esac
}

rm -rf "$to" "$to.tar.xz"
mkdir -p "$to/bin" "$to/lib"
for program in $programs; do
	cp "$(binary_of "$program")" "$to/bin/"
done
cp "$src/tests/gpu/run.sh" "$src/tests/gpu/service.sh" "$src/tests/gpu/neighbour.sh" "$src/tests/gpu/bench/against.sh" "$to/"
cp "$src"/tests/gpu/bench/compare*.py "$src/tests/gpu/bench/cutensor.py" "$src"/tests/bench/compare/compare*.py "$to/"
mkdir -p "$to/tests/stress" "$to/tests/support" "$to/python"
cp "$src/tests/stress/test_fairness.py" "$to/tests/stress/"
cp "$src/tests/support/tap.py" "$src/tests/support/tmad.py" "$to/tests/support/"
msgpack=$("${PYTHON:-python3}" -c 'import msgpack; print(msgpack.__path__[0])' 2>/dev/null) # its part in Python runs everywhere
if [ -n "$msgpack" ]; then
	mkdir "$to/python/msgpack"
	cp "$msgpack"/*.py "$to/python/msgpack/"
fi
mkdir -p "$to/tests/gpu/python" "$to/site"
cp "$src"/tests/gpu/python/*.py "$to/tests/gpu/python/"
for wheel in "$build"/wheels/*.whl; do
	[ ! -f "$wheel" ] || "${PYTHON:-python3}" -m zipfile -e "$wheel" "$to/site"
done
LD_LIBRARY_PATH=$build/.libs ldd "$to"/bin/* | awk '$2 == "=>" { print $1, $3 }' | sort -u |
	while read -r name path; do
		is_the_systems "$name" && continue
		[ -f "$path" ] || { echo "$name is not found" >&2; exit 1; }
		cp -L "$path" "$to/lib/$name"
	done
chmod u+w "$to"/bin/* "$to"/lib/*
strip "$to"/bin/* "$to"/lib/*
chmod +x "$to/run.sh"
tar -C "$(dirname "$to")" -cJf "$to.tar.xz" "$(basename "$to")"
size=$(stat -c %s "$to.tar.xz")
echo "$to: $(($(du -sb "$to" | cut -f 1) >> 10)) KiB, $to.tar.xz: $((size >> 10)) KiB"
[ "$size" -le $most ] || { echo "the archive has more than $((most >> 20)) MiB" >&2; exit 1; }
