#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# steps.sh: what an operator does with the packages, from their installation to their end, in a booted Debian. Run by
# packages.sh, as root in there; the packages are in /packages.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 SYSTEMD_PAGER= SYSTEMD_COLORS=0
cd /
. /tests/say.sh
KILLS=${KILLS:-20}
conf=/etc/tmad/tmad.conf
kept=/tests # what one step keeps for another
drop_in() {
	line "mkdir -p /run/systemd/system/$1.d && printf '$2' >/run/systemd/system/$1.d/test.conf && systemctl daemon-reload"
}
apt_install() { run apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" /packages/tmad_*.deb /packages/tmactl_*.deb /packages/libtmaclient1_*.deb; }
# The files that packages and administrators own.
files() { find /etc /usr /var /run/tmad -xdev 2>/dev/null | LC_ALL=C sort; }

# ---- Installation -------------------------------------------------------------------------------------
installation() {
	useradd --create-home alice
	useradd --create-home bob
	files >$kept/before
	expect 0 apt_install install
	run systemctl is-active tmad.socket
	run systemctl is-enabled tmad.socket
	expect 3 systemctl is-active tmad.service
	expect 1 systemctl is-enabled tmad.service
	expect 1 systemctl is-enabled tmad-metrics.socket
	run systemctl show --property=ActiveState,SubState,Listen tmad.socket
	says ActiveState=active SubState=listening "/run/tmad/tmad.sock (Stream)"
	run dpkg --audit
	is ""
	run dpkg --verify tmad tmactl libtmaclient1
	is ""
	run tmad --check-config
	line "stat -c '%U:%G %a %F' /run/tmad/tmad.sock"
	is "root:tmad 660 socket"
}

# ---- Who may, and who may not --------------------------------------------------------------------------
# Numbers that are all different, as NumPy writes them, and the same transposed.
make_arrays() {
	perl -e '
		my ($rows, $columns) = (301, 701);
		sub array {
			my ($path, $r, $c, @values) = @_;
			my $header = "{\x27descr\x27: \x27<u4\x27, \x27fortran_order\x27: False, \x27shape\x27: ($r, $c), }";
			$header .= " " x (117 - length $header) . "\n";
			open my $file, ">:raw", $path or die;
			print $file "\x93NUMPY\1\0", pack("v", length $header), $header, pack("V*", @values);
			close $file or die;
		}
		my @values = map { $_ * 2654435761 % 4294967296 } 0 .. $rows * $columns - 1;
		my @turned;
		for my $c (0 .. $columns - 1) { push @turned, map { $values[$_ * $columns + $c] } 0 .. $rows - 1 }
		array("/home/alice/in.npy", $rows, $columns, @values);
		array("/home/alice/reference.npy", $columns, $rows, @turned);
	'
	chown alice: /home/alice/*.npy
}

activation() {
	make_arrays
	run usermod --append --groups tmad alice
	run alice id -nG
	run alice tmactl copy in.npy turned.npy --permute 1,0
	says "tile_transpose"
	run systemctl is-active tmad.service
	run alice tmactl copy turned.npy again.npy --permute 1,0
	cd /home/alice
	run cmp turned.npy reference.npy
	run cmp again.npy in.npy
	run systemctl --no-pager --lines=3 status tmad.service
	says "Status: "
}

# Buffers need no NumPy; arrays are moved from memory that is shared, and in chunks.
python() {
	run apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install /packages/python3-tmaclient_*.deb
	run dpkg --verify python3-tmaclient
	is ""
	run python3 -c 'import importlib.metadata as m, tmaclient; print(m.version("tmaclient"), tmaclient.__version__)'
	is "$(version_of tmad) $(version_of tmad)"
	run alice python3 -c '
import tmaclient
with tmaclient.connect() as c:
    print(c.pad(b"abc", 2, mode="reflect").tobytes())'
	is "b'cbabcba'"
	run apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install python3-numpy
	run alice python3 -c '
import numpy as np, tmaclient
source, reference = np.load("in.npy"), np.load("reference.npy")
with tmaclient.connect() as c:
    shared = c.empty(source.shape, source.dtype)
    shared[...] = source
    print(all(np.array_equal(c.transpose(array), reference) for array in (source, shared)), c.last_result()["path"])'
	is "True tile_transpose"
	expect 1 bob python3 -c 'import tmaclient; tmaclient.connect()'
	says PermissionDeniedError /run/tmad/tmad.sock "Permission denied"
}
version_of() { dpkg-query -W -f '${Version}' "$1" | sed 's/-[^-]*$//'; }

refusal() {
	run bob id -nG
	expect 1 bob tmactl ping
	says /run/tmad/tmad.sock "Permission denied" "members of group tmad may"
	line "cp /home/alice/in.npy /home/bob && chown bob: /home/bob/in.npy"
	expect 1 bob tmactl copy in.npy out.npy
	says "Permission denied"
	line "! test -e /home/bob/out.npy"
}

# ---- Confinement --------------------------------------------------------------------------------------
confinement() {
	local pid
	pid=$(main_pid)
	line "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status"
	says "CapEff:	0000000000000000" "CapBnd:	0000000000000000" "NoNewPrivs:	1" "Seccomp:	2" "Uid:	$(id -u tmad)"
	# As root, and as itself.
	line "nsenter --target $pid --mount -- sh -c 'for d in / /etc /usr /var/lib; do ! touch \$d/written || exit 1; done'"
	says "'/etc/written': Read-only file system"
	line "! nsenter --target $pid --mount -- setpriv --reuid tmad --regid tmad --clear-groups touch /run/tmad/written"
	line "nsenter --target $pid --mount -- ls -A /home /tmp /root; test \$(nsenter --target $pid --mount -- ls -A /home /root | grep -c alice) = 0"
	line "nsenter --target $pid --net -- cat /proc/net/dev; test \$(nsenter --target $pid --net -- grep -c : /proc/net/dev) = 1"
	line "systemd-analyze security --no-pager --threshold=20 tmad.service | tail -n 1"
	says "Overall exposure level for tmad.service"
}

# ---- Metrics ------------------------------------------------------------------------------------------
metrics() {
	line "systemctl enable tmad-metrics.socket && systemctl stop tmad.service && systemctl start tmad-metrics.socket"
	run alice tmactl copy in.npy turned.npy --permute 1,0
	line "curl --silent --show-error --fail http://127.0.0.1:9464/metrics >/tmp/metrics && grep -c ^tmad_ /tmp/metrics"
	line "promtool check metrics </tmp/metrics && echo promtool finds nothing wrong"
	line "grep -F 'uid=\"$(id -u alice)\"' /tmp/metrics | grep -v _bucket"
	line "curl --silent --fail --header 'Accept: application/openmetrics-text' http://127.0.0.1:9464/metrics | tail -n 1"
	is "# EOF"
	run promtool check rules /usr/share/tmad/alerts.yml
	run test -s /usr/share/tmad/grafana-dashboard.json
}

# ---- Configuration ------------------------------------------------------------------------------------
reload() {
	local pid
	line "systemctl start tmad.service; cp -p $conf $kept/tmad.conf; head -n 5 $conf"
	pid=$(main_pid)
	line "printf '[limits]\nregions-per-uid = 1\n' >>$conf; systemctl reload tmad.service; sleep 0.5"
	line "tmactl info --json | tr , '\n' | grep '\"regions_per_uid\"'"
	says ": 1"
	run main_pid
	is "$pid"
	run of_unit tmad.service StatusText
	expect 1 alice tmactl copy in.npy refused.npy
	says regions_per_uid
}

broken_file() {
	local pid
	pid=$(main_pid)
	line "printf 'connections = many\nconections = 3\n' >>$conf"
	expect 1 systemctl reload tmad.service
	expect 2 tmad --check-config
	says "$conf:$(grep -n "connections = many" $conf | cut -d: -f 1):" "$conf:$(grep -n "conections = 3" $conf | cut -d: -f 1):" conections
	line "tmactl info --json | tr , '\n' | grep '\"regions_per_uid\"'"
	says ": 1"
	run main_pid
	is "$pid"
	line "cp -p $kept/tmad.conf $conf && systemctl reload tmad.service && sleep 0.5 && tmactl info --json | tr , '\n' | grep '\"regions_per_uid\"'"
	says ": 4096"
}

logs() {
	local uid
	uid=$(id -u alice)
	line "journalctl --no-pager --unit tmad.service TMAD_UID=$uid --output=verbose | grep -E '^ +(MESSAGE|PRIORITY|TMAD_[A-Z_]+)='"
	says "TMAD_UID=$uid" "TMAD_PID=" "TMAD_SESSION=" "regions_per_uid"
	line "journalctl --no-pager --unit tmad.service --priority=warning --lines=5"
}

# ---- Bad days -----------------------------------------------------------------------------------------
deaths() {
	local pid restarts
	run systemctl start tmad.service
	restarts=$(of_unit tmad.service NRestarts)
	start_callers
	echo "   \$ kill -KILL MAINPID, $KILLS times, each when the service is there again"
	for _ in $(seq "$KILLS"); do
		pid=$(main_pid)
		kill -KILL "$pid"
		until_true 10 "the service is back after kill -KILL" has_other_pid "$pid"
		settle
	done
	stop_callers
	run of_unit tmad.service NRestarts
	[ "$out" -ge $((restarts + KILLS)) ] || fail "not $KILLS restarts more than $restarts"
	run systemctl is-active tmad.socket tmad.service
	[ "$(sed 's/.* wrong, \([0-9]*\) reconnects.*/\1/' /tmp/callers/1)" -ge $((KILLS / 2)) ] || fail "the clients noticed too little"
}

# A call that is under way when the service ends is repeated once: the next end waits for that.
settle() {
	timeout 10 tmactl ping >/dev/null || fail "it does not answer"
	sleep 0.5
}

restarts() {
	start_callers
	for _ in 1 2 3 4 5; do
		run systemctl restart tmad.service
		settle
	done
	stop_callers
}

watchdog() {
	local pid
	drop_in tmad.service '[Service]\nWatchdogSec=1s\n'
	run systemctl restart tmad.service
	start_callers
	sleep 2.5
	pid=$(main_pid)
	line "kill -STOP $pid"
	until_true 10 "systemd ends it and starts it again" has_other_pid "$pid"
	stop_callers
	line "journalctl --no-pager --unit tmad.service _PID=1 | grep -i watchdog"
	line "rm -r /run/systemd/system/tmad.service.d && systemctl daemon-reload && systemctl restart tmad.service"
}

instance() {
	line "printf '[limits]\nregions-per-uid = 9\n' >/etc/tmad/tmad@0.conf"
	# There is no GPU here.
	drop_in tmad@.service '[Service]\nExecStart=\nExecStart=/usr/sbin/tmad --instance=%%i --engine=cpu\n'
	run systemctl enable --now tmad@0.socket
	expect 3 systemctl is-active tmad@0.service
	run alice tmactl --socket /run/tmad/0.sock copy in.npy turned.npy --permute 1,0
	run cmp /home/alice/turned.npy /home/alice/reference.npy
	run systemctl is-active tmad@0.service
	line "tmactl --socket /run/tmad/0.sock info --json | tr , '\n' | grep '\"regions_per_uid\"'"
	says ": 9"
	line "rm /etc/tmad/tmad@0.conf"
}

upgrade() {
	local pid
	run systemctl start tmad.service
	pid=$(main_pid)
	start_callers
	expect 0 apt_install install --reinstall
	sleep 0.5
	stop_callers
	run main_pid
	[ "$out" != "$pid" ] || fail "what runs is still what was there before"
	run systemctl is-active tmad.service tmad.socket tmad@0.service tmad@0.socket tmad-metrics.socket
}

# ---- Rollback -----------------------------------------------------------------------------------------
# The same packages under an older version stand in for those of the previous release.
previous_packages() {
	local p
	for p in tmad tmactl libtmaclient1; do
		dpkg-deb --raw-extract /packages/${p}_*.deb $kept/old/$p &&
			sed -i 's/^Version: .*/Version: 0.0.1-1/; s/(= [^)]*)/(= 0.0.1-1)/' $kept/old/$p/DEBIAN/control &&
			dpkg-deb --root-owner-group --build $kept/old/$p $kept/old/$p.deb >/dev/null || fail "no older $p"
	done
}

rollback() {
	local pid
	mkdir -p $kept/old
	previous_packages
	pid=$(main_pid)
	start_callers
	run apt-get -q -y -o Dpkg::Use-Pty=0 install --allow-downgrades $kept/old/{tmad,tmactl,libtmaclient1}.deb
	sleep 0.5
	stop_callers
	run main_pid
	[ "$out" != "$pid" ] || fail "what runs is still what was there before"
	run systemctl is-active tmad.service tmad.socket tmad@0.service tmad@0.socket tmad-metrics.socket
	line "cp $conf $kept/conf && printf '[limits]\nof_a_newer_version = 1\n' >>$conf"
	expect 2 tmad --check-config
	line "systemctl restart tmad.service || systemctl is-active tmad.socket"
	line "cp $kept/conf $conf && systemctl restart tmad.service && tmactl ping"
	rm -r $kept/old $kept/conf
}

# ---- The end ------------------------------------------------------------------------------------------
removal() {
	line "rm -r /run/systemd/system/tmad@.service.d && systemctl daemon-reload"
	run apt-get -q -y -o Dpkg::Use-Pty=0 remove tmad
	expect 3 systemctl is-active tmad.socket
	line "! grep -slx tmad /proc/[0-9]*/comm"
	line "test -e $conf"
	run apt-get -q -y -o Dpkg::Use-Pty=0 autoremove --purge tmad tmactl libtmaclient1 python3-tmaclient python3-numpy
	line "getent passwd tmad; getent group tmad"
	# dpkg's and apt's own records, and what systemd and the logs keep of anything.
	files | LC_ALL=C comm -13 $kept/before - |
		grep -vE '^/var/(lib/(dpkg|apt)|cache|log)/|^/var/lib/systemd/(timers|random-seed)' >$kept/left || :
	echo "   what was not there before:"
	shown "$(cat $kept/left)"
	[ ! -s $kept/left ] || fail "files are left behind"
	run systemctl --failed --no-legend --plain
	is ""
}

step "install the packages: the socket listens, the service does not run" installation
step "a member of group tmad copies a file: the socket starts the service" activation
step "anyone else is refused" refusal
step "Python moves arrays, and buffers without NumPy" python
step "confinement is in force" confinement
step "metrics, read with promtool" metrics
step "reload applies a limit" reload
step "a broken file fails the reload, and the service goes on" broken_file
step "the journal has fields" logs
step "kill -9 under load, $KILLS times: the socket never refuses" deaths
step "restart under load: the socket never refuses" restarts
step "a service that hangs is started again by its watchdog" watchdog
step "an instance of its own, as for one GPU" instance
step "upgrade under load: the socket never refuses" upgrade
step "rollback under load: the socket never refuses" rollback
step "remove and purge leave nothing behind but the user" removal
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
