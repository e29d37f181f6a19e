# SPDX-License-Identifier: Apache-2.0
"""Regions over the wire: memory in, memory out, and memory that is no good."""
import ctypes
import fcntl
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, RpcError, Tmad, by_engine, pack_request, tensor, wait_until

F_SEAL_FUTURE_WRITE = 0x10
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Regions(RawCase):
    def test_create_hands_out_a_sealed_memfd(self):
        size = 12345
        made = self.rpc.call("region_create", {"size": size, "kind": "memfd"})
        self.assertEqual((made["size"], made["kind"], len(self.rpc.fds)), (size, "memfd", 1))
        fd = self.rpc.fds[0]
        self.assertGreaterEqual(os.fstat(fd).st_size, size)
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        self.assertTrue(seals & fcntl.F_SEAL_SHRINK and seals & fcntl.F_SEAL_GROW)
        self.assertEqual(os.pread(fd, size, 0), bytes(size), "new memory is zeroed")
        os.pwrite(fd, b"hello", 0)
        copy, region = self.region(64)
        self.rpc.call("copy", {"dst": tensor(region, [5]), "src": tensor(made["region"], [5])})
        self.assertEqual(copy[:5], b"hello")

    def test_create_without_a_kind(self):
        """The region is zeroed memory of the engine's own kind."""
        made = self.rpc.call("region_create", {"size": 5000})
        self.assertEqual((made["size"], made["kind"], len(self.rpc.fds)),
                         (5000, by_engine(cpu="memfd", cuda="cuda_fd"), 1))
        there, region = self.region(5000, data=b"\xff" * 5000)
        self.rpc.call("copy", {"dst": tensor(region, [5000]), "src": tensor(made["region"], [5000])})
        self.assertEqual(there[:], bytes(5000), "new memory is zeroed")
        there[:5] = b"hello"
        self.rpc.call("copy", {"dst": tensor(made["region"], [5], offset=4995), "src": tensor(region, [5])})
        self.rpc.call("copy", {"dst": tensor(region, [5000]), "src": tensor(made["region"], [5000])})
        self.assertEqual(there[:], bytes(4995) + b"hello")

    def test_list(self):
        memory = self.memory(8192)
        first = memory.register(self.rpc, size=4096, offset=100, writable=False)
        entries = self.rpc.call("region_list")
        devices = self.rpc.call("info")["devices"]
        self.assertEqual([entry.pop("device", None) for entry in entries],
                         [devices[0]["uuid"] if devices else None])
        self.assertEqual(entries, [{"region": first, "kind": "memfd", "size": 4096, "offset": 100,
                                    "writable": False, "state": "open", "jobs": 0}])

    def test_ids_are_of_the_connection(self):
        _, region = self.region(64)
        with self.tmad.rpc() as other:
            self.assertEqual(other.call("region_list"), [])
            with self.assertRaises(RpcError) as caught:
                other.call("region_release", {"region": region})
            self.assertEqual(caught.exception.name, "NOT_FOUND")

    def test_released_is_gone(self):
        _, region = self.region(64)
        _, other = self.region(64)
        self.assertIn(self.rpc.call("region_release", {"region": region})["state"], ("closed", "draining"))
        self.refused("NOT_FOUND", "copy", {"dst": tensor(other, [4]), "src": tensor(region, [4])},
                     ["src", str(region)])
        self.refused("NOT_FOUND", "region_release", {"region": region}, [str(region)])
        again = self.memory(64).register(self.rpc)
        self.assertNotEqual(again, region, "an id is not used twice")

    def test_release_drains(self):
        _, src = self.region(1 << 20)
        _, dst = self.region(1 << 20)
        params = {"dst": tensor(dst, [1 << 20]), "src": tensor(src, [1 << 20])}
        copies = [self.rpc.request("copy", params) for _ in range(20)]
        release = self.rpc.request("region_release", {"region": src})
        replies = {message[1]: message for message in (self.rpc.receive() for _ in range(21))}
        for msgid in copies:
            self.assertIsNone(replies[msgid][2], "a request sent before the release is answered")
        self.assertIn(replies[release][3]["state"], ("closed", "draining"))
        wait_until(lambda: len(self.rpc.call("region_list")) == 1, "the released region is gone")

    def test_offset_and_read_only(self):
        data = bytes(range(256)) * 32
        memory = self.memory(len(data), data=data)
        src = memory.register(self.rpc, size=100, offset=4097, writable=False)
        dst, dst_region = self.region(100)
        self.rpc.call("copy", {"dst": tensor(dst_region, [100]), "src": tensor(src, [100])})
        self.assertEqual(dst[:], data[4097:4197])
        self.refused("PERMISSION", "copy", {"dst": tensor(src, [100]), "src": tensor(dst_region, [100])},
                     ["dst", "read-only"])
        self.assertEqual(memory[:], data)

    def test_read_only_fd(self):
        memory = self.memory(4096, data=b"read me")
        if ENGINE == "cuda":  # cuda pins it
            fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        fd = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY)
        try:
            self.refused("PERMISSION", "region_register", {"kind": "memfd", "size": 4096}, fds=[fd])
            region = self.rpc.call("region_register", {"kind": "memfd", "size": 4096, "writable": False},
                                   [fd])["region"]
        finally:
            os.close(fd)
        dst, dst_region = self.region(64)
        self.rpc.call("copy", {"dst": tensor(dst_region, [7]), "src": tensor(region, [7])})
        self.assertEqual(dst[:7], b"read me")

    def test_who_is_asked_to_seal(self):
        """Untrusted users are asked to seal memory that can be sealed and is then accessed faster."""
        writable, file = {"kind": "memfd", "size": 4096}, tempfile.TemporaryFile(dir="/dev/shm")
        self.addCleanup(file.close)
        os.posix_fallocate(file.fileno(), 0, 4096)
        closed = self.memory(4096, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        rows = (("a memfd", writable, self.memory(4096).fd, True),
                ("not sealed at all", writable, self.memory(4096, seals=0).fd, True),
                ("for reading", dict(writable, writable=False), self.memory(4096).fd, None),
                ("sealed against seals", writable, closed.fd, None),
                ("a file", writable, file.fileno(), None))
        refused = {"sealed against seals", "a file"} if ENGINE == "cuda" else {}  # test_sealing.py
        for trust in ("on", "off"):
            with Tmad("--trust-own-uid=" + trust) as tmad, tmad.rpc() as rpc:
                for name, params, fd, seal in rows:
                    if trust == "off" and name in refused:
                        continue
                    with self.subTest(name, trust=trust):
                        made = rpc.call("region_register", params, [fd])
                        self.assertIs(made.get("seal"), seal if trust == "off" else None)
                        self.assertEqual("session" in made, "seal" in made or "must_seal" in made)
                if trust == "on" or not refused:
                    self.assertNotIn("seal", rpc.call("region_create", {"size": 4096, "kind": "memfd"}))

    def test_sealed_once_it_is_registered(self):
        """Existing mappings go on working on both sides, and nobody can punch holes."""
        with Tmad("--trust-own-uid=off") as tmad, tmad.rpc() as rpc:
            memories = [self.memory(4096, data=bytes([i]) * 4096) for i in range(2)]
            dst, src = (memory.register(rpc, size=4096) for memory in memories)
            for memory in memories:
                fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
            rpc.call("copy", {"dst": tensor(dst, [4096]), "src": tensor(src, [4096])})
            self.assertEqual(memories[0][:], b"\1" * 4096)
            memories[1][:4] = b"more"
            rpc.call("copy", {"dst": tensor(dst, [4]), "src": tensor(src, [4])})
            self.assertEqual(memories[0][:4], b"more")

    def punch(self, fd, at, size):
        libc = ctypes.CDLL(None, use_errno=True)
        self.assertEqual(libc.fallocate(fd, PUNCH, ctypes.c_long(at), ctypes.c_long(size)), 0)

    def test_holes_are_refused(self):
        """A hole would be allocated at the service's expense when it is touched. The part without holes is accepted."""
        memory = self.memory(65536, fill=False)
        memory[20480:20484] = b"here"
        for offset, size, hole in ((0, 65536, 0), (20480, 8192, 24576), (40000, 1, 40000)):
            self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": size, "offset": offset},
                         ["fd: ", f"hole at byte {hole};", "write to it"], [memory.fd])
        self.assertEqual(os.fstat(memory.fd).st_blocks, 8, "no page was made")
        self.rpc.call("region_register", {"kind": "memfd", "size": 4096, "offset": 20480}, [memory.fd])

    def test_holes_fail_what_meets_them(self):
        if "no userfaultfd" in self.tmad.log() or ENGINE != "cpu":
            self.skipTest("holes that are punched later are not noticed here")
        src, a = self.region(1 << 20, data=b"s" * (1 << 20))
        dst, b = self.region(1 << 20)
        self.punch(src.fd, 65536, 8192)
        self.punch(dst.fd, 32768, 4096)
        blocks = os.fstat(src.fd).st_blocks, os.fstat(dst.fd).st_blocks

        def copy(at, size):
            return {"dst": tensor(b, [size], offset=at), "src": tensor(a, [size], offset=at)}
        for at, size in ((0, 1 << 20), (65536, 8), (73720, 16), (32768, 4096)):
            self.refused("DEVICE", "copy", copy(at, size))
        for word in ("wait", "signal"):
            self.refused("DEVICE", "copy", {**copy(0, 8), word: {"region": b, "offset": 32768, "value": 1}})
        self.assertEqual((os.fstat(src.fd).st_blocks, os.fstat(dst.fd).st_blocks), blocks, "no page was made")
        self.rpc.call("copy", copy(131072, 65536))
        src[65536:73728], dst[32768] = b"f" * 8192, 1
        self.rpc.call("copy", copy(0, 1 << 20))
        self.assertEqual(dst[:], src[:])

    def test_what_was_made_goes_with_its_region(self):
        made = self.rpc.call("region_create", {"size": 1 << 20, "kind": "memfd"})["region"]
        fd = self.rpc.fds[0]
        os.pwrite(fd, b"x" * (1 << 20), 0)
        self.rpc.call("region_release", {"region": made})
        if os.environ.get("EMULATOR"):
            self.skipTest("an emulator takes MADV_REMOVE without an effect")
        self.assertEqual(os.fstat(fd).st_blocks, 0)
        self.assertEqual(os.pread(fd, 1 << 20, 0), bytes(1 << 20))
        os.pwrite(fd, b"y", 77)
        self.assertEqual(os.pread(fd, 1, 77), b"y", "it is an ordinary file then")

    def test_memory_that_is_no_good(self):
        short, sparse = self.memory(4096), self.memory(0)
        rows = (("short", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4097}, short.fd, ["4097", "4096"]),
                ("offset past its end", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4096, "offset": 1}, short.fd,
                 ["4096"]),
                ("offset overflows", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 2, "offset": 2**64 - 1}, short.fd,
                 []),
                ("size overflows", "INVALID_ARGUMENT|OUT_OF_RANGE|QUOTA", {"size": 2**64 - 1}, short.fd, []),
                ("empty", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4096}, sparse.fd, []),
                ("no bytes", "INVALID_ARGUMENT", {"size": 0}, short.fd, ["size"]))
        for what, names, params, fd, words in rows:
            with self.subTest(what=what):
                with self.assertRaises(RpcError) as caught:
                    self.rpc.call("region_register", {"kind": "memfd", **params}, [fd])
                self.assertIn(caught.exception.name, names.split("|"), caught.exception.message)
                for word in words:
                    self.assertIn(word, caught.exception.message)
        self.assertEqual(self.rpc.call("region_list"), [])

    def test_fds_that_are_no_memory(self):
        read_end, write_end = os.pipe()
        kinds = {"pipe": read_end, "directory": os.open("/", os.O_RDONLY), "device": os.open("/dev/zero", os.O_RDWR),
                 "socket": os.dup(self.rpc.socket.fileno()), "path": os.open("/", os.O_PATH)}
        try:
            with tempfile.TemporaryFile() as file:
                file.truncate(4096)
                kinds["file"] = os.dup(file.fileno())
                for what, fd in kinds.items():
                    with self.subTest(what=what):
                        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": 4096}, fds=[fd])
        finally:
            for fd in (*kinds.values(), write_end):
                os.close(fd)

    def test_fd_missing_or_not_wanted(self):
        memory = self.memory(4096)
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": 4096}, ["fd"])
        self.assertIs(self.rpc.call("ping", fds=[memory.fd, memory.fd]), True,
                      "fds that no request takes are dropped")
        self.refused("INVALID_ARGUMENT|UNSUPPORTED".split("|")[0], "region_register",
                     {"kind": "nothing", "size": 4096}, ["kind", "nothing"], [memory.fd])

    def test_other_kinds(self):
        """An engine without a device refuses device memory; one with a device checks that it is given some."""
        status = by_engine(cpu="UNSUPPORTED", cuda="INVALID_ARGUMENT")
        self.refused(status, "region_register", {"kind": "cuda_ipc", "size": 4096, "handle": bytes(64)},
                     by_engine(cpu=["cuda_ipc"], cuda=["handle"]))
        self.refused(status, "region_register", {"kind": "cuda_fd", "size": 4096},
                     by_engine(cpu=["cuda_fd"], cuda=["fd"]), [self.memory(4096).fd])
        for kind in ("cuda_fd", "cuda_ipc"):
            with self.subTest(kind=kind):
                if ENGINE == "cpu":
                    self.refused("UNSUPPORTED", "region_create", {"size": 4096, "kind": kind}, [kind])
                else:
                    self.assertEqual(self.rpc.call("region_create", {"size": 4096, "kind": kind})["kind"], kind)

    def test_too_many_fds_end_the_connection(self):
        """More descriptors than two messages may have, before the first is complete, or more than one message may
        have."""
        memory, ping = self.memory(64), pack_request(1, "ping")
        with self.tmad.rpc() as rpc:
            for i in range(3):
                rpc.send(ping[i:i + 1], [memory.fd] * 253)
            self.assertTrue(rpc.ended())
        with Tmad("--message-fds=100") as tmad, tmad.rpc() as rpc:
            rpc.request("ping", fds=[memory.fd] * 101)
            self.assertTrue(rpc.ended())
        self.assertIs(self.rpc.call("ping"), True)


