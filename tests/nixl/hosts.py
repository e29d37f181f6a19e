# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces that a link joins, and processes in them.

    with Hosts("tun", delay_ms=5, loss=0.01, seed=7) as hosts:
        server = hosts.a.start([sys.executable, "server.py", hosts.a.address])
        tmad = hosts.b.tmad()
        hosts.link.cut()

A host is a thread: it has made the namespaces, whatever it creates (sockets, processes) is in them, and what it has
started is killed by the kernel when it ends. So nothing is left in any case: namespaces, devices and processes go with
the thread, and that goes with this process. It takes root, iproute2 and util-linux; unavailable() says what is missing.
OneHost() has the same two names for this machine alone, which takes only util-linux.
"""
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from tmad import Tmad, own_environment, scaled, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESSES = ("10.79.0.1", "10.79.0.2")
DEVICE = "eth0"

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000


def unavailable():
    """Returns why hosts cannot be made here; an empty string if they can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    missing = [name for name in ("ip", "tc", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"hosts need {' and '.join(missing)}: apt-get install iproute2 util-linux"
    try:
        with Hosts("tun"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the kernel makes no hosts: {getattr(error, 'stderr', None) or error}".strip()


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _enter_namespaces():
    """Makes /sys show the devices of the new namespace, where UCX looks for them."""
    _call("unshare", _CLONE_NEWNET | _CLONE_NEWNS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
    _call("mount", b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None)
    with contextlib.suppress(FileNotFoundError):  # IPv6's own packets would be counted as well
        for which in ("all", "default"):
            with open(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6", "w", encoding="ascii") as file:
                file.write("1")


def _run(*command, text=None):
    subprocess.run(command, input=text, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")


class Machine:
    """This machine itself, without a namespace."""

    address, device = "127.0.0.1", "lo"

    def __init__(self, name):
        self.name = name
        self._processes, self._tmads = [], []

    def run(self, function, *arguments, **named):
        """Makes a call on the host: a socket that it opens belongs to the host, wherever it is used."""
        return function(*arguments, **named)

    def start(self, command, env=None, **options):
        """Starts a process on the host and returns a Popen. The process is killed with the host. env is added to the
        environment, in which NIXL's UCX has only the link: otherwise it would use what all processes of a machine
        share."""
        options.setdefault("stdin", subprocess.DEVNULL)
        env = {**own_environment(), "UCX_TLS": "tcp", "UCX_NET_DEVICES": self.device, **(env or {})}
        process = self.run(subprocess.Popen, _dies_with_host(command), env=env, start_new_session=True, **options)
        self._processes.append(process)
        return process

    def tmad(self, *arguments, **options):
        """Starts a tmad, which is stopped with the host unless the caller has done so."""
        tmad = Tmad(*arguments, start=False, **options)
        tmad.command = _dies_with_host(tmad.command)
        self._tmads.append(tmad)
        self.run(tmad.start)
        return tmad

    def close(self):
        with contextlib.ExitStack() as stack:
            for tmad in self._tmads:
                stack.callback(tmad.stop)
            for process in self._processes:
                stack.callback(_reap, process)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


class Host(Machine):
    """A network namespace with an address."""

    device = DEVICE

    def __init__(self, name, address):
        super().__init__(name)
        self.address = address
        self._thread = concurrent.futures.ThreadPoolExecutor(1, f"host-{name}")
        try:
            self.run(_enter_namespaces)
            self.namespace = f"/proc/{os.getpid()}/task/{self.run(_thread_id)}/ns/net"
            self.run(_run, "ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def run(self, function, *arguments, **named):
        return self._thread.submit(function, *arguments, **named).result()

    def configure(self, mtu):
        """Gives the device its address and brings it up."""
        self.run(_run, "ip", "-batch", "-", text=f"address add {self.address}/30 dev {DEVICE}\n"
                 f"link set {DEVICE} mtu {mtu} txqueuelen 10000 up\n")

    def close(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self._thread.shutdown)
            stack.callback(super().close)


def _reap(process):
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(BrokenPipeError):  # ignores output that could not be written
            if pipe is not None:
                pipe.close()


def _dies_with_host(command):
    """The shell checks whether the host ended before the kernel was told to kill its child with it."""
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()), *command]


def _thread_id():
    return int(os.readlink("/proc/thread-self").rpartition("/")[2])


def _is_running():
    """Returns whether this thread's network device is running, since UCX accepts no other. Reading the carrier updates
    the state, which would otherwise take the kernel a second."""
    with open(f"/sys/class/net/{DEVICE}/carrier", "rb") as carrier, open(f"/sys/class/net/{DEVICE}/operstate", "rb") as state:
        return carrier.read() == b"1\n" and state.read() in (b"up\n", b"unknown\n")


class Veth:
    """A pair of virtual devices in the kernel, as fast as memory or limited to a rate in bits per second."""

    def __init__(self, a, b, mtu, rate):
        a.run(_run, "ip", "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", b.namespace)
        for host in (a, b):
            host.configure(mtu)
            if rate:
                # The burst is what arrives in 4 ms; the queue holds what TCP's windows allow to be sent.
                burst = max(rate // 8 // 250, 4 * mtu)
                host.run(_run, "tc", "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", f"{rate}bit",
                         "burst", str(burst), "limit", str(16 << 20))


class Tun:
    """A device on each host, and a process that carries packets between them (tun_link.py) with a delay, a rate and
    losses."""

    def __init__(self, a, b, mtu, rate, delay_ms, loss, seed):
        self._lock, fds = threading.Lock(), []
        try:
            for host in (a, b):
                fds.append(host.run(_open_tun))
                host.configure(mtu)
            self._process = a.start([sys.executable, os.path.join(HERE, "tun_link.py"), *map(str, fds)], pass_fds=fds,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", bufsize=1)
        finally:
            for fd in fds:
                os.close(fd)
        self.change(rate=rate, delay_ms=delay_ms, loss=loss, seed=seed, connected=True)

    def change(self, **settings):
        """Changes rate (bits per second, 0: unlimited), delay_ms, loss (a probability), seed or connected from now on.
        Returns how many packets were (sent, lost) from a, and from b."""
        with self._lock:
            self._process.stdin.write(json.dumps(settings) + "\n")
            line = self._process.stdout.readline()
        assert line, f"the link's process ended with {self._process.wait(scaled(20))}"
        return tuple(map(tuple, json.loads(line)))

    def cut(self):
        """From now on nothing arrives, not even packets under way."""
        self.change(connected=False)

    def restore(self):
        self.change(connected=True)

    def counts(self):
        return self.change()


def _open_tun():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd


class Hosts:
    """Two hosts, a and b, and their link: "veth" or "tun". rate is in bits per second, 0: unlimited. Only a tun link
    has a delay (one way) and a loss (of packets, with a seed)."""

    def __init__(self, link="veth", *, rate=0, delay_ms=0.0, loss=0.0, seed=1, mtu=9000):
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            hosts = []
            for name, address in zip("ab", ADDRESSES):
                hosts.append(Host(name, address))
                stack.callback(hosts[-1].close)
            self.a, self.b = hosts
            if link == "tun":
                self.link = Tun(*hosts, mtu, rate, delay_ms, loss, seed)
            elif delay_ms or loss:
                raise ValueError(f"delay_ms={delay_ms}, loss={loss}: only a tun link can be late or lose packets")
            else:
                self.link = Veth(*hosts, mtu, rate)
            for host in hosts:
                wait_until(lambda host=host: host.run(_is_running), f"{DEVICE} of host {host.name} is running")
            self._open = stack.pop_all()

    def close(self):
        self._open.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


class OneHost:
    """This machine as both hosts: a and b are connected only by what UCX finds."""

    def __init__(self):
        self.a, self.b = Machine("a"), Machine("b")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        with contextlib.ExitStack() as stack:
            stack.callback(self.a.close)
            stack.callback(self.b.close)
