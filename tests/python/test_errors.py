# SPDX-License-Identifier: Apache-2.0
"""Tests failures and their messages: classes and statuses, arguments, limits, closed clients and child processes."""
import os
import socket
import threading

import msgpack
import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmaclient import _errors
from tmad import Tmad


# ---- Classes -------------------------------------------------------------------------------------------
def test_every_status_has_a_class():
    for status in tma.Status:
        kind = _errors.class_of(status)
        error = _errors.make(int(status), "why")
        assert type(error) is kind and error.status == status and str(error) == "why" and issubclass(kind, tma.Error)
        assert kind.__name__ in tma.__all__ and getattr(tma, kind.__name__) is kind
    assert len({_errors.class_of(s) for s in tma.Status}) == len(tma.Status)
    assert _errors.class_of(-999) is tma.Error


@pytest.mark.parametrize("kind,builtin", [
    (tma.InvalidArgumentError, ValueError), (tma.OutOfRangeError, IndexError), (tma.OverlapError, ValueError),
    (tma.NotFoundError, LookupError), (tma.PermissionDeniedError, PermissionError), (tma.WaitTimeoutError, TimeoutError),
    (tma.DisconnectedError, ConnectionError), (tma.NoMemoryError, MemoryError), (tma.NoReplyError, TimeoutError),
])
def test_builtin_bases(kind, builtin):
    assert issubclass(kind, builtin)


# ---- Arguments -----------------------------------------------------------------------------------------
X = np.arange(24, dtype="f4").reshape(2, 3, 4)