@unittest.skipUnless(os.geteuid() == 0, "connects as another user")
class Pools(unittest.TestCase):
    """Memory of CUDA memory pools is accepted from some users only; the files of these tests are no pools."""

    NOBODY = 65534

    def start(self, *arguments):
        tmad = Tmad("--socket-mode=0666", *arguments)
        self.addCleanup(tmad.stop)
        os.chmod(tmad.directory, 0o711)
        return tmad

    def answer(self, tmad, uid):
        """Returns the service's answer to a user who registers such memory."""
        os.seteuid(uid)
        try:
            rpc = tmad.rpc()
        finally:
            os.seteuid(0)
        pool = os.memfd_create("none")
        self.addCleanup(os.close, pool)
        with rpc, self.assertRaises(RpcError) as caught:
            rpc.call("region_register", {"kind": "cuda_pool", "size": 10, "allocation": 10, "handle": bytes(64)}, [pool])
        return caught.exception

    def test_others_need_a_limit(self):
        refused = by_engine(cpu="UNSUPPORTED", cuda="INVALID_ARGUMENT")
        tmad = self.start()
        error = self.answer(tmad, self.NOBODY)
        self.assertEqual(error.name, "QUOTA")
        self.assertIn("pool_regions_per_uid", error.message)
        self.assertEqual(self.answer(tmad, 0).name, refused)
        tmad = self.start("--pool-regions-per-uid=1")
        for _ in range(3):
            self.assertEqual(self.answer(tmad, self.NOBODY).name, refused, "nothing is left of those that were refused")


if __name__ == "__main__":
    tap.main()
