#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make abi-check compares with: a library that differs where programs would notice is told from one that does
# not. Each has the real header, with one line changed, and functions enough to reach that.
set -u
: "${TEST_SRCDIR:?run by make check}" "${TEST_BUILDDIR:?}" "${TEST_CC:?}"

if ! command -v abidiff >/dev/null; then
	echo "1..0 # SKIP abidiff is not installed"
	exit 0
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-abi-XXXXXX") || exit 99
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM


# library NAME SONAME [SED [CFLAGS]] builds a library with the header as changed by SED.
library() {
	mkdir -p "$scratch/$1"
	sed "${3:-}" "$TEST_SRCDIR/client/tmaclient.h" >"$scratch/$1/tmaclient.h"
	cat >"$scratch/$1/library.c" <<-'C'
		#include "tmaclient.h"
		struct tma_client {
		#ifdef WITHIN
			long before;
		#endif
			int state;
		};
		int tma_transpose(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src, const int *perm)
		{
			return client->state + dst->rank + src->rank + *perm;
		}
		#ifndef LESS
		const char *tma_status_name(int status) { return status ? "?" : ""; }
		#endif
		#ifdef MORE
		__attribute__((visibility("default"))) int tma_more(void) { return 1; }
		#endif
	C
	$TEST_CC -g -shared -fPIC -Wl,-soname,"$2" -o "$scratch/$1/libtmaclient.so" ${4:-} "$scratch/$1/library.c" 2>&1 | sed 's/^/# /'
}

# outcome NAME WANTED REASON compares the library with the first one and checks the exit status and the reason.
outcome() {
	n=$((n + 1))
	sh "$TEST_SRCDIR/tests/abi/compare.sh" "$scratch/first" "$scratch/$1" >"$scratch/log" 2>&1
	rc=$?
	if [ $rc = "$2" ]; then
		echo "ok $n - $3"
	else
		echo "not ok $n - $3: exit status $rc, not $2"
		sed 's/^/# /' "$scratch/log"
	fi
}

n=0
wider='s|uint64_t offset;\( /\* bytes from the region.s start to element\)|uint64_t sooner, offset;\1|'
echo 1..8
library first libtmaclient.so.0
library same libtmaclient.so.0
outcome same 0 "the same library"
library more libtmaclient.so.0 '' -DMORE
outcome more 0 "a function more"
library within libtmaclient.so.0 '' '-DWITHIN'
outcome within 0 "a struct that only the library knows"
library wider libtmaclient.so.0 "$wider"
cmp -s "$scratch/first/tmaclient.h" "$scratch/wider/tmaclient.h"
[ $? = 1 ] && outcome wider 1 "a struct of the header with a member more"
library argument libtmaclient.so.0 's/enum tma_dtype dtype;/int64_t dtype;/'
outcome argument 1 "a member of another type"
library less libtmaclient.so.0 '' -DLESS
outcome less 1 "a function less"
library next libtmaclient.so.1 "$wider"
outcome next 0 "the struct again, with a soname of its own"
rm -rf "$scratch/next/libtmaclient.so"
outcome next 2 "no library"
