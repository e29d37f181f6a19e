# SPDX-License-Identifier: Apache-2.0
"""The service over the stand-in driver when that fails: a kernel that dies, and each call of the driver in turn.

The Nth call fails for N = FIRST, FIRST + STRIDE and so on; TEST_DRIVER_CALLS=FIRST:STRIDE says which, 1:1 all of
them. By default it is a sample that starts at random, and it is printed.
"""
import concurrent.futures
import contextlib
import os
import random
import shutil
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SANITIZED, FailingTmad, Memory, RpcError, Tmad, tensor, tmactl, wait_until

SAMPLE = 20 if SANITIZED else 60  # approximate number of failing calls in a row
CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS = 2, 700
ROWS, COLUMNS = 64, 96
PICTURE = np.random.default_rng(7).integers(0, 1 << 32, (ROWS, COLUMNS), dtype=np.uint32)
SIZE = PICTURE.nbytes
LONG = 17 << 20  # bytes; more than a round of staging
UNIT = 2 << 20  # bytes of an allocation


class Lost(unittest.TestCase):
    """A kernel fails once with an illegal address: the device is lost and comes back."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmad-faults-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def start(self, launch):
        once = os.path.join(self.directory, "once")
        tmad = Tmad(engine="cuda", env={"SOFTGPU_FAULT": str(launch), "SOFTGPU_FAULT_ONCE": once})
        self.addCleanup(tmad.stop)
        return tmad

    @contextlib.contextmanager
    def client(self, tmad, n):
        """Returns a connection with room for n transposes of a picture."""
        with tmad.rpc() as rpc, Memory(SIZE, data=PICTURE.tobytes()) as src, Memory(n * SIZE) as dst:
            a, b = src.register(rpc), dst.register(rpc)
            yield rpc, dst, [{"src": tensor(a, [ROWS, COLUMNS], "uint32"), "perm": [1, 0],
                              "dst": tensor(b, [COLUMNS, ROWS], "uint32", offset=i * SIZE)} for i in range(n)]

    def outcomes(self, rpc, dst, msgids):
        """Every request is answered in order, the first ones as done; what is done is right."""
        replies = [rpc.receive() for _ in msgids]
        self.assertEqual([reply and reply[1] for reply in replies], msgids)
        names = [reply[2] and reply[2][2]["name"] for reply in replies]
        done = names.count(None)
        self.assertEqual(names, [None] * done + ["DEVICE_LOST"] * (len(names) - done))
        for i in range(done):
            self.assertEqual(dst[i * SIZE:(i + 1) * SIZE], PICTURE.T.tobytes(), i)
        return done

    def test_everybody_is_told_and_served_again(self):
        n, launch = 15, 7
        tmad = self.start(launch)
        pid, inode = tmad.pid, os.stat(tmad.path).st_ino
        with self.client(tmad, n) as first, self.client(tmad, n) as second:
            boot_id = first[0].call("info")["boot_id"]
            sent = [[rpc.request("transpose", each) for each in params] for rpc, _, params in (first, second)]
            done = []
            for (rpc, dst, _), msgids in zip((first, second), sent):
                done.append(self.outcomes(rpc, dst, msgids))
                self.assertTrue(rpc.ended())
            self.assertLess(min(done), launch)  # the other client's stream may go on until the fault is noticed
        for n_clients in (1, 2):
            with self.client(tmad, n) as (rpc, dst, params):
                self.assertEqual(rpc.call("region_list")[0]["jobs"], 0)
                self.assertNotEqual(rpc.call("info")["boot_id"], boot_id)
                self.assertEqual(rpc.call("stats")["recoveries"], 1)
                self.assertEqual(self.outcomes(rpc, dst, [rpc.request("transpose", each) for each in params]), n,
                                 f"client {n_clients} after it")
        self.assertEqual((tmad.pid, os.stat(tmad.path).st_ino), (pid, inode))
        self.assertIsNone(tmad.process.poll())
        self.assertEqual(tmad.log().count("engine cuda is lost"), 1, tmad.log())
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", tmad.log())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_who_only_waited_is_no_suspect(self):
        tmad = self.start(1)
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        os.seteuid(1)
        try:
            waiting = self.client(tmad, 2)
            rpc, _, params = waiting.__enter__()
        finally:
            os.seteuid(0)
        with contextlib.ExitStack() as close, Memory(64) as word:
            close.push(waiting)
            params[0]["wait"] = {"region": word.register(rpc), "offset": 0, "value": 1}
            behind = [rpc.request("transpose", each) for each in params]
            with self.client(tmad, 1) as (culprit, dst, its):
                self.assertEqual(self.outcomes(culprit, dst, [culprit.request("transpose", its[0])]), 0)
            for msgid in behind:
                reply = rpc.receive()
                self.assertEqual((reply[1], reply[2][2]["name"]), (msgid, "DEVICE_LOST"))
        with tmad.rpc() as rpc:
            self.assertEqual(rpc.call("stats")["recoveries"], 1)
        with open(f"/proc/{tmad.pid}/environ", "rb") as environ:
            penalties = dict(entry.split(b"=", 1) for entry in environ.read().split(b"\0") if entry)[b"TMAD_PENALTIES"]
        suspects = penalties.split()[2::4]
        self.assertEqual(suspects, [b"0"], penalties)

    def test_a_file_in_the_midst(self):
        """tmactl repeats what was under way and reports that it reconnected; this file and the next are right."""
        tmad = self.start(3)
        src, dst = (os.path.join(self.directory, name) for name in ("in.npy", "out.npy"))
        array = np.arange(900 * 1000, dtype="<i4").reshape(900, 1000)
        np.save(src, array)
        np.save(dst, array[0])
        copy = ("copy", src, dst, "--permute", "1,0", "--memory", "1M")
        done = tmactl(*copy, socket_path=tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("reconnected", done.stdout)
        self.assertTrue(np.array_equal(np.load(dst), array.T))
        self.assertEqual(sorted(os.listdir(self.directory)), ["in.npy", "once", "out.npy"])
        done = tmactl(*copy, socket_path=tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(np.array_equal(np.load(dst), array.T))
        with tmad.rpc() as rpc:
            self.assertEqual(rpc.call("stats")["recoveries"], 1)


class Refused(unittest.TestCase):
    """A user whose transforms have repeatedly lost devices, at a service of two devices."""

    def is_refused(self, tmad):
        """Returns whether the user is refused, after a transform that loses the device, or none."""
        with tmad.rpc() as rpc, Memory(SIZE, data=PICTURE.tobytes()) as memory, Memory(SIZE) as other:
            try:
                src, dst = memory.register(rpc), other.register(rpc)
                rpc.call("transpose", {"src": tensor(src, [ROWS, COLUMNS], "uint32"), "perm": [1, 0],
                                       "dst": tensor(dst, [COLUMNS, ROWS], "uint32")})
            except RpcError as error:
                self.assertIn(error.name, ("DEVICE_LOST", "BUSY"))
                return error.name == "BUSY"
        return False

    def test_who_waits_for_a_signal_alone_sees_the_connection_end(self):
        tmad = Tmad(engine="cuda", env={"SOFTGPU_DEVICES": "2", "SOFTGPU_FAULT": "1"})
        self.addCleanup(tmad.stop)
        with tmad.rpc() as rpc, Memory(64) as word:
            alone = {"items": [], "signal": {"region": word.register(rpc), "offset": 0, "value": 1}}
            rpc.call("submit", alone)
            self.assertEqual(word[0:8], bytes([1, 0, 0, 0, 0, 0, 0, 0]))
            wait_until(lambda: self.is_refused(tmad), "the user is refused")
            for params in ({"items": []}, alone):
                self.assertTrue(rpc.call("ping"))
                with self.assertRaises(RpcError) as refused:
                    rpc.call("submit", params)
                self.assertEqual(refused.exception.name, "BUSY")
            self.assertTrue(rpc.ended())


class Gone(Exception):
    """The daemon no longer exists."""


class Session:
    """The requests of a client, one after the other, to a service that may fail at any of them."""

    MAY_FAIL = {
        "region_create": {"NO_MEMORY", "DEVICE"},
        "region_register": {"NO_MEMORY", "DEVICE", "INVALID_ARGUMENT"},
        "transform": {"NO_MEMORY", "DEVICE"},
    }

    def __init__(self, tmad, close):
        self.tmad = tmad
        self.errors = []
        self.done = 0
        self.is_refused = False  # its user took part in too many losses
        self.src, self.dst, self.long, self.long_dst = (close.enter_context(Memory(size, data=data)) for size, data in (
            (SIZE, PICTURE.tobytes()), (8 * SIZE, None), (LONG, os.urandom(LONG)), (LONG, None)))
        self.rpc = None

    def run(self):
        for part in (self.documents, self.direct, self.staged, self.long_run, self.device_memory, self.parts, self.documents):
            if self.rpc is None:
                self.rpc = self.connect()
            try:
                part()
            except ConnectionError:  # the rest of this part is left out
                self.close()
        self.close()

    def close(self):
        if self.rpc is not None:
            self.rpc.close()
        self.rpc = None

    def connect(self):
        try:
            return wait_until(self.reach, "it serves again, or has ended")
        except ConnectionError:
            raise Gone from None

    def recoveries(self):
        """Returns the final number of recoveries: the device may still be lost by releasing something, or by a
        probe."""
        while True:
            with self.connect() as rpc, contextlib.suppress(ConnectionError, RpcError):
                return rpc.call("stats")["recoveries"]

    def reach(self):
        if self.tmad.process.poll() is not None:
            raise ConnectionRefusedError
        try:
            rpc = self.tmad.rpc()
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        try:
            rpc.call("ping")
            return rpc
        except (ConnectionError, RpcError):
            rpc.close()
            return None

    def ask(self, method, params=None, fds=()):
        """Returns the result; None after a permitted error. The connection may end after an explanation."""
        try:
            result = self.rpc.call(method, params, fds)
        except RpcError as error:
            if error.name == "BUSY" and f"uid {os.getuid()} " in error.message:
                self.is_refused = True
                return None
            self.errors.append((method, error.name, error.message))
            if error.name == "DEVICE_LOST":
                assert self.rpc.ended(), error
                raise ConnectionResetError from None
            assert error.name in self.MAY_FAIL.get(method, ()), (method, error)
            return None
        self.done += 1
        return result

    def region(self, memory):
        result = self.ask("region_register", {"kind": "memfd", "size": memory.size}, [memory.fd])
        return result and result["region"]

    def move(self, dst, src, expected, where, **params):
        """Sends a transform whose result appears at where. Returns False if it was refused."""
        where[:len(expected)] = b"\x5a" * len(expected)
        done = self.ask("transform", {"dst": dst, "src": src, **params})
        assert done is None or where[:len(expected)] == expected, "wrong bytes"
        return done is not None

    def documents(self):
        self.ask("info")
        self.ask("stats")
        self.ask("region_list")
        self.ask("explain", {"dst": {"dtype": "int8", "shape": [64, 64]}, "src": {"dtype": "int8", "shape": [64, 64]},
                             "perm": [1, 0]})

    def pair(self, src, dst):
        a, b = self.region(src), self.region(dst)
        return (a, b) if a and b else None

    def release(self, *regions):
        for region in regions:
            self.ask("region_release", {"region": region})

    def direct(self):
        if (regions := self.pair(self.src, self.dst)) is None:
            return
        a, b = regions
        picture = tensor(a, [ROWS, COLUMNS], "uint32")
        for _ in range(2):
            self.move(tensor(b, [COLUMNS, ROWS], "uint32"), picture, PICTURE.T.tobytes(), self.dst, perm=[1, 0])
        padded = np.pad(PICTURE, [(1, 2), (3, 1)], mode="reflect")
        self.move(tensor(b, padded.shape, "uint32"), picture, padded.tobytes(), self.dst, before=[1, 3], after=[2, 1],
                  mode="reflect")
        odd = PICTURE.view(np.uint8)[::-1, 1::2]
        self.move(tensor(b, odd.shape), tensor(a, odd.shape, offset=(ROWS - 1) * COLUMNS * 4 + 1,
                                               strides=[-COLUMNS * 4, 2]), odd.tobytes(), self.dst)
        self.release(a, b)

    def staged(self):
        if (regions := self.pair(self.src, self.dst)) is None:
            return
        a, b = regions
        wide = np.pad(PICTURE, [(64, 64), (0, 0)], mode="wrap")
        self.move(tensor(b, wide.shape, "uint32"), tensor(a, PICTURE.shape, "uint32"), wide.tobytes(), self.dst,
                  before=[64, 0], after=[64, 0], mode="wrap")
        self.release(a, b)

    def long_run(self):
        if (regions := self.pair(self.long, self.long_dst)) is None:
            return
        a, b = regions
        self.move(tensor(b, [LONG]), tensor(a, [LONG]), self.long[:], self.long_dst)
        self.release(a, b)

    def device_memory(self):
        if (regions := self.pair(self.src, self.dst)) is None:
            return
        for kind in ("cuda_fd", "cuda_ipc"):
            made = self.ask("region_create", {"size": SIZE, "kind": kind})
            if made is None:
                continue
            there = [made["region"]]
            if kind == "cuda_fd":
                fd = self.rpc.fds.pop()
                again = self.ask("region_register", {"kind": kind, "size": SIZE}, [fd])
                os.close(fd)
                there += [again["region"]] if again else []
            self.through(*regions, there)
            self.release(*there)
        self.release(*regions)

    def parts(self):
        """Registers a region of two allocations, and another one that shares the first of them."""
        if (regions := self.pair(self.src, self.dst)) is None:
            return
        made = [self.ask("region_create", {"size": SIZE, "kind": "cuda_fd"}) for _ in range(2)]
        fds = [self.rpc.fds.pop() for each in made if each]
        there = [each["region"] for each in made if each]
        if len(fds) == 2:
            both = self.ask("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [{"size": UNIT}] * 2}, fds)
            there += [both["region"]] if both else []
            if both and (one := self.ask("region_register", {"kind": "cuda_fd", "size": SIZE, "parts": [
                    {"size": UNIT, "region": both["region"]}]})):
                there.append(one["region"])
                self.through(*regions, there[2:])
        for fd in fds:
            os.close(fd)
        self.release(*there, *regions)

    def through(self, a, b, there):
        """Copies in through the first of the device's regions, and out through the last."""
        device_in, device_out = there[0], there[-1]
        flat = tensor(a, [SIZE])
        self.move(tensor(b, [SIZE]), tensor(device_in, [SIZE]), bytes(SIZE), self.dst)
        if self.ask("transform", {"dst": tensor(device_in, [SIZE]), "src": flat}) is None:
            return
        self.move(tensor(b, [COLUMNS, ROWS], "uint32"), tensor(device_out, [ROWS, COLUMNS], "uint32"),
                  PICTURE.T.tobytes(), self.dst, perm=[1, 0])


