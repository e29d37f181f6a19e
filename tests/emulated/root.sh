#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: root.sh DIRECTORY ARCHITECTURE PACKAGE...
#
# Makes DIRECTORY a file system with Debian packages of another architecture and all that they depend on: for a
# cross compiler to build against, and an emulator to find libraries in. They are unpacked, not installed: this
# machine's own packages stay as they are, and some of these would take the place of theirs. Does nothing when
# DIRECTORY has them.
set -eu
root=$1 architecture=$2
shift 2
if [ "$(cat "$root/packages" 2>/dev/null)" = "$architecture $*" ]; then
	exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
: >"$scratch/status"

# An apt of its own, which knows the machine's sources and keys, and nothing that is installed.
apt() {
	apt-get -q -y -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
		-o APT::Sandbox::User=root -o Debug::NoLocking=true -o Dir::State::status="$scratch/status" \
		-o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch/cache" "$@" >"$scratch/log" 2>&1 || {
		cat "$scratch/log" >&2
		exit 1
	}
}
apt update
apt --no-install-recommends --download-only install "$@"

rm -rf "$root"
mkdir -p "$root"
for package in "$scratch"/cache/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$package" |
		tar -x -C "$root" --no-same-owner --exclude=./usr/share --exclude=./usr/include/boost
done
echo "$architecture $*" >"$root/packages"
