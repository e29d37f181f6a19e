# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of other libraries: who owns the memory, the kind of the result, and what is refused."""
import array
import ctypes
import multiprocessing
from multiprocessing import shared_memory

import pytest

np = pytest.importorskip("numpy")

import arrays
import tmaclient as tma
from tmad import SANITIZED


def address(array_):
    return array_.__array_interface__["data"][0]


# ---- What they are ------------------------------------------------------------------------------------
def test_reprs(c):
    """The reprs show types, shapes and sizes, also of objects without memory."""
    x = np.zeros((3, 4), "f4")
    plain = c.plan(x)
    full = c.plan(x.T, permute=(1, 0), pad={0: 1}, value=2, dtype="float16", scale=x[:, :1], bias=0.5)
    edge = c.plan(x, pad={1: (1, 0)}, mode="edge", out=np.zeros((3, 10), "f4")[:, ::2])
    assert repr(plain) == "<tmaclient.PreparedPlan: float32 (3, 4) -> float32 (3, 4)>"
    assert repr(full) == ("<tmaclient.PreparedPlan: float32 (4, 3) with strides (1, 4) -> float16 (5, 4), permute (1, 0), "
                          "pad ((1, 1), (0, 0)), value 2, cast saturate, scale float32 (3, 1), bias 0.5>")
    assert repr(edge) == ("<tmaclient.PreparedPlan: float32 (3, 4) -> float32 (3, 5) with strides (10, 2), "
                          "pad ((0, 0), (1, 0)), mode edge>")
    assert repr(plain.src) == "<tmaclient.Tensor float32 (3, 4), without memory>" and not plain.released
    plain.release()
    assert plain.released and repr(plain).endswith("float32 (3, 4), released>")
    b = c.batch()
    assert repr(b) == "<tmaclient.Batch of 0 moves>"
    b.copy(x)
    assert repr(b) == "<tmaclient.Batch of 1 move: float32 (3, 4) -> float32 (3, 4)>"
    for _ in range(4):
        b.transpose(x, dtype="f2")
    one = "float32 (3, 4) -> float16 (4, 3), permute (1, 0), cast saturate"
    assert repr(b) == f"<tmaclient.Batch of 5 moves: float32 (3, 4) -> float32 (3, 4); {one}; {one}; ...>"
    b.run()
    assert repr(b) == "<tmaclient.Batch of 0 moves>"
    shm = shared_memory.SharedMemory(create=True, size=4096)
    region = c.register(shm.buf, readonly=True)
    assert repr(region) == f"<tmaclient.Region: 4096 bytes of memfd at {region.address:#x}, read-only>"
    region.release()
    assert repr(region) == "<tmaclient.Region: 4096 bytes, released>"
    assert repr(c._core.create(8192)).startswith("<tmaclient.Region: 8192 bytes of memfd at 0x")
    assert "nil" not in "".join(map(repr, (plain, full, edge, b, region)))
    shm.close()
    shm.unlink()


# ---- DLPack with NumPy ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name", arrays.NAMES)
def test_dlpack_leads_to_the_same_memory(c, name):
    x = c.empty((3, 4), name)
    t = tma.Tensor(x)
    if name == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        pytest.skip("this NumPy takes no bool by DLPack")
    y = np.from_dlpack(t)
    assert address(y) == address(x) == t.data and y.shape == x.shape and y.strides == x.strides and y.dtype == x.dtype
    assert t.dtype == name and t.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("version,kind", [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                                          ((1, 1), "dltensor_versioned"), ((2, 0), "dltensor_versioned")])
def test_capsules_by_version(version, kind):
    capsule = tma.Tensor(bytearray(8)).__dlpack__(max_version=version)
    assert f'"{kind}"' in repr(capsule)


