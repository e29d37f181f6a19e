#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make install` leaves behind is whole: units that systemd accepts, and a header, a library and a
# pkg-config file that the README's example and the manual's compile with; the former runs by itself, the latter against the
# installed tmad.
set -u
: "${TEST_SRCDIR:?run by make check}" "${TEST_BUILDDIR:?}" "${TEST_CC:?}"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-install-XXXXXX") || exit 99
tmad_pid=
finish() {
	[ -z "$tmad_pid" ] || kill "$tmad_pid" 2>/dev/null
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

n=0
# result STATUS NAME [LOG] prints a line of TAP, and the log if the test failed.
result() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		[ -z "${3:-}" ] || sed 's/^/# /' "$3"
	fi
}
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

echo 1..17
dest=$scratch/dest
log=$scratch/log
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s -C "$TEST_BUILDDIR" install DESTDIR="$dest" >"$log" 2>&1
result $? "make install DESTDIR=" "$log"

# The directories of the installation, as they were given to configure.
at() { find "$dest" -name "$1" \( -type f -o -type l \) | head -n 1; }
missing=
for file in tmad tmactl tmaclient.h libtmaclient.so tmaclient.pc tmad.socket tmad.service tmad-metrics.socket \
	tmad@.socket tmad@.service tmad-metrics@.socket tmad.8 tmactl.1; do
	[ -n "$(at $file)" ] || missing="$missing $file"
done
[ "$(find "$dest" -name tmad.conf | wc -l)" = 3 ] || missing="$missing tmad.conf(sysusers.d,tmpfiles.d,etc)"
echo "missing:$missing" >"$log"
[ -z "$missing" ]
result $? "everything is there" "$log"

# ---- Units --------------------------------------------------------------------------------------------
units=$(dirname "$(at tmad.service)")
for name in tmad tmad@; do
	service=$units/$name.service
	prefixed=$(sed -n 's|^ExecStart=\([^ ]*\).*|\1|p' "$service")
	reload=$(sed -n 's|^ExecReload=\([^ ]*\) .*--check-config$|\1|p' "$service")
	echo "ExecStart: $prefixed, ExecReload: $reload" >"$log"
	[ "$dest$prefixed" = "$(at tmad)" ] && [ "$reload" = "$prefixed" ]
	result $? "$name.service names the installed program" "$log"
	missing=
	for line in DevicePolicy=closed PrivateDevices=no "DeviceAllow=char-nvidia rw" "DeviceAllow=char-nvidiactl rw" \
		"DeviceAllow=char-nvidia-uvm rw" "DeviceAllow=char-nvidia-caps rw"; do
		grep -qxF "$line" "$service" || missing="$missing '$line'"
	done
	echo "missing:$missing; $(grep -c ^DeviceAllow= "$service") lines of DeviceAllow" >"$log"
	[ -z "$missing" ] && [ "$(grep -c ^DeviceAllow= "$service")" = 4 ]
	result $? "$name.service: the GPU's device files and no others" "$log"
	# Clients may run with the service's group, and RemoveIPC= goes by that as well.
	grep RemoveIPC "$service" >"$log"
	grep -qxF RemoveIPC=no "$service"
	result $? "$name.service: to stop it removes no client's shared memory" "$log"
done
# A unit differs from its template only in the instance.
for unit in "$units"/tmad*@.*; do
	single=$(echo "$unit" | sed 's|@\.|.|')
	sed -e 's|@%i||g' -e 's| on GPU %i||' -e 's| --instance=%i --engine=cuda --device=%i||' -e 's|/%i\.sock|/tmad.sock|' \
		-e 's|127\.0\.1\.%i|127.0.0.1|' -e '/GPU 0 has/d' -e '/^DefaultInstance=/d' "$unit" | diff "$single" -
