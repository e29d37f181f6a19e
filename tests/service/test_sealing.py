# SPDX-License-Identifier: Apache-2.0
"""Host memory of untrusted users on devices: it is mapped when it is registered, and sealed and pinned when a request
first needs it, so that nobody can make a device's driver, or a thread that is everybody's, wait for a page of it."""
import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import threading
import time
import unittest
from multiprocessing import shared_memory

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SEALS, SOFTGPU, Memory, Rpc, RpcError, Tmad, children, engines, tensor, wait_until

FIXED = fcntl.F_SEAL_SHRINK | 16  # F_SEAL_FUTURE_WRITE
SIZE = 65536
HALF = SIZE // 2
VICTIM = 65533
libc = ctypes.CDLL(None, use_errno=True)
SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}.get(os.uname().machine)


def words(values):
    return struct.pack(f"<{len(values)}i", *values)


# By name, what makes a device use the region `region`, beside that of `other`. The bytes that the call needs in the
# region (a list of blocks, a reached word, a scale) are at offset 0.
def requests(region, other):
    here, there = tensor(other, [64]), tensor(other, [64], offset=4096)
    floats = {"dst": tensor(other, [16], dtype="float32"), "src": tensor(other, [16], dtype="float32", offset=4096)}
    blocks = {"dst": here, "src": tensor(other, [64], offset=8192), "count": 2, "index_dtype": "int32", "limit": 16}
    return {
        "source": ("copy", {"dst": here, "src": tensor(region, [64])}),
        "destination": ("copy", {"dst": tensor(region, [64], offset=4096), "src": here}),
        "signal": ("copy", {"dst": here, "src": there, "signal": {"region": region, "offset": 8, "value": 1}}),
        "wait": ("copy", {"dst": here, "src": there, "wait": {"region": region, "offset": 64, "value": 0}}),
        "list": ("gather", {**blocks, "index_at": [region, 0]}),
        "table": ("gather", {"dst": here, "src": {"dtype": "uint8", "shape": [64]}, "index_dtype": "int32", "limit": 16,
                             "index": words([1, 0]), "dst_layer_step": 1024,
                             "src_places": struct.pack("<4Q", region, 8192, other, 8192)}),
        "scale": ("copy", {**floats, "cast": "saturate", "scale": tensor(region, [1], dtype="float32", offset=128)}),
        "batch": ("submit", {"items": [{"dst": here, "src": tensor(region, [64])}]}),
        "ring": ("ring_open", {"entries": 16, "at": [region, 4096]}),
    }


class Case(unittest.TestCase):
    devices = 1
    args = ()

    def setUp(self):
        self.tmad = Tmad("--trust-own-uid=off", "--socket-mode=0666", "--drain-deadline-ms=500", *self.args,
                         engine="cuda", env={"SOFTGPU_DEVICES": str(self.devices)})
        self.addCleanup(self.tmad.stop)
        os.chmod(os.path.dirname(self.tmad.path), 0o755)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def memory(self, seals=0, **fields):
        memory = Memory(SIZE, seals=seals)
        self.addCleanup(memory.close)
        return memory, memory.register(self.rpc, **fields)

    def refused(self, name, method, params, *wanted, fds=()):
        with self.assertRaises(RpcError) as caught:
            self.rpc.call(method, params, fds)
        self.assertEqual(caught.exception.name, name, caught.exception.message)
        for word in wanted:
            self.assertIn(word, caught.exception.message)


def seals_of(memory):
    return fcntl.fcntl(memory.fd, fcntl.F_GET_SEALS)


