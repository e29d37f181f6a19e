# SPDX-License-Identifier: Apache-2.0
# boot.sh, sourced: a Debian root that debootstrap makes, and a systemd that runs in it as PID 1 of its own
# namespaces. Wants $work, a directory that stays between runs, and $root.

root_packages=systemd,systemd-sysv,dbus,curl
later_packages="python3-numpy" # downloaded, to be installed by a step

# Prints why this machine cannot boot a root; nothing if it can.
cannot_boot() {
	if [ "$(id -u)" != 0 ]; then
		echo "not root"
	elif ! command -v debootstrap >/dev/null || ! command -v apt-get >/dev/null; then
		echo "debootstrap is not installed"
	elif ! unshare --mount --pid --fork --net --uts --ipc --cgroup sh -c \
		'mount --make-rprivate / && mount -t cgroup2 none /mnt && mkdir -p /mnt/tmad-try && rmdir /mnt/tmad-try' 2>/dev/null; then
		echo "no namespaces, or no cgroup2, for root here"
	fi
}

# The archive of the release that this machine runs, as its own apt has it: ADDRESS RELEASE.
archive() {
	. /etc/os-release
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
		awk -v release="$VERSION_CODENAME" '$2 == release && $3 == "main" { print $1, $2; exit }'
}

# in_root COMMAND... runs the command in the root before it is booted, with this machine's network.
in_root() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

# A root with all that the packages depend on downloaded, for a boot without a network. It is kept for a week, in
# ROOT_CACHE if that is set, and for these dependencies alone.
make_root() {
	local cache=${ROOT_CACHE:-$work} key kept
	key=$({ cat /etc/os-release; echo "$root_packages $later_packages"; for deb in "$@"; do dpkg-deb -f "$deb" Depends; done; } |
		md5sum | cut -c 1-16)
	kept=$cache/root-$key.tar
	rm -rf "$root"
	mkdir -p "$root" "$cache"
	find "$cache" -maxdepth 1 -name 'root-*.tar' -mtime +6 -delete
	if [ -e "$kept" ]; then
		tar -xf "$kept" -C "$root" --numeric-owner
		return
	fi
	set -- "$(archive)" "$@"
	[ -n "$1" ] || { echo "apt has no archive of this release"; return 1; }
	debootstrap --variant=minbase --include="$root_packages" "${1#* }" "$root" "${1% *}" || return 1
	shift
	apt-config dump | grep -i '^Acquire::.*proxy' >"$root/etc/apt/apt.conf.d/99proxy"
	mkdir "$root/packages"
	cp "$@" "$root/packages"
	(cd "$root" && set -- packages/*.deb && in_root apt-get -q -y update &&
		in_root apt-get -q -y --no-install-recommends --download-only install $(printf './%s ' "$@") $later_packages) || return 1
	rm -rf "$root/packages" "$root/etc/apt/apt.conf.d/99proxy" "$cache"/root-*.tar
	# By a name of its own: another clone may be keeping one too.
	tar -cf "$kept.$$" -C "$root" --numeric-owner . && mv "$kept.$$" "$kept" || { rm -f "$kept.$$"; return 1; }
}

# Runs in the namespaces and becomes PID 1. /proc/sys and /sys are the machine's and are mounted read-only.
pid_1='
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,ro,bind "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up 2>/dev/null
cd "$root"
pivot_root . mnt
umount -l /mnt
export container=tmad-test
exec /lib/systemd/systemd --system --log-target=journal --show-status=1
'

boot_pid= # of unshare; when it ends, so does PID 1, and all with it
# The cgroup is made in this machine's hierarchy, and is the root of what the booted system sees.
boot() {
	export root
	unshare --mount bash -c '
		mount --make-rprivate /
		mount -t cgroup2 none /mnt && mkdir -p /mnt/tmad-install-$2 && echo $$ >/mnt/tmad-install-$2/cgroup.procs &&
			umount /mnt &&
			exec unshare --pid --fork --kill-child --mount --cgroup --net --uts --ipc bash -c "$1"' boot "$pid_1" $$ \
		</dev/null >"$work/boot.log" 2>&1 &
	boot_pid=$!
	local tries=0
	until init_pid=$(cat "/proc/$boot_pid/task/$boot_pid/children" 2>/dev/null) && init_pid=${init_pid% } &&
		[ "$(cat "/proc/$init_pid/comm" 2>/dev/null)" = systemd ] && booted systemctl is-system-running 2>/dev/null | grep -qxE 'running|degraded'; do
		[ -e "/proc/$boot_pid" ] && [ $tries -lt 300 ] || return 1
		tries=$((tries + 1))
		sleep 0.1
	done
}

# booted COMMAND... runs the command in the booted system.
booted() { nsenter --target "$init_pid" --mount --uts --ipc --net --pid --cgroup --root --wd -- "$@"; }

halt_it() {
	[ -n "$boot_pid" ] || return 0
	kill -KILL "$boot_pid" 2>/dev/null
	wait "$boot_pid" 2>/dev/null
	boot_pid=
	# A cgroup is removed when the last process that was killed in it has gone.
	unshare --mount sh -c 'mount --make-rprivate / && mount -t cgroup2 none /mnt && cd /mnt || exit
		for try in 1 2 3 4 5 6 7 8 9 10; do
			find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null && [ ! -e "$1" ] && exit
			sleep 0.1
		done' halt "tmad-install-$$"
	return 0
}
