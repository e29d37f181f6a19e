#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The public header alone, as programs compile it: each standard that it promises, by each compiler that is here.
set -u
: "${TEST_SRCDIR:?run by make check}"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-header-XXXXXX") || exit 99
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

cat >"$scratch/app.c" <<'C'
#include <tmaclient.h>
#include <tmaclient.h>
#if TMA_VERSION < 200 || TMA_VERSION != TMA_VERSION_MAJOR * 10000 + TMA_VERSION_MINOR * 100 + TMA_VERSION_PATCH
#error TMA_VERSION does not compare
#endif
int app(tma_client *client);
int app(tma_client *client)
{
	struct tma_completed completed;

	return tma_next(client, -1, &completed) == TMA_PENDING ? TMA_OK : completed.result.status;
}
C
cp "$scratch/app.c" "$scratch/app.cc"

# C23 has the name that both have known for long. A compiler that does not know a standard is passed over.
echo 1..10
n=0
for compiler in gcc clang g++ clang++; do
	case $compiler in
	*++) standards="c++11 c++17" source=app.cc ;;
	*) standards="c99 c11 c2x" source=app.c ;;
	esac
	for standard in $standards; do
		n=$((n + 1))
		if ! command -v $compiler >/dev/null; then
			echo "ok $n - $compiler -std=$standard # SKIP it is not installed"
		elif ! echo 'int x;' | $compiler -std=$standard -fsyntax-only -x "$([ $source = app.c ] && echo c || echo c++)" - 2>/dev/null; then
			echo "ok $n - $compiler -std=$standard # SKIP it does not know that standard"
		elif $compiler -std=$standard -Wall -Wextra -Wpedantic -Werror -I"$TEST_SRCDIR/client" -c -o "$scratch/app.o" \
			"$scratch/$source" >"$scratch/log" 2>&1; then
			echo "ok $n - $compiler -std=$standard"
		else
			echo "not ok $n - $compiler -std=$standard"
			sed 's/^/# /' "$scratch/log"
		fi
	done
done