class Lent:
    """An object whose __dlpack__ returns a given capsule."""

    def __init__(self, capsule):
        self.capsule, self.asked = capsule, []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **kwargs):
        self.asked.append(kwargs)
        return self.capsule


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_capsules_are_taken_once(version):
    data = bytearray(b"abcdefgh")
    lent = Lent(tma.Tensor(data).__dlpack__(max_version=version))
    t = tma.Tensor(lent)
    assert bytes(t) == b"abcdefgh" and lent.asked == [{"stream": None, "max_version": (1, 1)}]
    with pytest.raises(BufferError, match="no capsule"):
        tma.Tensor(lent)
    with pytest.raises(BufferError):
        data.append(1)  # the memory is still lent
    del t, lent
    data.append(1)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Producer:
    """A producer of four floats, whose deleter and whose capsule's destructor are Python code."""

    def __init__(self, is_versioned, major=1, **change):
        self.deleted, self.destroyed = [], []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self._keep = (ctypes.c_float * 4)(1, 2, 3, 4), function(self._delete), function(self._destroy)
        tensor = DLTensor(ctypes.addressof(self._keep[0]), 1, 0, 1, 2, 32, 1, (ctypes.c_int64 * 1)(4), None, 0)
        for name, value in change.items():
            setattr(tensor, name, value)
        deleter = ctypes.cast(self._keep[1], ctypes.c_void_p).value
        self._managed = Versioned(major, 0, None, deleter, 0, tensor) if is_versioned else Managed(tensor, None, deleter)
        self._name = b"dltensor_versioned" if is_versioned else b"dltensor"

    def _delete(self, address):
        self.deleted.append(next(iter([address])))

    def _destroy(self, address):
        self.destroyed.append(next(iter([address])))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **kwargs):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), self._name, ctypes.cast(self._keep[2], ctypes.c_void_p).value)


@pytest.mark.parametrize("is_versioned", [False, True])
@pytest.mark.parametrize("change,error,words", [
    ({}, None, None),
    ({"lanes": 2}, TypeError, "2 lanes"),
    ({"code": 14, "bits": 8}, TypeError, r"float8_e8m0fnu \(DLPack's type code 14\).*as uint8"),
    ({"code": 0, "bits": 4}, TypeError, "int of 4 bits in 1 lanes"),
    ({"code": 77}, TypeError, "type code 77"), ({"device": 7}, TypeError, "device type 7"),
    ({"ndim": 33}, ValueError, "33 dimensions"), ({"shape": (ctypes.c_int64 * 1)(-1)}, ValueError, "-1"),
    ({"major": 2}, BufferError, "DLPack 2"),
])
def test_deleters_see_no_exception(c, is_versioned, change, error, words):
    """Deleters, and destructors of refused capsules, run once and without a pending exception; then the refusal is
    raised."""
    if "major" in change and not is_versioned:
        pytest.skip("it has no version")
    lent = Producer(is_versioned, **change)
    if error is None:
        assert c.copy(lent, out=np.empty(4, "f4")).tolist() == [1, 2, 3, 4]
    else:
        with pytest.raises(error, match=words):
            c.copy(lent, out=np.empty(4, "f4"))
    assert len(lent.deleted) == (0 if "major" in change else 1) and len(lent.destroyed) == 1


def test_producers_without_versions():
    class Old(Lent):
        def __dlpack__(self, stream=None):
            return self.capsule

    assert bytes(tma.Tensor(Old(tma.Tensor(b"abc".__class__(b"abc")).__dlpack__(max_version=(1, 0))))) == b"abc"


def test_read_only(c):
    t = tma.Tensor(b"abcd")
    assert t.readonly
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    back = tma.Tensor(Lent(t.__dlpack__(max_version=(1, 1))))
    assert back.readonly
    with pytest.raises(ValueError, match="out: the array is read-only"):
        c.copy(bytearray(4), out=back)


@pytest.mark.parametrize("kwargs,error", [
    ({"stream": 1}, BufferError), ({"copy": True}, BufferError), ({"dl_device": (2, 0)}, BufferError),
    ({"dl_device": 1}, TypeError), ({"dl_device": (1,)}, TypeError), ({"max_version": 1}, TypeError),
    ({"max_version": ("a", 0)}, TypeError), ({"max_version": (1 << 40, 0)}, OverflowError), ({"other": 1}, TypeError),
])
def test_dlpack_arguments(kwargs, error):
    with pytest.raises(error, match="stream|copy|dl_device|max_version|integer|other"):
        tma.Tensor(bytearray(4)).__dlpack__(**kwargs)


def test_what_dlpack_returns_is_checked():
    for returned in (None, 5, "dltensor"):
        with pytest.raises(BufferError, match="no capsule"):
            tma.Tensor(Lent(returned))