class OfOneDevice(Case):
    def test_the_first_use_seals(self):
        _, other = self.memory(SEALS)
        for name in requests(0, 0):
            with self.subTest(name=name):
                memory, region = self.memory()
                self.assertEqual(seals_of(memory), 0, "to register it seals nothing")
                memory[:8], memory[128:132] = words([1, 0]), struct.pack("<f", 1)
                self.rpc.call(*requests(region, other)[name])
                self.assertEqual(seals_of(memory), FIXED)

    def test_bytes(self):
        memory, region = self.memory()
        _, other = self.memory()
        data = os.urandom(HALF)
        memory[:HALF] = data
        self.rpc.call("copy", {"dst": tensor(other, [HALF]), "src": tensor(region, [HALF])})
        self.rpc.call("copy", {"dst": tensor(region, [HALF], offset=HALF), "src": tensor(other, [HALF]),
                               "signal": {"region": other, "offset": HALF, "value": 7}})
        self.assertEqual(memory[HALF:], data)

    def test_explain_seals_nothing(self):
        memory, region = self.memory()
        self.rpc.call("explain", {"dst": tensor(region, [64], offset=4096), "src": tensor(region, [64])})
        self.assertEqual(seals_of(memory), 0)

    def test_read_only(self):
        memory, region = self.memory(writable=False)
        _, other = self.memory()
        self.rpc.call("copy", {"dst": tensor(other, [64]), "src": tensor(region, [64])})
        self.assertEqual(seals_of(memory), FIXED)

    def test_sealed_before(self):
        """Applies to writable regions too, if the user seals the file between registration and use."""
        memory, region = self.memory()
        fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, FIXED | fcntl.F_SEAL_SEAL)
        self.rpc.call("copy", {"dst": tensor(region, [64], offset=4096), "src": tensor(region, [64])})

    def test_released_unused(self):
        memory, region = self.memory()
        self.rpc.call("region_release", {"region": region})
        self.assertEqual(seals_of(memory), 0)

    def test_cannot_be_sealed(self):
        what = "a device cannot use the file"
        shared = shared_memory.SharedMemory(create=True, size=SIZE)
        self.addCleanup(shared.unlink)
        self.addCleanup(shared.close)
        plain = os.memfd_create("plain")
        self.addCleanup(os.close, plain)
        os.posix_fallocate(plain, 0, SIZE)
        for fd in (shared._fd, plain):
            self.refused("UNSUPPORTED", "region_register", {"kind": "memfd", "size": SIZE}, what, fds=[fd])

    def test_sealed_against_seals_later(self):
        memory, region = self.memory()
        fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        for _ in range(2):
            self.refused("UNSUPPORTED", "copy", {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])},
                         f"region {region}", "cannot be sealed")

    def test_each_item_fails(self):
        """Items after the first that names the region fail as well."""
        memory, region = self.memory()
        _, other = self.memory()
        fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        item = {"dst": tensor(other, [64]), "src": tensor(region, [64])}
        later = {"dst": tensor(other, [64], offset=64), "src": tensor(region, [64])}
        self.assertEqual(self.rpc.call("submit", {"items": [item, later]})["statuses"], [-6, -6])

    def test_a_hole(self):
        memory, region = self.memory()
        libc.fallocate(memory.fd, 3, ctypes.c_long(8192), ctypes.c_long(4096))
        self.refused("INVALID_ARGUMENT", "copy", {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])},
                     f"region {region}", "hole")

    def test_made(self):
        """Sealed memory keeps its pages as long as anybody has it, so the service allocates none."""
        self.refused("UNSUPPORTED", "region_create", {"kind": "memfd", "size": SIZE}, "makes no host memory")