done >"$log" 2>&1
[ ! -s "$log" ]
result $? "each template is its unit for an instance" "$log"
if command -v systemd-analyze >/dev/null; then
	# The program is looked for on this machine, so the copies to verify name it where it is. Templates are
	# verified as the instance 0.
	mkdir "$scratch/units"
	for unit in "$units"/tmad*; do
		sed "s|^\(Exec[A-Za-z]*=\)$prefixed|\1$dest$prefixed|" "$unit" >"$scratch/units/$(basename "$unit")"
	done
	for unit in "$scratch"/units/*@.*; do
		cp "$unit" "$(echo "$unit" | sed 's|@|@0|')"
	done
	set --
	for unit in "$scratch"/units/*; do
		case $unit in *@.*) ;; *) set -- "$@" "$unit" ;; esac
	done
	SYSTEMD_UNIT_PATH=$scratch/units: systemd-analyze verify --man=no "$@" >"$log" 2>&1
	rc=$?
	# Other people's units are none of this test's business.
	! grep -q 'tmad' "$log" && [ "$rc" = 0 ] && [ $# = 6 ]
	result $? "systemd-analyze verify, of $# units" "$log"
	for name in tmad tmad@0; do
		systemd-analyze security --offline=true --threshold=20 --no-pager "$scratch/units/$name.service" >"$log" 2>&1
		rc=$?
		result $rc "systemd-analyze security $name.service, at most 2.0: $(sed -n 's|.*Overall exposure level.*: \([0-9.]*\).*|\1|p' "$log")" "$log"
	done
else
	skip "systemd-analyze verify" "systemd-analyze is not installed"
	skip "systemd-analyze security tmad.service, at most 2.0" "systemd-analyze is not installed"
	skip "systemd-analyze security tmad@0.service, at most 2.0" "systemd-analyze is not installed"
fi

# ---- The README's example -----------------------------------------------------------------------------
if [ "${TEST_SANITIZED:-no}" != no ]; then
	skip "the README's example compiles" "a sanitized library needs the sanitizer's flags to link"
	skip "the README's example runs" "as above"
	skip "the manual's example runs against the installed tmad" "as above"
else
	example=$scratch/example.c
	awk '/^<!-- end of example -->/ { on = 0 } on && !/^```/ { print } /^<!-- example.c -->/ { on = 1 }' \
		"$TEST_SRCDIR/README.md" >"$example"
	libdir=$(dirname "$(at libtmaclient.so)")
	PKG_CONFIG_PATH=$(dirname "$(at tmaclient.pc)") PKG_CONFIG_SYSROOT_DIR=$dest
	export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	flags=$(pkg-config --cflags --libs tmaclient 2>"$log") &&
		(cd "$scratch" && for program in example "$TEST_SRCDIR/client/examples/transpose"; do
			$TEST_CC -Wall -Wextra -Wpedantic -Werror "$program.c" $flags -o "$(basename "$program")" || exit
		done) >>"$log" 2>&1
	result $? "the README's example compiles" "$log"
	LD_LIBRARY_PATH=$libdir "$scratch/example" >"$log" 2>&1 && grep -qF "It prints \`$(cat "$log")\`." "$TEST_SRCDIR/README.md"
	result $? "the README's example runs" "$log"

	"$(at tmad)" --engine cpu --socket "$scratch/s" 2>"$scratch/tmad.log" &
	tmad_pid=$!
	tries=0
	until LD_LIBRARY_PATH=$libdir "$(at tmactl)" --socket "$scratch/s" ping >/dev/null 2>&1 || [ $tries = 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	LD_LIBRARY_PATH=$libdir TMAD_SOCKET=$scratch/s "$scratch/transpose" >"$log" 2>&1
	rc=$?
	cat "$scratch/tmad.log" >>"$log"
	result $rc "the manual's example runs against the installed tmad" "$log"
	kill "$tmad_pid"
	wait "$tmad_pid"
	tmad_pid=
fi

# An operator's configuration file survives both make install and make uninstall.
settings=$(find "$dest" -path '*/tmad/tmad.conf')
"$(at tmad)" --config="$settings" --check-config >"$log" 2>&1 && echo "# ours" >>"$settings" &&
	make -s -C "$TEST_BUILDDIR" install-tmad-conf uninstall-tmad-conf DESTDIR="$dest" >>"$log" 2>&1 &&
	tail -n 1 "$settings" | grep -q '^# ours$' && grep -q 'is kept as it is' "$log" &&
	sed -i '$d' "$settings"
result $? "tmad.conf is right, and stays as it was made" "$log"

make -s -C "$TEST_BUILDDIR" uninstall DESTDIR="$dest" >"$log" 2>&1
find "$dest" ! -type d >>"$log"
[ -z "$(find "$dest" ! -type d)" ]
result $? "make uninstall leaves no file" "$log"
