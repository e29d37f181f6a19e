#!/bin/sh
# deb.sh TARBALL DIRECTORY: Debian packages of a distribution, with their source package and its log, in a directory
# that is made for them; what was there before goes. What dpkg-buildpackage takes from the environment counts:
# DEB_BUILD_OPTIONS=nocheck leaves the tests out, DEB_BUILD_PROFILES=pkg.tmad.nocuda the CUDA engine.
set -eu
umask 022 # the modes in the source package are those of this copy
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
	die "systemd/debian/changelog is of $packaged, configure.ac of $version: both have to be of one version"

say "builds $packaged in $out, log: $out/build.log"
if ! dpkg-buildpackage -us -uc >../build.log 2>&1; then
	tail -n 60 ../build.log >&2
	die "dpkg-buildpackage failed"
fi
cd ..
rm -rf "$name"
say "made" *.deb *.dsc