# ---- Kinds of results ----------------------------------------------------------------------------------
def test_buffers_give_memoryviews(c):
    for obj in (b"\1\2\3\4", bytearray(b"\1\2\3\4"), memoryview(b"\1\2\3\4"), array.array("B", [1, 2, 3, 4])):
        result = c.pad(obj, 1)
        assert isinstance(result, memoryview) and result.tobytes() == b"\0\1\2\3\4\0"
    result = c.transpose(memoryview(array.array("d", range(6))).cast("B").cast("d", (2, 3)))
    assert result.format == "d" and result.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert c.copy(memoryview(b"")).tobytes() == b""
    out = bytearray(6)
    assert c.pad(b"\1\2\3\4", 1, out=out) is out and bytes(out) == b"\0\1\2\3\4\0"


def test_numpy_gives_numpy(c):
    ordinary, shared = np.arange(6.0).reshape(2, 3), c.empty((2, 3), "float64")
    shared[...] = ordinary
    for x in (ordinary, shared, np.float64(3), np.array(3.0)):
        result = c.transpose(x)
        assert isinstance(result, np.ndarray) and np.array_equal(result, np.transpose(x))
    assert c._core.is_shared(tma.Tensor(c.transpose(shared))) and not c._core.is_shared(tma.Tensor(c.transpose(ordinary)))

    class Mine(np.ndarray):
        pass

    assert np.array_equal(c.transpose(ordinary.view(Mine)), ordinary.T)


PACKED = np.zeros((3, 4), [("a", "u1"), ("b", "f4")])
RECORDS = np.zeros((3, 4), [("a", "u1"), ("b", "f4"), ("c", "u1", 3)])

REFUSED = [
    (np.ones(3, ">f4"), r"elements of >f4: their byte order.*pass array.astype\('float32'\).*array.view\('float32'\)"),
    (np.ones(3, ">i8"), r"elements of >i8: their byte order.*array.astype\('int64'\)"),
    (np.ones(3, ">c16"), r"elements of >c16: .*array.astype\('complex128'\)"),
    (np.zeros(3, "M8[ns]"), r"elements of datetime64\[ns\]: .*array.view\('int64'\), and view the result as datetime64\[ns\]"),
    (np.zeros(3, ">m8[s]"), r"timedelta64\[s\]|>m8\[s\].*array.view\('int64'\)"),
    (np.array(["a", "bcd"]), r"strings \(<U3\): .*array\[..., None\].view\('uint8'\), 12 of each element"),
    (np.array([b"ab"]), r"strings \(\|S2\)"), (np.array([None, 1]), r"Python objects.*array.astype"),
    (np.ones(3, "longdouble"), r"\(\d+ bytes\): .*array.astype\('float64'\)"),
    (np.ones(3, "clongdouble"), r"array.astype\('complex128'\)"), (np.zeros(3, "V5"), r"bytes without a type \(\|V5\)"),
    (RECORDS, r"records .*one field at a time, such as array\['a'\]"),
    (PACKED["b"], r"stride 1 is 5 bytes, no multiple of the 4 of an element.*numpy.ascontiguousarray"),
    (memoryview(np.ones(3, ">f4")), r"type '>f' \(4 bytes\): their byte order.*numpy.frombuffer"),
    (memoryview(RECORDS), "they are records"), ((ctypes.c_wchar * 3)(), "they are characters"),
    ((ctypes.c_float.__ctype_be__ * 2)(), "their byte order"), ((ctypes.c_longdouble * 2)(), "tmad has no such type"),
]
if arrays.ml_dtypes is not None:
    REFUSED += [(np.zeros(3, dtype), rf"elements of {dtype}: tmad has no such type; pass their bytes, array.view\('uint8'\)")
                for dtype in ("int4", "float8_e4m3fnuz") if hasattr(arrays.ml_dtypes, dtype)]


@pytest.mark.parametrize("i", range(len(REFUSED)))
def test_refusals_name_the_remedy(c, i):
    x, words = REFUSED[i]
    calls = [("src", lambda: c.copy(x)), ("out", lambda: c.copy(np.zeros(3, "f4"), out=x)), ("array", lambda: c.register(x)),
             ("src", lambda: c.gather(x, [0])), (r"src\[0\]", lambda: c.gather([x], [0])), ("src", lambda: c.plan(x)),
             (r"sources\[0\]\[0\]", lambda: c.reshard([], [(x, (0,))]))]
    for name, call in calls:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: .*(?:{words})"):
            call()