WRONG = [
    (lambda c: c.transpose(X, (0, 1)), ValueError, "axes: 2 axes"),
    (lambda c: c.transpose(X, (0, 1, 1)), ValueError, "axes: 1 appears twice"),
    (lambda c: c.transpose(X, (0, 1, 3)), IndexError, "axes: 3 is no axis"),
    (lambda c: c.transpose(X, (0, 1, -4)), IndexError, "axes: -4"),
    (lambda c: c.transpose(X, (0, 1, 2.5)), TypeError, "axes"),
    (lambda c: c.transpose(X, 5), TypeError, "axes"),
    (lambda c: c.transpose(X, "abc"), TypeError, "axes"),
    (lambda c: c.transform(X, permute=(1, 0)), ValueError, "permute"),
    (lambda c: c.pad(X, ((1, 1), (1, 1))), ValueError, "pad: 2 pairs"),
    (lambda c: c.pad(X, ((1, 2, 3),)), ValueError, "pad: .* no pair"),
    (lambda c: c.pad(X, "ab"), (TypeError, ValueError), "pad"),
    (lambda c: c.pad(X, 1.5), TypeError, "pad"),
    (lambda c: c.pad(X, {5: 1}), IndexError, "pad: 5"),
    (lambda c: c.pad(X, -2), ValueError, "pad: .* crops all of axis 0"),
    (lambda c: c.pad(X, 1 << 70), (ValueError, OverflowError), "pad"),
    (lambda c: c.pad(X, 1, mode="mean"), ValueError, "mode: 'mean'"),
    (lambda c: c.pad(X, 1, mode=3), TypeError, "mode"),
    (lambda c: c.pad(X, 1, constant_values=((1, 2),)), ValueError, "constant_values"),
    (lambda c: c.pad(X, 1, constant_values="x"), TypeError, "constant_values"),
    (lambda c: c.transform(X, pad=1, value="x"), TypeError, "value"),
    (lambda c: c.transform(X, pad=1, value=None), TypeError, "value"),
    (lambda c: c.pad(X.astype("u1"), 1, constant_values=256), tma.InvalidArgumentError, "uint8"),
    (lambda c: c.pad(X.astype("u1"), 1, constant_values=-1), tma.InvalidArgumentError, "uint8"),
    (lambda c: c.pad(X, 1, constant_values=1j), tma.InvalidArgumentError, "float32"),
    (lambda c: c.pad(X, 1, constant_values=np.complex64(1j)), tma.InvalidArgumentError, "float32"),
    (lambda c: c.pad(X, 1, constant_values=1 << 80), OverflowError, "value"),
    (lambda c: c.pad(X, 1, constant_values=-(1 << 80)), OverflowError, "value"),
    (lambda c: c.copy(X, out=np.empty((2, 3), "f4")), ValueError, "out: .* the result is"),
    (lambda c: c.copy(X, out=np.empty((2, 3, 4), "f8")), ValueError, "out: float64"),
    (lambda c: c.copy(X, out=np.broadcast_to(np.float32(0), (2, 3, 4))), ValueError, "out: the array is read-only"),
    (lambda c: c.copy(X, out=5), TypeError, "out: "),
    (lambda c: c.gather(X, [0], axis=3), IndexError, "axis: 3"),
    (lambda c: c.gather(X, [0, 1.5]), TypeError, "index: 1.5 is no integer"),
    (lambda c: c.gather(X, [1 << 70, "a"]), TypeError, "index: 'a' is no integer"),
    (lambda c: c.gather(X, [3, -1 << 70]), tma.OutOfRangeError, f"index: {-1 << 70} is beyond any of "),
    (lambda c: c.gather(X, [2]), tma.OutOfRangeError, "index: entry 0 is 2, of 2"),
    (lambda c: c.gather(X, [0, -3]), tma.OutOfRangeError, "index: entry 1 is -3"),
    (lambda c: c.gather(X, np.array([2**64 - 1], "u8")), tma.OutOfRangeError, "index"),
    (lambda c: c.gather(X, [0.5]), TypeError, "index"),
    (lambda c: c.gather(X, np.zeros(1)), TypeError, "index: elements of float64"),
    (lambda c: c.gather(X, np.zeros(1, bool)), TypeError, "index: elements of bool"),
    (lambda c: c.gather(X, np.zeros((1, 1), "i4")), ValueError, "index: 2 dimensions"),
    (lambda c: c.gather(X, 0), TypeError, "index"),
    (lambda c: c.gather(X, [1 << 70]), tma.OutOfRangeError, "index"),
    (lambda c: c.scatter(X.copy(), [0], X), ValueError, "src: float32"),
    (lambda c: c.scatter(X.copy(), [0], X[:1, :1]), ValueError, "src: "),
    (lambda c: c.scatter(X.copy(), [0], X[0]), ValueError, "src: 2 dimensions"),
    (lambda c: c.scatter(np.broadcast_to(X, X.shape), [0], X[:1]), ValueError, "dst: the array is read-only"),
    (lambda c: c.scatter(5, [0], X), TypeError, "dst: "),
    (lambda c: c.copy(X, wait=3), TypeError, "wait: 3 is no point"),
    (lambda c: c.copy(X, signal="x"), TypeError, "signal"),
    (lambda c: c.copy(X, wait_timeout=-1), ValueError, "wait_timeout"),
    (lambda c: c.copy(X, wait_timeout="x"), ValueError, "wait_timeout"),
    (lambda c: c.copy(X, priority="high"), ValueError, "priority"),
    (lambda c: c.copy(X, priority=3), ValueError, "priority"),
    (lambda c: c.copy(X, multiprocessors=-1), ValueError, "multiprocessors"),
    (lambda c: c.copy(X, host_threads=1 << 40), ValueError, "host_threads"),
    (lambda c: c.copy(X, nonsense=1), TypeError, "nonsense"),
    (lambda c: c.empty((2, -1)), ValueError, "shape"),
    (lambda c: c.empty((2.5,)), TypeError, "float"),
    (lambda c: c.empty("ab"), TypeError, "str"),
    (lambda c: c.empty(2, "U3"), TypeError, "dtype"),
    (lambda c: c.empty(2, object()), TypeError, "dtype"),
    (lambda c: c.empty(1 << 62, "f8"), (OverflowError, ValueError), "."),
    (lambda c: c.empty((1 << 40, 1 << 40), "f8"), (OverflowError, ValueError), "."),
    (lambda c: c.empty(1 << 50, "u1"), (tma.Error, MemoryError), "."),
    (lambda c: c.register(np.zeros(3)), tma.UnsupportedError, "private|anonymous|malloc"),
    (lambda c: c.explain(X, engine="gpu"), tma.Error, "engine"),
    (lambda c: c.explain(X, engine=5), TypeError, "."),
]


@pytest.mark.parametrize("i", range(len(WRONG)))
def test_wrong_arguments(shared_client, i):
    call, kind, said = WRONG[i]
    with pytest.raises(kind, match=f"(?i){said}"):
        call(shared_client)
    assert np.array_equal(shared_client.transpose(X), X.T), "the client works on"


