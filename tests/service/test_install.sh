#!/bin/sh
# What `make install` leaves behind is whole: units that systemd accepts, and a header, a library and a
# pkg-config file that the README's example compiles with, and runs with against the installed tmad.
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
# result STATUS NAME [LOG]: a line of TAP, with the log when it failed.
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

echo 1..9
dest=$scratch/dest
log=$scratch/log
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s -C "$TEST_BUILDDIR" install DESTDIR="$dest" >"$log" 2>&1
result $? "make install DESTDIR=" "$log"

# Where things went, by what was asked of configure.
at() { find "$dest" -name "$1" \( -type f -o -type l \) | head -n 1; }
missing=
for file in tmad tmactl tmaclient.h libtmaclient.so tmaclient.pc tmad.socket tmad.service tmad.8 tmactl.1; do
	[ -n "$(at $file)" ] || missing="$missing $file"
done
[ "$(find "$dest" -name tmad.conf | wc -l)" = 2 ] || missing="$missing tmad.conf(sysusers.d,tmpfiles.d)"
echo "missing:$missing" >"$log"
[ -z "$missing" ]
result $? "everything is there" "$log"

# ---- Units --------------------------------------------------------------------------------------------
service=$(at tmad.service)
prefixed=$(sed -n 's|^ExecStart=\([^ ]*\).*|\1|p' "$service")
[ "$dest$prefixed" = "$(at tmad)" ]
result $? "ExecStart names the installed program"
missing=
for line in DevicePolicy=closed PrivateDevices=no "DeviceAllow=char-nvidia rw" "DeviceAllow=char-nvidiactl rw" \
	"DeviceAllow=char-nvidia-uvm rw" "DeviceAllow=char-nvidia-caps rw"; do
	grep -qxF "$line" "$service" || missing="$missing '$line'"
done
echo "missing:$missing; $(grep -c ^DeviceAllow= "$service") lines of DeviceAllow" >"$log"
[ -z "$missing" ] && [ "$(grep -c ^DeviceAllow= "$service")" = 4 ]
result $? "the GPU's device files and no others" "$log"
if command -v systemd-analyze >/dev/null; then
	# The program is looked for on this machine, so the copy to verify names it where it is.
	mkdir "$scratch/units"
	cp "$(at tmad.socket)" "$scratch/units"
	sed "s|^ExecStart=|ExecStart=$dest|" "$service" >"$scratch/units/tmad.service"
	SYSTEMD_UNIT_PATH=$scratch/units: systemd-analyze verify --man=no "$scratch/units/tmad.service" \
		"$scratch/units/tmad.socket" >"$log" 2>&1
	rc=$?
	# Other people's units are none of this test's business.
	! grep -q 'tmad\.' "$log" && [ "$rc" = 0 ]
	result $? "systemd-analyze verify" "$log"
	systemd-analyze security --offline=true --threshold=20 "$scratch/units/tmad.service" >"$log" 2>&1
	result $? "systemd-analyze security: exposure of at most 2.0" "$log"
else
	skip "systemd-analyze verify" "systemd-analyze is not installed"
	skip "systemd-analyze security: exposure of at most 2.0" "systemd-analyze is not installed"
fi

# ---- The README's example -----------------------------------------------------------------------------
if [ "${TEST_SANITIZED:-no}" != no ]; then
	skip "the README's example compiles" "a sanitized library needs the sanitizer's flags to link"
	skip "the README's example runs" "as above"
else
	example=$scratch/example.c
	awk '/^<!-- end of example -->/ { on = 0 } on && !/^```/ { print } /^<!-- example.c -->/ { on = 1 }' \
		"$TEST_SRCDIR/README.md" >"$example"
	libdir=$(dirname "$(at libtmaclient.so)")
	PKG_CONFIG_PATH=$(dirname "$(at tmaclient.pc)") PKG_CONFIG_SYSROOT_DIR=$dest
	export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	flags=$(pkg-config --cflags --libs tmaclient 2>"$log") &&
		(cd "$scratch" && $TEST_CC -Wall -Wextra -Werror example.c $flags -o example) >>"$log" 2>&1
	result $? "the README's example compiles" "$log"

	"$(at tmad)" --engine cpu --socket "$scratch/s" 2>"$scratch/tmad.log" &
	tmad_pid=$!
	tries=0
	until LD_LIBRARY_PATH=$libdir "$(at tmactl)" --socket "$scratch/s" ping >/dev/null 2>&1 || [ $tries = 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	LD_LIBRARY_PATH=$libdir TMAD_SOCKET=$scratch/s "$scratch/example" >"$log" 2>&1
	rc=$?
	cat "$scratch/tmad.log" >>"$log"
	result $rc "the README's example runs against the installed tmad" "$log"
	kill "$tmad_pid"
	wait "$tmad_pid"
	tmad_pid=
fi

make -s -C "$TEST_BUILDDIR" uninstall DESTDIR="$dest" >"$log" 2>&1
find "$dest" ! -type d >>"$log"
[ -z "$(find "$dest" ! -type d)" ]
result $? "make uninstall leaves no file" "$log"
