# SPDX-License-Identifier: Apache-2.0
"""Memory that others have made: files of tmpfs and memfds without seals, and what happens to requests when such a file
shrinks."""
import contextlib
import fcntl
import mmap
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
from multiprocessing import shared_memory

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, NATIVE, SOURCE, Memory, RpcError, Tmad, scaled, tensor, wait_until

SIZE = 1 << 20
PAGE = mmap.PAGESIZE
SMALL = 64  # few enough bytes for the CPU engine to move them in the submitting thread


def has_seals(fd):
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


class Files(RawCase):
    def shm(self, size=SIZE, flags=os.O_RDWR):
        """An unlinked file in /dev/shm, without holes."""
        try:
            fd = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError as why:
            self.skipTest(f"no tmpfs at /dev/shm: {why.strerror}")
        self.addCleanup(os.close, fd)
        if not has_seals(fd):
            self.skipTest("no tmpfs at /dev/shm")
        if size:
            os.posix_fallocate(fd, 0, size)
        if flags == os.O_RDWR:
            return fd
        other = os.open(f"/proc/self/fd/{fd}", flags)
        self.addCleanup(os.close, other)
        return other

    def memfd(self, flags):
        fd = os.memfd_create("test", flags)
        self.addCleanup(os.close, fd)
        os.posix_fallocate(fd, 0, SIZE)
        return fd

    def register(self, fd, size=SIZE, **fields):
        return self.rpc.call("region_register", {"kind": "memfd", "size": size, **fields}, [fd])["region"]

    def check_there_and_back(self, fd, region, offset, size):
        """Bytes of the file come out of the region, and others go in."""
        there, b = self.region(size)
        data = os.urandom(size)
        os.pwrite(fd, data, offset)
        self.rpc.call("copy", {"dst": tensor(b, [size]), "src": tensor(region, [size])})
        self.assertEqual(there[:], data)
        there[:] = data[::-1]
        self.rpc.call("copy", {"dst": tensor(region, [size]), "src": tensor(b, [size])})
        self.assertEqual(os.pread(fd, size, offset), data[::-1])

    # ---- What others make ----
    def held(self, fd):
        """Returns how many descriptors of a file the service has."""
        wanted, count = os.fstat(fd), 0
        folder = f"/proc/{self.tmad.pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                count += os.path.samestat(os.stat(os.path.join(folder, name)), wanted)
        return count

    def test_kinds(self):
        """A region of each kind keeps a descriptor for as long as it is registered."""
        kinds = {"tmpfs": self.shm, "memfd without seals": lambda: self.memfd(os.MFD_ALLOW_SEALING),
                 "memfd that takes none": lambda: self.memfd(0)}
        for what, make in kinds.items():
            for offset, size in ((0, SIZE), (4097, 100), (SIZE - 1, 1)):
                with self.subTest(what=what, offset=offset, size=size):
                    fd = make()
                    region = self.register(fd, size, offset=offset)
                    self.check_there_and_back(fd, region, offset, size)
                    wait_until(lambda: self.held(fd) == 1, "it keeps one descriptor")
                    self.rpc.call("region_release", {"region": region})
                    wait_until(lambda: self.held(fd) == 0, "its descriptor is closed")

    def test_an_odd_size(self):
        """Bytes beyond the end of the file belong to no region."""
        fd = self.shm(3 * PAGE + 5)
        self.refused("OUT_OF_RANGE", "region_register", {"kind": "memfd", "size": 3 * PAGE + 6},
                     ["exceeds the file", str(3 * PAGE + 5)], [fd])
        self.check_there_and_back(fd, self.register(fd, 3 * PAGE + 5), 0, 3 * PAGE + 5)

    def test_shared_memory(self):
        """Python's own, by its name and by its descriptor, and also once it is unlinked."""
        self.shm(0)
        shm = shared_memory.SharedMemory(create=True, size=SIZE)
        try:
            shm.buf[:SIZE] = os.urandom(SIZE)
            fd = os.open(f"/dev/shm/{shm.name}", os.O_RDWR)
            region = self.register(fd)
            os.close(fd)
            there, b = self.region(SIZE)
            copy = {"dst": tensor(b, [SIZE]), "src": tensor(region, [SIZE])}
            self.rpc.call("copy", copy)
            self.assertEqual(there[:], shm.buf[:SIZE])
            shm.unlink()
            shm.buf[:SIZE] = os.urandom(SIZE)
            self.rpc.call("copy", copy)
            self.assertEqual(there[:], shm.buf[:SIZE])
            again = self.register(shm._fd)
            self.rpc.call("copy", {"dst": tensor(again, [SMALL]), "src": tensor(b, [SMALL], offset=100)})
            self.assertEqual(there[100:100 + SMALL], shm.buf[:SMALL])
        finally:
            shm.close()
            with contextlib.suppress(FileNotFoundError):
                shm.unlink()

    def test_the_examples_of_the_protocol(self):
        """The examples print what the protocol says that they print."""
        self.shm(0)
        with open(os.path.join(SOURCE, "proto", "protocol.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertEqual(len(blocks), 2)
        program = "".join(blocks).replace("/run/tmad/tmad.sock", self.tmad.path)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=scaled(60), check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\A\w+ b'adbecf'\nb'adbecf'\n\Z")

    def test_torch(self):
        """A shared tensor of PyTorch's, as it is."""
        try:
            import torch  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("no PyTorch")
        for strategy in ("file_descriptor", "file_system"):
            with self.subTest(strategy):
                torch.multiprocessing.set_sharing_strategy(strategy)
                shared = torch.arange(1000, dtype=torch.int32).share_memory_()
                storage = shared.untyped_storage()
                if strategy == "file_descriptor":
                    fd, size = storage._share_fd_cpu_()  # which stays PyTorch's
                    region = self.register(fd, size)
                else:
                    _, name, size = storage._share_filename_cpu_()
                    fd = os.open("/dev/shm/" + name.decode().lstrip("/"), os.O_RDWR)
                    region = self.register(fd, size, offset=64)  # behind a count of its users
                    os.close(fd)
                there, b = self.region(4000)
                self.rpc.call("copy", {"dst": tensor(b, [1000], "int32"), "src": tensor(region, [1000], "int32")})
                self.assertEqual(there[:], shared.numpy().tobytes())

    def test_holes_are_refused(self):
        fd = self.shm(0)
        os.ftruncate(fd, 1 << 40)
        os.posix_fallocate(fd, 8 * PAGE, PAGE)
        os.pwrite(fd, b"here", 8 * PAGE)
        for offset, size, hole in ((0, 1, 0), (8 * PAGE, 2 * PAGE, 9 * PAGE), (1 << 39, 1, 1 << 39)):
            self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": size, "offset": offset},
                         [f"hole at byte {hole}"], [fd])
        self.check_there_and_back(fd, self.register(fd, PAGE, offset=8 * PAGE), 8 * PAGE, PAGE)
        self.assertEqual(os.fstat(fd).st_blocks, PAGE // 512, "no page was made")

    def test_read_only(self):
        """What a device pins has to be watched, and a mapping of a read-only descriptor cannot be."""
        register = {"kind": "memfd", "size": SIZE, "writable": False}
        fd = self.shm(flags=os.O_RDONLY)
        if ENGINE == "cuda":
            self.refused("PERMISSION", "region_register", register, ["open for reading only", "writable false"], [fd])
        else:
            self.rpc.call("region_register", register, [fd])
        self.rpc.call("region_register", register, [self.shm()])
        sealed = self.memfd(os.MFD_ALLOW_SEALING)
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
        if ENGINE == "cuda":
            self.refused("PERMISSION", "region_register", register, ["could still shrink"], [sealed])
            fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.rpc.call("region_register", register, [sealed])

    def test_what_is_no_memory(self):
        """One sentence covers all such files, whatever file system they are on."""
        self.shm(0)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            fifo, link = os.path.join(directory, "fifo"), os.path.join(directory, "link")
            os.mkfifo(fifo)
            os.symlink("fifo", link)
            kinds = {"directory": os.open(directory, os.O_RDONLY), "fifo": os.open(fifo, os.O_RDWR),
                     "/proc": os.open("/proc/self/mem", os.O_RDWR), "program": os.open(sys.executable, os.O_RDONLY)}
            paths = {"path": os.open(directory, os.O_PATH), "symbolic link": os.open(link, os.O_PATH | os.O_NOFOLLOW)}
            try:
                for words, fds in (("fd: it is not a memfd or a file of tmpfs or hugetlbfs", kinds),
                                   ("fd: it is not open for reading (O_PATH)", paths)):
                    for what, fd in fds.items():
                        with self.subTest(what=what):
                            self.refused("INVALID_ARGUMENT", "region_register",
                                         {"kind": "memfd", "size": 1, "writable": False}, [words], [fd])
            finally:
                for fd in (*kinds.values(), *paths.values()):
                    os.close(fd)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to mount")
    def test_mounted(self):
        """A tmpfs with a size, and with huge pages, of which a file does not end with one."""
        for options in ("size=1M", "size=8M,huge=always"):
            with self.subTest(options), tempfile.TemporaryDirectory() as directory:
                mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", directory],
                                         stderr=subprocess.PIPE, text=True, check=False)
                if mounted.returncode != 0:
                    self.skipTest(f"cannot mount: {mounted.stderr.strip()}")
                try:
                    with open(os.path.join(directory, "file"), "w+b", buffering=0) as file:
                        file.write(bytes(5 * PAGE + 1))  # an emulator may take what is only allocated for a hole
                        region = self.register(file.fileno(), 5 * PAGE + 1)
                        self.check_there_and_back(file.fileno(), region, 0, 5 * PAGE + 1)
                    self.rpc.call("region_release", {"region": region})
                finally:
                    wait_until(lambda: subprocess.run(["umount", directory], stderr=subprocess.DEVNULL,
                                                      check=False).returncode == 0, "it is unmounted")

    # ---- Files that shrink ----
    def requests(self, region, other, plan):
        """(name, method, parameters): what uses the region's first bytes, or all of it."""
        whole, part = tensor(region, [SIZE]), tensor(region, [SMALL])
        square, blocks = tensor(region, [512, 512], "int32"), tensor(region, [SMALL])
        ends = {"src_step": SMALL, "dst_step": SMALL}
        return (("read all", "copy", {"dst": tensor(other, [SIZE]), "src": whole}),
                ("write all", "copy", {"dst": whole, "src": tensor(other, [SIZE])}),
                ("read a little", "copy", {"dst": tensor(other, [SMALL]), "src": part}),
                ("write a little", "copy", {"dst": part, "src": tensor(other, [SMALL])}),
                ("read and transpose", "transpose", {"dst": tensor(other, [512, 512], "int32"), "src": square,
                                                     "perm": [1, 0]}),
                ("pad", "pad", {"dst": part, "src": tensor(other, [SMALL - 2]), "before": [1], "after": [1]}),
                ("plan", "plan_run", {"plan": plan, "dst": [region, 0], "src": [other, 0]}),
                ("gather", "gather", {"dst": tensor(other, [SMALL]), "src": blocks, "index_dtype": "int32",
                                      "index": bytes(4 * 5), **ends}),
                ("scatter", "scatter", {"dst": blocks, "src": tensor(other, [SMALL]), "index_dtype": "int32",
                                        "index": bytes(4), **ends}),
                ("a list", "gather", {"dst": tensor(other, [SMALL]), "src": tensor(other, [SMALL], offset=4096),
                                      "index_dtype": "int32", "index_at": [region, 0], "count": 1,
                                      "limit": 1, **ends}),
                ("an incomplete block", "transform", {"dst": tensor(other, [2, 48]), "src": {**part, "split": [0, 48]}}),
                ("a layer", "gather", {"dst": tensor(other, [SMALL]), "src": {"dtype": "uint8", "shape": [SMALL]},
                                       "src_places": struct.pack("<4Q", other, 4096, region, 0),
                                       "dst_layer_step": SMALL, "index_dtype": "int32", "index": bytes(4),
                                       "limit": 1, **ends}),
                ("signal", "copy", {"dst": tensor(other, [8]), "src": tensor(other, [8], offset=8),
                                    "signal": {"region": region, "offset": 0, "value": 1}}))

    def fill(self, fd):
        os.ftruncate(fd, SIZE)
        os.pwrite(fd, bytes(SIZE), 0)

    def check_shrinks(self, cut):
        other, b = self.region(SIZE)
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [SMALL]},
                                              "src": {"dtype": "uint8", "shape": [SMALL]}})["plan"]
        fd = self.shm(0)
        self.fill(fd)
        region = self.register(fd)
        with self.tmad.rpc() as neighbour:
            mine = self.memory(SIZE, data=bytes(range(256)) * (SIZE // 256))
            c = mine.register(neighbour)
            for i, (what, method, _) in enumerate(self.requests(region, b, plan)):
                with self.subTest(what=what, cut=cut):
                    params = self.requests(region, b, plan)[i][2]
                    self.rpc.call(method, params)
                    os.ftruncate(fd, cut)
                    self.refused("DEVICE", method, params, [f"the file of region {region} shrank to {cut} bytes",
                                                            f"ends at byte {SIZE}"])
                    neighbour.call("copy", {"dst": tensor(c, [256], offset=512), "src": tensor(c, [256])})
                    self.assertEqual(mine[:1024], bytes(range(256)) * 4)
                    self.fill(fd)
                    if ENGINE == "cuda":  # has pinned pages that are not the file's
                        self.refused("DEVICE", method, params, [f"region {region}", "register it again"])
                        self.rpc.call("region_release", {"region": region})
                        region = self.register(fd)
                        params = self.requests(region, b, plan)[i][2]
                    self.rpc.call(method, params)
            neighbour.call("region_release", {"region": c})
        self.rpc.call("plan_release", {"plan": plan})
        self.assertEqual(other[:4], bytes(4))

    def test_shrinks_to_nothing(self):
        self.check_shrinks(0)

    def test_shrinks_to_the_middle(self):
        self.check_shrinks(SIZE // 2)

    def test_shrinks_by_a_byte(self):
        self.check_shrinks(SIZE - 1)

    def test_items_of_a_batch(self):
        """Each item's status says whether its memory was whole."""
        _, b = self.region(SIZE)
        fd = self.shm()
        region = self.register(fd)
        os.ftruncate(fd, SIZE - 1)
        good = {"dst": tensor(b, [8]), "src": tensor(b, [8], offset=8)}
        bad = {"dst": tensor(b, [8], offset=16), "src": tensor(region, [8])}
        done = self.rpc.call("submit", {"items": [good, bad, {**good, "dst": tensor(b, [8], offset=32)}]})
        self.assertEqual(done["statuses"], [0, -13, 0], done)
        self.assertEqual([(error["item"], error["name"]) for error in done["errors"]], [(1, "DEVICE")])

    def test_waits_for_what_has_gone(self):
        """A wait ends with DEVICE where its word has gone, and goes on where only what follows has."""
        word, b = self.region(SIZE)
        fd = self.shm(2 * PAGE)
        region = self.register(fd, 2 * PAGE)
        copy = {"dst": tensor(b, [8]), "src": tensor(b, [8], offset=8)}
        os.ftruncate(fd, PAGE)
        self.refused("DEVICE", "copy", {**copy, "wait": {"region": region, "offset": PAGE, "value": 1}},
                     [f"region {region} shrank to {PAGE} bytes"])
        os.pwrite(fd, bytes([5]), 0)
        self.rpc.call("copy", {**copy, "wait": {"region": region, "offset": 0, "value": 5}})
        self.assertEqual(word[:8], bytes(8))

    def test_while_it_waits(self):
        """The file is cut under a thread that sleeps on a word of it; who wakes that thread ends the wait."""
        _, b = self.region(SIZE)
        fd = self.shm(2 * PAGE)
        region = self.register(fd, 2 * PAGE)
        waiting = self.rpc.request("copy", {"dst": tensor(b, [8]), "src": tensor(b, [8], offset=8),
                                            "wait": {"region": region, "offset": PAGE, "value": 1, "deadline_ms": 500}})
        with self.tmad.rpc() as other:
            other.call("ping")
            os.ftruncate(fd, 0)
            other.call("ping")
        with self.assertRaises(RpcError) as caught:
            self.rpc.reply(waiting)
        self.assertIn(caught.exception.name, ("DEVICE", "TIMEOUT"))

    def test_a_ring_that_is_cut(self):
        """The truncated ring ends its connection, and no other."""
        fd = self.shm(2 * PAGE)
        for cut in (0, 1):
            with self.subTest(cut=cut), self.tmad.rpc() as rpc:
                os.ftruncate(fd, 2 * PAGE)
                os.pwrite(fd, bytes(2 * PAGE), 0)
                region = rpc.call("region_register", {"kind": "memfd", "size": 2 * PAGE}, [fd])["region"]
                rpc.call("ring_open", {"at": [region, PAGE], "entries": 16})
                os.ftruncate(fd, cut)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    for _ in range(10):
                        rpc.send(b"\x93\x02\xa4ring\x90")
                self.assertTrue(rpc.ended())
        self.assertIn("the memory of its submission ring failed", self.tmad.log())
        self.assertIs(self.rpc.call("ping"), True)

    def test_punched_under_a_device(self):
        """Holes may pass unnoticed where the pages are pinned; the service itself touches them and goes on."""
        fd = self.shm()
        region = self.register(fd)
        _, b = self.region(SIZE)
        subprocess.run(["fallocate", "--punch-hole", "--length", str(SIZE), f"/proc/self/fd/{fd}"], pass_fds=[fd],
                       check=True)
        for size in (8, SIZE):
            try:
                self.rpc.call("copy", {"dst": tensor(b, [size]), "src": tensor(region, [size])})
            except RpcError as error:
                self.assertEqual(error.name, "DEVICE", error.message)
            else:
                self.assertTrue(ENGINE == "cuda" or "no userfaultfd" in self.tmad.log())
        self.assertIs(self.rpc.call("ping"), True)

    def test_cut_while_it_is_registered(self):
        """Whatever it finds, the registration ends, with a region or with a reason."""
        fd = self.shm()
        ends = {"region": 0}
        for i in range(50):
            os.ftruncate(fd, SIZE)
            os.pwrite(fd, bytes(SIZE), 0)
            msgid = self.rpc.request("region_register", {"kind": "memfd", "size": SIZE}, [fd])
            os.ftruncate(fd, i * PAGE)
            try:
                region = self.rpc.reply(msgid)["region"]
                self.rpc.call("region_release", {"region": region})
                ends["region"] += 1
            except RpcError as error:
                self.assertIn(error.name, ("INVALID_ARGUMENT", "OUT_OF_RANGE"), error.message)
                ends[error.name] = ends.get(error.name, 0) + 1
        print("#", ends, flush=True)


class FewDescriptors(unittest.TestCase):
    @unittest.skipUnless(NATIVE and os.path.isdir("/dev/shm"), "counts descriptors that are tmad's alone")
    def test_none_is_left(self):
        """The registration that gets none is refused; what is there goes on, and there are some again later."""
        tmad, most = Tmad(engine="cpu", start=False), 64
        tmad.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
        with tmad, tmad.rpc() as rpc, Memory(8) as memory:
            b = memory.register(rpc)
            fd = os.memfd_create("test")
            os.posix_fallocate(fd, 0, PAGE)
            regions = []
            with self.assertRaises(RpcError) as caught:
                while len(regions) < most:
                    regions.append(rpc.call("region_register", {"kind": "memfd", "size": PAGE}, [fd])["region"])
            self.assertEqual(caught.exception.name, "NO_MEMORY", caught.exception.message)
            self.assertIn("fd: it cannot be kept open", caught.exception.message)
            self.assertGreater(len(regions), most // 2)
            for region in regions:
                rpc.call("copy", {"dst": tensor(b, [8]), "src": tensor(region, [8])})
            for region in regions:
                rpc.call("region_release", {"region": region})
            for _ in regions:  # other threads close descriptors, too, and at their own time
                wait_until(lambda: self.registers(rpc, fd), "there are descriptors again")
            os.close(fd)

    @staticmethod
    def registers(rpc, fd):
        try:
            return rpc.call("region_register", {"kind": "memfd", "size": PAGE}, [fd])["region"]
        except RpcError as error:
            if error.name != "NO_MEMORY":
                raise
            return None


if __name__ == "__main__":
    tap.main()
