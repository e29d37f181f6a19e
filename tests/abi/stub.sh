#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stub.sh DIRECTORY SONAME CC: DIRECTORY/libtmaclient.so, a library that has what the header in DIRECTORY declares, with
# debugging information, and that does nothing.
set -eu
cd "$1"
{
	echo '#include "tmaclient.h"'
	$3 -E -P tmaclient.h | tr '\n' ' ' | grep -o '__attribute__((visibility("default"))) [^;]*;' |
		sed 's/;$/ { __builtin_trap(); }/'
} >stub.c
$3 -g -O0 -w -shared -fPIC -Wl,-soname,"$2" -o libtmaclient.so stub.c
