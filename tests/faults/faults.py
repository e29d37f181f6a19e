# SPDX-License-Identifier: Apache-2.0
"""Runs a program whose libc calls fail as asked, and a scripted session with such a tmad."""
import concurrent.futures
import errno
import mmap
import os
import random
import socket
import struct
import sys
import tempfile
import time
from http.client import HTTPException

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from blocked import blocked
from scrape import scrape
from tmad import BUILD, FailingTmad, Memory, Rpc, RpcError, pack_request, share, tensor, wait_until

FAULT_TMAD, FAULT_TMACTL, FAULT_SESSION = (os.path.join(BUILD, name)
                                           for name in ("fault_tmad", "fault_tmactl", "fault_session"))
MEMORY, SYSTEM = 1, 2  # classes of calls
TIMEOUT_S = 10  # for a reply; no reply is delayed by the faults themselves


class Plan:
    """Says which calls fail: n of the classes from number first on, with the variant of their errors. The layout is
    shim.h's."""

    LAYOUT = struct.Struct("=6Q128s")

    def __init__(self, classes=MEMORY | SYSTEM, first=0, n=1, variant=0):
        self.file = tempfile.NamedTemporaryFile(prefix="faults-")
        self.file.write(self.LAYOUT.pack(classes, first, n, variant, 0, 0, b""))
        self.file.flush()
        self.map = mmap.mmap(self.file.fileno(), self.LAYOUT.size)
        self.env = {"FAULTS": self.file.name}

    def _fields(self):
        return self.LAYOUT.unpack(self.map[:])

    def fail_after(self, calls):
        """Makes the call fail that follows after so many more; None: none fails."""
        self.map[8:16] = struct.pack("=Q", 0 if calls is None else self.calls + calls + 1)

    calls = property(lambda self: self._fields()[4])
    failed = property(lambda self: self._fields()[5])
    what = property(lambda self: self._fields()[6].rstrip(b"\0").decode())

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.map.close()
        self.file.close()


