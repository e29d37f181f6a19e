#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh PACKAGES WORK CC: the packages in a clean Debian root, booted: installed, started by their socket,
# called, refused, read, reloaded, killed, upgraded and purged. Prints each command with what it answers, and a count
# at the end. Needs root, namespaces and debootstrap, and says so where it has not got them. WORK keeps the root that
# debootstrap made for the next run.
set -u
packages=$(realpath "$1") && mkdir -p "$2" && work=$(realpath "$2") && cc=$3 || exit 1
root=$work/root
here=$(dirname "$(realpath "$0")")
. "$here/boot.sh"
init_pid=

say() { printf 'install: %s\n' "$*"; }
die() { printf 'install: %s\n' "$*" >&2; exit 1; }

reason=$(cannot_boot)
if [ -n "$reason" ]; then
	printf 'SKIP: %s\n0 passed, 0 failed, 1 skipped\n' "$reason"
	exit 0
fi

finish() {
	halt_it
	rm -rf "$root" "$work/stage"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

say "makes a root of $(archive)"
make_root "$packages"/{tmad,tmactl,libtmaclient1,python3-tmaclient}_*.deb >"$work/root.log" 2>&1 || { tail -n 30 "$work/root.log"; die "no root"; }

# The client is built as a user of the packages builds one.
stage=$work/stage
rm -rf "$stage"
for deb in "$packages"/{libtmaclient1,libtmaclient-dev}_*.deb; do dpkg-deb -x "$deb" "$stage"; done
pc=$(dirname "$(find "$stage" -name tmaclient.pc)")
flags=$(PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$pc pkg-config --cflags --libs tmaclient) &&
	$cc -Wall -Wextra -Werror -pthread -o "$root/usr/local/bin/caller" "$here/caller.c" $flags || die "no client"
mkdir "$root/tests" "$root/packages"
cp "$here"/*.sh "$root/tests"
cp "$packages"/*.deb "$root/packages"
promtool=$(command -v promtool) || die "promtool is not installed: apt-get install prometheus"
cp "$promtool" "$root/usr/local/bin"

say "boots it"
boot || { tail -n 30 "$work/boot.log"; die "it does not boot"; }
say "is booted: $(booted systemctl --version | head -n 1), $(booted systemctl is-system-running)"
booted bash /tests/steps.sh
