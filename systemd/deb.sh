#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh TARBALL DIRECTORY: builds Debian packages and the source package from a distribution tarball, in DIRECTORY, which
# is emptied first and also receives the log. The environment applies as for dpkg-buildpackage: DEB_BUILD_OPTIONS=nocheck
# skips the tests, DEB_BUILD_PROFILES=pkg.tmad.nocuda the CUDA engine.
set -eu
umask 022 # the source package takes its file modes from this copy
tarball=$1
out=$2

say() { printf 'deb: %s\n' "$*"; }
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }

for tool in dpkg-buildpackage dh; do
	command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install dpkg-dev debhelper"
done

name=${tarball##*/}
name=${name%.tar.xz}
version=${name#tmad-}
rm -rf "$out"
mkdir -p "$out"
cp "$tarball" "$out/tmad_$version.orig.tar.xz"
cd "$out"
tar -xf "tmad_$version.orig.tar.xz"
cd "$name"
cp -R systemd/debian debian
packaged=$(dpkg-parsechangelog -S Version)
[ "${packaged%-*}" = "$version" ] ||
	die "systemd/debian/changelog says version $packaged, configure.ac $version: they must be the same"

say "building $packaged in $out, log: $out/build.log"
if ! dpkg-buildpackage -us -uc >../build.log 2>&1; then
	tail -n 60 ../build.log >&2
	die "dpkg-buildpackage failed"
fi
cd ..
rm -rf "$name"
say "built" *.deb *.dsc