class Calls(unittest.TestCase):
    """Every call of the driver fails once: nothing crashes, hangs or moves wrong bytes."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmad-faults-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def one(self, **env):
        """Runs a session with a failing call. Returns the errors that the client saw, or None if the service did not
        start."""
        tmad = FailingTmad(engine="cuda", start=False, env=env)
        tmad.live_path = None  # the failing call may be one that releases something
        try:
            tmad.start()
        except AssertionError:  # it says why in a line, or it lost its device in each life before anybody asked
            assert tmad.process.returncode == 1, (env, tmad.process, tmad.log())
            assert tmad.log().count("\n") == 1 or "engine cuda is lost" in tmad.log(), (env, tmad.log())
            tmad._clean()
            return None
        with contextlib.ExitStack() as close:
            # Its last life may have failed, or been one too many, which may show only after the last answer.
            close.callback(tmad.stop, ended_after="engine cuda is lost")
            session = Session(tmad, close)
            try:
                session.run()
                recoveries = session.recoveries()
            except Gone:
                assert tmad.process.wait() == 1, (env, tmad.log())
                recoveries = 6
            except Exception as error:
                raise AssertionError(f"{env}: {error!r}: {tmad.log()}") from error
            assert len(session.errors) <= recoveries + 1, (env, session.errors)
            assert not session.is_refused or recoveries >= 3, (env, tmad.log())
            return session.errors

    def count(self):
        path = os.path.join(self.directory, "count")
        with Tmad(engine="cuda", env={"SOFTGPU_COUNT": path}) as tmad, contextlib.ExitStack() as close:
            session = Session(tmad, close)
            session.run()
            self.assertEqual(session.errors, [])
            self.assertEqual(session.done, 57)
            tmad.stop()
        with open(path, encoding="ascii") as file:
            return int(file.read())

    def each(self, result):
        total = self.count()
        stride = max(1, total // SAMPLE)
        which = os.environ.get("TEST_DRIVER_CALLS") or f"{random.SystemRandom().randint(1, stride)}:{stride}"
        print(f"# {total} calls, TEST_DRIVER_CALLS={which}", flush=True)
        first, stride = map(int, which.split(":"))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda n: self.one(SOFTGPU_FAIL=str(n), SOFTGPU_FAIL_WITH=str(result)),
                                     range(first, total + 1, stride)))
        refused = outcomes.count(None)
        names = [name for errors in outcomes for _, name, _ in errors or []]
        print(f"# {len(outcomes)} sessions, {refused} refused to start, errors: "
              f"{({name: names.count(name) for name in names})}", flush=True)
        return refused, names

    def test_memory_that_stays_pinned(self):
        """Memory that could not be unpinned belongs to nobody and is in nobody's way."""
        self.assertEqual(self.one(SOFTGPU_FAIL_CALL="cuMemHostUnregister"), [])

    def test_out_of_memory(self):
        refused, names = self.each(CUDA_ERROR_OUT_OF_MEMORY)
        self.assertGreater(refused, 0)
        # The calls above are a sample, which may lack those that only fail to allocate.
        names += [name for _, name, _ in self.one(SOFTGPU_FAIL_CALL="cuMemCreate")]
        self.assertIn("NO_MEMORY", names)

    def test_the_device_is_lost(self):
        refused, names = self.each(CUDA_ERROR_ILLEGAL_ADDRESS)
        self.assertGreater(refused, 0)
        self.assertEqual(set(names), {"DEVICE_LOST"})


if __name__ == "__main__":
    if os.environ.get("TEST_CUDA") == "no":
        print("1..0 # SKIP this build has no cuda engine")
    else:
        tap.main()