class OfSeveral(OfOneDevice):
    devices = 3

    def create(self, device):
        made = self.rpc.call("region_create", {"size": SIZE, "device": device})["region"]
        while self.rpc.fds:
            os.close(self.rpc.fds.pop())
        return made

    def test_all_devices_reach_it(self):
        for first in range(self.devices):
            memory, region = self.memory()
            memory[:HALF] = data = os.urandom(HALF)
            for i in range(self.devices):
                there = self.create((first + i) % self.devices)
                self.rpc.call("copy", {"dst": tensor(there, [HALF]), "src": tensor(region, [HALF])})
                self.rpc.call("copy", {"dst": tensor(region, [HALF], offset=HALF), "src": tensor(there, [HALF])})
                self.assertEqual(memory[HALF:], data)
                memory[HALF:] = bytes(HALF)

    def test_read_only_on_all(self):
        memory, region = self.memory(writable=False)
        memory[:HALF] = data = os.urandom(HALF)
        back, there = self.memory()
        for device in range(self.devices):
            made = self.create(device)
            self.rpc.call("copy", {"dst": tensor(made, [HALF]), "src": tensor(region, [HALF])})
            self.rpc.call("copy", {"dst": tensor(there, [HALF]), "src": tensor(made, [HALF])})
            self.assertEqual(back[:HALF], data)
            back[:HALF] = bytes(HALF)

    def test_descriptors_are_charged(self):
        n, before = 8, self.tmad.fds()
        memories = [self.memory(seals) for seals in (0, SEALS) for _ in range(n // 2)]
        self.assertEqual(self.tmad.fds() - before, n * (1 + self.devices))
        for _, region in memories:
            self.rpc.call("region_release", {"region": region})
        wait_until(lambda: self.tmad.fds() == before, "the descriptors are closed")

    def test_each_mapping_counts(self):
        self.tmad.stop()
        self.args = ("--regions-per-uid=4",)
        self.setUp()
        _, region = self.memory()
        memory = Memory(SIZE)
        self.addCleanup(memory.close)
        params = {"kind": "memfd", "size": SIZE}
        self.refused("QUOTA", "region_register", params, "regions_per_uid", fds=[memory.fd])
        self.rpc.call("region_release", {"region": region})
        self.rpc.call("region_register", params, [memory.fd])


class AfterALoss(Case):
    """All devices are lost and come back; none can map sealed memory for writing."""
    devices = 3
    args = ("--restart-pause-ms=0",)

    def lose(self):
        before = self.tmad.log().count("is back")
        for engine in engines(self.tmad.pid):
            os.kill(engine, signal.SIGKILL)
        wait_until(lambda: self.tmad.log().count("is back") == before + self.devices, "the devices are back")

    def test_sealed_by_the_service(self):
        _, region = self.memory()
        unused, later = self.memory()
        request = {"dst": tensor(region, [64], offset=4096), "src": tensor(region, [64])}
        self.rpc.call("copy", request)
        self.lose()
        self.refused("DEVICE_LOST", "copy", request, f"region {region} could not be mapped again")
        self.rpc.call("region_release", {"region": region})
        unused[:64] = data = os.urandom(64)
        self.rpc.call("copy", {"dst": tensor(later, [64], offset=64), "src": tensor(later, [64])})
        self.assertEqual(unused[64:128], data, "what was not sealed has come back")

    def test_two_regions_of_one_file(self):
        memory, region = self.memory()
        twice = memory.register(self.rpc)
        for used in (region, twice):
            self.rpc.call("copy", {"dst": tensor(used, [64], offset=4096), "src": tensor(used, [64])})
        self.lose()
        for lost in (region, twice):
            self.refused("DEVICE_LOST", "copy", {"dst": tensor(lost, [64], offset=64), "src": tensor(lost, [64])})

    def test_sealed_by_the_client(self):
        """The client has to connect again and register other files: its connection ends, and no other."""
        with self.tmad.rpc() as other:
            for is_used in (True, False):
                with self.subTest(is_used=is_used), self.tmad.rpc() as rpc:
                    memory, kept = Memory(SIZE, seals=0), self.create(other)
                    self.addCleanup(memory.close)
                    region = memory.register(rpc)
                    fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, FIXED)
                    if is_used:
                        rpc.call("copy", {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])})
                    self.lose()
                    self.assertTrue(rpc.ended())
                    other.call("copy", {"dst": tensor(kept, [64], offset=64), "src": tensor(kept, [64])})

    def create(self, rpc):
        made = rpc.call("region_create", {"size": SIZE, "device": 1})["region"]
        while rpc.fds:
            os.close(rpc.fds.pop())
        return made