@pytest.mark.parametrize("value,dtype", [(np.float32(1.5), "f4"), (np.int16(-3), "i2"), (np.bool_(True), "?"), (True, "?"),
                                         (np.complex64(1 + 2j), "c8"), (1 + 2j, "c16"), (np.array(3), "i8"),
                                         (np.array(2.5), "f8"), (2**64 - 1, "u8"), (float("inf"), "f2"), (-(2**63), "i8"),
                                         (np.float16(0.5), "f4"), ((7, 7), "u1"), (np.uint64(2**63), "u8")])
def test_values_of_all_kinds(shared_client, value, dtype):
    x = np.zeros(2, dtype)
    wanted = np.pad(x, 1, constant_values=value)
    shared = shared_client.empty(2, dtype)
    for source in (x, shared):
        assert shared_client.pad(source, 1, constant_values=value).tobytes() == wanted.tobytes()


def test_core_arguments():
    core = tma._core
    for call in (lambda: core.Client(5), lambda: core.Client(timeout_ms=1 << 40), lambda: core.Client(server_uid=-1),
                 lambda: core.Client(server_uid=1 << 33), lambda: core.Tensor(), lambda: core.Tensor(b"", "nothing"),
                 lambda: core.Tensor(b"abc", "int16"), lambda: core.layout("int8", (-1,), (1,)),
                 lambda: core.layout("int8", (1, 2), (1,)), lambda: core.layout("int8", (1 << 62, 4), (4, 1)),
                 lambda: core.layout("int8", (1,) * 40, (1,) * 40), lambda: core.Region(), lambda: core.Request(),
                 lambda: core.encode_number("int8", "x"), lambda: core.encode_number("none", 1),
                 lambda: core.Request.items([5]), lambda: core.Request.transform(1, 2, None, None, None, "", 0)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call()
    t = core.Tensor(bytearray(16))
    for arguments in ((0, (17,), (1,)), (1, (16,), (1,)), (0, (-1,), (1,)), (-1, (1,), (1,)), (0, (2,), (1 << 62,)),
                      (0, (3,), (1 << 62,)), (1 << 62, (1,), (1,)), (0, (2,), (1, 1)), (0, (1 << 63,), (1,)),
                      (15, (2,), (-16,))):
        with pytest.raises((ValueError, OverflowError)):
            t.part(*arguments)
    assert t.part(1 << 62, (0, 3), (1, 1)).size == 0
    for arguments in (("int64", (3,)), ("int64", (-2, -1)), ("int8", (1 << 62, 1 << 62)), ("what", (16,))):
        with pytest.raises((ValueError, TypeError)):
            t.viewed(*arguments)


# ---- The service's own refusals ------------------------------------------------------------------------
def test_overlap(c):
    x = c.empty(100, "u1")
    with pytest.raises(tma.OverlapError) as e:
        c.copy(x[:50], out=x[25:75])
    assert e.value.status == tma.Status.OVERLAP
    ordinary = np.arange(100, dtype="u1")
    wanted = ordinary[:50].copy()
    c.copy(ordinary[:50], out=ordinary[25:75])
    assert np.array_equal(ordinary[25:75], wanted), "what is staged is read before it is written"
    with pytest.raises(tma.OverlapError):
        c.copy(x[:2], out=np.lib.stride_tricks.as_strided(x, (2,), (0,)))


def test_an_abstract_socket(monkeypatch):
    path = f"@tmad-python-{os.getpid()}"
    tmad = Tmad(engine="cpu", start=False)
    tmad.path = path
    tmad.command[tmad.command.index("--socket") + 1] = path
    tmad.start()
    with tmad:
        with tma.connect(path) as c:
            c.ping()
            assert c._core.path == path
        monkeypatch.setenv("TMAD_SOCKET", path)
        with tma.connect() as c:
            assert c._core.path == path
    with pytest.raises(tma.DisconnectedError, match=f"no tmad at {path}"):
        tma.connect(path)


def test_quota():
    with Tmad("--mapped-bytes-per-uid=1M", engine="cpu") as tmad, tma.connect(tmad.path, staging=1 << 18) as c:
        held = c.empty(1 << 19, "u1")
        with pytest.raises(tma.QuotaError, match="mapped_bytes_per_uid") as e:
            c.empty(1 << 20, "u1")
        assert e.value.status == tma.Status.QUOTA and len(c.regions()) == 1
        x = np.arange(1 << 20, dtype="u4")
        assert np.array_equal(c.copy(x), x), "staging memory fits into what is left"
        assert held.sum() == 0


def test_closed(tmad):
    c = tma.connect(tmad.path)
    x, t, plan = c.empty(4, "u1"), c.timeline(), c.plan(np.zeros(4, "u1"))
    region = c._core.create(64)
    c.close()
    c.close()
    assert c.closed and repr(c) == "<tmaclient.Client, closed>"
    for call in (lambda: c.copy(x), lambda: c.copy(b"ab"), c.ping, c.info, c.stats, c.regions, lambda: c.empty(2), lambda: c.path,
                 c.last_result, c.synchronize, lambda: plan(x, x), lambda: plan(x), c.timeline, lambda: c.explain(x),
                 lambda: c.register(x), lambda: c.gather(x, [0])):
        with pytest.raises(ValueError, match="closed"):
            call()
    plan.release()
    t.signal(3)
    assert t.value == 3 and t.wait(3) and region.kind == "memfd" and memoryview(region).nbytes == 64
    x[:] = 7
    assert bytes(x) == b"\7\7\7\7"
    with tma.connect(tmad.path) as other:
        with pytest.raises(ValueError, match="another client"):
            other.copy(other.empty(4, "u1"), wait=t.point(1))
        with pytest.raises(ValueError, match="another client|released"):
            other._core.run(tma._core.Request.run_plan(plan, tma.Tensor(x), tma.Tensor(x)))


def test_a_child_has_to_connect_by_itself(c):
    x, region = c.empty(4, "u1"), c.timeline()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for call in (lambda: c.copy(x), c.ping, lambda: c.empty(2)):
                try:
                    call()
                except RuntimeError as e:
                    assert "another process" in str(e)
            x[:] = 9  # the array is writable because it is shared
            c.close()
            del x, region, c
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert bytes(x) == b"\x09\x09\x09\x09" and np.array_equal(c.copy(x), x) and region.value == 0
    assert len(c.regions()) >= 2


# ---- Connecting ----------------------------------------------------------------------------------------
def test_nothing_there(tmp_path):
    for path in (tmp_path / "none", os.fspath(tmp_path / "none"), os.fsencode(tmp_path / "none")):
        with pytest.raises(tma.DisconnectedError, match="none") as e:
            tma.connect(path, reconnect=0)
        assert e.value.status == tma.Status.DISCONNECTED
    with pytest.raises(tma.InvalidArgumentError, match="too long"):
        tma.connect("/" + "x" * 200)
    with pytest.raises(ValueError):
        tma.connect("a\0b")
    with pytest.raises(tma.Error):
        tma.connect(tmp_path / "n\udcffne", reconnect=0)
    for options in ({"timeout": -1}, {"timeout": float("nan")}, {"timeout": "x"}, {"reconnect": float("nan")}):
        with pytest.raises((ValueError, TypeError)):
            tma.connect(tmp_path / "none", **options)


@pytest.fixture
def fake(tmp_path):
    """A server that answers every request with one result."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(os.fspath(tmp_path / "s"))
    server.listen()
    answer = {}

    def serve():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
            with peer:
                while data := peer.recv(65536):
                    unpacker.feed(data)
                    for message in unpacker:
                        peer.sendall(answer.get("bytes") or msgpack.packb([1, message[1], None, answer["result"]]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield os.fspath(tmp_path / "s"), answer
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("version", ["7.0.0", "1.0", "?"])
def test_other_versions(fake, version):
    path, answer = fake
    answer["result"] = {"version": version, "engine": "cpu"}
    with pytest.raises(tma.VersionError, match=f"is version {version.replace('?', '.')}") as e:
        tma.connect(path)
    assert e.value.status == tma.Status.UNSUPPORTED and path in str(e.value)


def test_protocol_errors(fake):
    path, answer = fake
    answer["bytes"] = b"\xc1\xc1"
    with pytest.raises(tma.ProtocolError):
        tma.connect(path, timeout=5)