def test_remedies(c):
    """The remedies that errors suggest work."""
    big, dates, strings = np.arange(12, dtype=">f4").reshape(3, 4), np.arange(12).reshape(3, 4).astype("M8[s]"), np.array(["ab"])
    assert np.array_equal(c.transpose(big.astype("float32")), big.T)
    assert np.array_equal(c.transpose(big.view("float32")).view(">f4"), big.T)
    assert np.array_equal(c.transpose(dates.view("int64")).view(dates.dtype), dates.T)
    assert c.copy(strings[..., None].view("uint8")).view(strings.dtype).tolist() == [["ab"]]
    PACKED["b"] = RECORDS["b"] = np.arange(12).reshape(3, 4)
    assert np.array_equal(c.transpose(np.ascontiguousarray(PACKED["b"])), PACKED["b"].T)
    assert np.array_equal(c.transpose(RECORDS["b"]), RECORDS["b"].T), "a field of records that are not packed"
    c.copy(np.ones((3, 4), "f4"), out=RECORDS["b"])
    assert (RECORDS["b"] == 1).all() and not RECORDS["a"].any()


def test_ctypes(c):
    raw = multiprocessing.RawArray("f", range(6))
    rows = (ctypes.c_int16 * 3 * 2)((1, 2, 3), (4, 5, 6))
    assert type(c.copy(raw)) is memoryview and c.copy(raw).tolist() == [0, 1, 2, 3, 4, 5] and c.copy(raw).format == "f"
    assert c.transpose(rows).tolist() == [[1, 4], [2, 5], [3, 6]] and c.gather(rows, [1]).tolist() == [[4, 5, 6]]
    assert c.copy(rows, dtype="float64").tolist() == [[1, 2, 3], [4, 5, 6]]
    c.transpose(np.arange(6, dtype="i2").reshape(3, 2), out=rows)
    assert [list(row) for row in rows] == [[0, 2, 4], [1, 3, 5]]


class Unit(np.ndarray):
    """A subclass whose arrays have a unit."""

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", None)


class Named(np.ndarray):
    """A subclass that adds nothing but another name."""


SUBCLASSES = [(np.ma.masked_array, r"src: numpy.ma.*MaskedArray: a move would lose the mask; pass array.filled\(value\)"),
              (lambda x: np.ma.masked_array(x, mask=x > 3), "the mask"),
              (np.asmatrix, r"src: numpy.*matrix: .* subclass of ndarray adds; pass numpy.asarray\(array\)"),
              (lambda x: x.view(np.recarray), "recarray"), (lambda x: x.view(Unit), "Unit")]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("i", range(len(SUBCLASSES)))
@pytest.mark.parametrize("memory", ["shared", "private"])
def test_subclasses_that_mean_more_are_refused(c, i, memory):
    make, words = SUBCLASSES[i]
    x = np.arange(12, dtype="f4").reshape(3, 4)
    x = arrays.shared(c, x) if memory == "shared" else x
    y, out = make(x), np.empty_like(np.asarray(x))
    plan = c.plan(x, out=x)
    calls = [lambda: c.copy(y), lambda: c.transpose(y), lambda: c.pad(y, 1), lambda: c.gather(y, [0]),
             lambda: c.gather([y, y], [0]), lambda: c.multicast(y, [out]), lambda: c.quantize(y, 1),
             lambda: plan(y, x), lambda: plan(y), lambda: c.batch().copy(y), lambda: c.explain(y), lambda: c.plan(y)]
    for call in calls:
        with pytest.raises(TypeError, match=words.replace("src: ", "")):
            call()
    with pytest.raises(TypeError, match=words):
        c.copy(y)
    for name, call in (("out", lambda: c.copy(x, out=y)), ("out", lambda: plan(x, y)), ("dst", lambda: c.scatter(y, [0], x[:1])),
                       ("scale", lambda: c.copy(x, scale=y)), ("index", lambda: c.gather(x, make(np.zeros(3, "i4")))),
                       (r"sources\[0\]\[0\]", lambda: c.reshard([(out, (0, 0))], [(y, (0, 0))])),
                       (r"outs\[1\]", lambda: c.multicast(x, [out, y])), ("array", lambda: c.register(y))):
        with pytest.raises(TypeError, match=f"^{name}: .*{words.replace('src: ', '').split(':')[0]}"):
            call()
    assert np.array_equal(np.asarray(x), np.arange(12).reshape(3, 4))


def test_subclasses_that_mean_no_more(c, tmp_path):
    x = np.arange(12, dtype="f4").reshape(3, 4)
    mapped = np.memmap(tmp_path / "x", "f4", "w+", shape=(3, 4))
    mapped[...] = x
    for y in (x.view(Named), mapped, mapped[1:], mapped.T):
        result = c.transpose(y)
        assert type(result) is np.ndarray and np.array_equal(result, np.asarray(y).T)
    c.copy(x, out=mapped)
    assert c.copy(x[0, 1]) == 1, "a scalar"