# ---- The inode's lock -----------------------------------------------------------------------------------------
class Held:
    """A thread that sleeps in a write to the file, holding the lock of its inode, until the object is closed: its
    source page does not come."""
    API, REGISTER, ZERO = 0xc018aa3f, 0xc020aa00, 0xc020aa04

    def __init__(self, memory):
        self.pages = mmap.mmap(-1, 4096)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self.fd = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
        if self.fd < 0:
            raise unittest.SkipTest("no userfaultfd")
        fcntl.ioctl(self.fd, self.API, struct.pack("<3Q", 0xaa, 0, 0))
        fcntl.ioctl(self.fd, self.REGISTER, struct.pack("<4Q", self.address, 4096, 1, 0))
        self.thread = threading.Thread(target=libc.pwrite, args=(
            memory.fd, ctypes.c_void_p(self.address), ctypes.c_size_t(8), ctypes.c_long(0)))
        self.thread.start()
        wait_until(lambda: self.faults(), "the write")

    def faults(self):
        with open(f"/proc/self/task/{self.thread.native_id}/wchan", encoding="ascii") as wchan:
            return "userfault" in wchan.read()

    def close(self):
        fcntl.ioctl(self.fd, self.ZERO, struct.pack("<4Q", self.address, 4096, 0, 0))
        self.thread.join()
        os.close(self.fd)


@unittest.skipUnless(SYS_USERFAULTFD and os.getuid() == 0 and not os.environ.get("EMULATOR"),
                     "needs userfaultfd and another user")
class Locked(Case):
    def victim(self):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(VICTIM)
                os.setuid(VICTIM)
                with Rpc(self.tmad.path) as rpc, Memory(SIZE, seals=0) as memory:
                    region = memory.register(rpc)
                    rpc.call("ping")
                    rpc.call("copy", {"dst": tensor(region, [HALF]), "src": tensor(region, [HALF], offset=HALF)})
                    rpc.call("region_release", {"region": region})
                code = 0
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_others_are_served(self):
        memory, region = self.memory()
        request = {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])}
        held = Held(memory)
        try:
            waits = self.rpc.request("copy", request)
            self.assertEqual(self.victim(), 0)
            with self.assertRaises(RpcError) as caught:
                self.rpc.reply(waits)
            self.assertEqual(caught.exception.name, "BUSY", caught.exception.message)
            self.assertIn("could not be sealed", caught.exception.message)
        finally:
            held.close()
        self.rpc.call("copy", request)
        self.assertEqual(seals_of(memory), FIXED)

    def stuck(self):
        """Returns the scout's processes that sleep."""
        found = []
        for child in [child for scout in children(self.tmad.pid) for child in children(scout)]:
            with contextlib.suppress(OSError), open(f"/proc/{child}/stat", encoding="utf-8") as stat:
                if stat.read().rsplit(") ", 1)[1].startswith("D"):
                    found.append(child)
        return found

    def test_processes_are_few(self):
        """Their number is bounded, however often connections ask and end, because a process that waits for the lock
        cannot be killed."""
        most, in_flight, memory = 4, 2, Memory(SIZE, seals=0)
        self.addCleanup(memory.close)
        params = {"kind": "memfd", "size": SIZE}
        held = Held(memory)
        try:
            for i in range(4 * most):
                with self.tmad.rpc() as rpc:
                    registering = rpc.request("region_register", params, [memory.fd])
                    if i >= most:
                        rpc.socket.settimeout(0.2)  # it waits for one of the others to end
                    with contextlib.suppress(TimeoutError):
                        region = rpc.reply(registering)["region"]
                        rpc.request("copy", {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])})
                        if i < most:
                            wait_until(lambda n=i: len(self.stuck()) > n, "one more that sleeps")
                        else:
                            time.sleep(0.05)  # a process that begins in that time would stay
                self.assertLessEqual(len(self.stuck()), most + in_flight)
            self.assertEqual(self.victim(), 0)
        finally:
            held.close()
        wait_until(lambda: not self.stuck(), "all have ended")

    def test_a_stop_does_not_wait(self):
        memory, region = self.memory()
        held = Held(memory)
        try:
            self.rpc.request("copy", {"dst": tensor(region, [64], offset=64), "src": tensor(region, [64])})
            self.assertEqual(self.victim(), 0)
            os.kill(self.tmad.pid, signal.SIGTERM)
            self.tmad.process.wait(20)
        finally:
            held.close()


class LockedOfSeveral(Locked):
    devices = 3


if __name__ == "__main__":
    if not os.path.exists(os.path.join(SOFTGPU, "libcuda.so.1")):
        print("1..0 # SKIP this build has no cuda engine")
    else:
        tap.main()