def each_failure(one, total, *failure):
    """Runs one(classes, first, n, variant) for a share of the calls, beginning with a random one. one returns a word
    for the outcome."""
    classes, n, variant = failure
    stride = max(1, total // share(total))
    begin = random.SystemRandom().randint(1, stride)
    rows = [(classes, first, n, variant) for first in range(begin, total + 1, stride)]
    start_s = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = {row: pool.submit(one, *row) for row in rows}
    outcomes = [future.result() for future in futures.values() if not future.exception()]
    counts = {word: outcomes.count(word) for word in sorted(set(outcomes))}
    print(f"# {len(rows)} of {total} calls, a session each, {time.monotonic() - start_s:.0f} s: {counts}",
          flush=True)
    wrong = {row: future.exception() for row, future in futures.items() if future.exception()}
    for row, error in wrong.items():
        print(f"# FAULTS_ONLY={':'.join(map(str, row))}: {error}".replace("\n", "\n# "), flush=True)
    assert not wrong, f"{len(wrong)} went wrong"


def metrics_of(path):
    return path + ".metrics"


class FaultTmad(FailingTmad):
    """A tmad with a plan of failures."""

    def __init__(self, plan, *args, **options):
        env = dict(plan.env, **options.pop("env", {}))
        super().__init__("--threads", "2", "--message-fds", "64", *args, program=FAULT_TMAD, env=env, start=False, **options)
        self.command.append(f"--metrics=unix:{metrics_of(self.path)}")


# ---- The session --------------------------------------------------------------------------------------
ROWS, COLUMNS = 40, 56
PICTURE = np.random.default_rng(11).integers(0, 1 << 32, (ROWS, COLUMNS), dtype=np.uint32)
LARGE = np.random.default_rng(12).integers(0, 1 << 32, (768, 1031), dtype=np.uint32)  # 3 MiB, on several threads
SIZE = 1 << 16


class Script:
    """The requests of clients, one after the other. What is carried out is right; what is not was refused with a
    permitted error, or its connection has ended. `troubles` lists which."""

    MAY_FAIL = {
        "region_create": {"NO_MEMORY", "PERMISSION"},
        "region_register": {"NO_MEMORY", "INVALID_ARGUMENT", "PERMISSION"},
    }

    def __init__(self, path):
        self.path = path
        self.troubles = []
        self.done = 0

    def run(self):
        for part in (self.documents, self.moves, self.created, self.refusals, self.crowd, self.large, self.rude):
            self.guard(part)
        self.scraped()

    def guard(self, part):
        try:
            with Rpc(self.path, TIMEOUT_S) as rpc:
                part(rpc)
        except ConnectionError:
            self.troubles.append((part.__name__, "the connection ended"))

    def scraped(self):
        """The metrics page is complete, or its connection ends."""
        try:
            assert scrape("unix:" + metrics_of(self.path))["tmad_start_time_seconds"] > 0
            self.done += 1
        except (ConnectionError, HTTPException) as error:
            self.troubles.append(("metrics", repr(error)))

    def failed(self, method, error):
        if error.details.get("ends"):  # the connection was refused
            assert error.name in ("NO_MEMORY", "INTERNAL"), (method, error)
            raise ConnectionRefusedError(error.message)
        assert error.name in self.MAY_FAIL.get(method, {"NO_MEMORY"}), (method, error)
        self.troubles.append((method, error.name, error.message))

    def ask(self, rpc, method, params=None, fds=()):
        """Returns the result, or None after a permitted error."""
        try:
            result = rpc.call(method, params, fds)
        except RpcError as error:
            self.failed(method, error)
            return None
        self.done += 1
        return result

    def region(self, rpc, memory, **fields):
        result = self.ask(rpc, "region_register", {"kind": "memfd", "size": memory.size, **fields}, [memory.fd])
        return result and result["region"]

    def move(self, rpc, where, expected, dst, src, method="transform", **params):
        where[:len(expected)] = b"\x5a" * len(expected)
        if self.ask(rpc, method, {"dst": dst, "src": src, **params}) is not None:
            assert where[:len(expected)] == expected, ("wrong bytes", method, params)

    def documents(self, rpc):
        layout = {"dtype": "int8", "shape": [64, 64]}
        for method, params in (("info", None), ("ping", None), ("stats", None), ("region_list", None), ("session_list", None),
                               ("explain", {"dst": layout, "src": layout, "perm": [1, 0]})):
            self.ask(rpc, method, params)

    def moves(self, rpc):
        """Sends a transform of each family, small enough to run in the thread that receives it."""
        with Memory(SIZE, data=PICTURE.tobytes()) as src, Memory(SIZE) as dst:
            a, b = self.region(rpc, src, writable=False), self.region(rpc, dst)
            if not a or not b:
                return
            picture = tensor(a, PICTURE.shape, "uint32")
            self.move(rpc, dst, PICTURE.tobytes(), tensor(b, PICTURE.shape, "uint32"), picture, "copy")
            for _ in range(2):
                self.move(rpc, dst, PICTURE.T.tobytes(), tensor(b, [COLUMNS, ROWS], "uint32"), picture, "transpose",
                          perm=[1, 0])
            for mode in ("constant", "reflect"):
                padded = np.pad(PICTURE, [(1, 2), (3, 1)], mode=mode)
                self.move(rpc, dst, padded.tobytes(), tensor(b, padded.shape, "uint32"), picture, "pad",
                          before=[1, 3], after=[2, 1], mode=mode)
            odd = PICTURE.view(np.uint8)[::-1, 1::2]
            self.move(rpc, dst, odd.tobytes(), tensor(b, odd.shape),
                      tensor(a, odd.shape, offset=(ROWS - 1) * COLUMNS * 4 + 1, strides=[-COLUMNS * 4, 2]))
            corner = PICTURE[:4, :8].T.astype("<u8").tobytes()
            each = [tensor(b, [8, 4], "uint64", offset=i * len(corner)) for i in range(3)]
            self.move(rpc, dst, 3 * corner, each[0], tensor(a, [4, 8], "uint32", strides=[COLUMNS, 1]), perm=[1, 0],
                      cast="exact", further_dst=each[1:])
            self.blocks(rpc, a, b, dst)
            self.slices(rpc, a, b, dst)
            self.ask(rpc, "region_list")
            for region in (a, b):
                self.ask(rpc, "region_release", {"region": region})

    def blocks(self, rpc, a, b, dst):
        """Splits columns with an incomplete last block, as transforms, plans and items of several parts."""
        expected = blocked(PICTURE, [1, 16], 0).transpose(1, 0, 2)
        layouts = {"dst": {"dtype": "uint32", "shape": list(expected.shape)},
                   "src": {"dtype": "uint32", "shape": list(PICTURE.shape), "split": [1, 16]}, "perm": [1, 0, 2]}
        params = {**layouts, "dst": {**layouts["dst"], "region": b}, "src": {**layouts["src"], "region": a}}
        for _ in range(2):
            self.move(rpc, dst, expected.tobytes(), method="transform", **params)
        self.ask(rpc, "explain", layouts)
        made = self.ask(rpc, "plan_prepare", layouts)
        if made:
            self.ask(rpc, "plan_run", {**made, "dst": [b, 0], "src": [a, 0]})
            self.ask(rpc, "plan_release", made)
        done = self.ask(rpc, "submit", {"items": [params]})
        if done and done["statuses"] != [0]:
            assert done["statuses"] == [-16], done  # NO_MEMORY
            self.done -= 1
            self.troubles.append(("submit", "NO_MEMORY", done["errors"]))

    def slices(self, rpc, a, b, dst):
        """Reshards two halves to three thirds."""
        halves, thirds = ([{"tensor": tensor(region, [ROWS, COLUMNS // n], "uint32", offset=4 * (COLUMNS // n) * i,
                                             strides=[COLUMNS, 1]), "start": [0, COLUMNS // n * i]} for i in range(n)]
                          for region, n in ((a, 2), (b, 3)))
        dst[:PICTURE.nbytes] = bytes(PICTURE.nbytes)
        done = self.ask(rpc, "reshard", {"destinations": thirds, "sources": halves})
        expected = PICTURE.copy()
        expected[:, COLUMNS // 3 * 3:] = 0
        assert done is None or dst[:PICTURE.nbytes] == expected.tobytes(), "wrong bytes of a reshard"

    def created(self, rpc):
        """Uses memory that the service creates and passes as a descriptor."""
        with Memory(SIZE) as dst:
            made, b = self.ask(rpc, "region_create", {"size": SIZE}), self.region(rpc, dst)
            if not made:
                return
            os.pwrite(rpc.fds[0], PICTURE.tobytes(), 0)
            if b:
                self.move(rpc, dst, PICTURE.tobytes(), tensor(b, PICTURE.shape, "uint32"),
                          tensor(made["region"], PICTURE.shape, "uint32"))

    def refusals(self, rpc):
        """An invalid request is refused with its usual error, or for lack of memory."""
        for method, params, name in (("region_release", {"region": 77}, "NOT_FOUND"),
                                     ("nothing", None, "UNSUPPORTED"),
                                     ("region_create", {"size": 1 << 62}, "QUOTA"),
                                     ("copy", {"dst": tensor(1, [1]), "src": tensor(2, [1])}, "NOT_FOUND")):
            try:
                rpc.call(method, params)
                raise AssertionError((method, "was not refused"))
            except RpcError as error:
                if error.name != name:
                    self.failed(method, error)

    def crowd(self, rpc):
        """Several connections send many requests at once; one is closed before its answers, one has shut down
        sending."""
        with Memory(SIZE, data=PICTURE.tobytes()) as src, Memory(16 * SIZE) as dst, \
                Rpc(self.path, TIMEOUT_S) as gone, Rpc(self.path, TIMEOUT_S) as other:
            shapes = []
            for each in (gone, other, rpc):
                a, b = self.region(each, src), self.region(each, dst)
                if not a or not b:
                    return
                shapes.append([{"dst": tensor(b, [COLUMNS, ROWS], "uint32", offset=i * SIZE),
                                "src": tensor(a, [ROWS, COLUMNS], "uint32"), "perm": [1, 0]} for i in range(16)])
            gone.send(b"".join(pack_request(i, "transpose", params) for i, params in enumerate(shapes[0])), [src.fd])
            gone.close()
            for each, requests in zip((other, rpc), shapes[1:]):
                each.send(b"".join(pack_request(i, "transpose", params) for i, params in enumerate(requests)))
            other.socket.shutdown(socket.SHUT_WR)
            for each in (other, rpc):
                self.answers(each, dst)
            if not other.ended():
                raise AssertionError("more than was asked for")

    def answers(self, rpc, dst):
        """Checks that each of 16 requests is answered, in any order."""
        left = set(range(16))
        while left:
            message = rpc.receive()
            if message is None:
                raise ConnectionResetError
            kind, i, error, _ = message
            assert kind == 1 and i in left, message
            left.remove(i)
            if error is not None:
                self.failed("transpose", RpcError(error))
                continue
            self.done += 1
            assert dst[i * SIZE:i * SIZE + PICTURE.nbytes] == PICTURE.T.tobytes(), "wrong bytes"

    def large(self, rpc):
        with Memory(LARGE.nbytes, data=LARGE.tobytes()) as src, Memory(LARGE.nbytes) as dst:
            a, b = self.region(rpc, src), self.region(rpc, dst)
            if not a or not b:
                return
            tensors = tensor(b, LARGE.T.shape, "uint32"), tensor(a, LARGE.shape, "uint32")
            self.move(rpc, dst, LARGE.T.tobytes(), *tensors, "transpose", perm=[1, 0])
            request = rpc.request("transpose", {"dst": tensors[0], "src": tensors[1], "perm": [1, 0]})
            self.released(rpc, request, a)

    def released(self, rpc, request, region):
        """Releases a region while it is in use: both requests are answered, in any order."""
        release = rpc.request("region_release", {"region": region})
        for _ in range(2):
            message = rpc.receive()
            if message is None:
                raise ConnectionResetError
            assert message[1] in (request, release), message
            if message[2] is not None:
                self.failed("transpose" if message[1] == request else "region_release", RpcError(message[2]))

    def rude(self, rpc):
        """Sends half a message, and more descriptors than a message may have: the connection ends."""
        with Memory(64) as memory:
            rpc.send(pack_request(1, "ping")[:3], [memory.fd])
            with Rpc(self.path, TIMEOUT_S) as other:
                try:
                    other.request("ping", fds=[memory.fd] * 100)
                    message = other.receive()  # one that is refused as a connection reads why
                    assert message is None or message[2][2].get("ends"), "it took 100 descriptors"
                except OSError as error:
                    if error.errno != errno.EPIPE:
                        raise


def served(tmad, failures):
    """Another client is served, whatever became of the others. A connection that meets a failure is opened again."""
    script = Script(tmad.path)
    for _ in range(failures + 1):
        troubles = len(script.troubles)
        script.guard(script.moves)
        if len(script.troubles) == troubles:
            return
    raise AssertionError(f"not served: {script.troubles}")


def levels(tmad):
    """Returns the counts of connections, regions, mapped bytes and jobs; None if asking meets a failure."""
    try:
        with Rpc(tmad.path, TIMEOUT_S) as rpc:
            stats = rpc.call("stats")
            return stats["connections"], stats["regions"], stats["mapped_bytes"], stats["jobs"]
    except (ConnectionError, RpcError):
        return None


def settled(tmad, idle_fds):
    """Waits until nothing is left of clients that are gone."""
    wait_until(lambda: levels(tmad) == (1, 0, 0, 0), "what clients had is gone")
    wait_until(lambda: tmad.fds() <= idle_fds, "the descriptors are back")