def test_tensors_give_tensors(c):
    t = c._make_tensor((2, 3), "bfloat16")
    result = c.transpose(t)
    assert isinstance(result, tma.Tensor) and result.dtype == "bfloat16" and result.shape == (3, 2)
    assert isinstance(c.transpose(tma.Tensor(bytearray(4))), tma.Tensor)


@pytest.mark.parametrize("name", arrays.EXTENDED)
def test_extended_types_without_a_library(c, name):
    size = tma._core.DTYPES[name]
    data = bytearray(range(6 * size))
    t = tma.Tensor(data).viewed(name, (2, 3))
    out = c.transpose(t)
    wanted = np.frombuffer(data, f"V{size}").reshape(2, 3).T.tobytes()
    assert out.dtype == name and memoryview(out).tobytes() == wanted
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.frombuffer(data, getattr(ml_dtypes, name)).reshape(2, 3)
    y = c.transpose(x)
    assert y.dtype == x.dtype and y.tobytes() == wanted
    assert c.empty(3, x.dtype).dtype == x.dtype and c.empty((), name).shape == ()


# ---- torch ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", arrays.NAMES + arrays.EXTENDED)
def test_torch(c, name):
    torch = pytest.importorskip("torch")
    names = {"float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}
    plain = torch.arange(24, dtype=torch.uint8).reshape(4, 6).to(names.get(name, torch.float32))
    x = plain.view(getattr(torch, name)) if name in names else plain.to(getattr(torch, name))
    y = c.transpose(x)
    assert isinstance(y, torch.Tensor) and y.dtype == x.dtype and y.shape == (6, 4) and y.is_contiguous()
    assert torch.equal(y.view(torch.uint8), x.T.contiguous().view(torch.uint8))
    out = torch.empty_like(y)
    assert c.transpose(x, out=out) is out and torch.equal(out.view(torch.uint8), y.view(torch.uint8))


def test_torch_shares_memory(c):
    torch = pytest.importorskip("torch")
    x = c.empty((4, 6), "float32")
    t = torch.from_dlpack(tma.Tensor(x))
    assert t.data_ptr() == address(x)
    t.copy_(torch.arange(24.0).reshape(4, 6))
    out = torch.from_dlpack(tma.Tensor(c.empty((6, 4), "float32")))
    c.transpose(t, out=out)
    assert torch.equal(out, t.T) and c._core.is_shared(tma.Tensor(out))
    assert not c._staging._kept, "moved in place"


def test_torch_refused(c):
    torch = pytest.importorskip("torch")
    for x, said in ((torch.ones(2, requires_grad=True), "grad"), (torch.ones(2, 2).to_sparse(), "sparse|layout|strid"),
                    (torch.ones(2, dtype=torch.complex64).conj(), "conj"), (torch.ones(2, device="meta"), "meta|device")):
        with pytest.raises((TypeError, BufferError, ValueError), match=f"^src: .*(?i:{said})"):
            c.copy(x)
    with pytest.raises((TypeError, BufferError), match="^src: "):
        c.copy(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8))


# ---- JAX -----------------------------------------------------------------------------------------------
def test_jax(c):
    jax = pytest.importorskip("jax")
    for name in ("float32", "int8", "bfloat16", "bool"):
        x = jax.numpy.arange(24).reshape(4, 6).astype(name)
        y = c.transpose(x)
        assert isinstance(y, jax.Array) and y.dtype == x.dtype and bool((y == x.T).all()), name
    shared = c.empty((4, 16), "float32")
    shared[...] = np.arange(64).reshape(4, 16)
    taken = jax.dlpack.from_dlpack(tma.Tensor(shared))
    assert taken.unsafe_buffer_pointer() == address(shared)
    out = np.empty((16, 4), "float32")
    assert c.transpose(taken, out=out) is out and np.array_equal(out, shared.T)
    with pytest.raises(ValueError, match="out: the array is read-only"):
        c.copy(shared, out=taken)
    with pytest.raises(TypeError, match="JAX"), c.batch() as b:
        b.copy(taken)


# ---- __cuda_array_interface__ --------------------------------------------------------------------------
class Device:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


GOOD = {"shape": (2, 3), "typestr": "<f4", "data": (1 << 20, False), "version": 3}


def test_cuda_array_interface():
    t = tma.Tensor(Device(GOOD))
    assert (t.shape, t.strides, t.dtype, t.data, t.readonly, t.is_host) == ((2, 3), (3, 1), "float32", 1 << 20, False,
                                                                          False)
    t = tma.Tensor(Device(dict(GOOD, strides=(4, 8), data=(1 << 20, True), stream=7, mask=None)))
    assert t.strides == (1, 2) and t.readonly and t.stream == 7
    assert tma.Tensor(Device(dict(GOOD, shape=(0, 3), data=(0, False)))).size == 0
    with pytest.raises(BufferError, match="device memory"):
        memoryview(t)


@pytest.mark.parametrize("change", [
    {"shape": None}, {"shape": 5}, {"shape": (2, -3)}, {"shape": (2.5,)}, {"shape": ("a",)}, {"shape": (1,) * 33},
    {"shape": (1 << 62, 1 << 62)}, {"shape": (1 << 70,)}, {"shape": (1 << 61, 2)}, {"typestr": "<f2x"}, {"typestr": ">f4"},
    {"typestr": 4}, {"typestr": "<V4"}, {"typestr": "<M8"}, {"typestr": "|O8"}, {"data": None}, {"data": 5},
    {"data": (1,)}, {"data": ("x", False)}, {"data": (-1, False)}, {"data": (1 << 65, False)}, {"data": (0, False)},
    {"data": (2**64 - 8, False)}, {"strides": (4,)}, {"strides": 4}, {"strides": (6, 4)}, {"strides": (1 << 63, 4)},
    {"strides": (1 << 62, 4), "shape": (4, 3)}, {"strides": (-(1 << 40), 4)}, {"stream": 0}, {"stream": "x"}, {"mask": 1},
    {"missing": "shape"}, {"missing": "typestr"}, {"missing": "data"},
])
def test_malformed_interfaces(c, change):
    interface = dict(GOOD, **change)
    interface.pop(interface.pop("missing", ""), None)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        tma.Tensor(Device(interface))
    with pytest.raises((TypeError, ValueError), match="^src: "):
        c.copy(Device(interface))


def test_interfaces_that_fail(c):
    class Failing:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("no interface today")

    with pytest.raises(TypeError, match="^src: "):
        c.copy(Failing())
    with pytest.raises(TypeError, match="no dict"):
        tma.Tensor(Device([1]))


# ---- What is no array ----------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [
    lambda: np.zeros(2, ">f4"), lambda: np.zeros(2, [("a", "i4")]), lambda: np.zeros(2, object),
    lambda: np.zeros(2, "datetime64[s]"), lambda: np.zeros(2, "U3"), lambda: np.zeros(2, "S3"),
    lambda: np.zeros(2, "longdouble"), lambda: np.zeros(2, "V3"), lambda: [1, 2], lambda: 5, lambda: None, lambda: "text",
    lambda: np.random.default_rng(), lambda: np, lambda: object(),
    lambda: np.lib.stride_tricks.as_strided(np.zeros(9, "u1")[:8].view("u4"), (2,), (3,)),
])
def test_refused(c, make):
    for call, name in ((c.copy, "src"), (c.transpose, "src"), (lambda x: c.copy(np.zeros(2, "f4"), out=x), "out"),
                       (lambda x: c.gather(x, [0]), "src"), (c.register, "array"), (c.plan, "src")):
        with pytest.raises((TypeError, ValueError, BufferError)) as e:
            if name == "out" and make() is None:
                raise TypeError("out: ")
            call(make())
        assert str(e.value).startswith((f"{name}: ", f"{name}[0]: ")), e.value  # a list stands for layers


def test_many_dimensions(c):
    x = np.zeros((1,) * 32, "f4")
    assert c.copy(x).shape == x.shape
    if int(np.__version__.partition(".")[0]) >= 2:
        with pytest.raises(ValueError, match="^src: .* 33 dimensions"):
            c.copy(np.zeros((1,) * 33, "f4"))


def test_huge_views(c):
    x = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), (1 << 31, 1 << 31), (0, 0))
    if not SANITIZED:  # AddressSanitizer ends a program that allocates so much
        with pytest.raises((tma.Error, MemoryError, ValueError)):
            c.copy(x)
    with pytest.raises((tma.Error, ValueError)):
        c.plan(x, pad=1 << 62)
    with pytest.raises((tma.Error, ValueError, OverflowError)):
        c.pad(np.zeros(2, "u1"), 1 << 62)
