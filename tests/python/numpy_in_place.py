# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that replaces functions of NumPy by the client's in NumPy's own tests.

    TMAD_SOCKET=PATH IN_PLACE=1 IN_PLACE_RESULT=FILE python3 -m pytest -p numpy_in_place --noconftest PATH_OF_A_TEST

Each call of a test is made by NumPy, and by the client twice: with the array where it is, and with a copy in shared
memory. All results have to be equal, byte by byte. The test then gets the client's array, or NumPy's if that is a view
or an array of another class. Calls that tmad does not have are made by NumPy alone, and counted with the reason. The
counts and the unequal results are written to FILE as JSON at the end.
"""
import collections
import ctypes
import gc
import json
import os

import numpy as np

import arrays
import tmaclient as tma

NATIVE = set(arrays.dtypes())
METHODS = {}  # the original methods of numpy.ndarray
FUNCTIONS = {}  # the original functions of numpy


class Counts:
    def __init__(self):
        self.compared = collections.Counter()  # number of calls that were compared, by name
        self.absent = collections.Counter()  # number of calls that the client does not have, by name and reason
        self.unequal = []
        self.is_inside = False  # True during a call that is being compared, whose own calls are not


counts = Counts()
client = None


class Absent(Exception):
    """Raised for a call that the client does not have, with the reason."""


def require(condition, why):
    if not condition:
        raise Absent(why)


def check_array(x):
    require(type(x) is np.ndarray, "another class of arrays")
    require(x.dtype in NATIVE and x.dtype.isnative, "another type of elements")
    require(x.ndim <= tma._core.MAX_RANK, "more dimensions")


def same(got, wanted):
    return got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


def same_values(got, wanted):
    """Returns whether two arrays have the same values. NaNs are equal, because conversions do not keep their
    payload."""
    if got.dtype.kind != "f" or got.dtype != wanted.dtype or got.shape != wanted.shape:
        return same(got, wanted)
    both = np.isnan(got) & np.isnan(wanted)
    return same(np.where(both, np.zeros_like(got), got), np.where(both, np.zeros_like(wanted), wanted))


def shared(x):
    made = client.empty(x.shape, x.dtype)
    made[...] = x
    return made


def compare(name, x, wanted, call, what, is_same=same):
    """Compares the client's result of a call with NumPy's. Returns the client's, or None if the client does not have
    the call."""
    if counts.is_inside:
        return None
    counts.is_inside = True
    try:
        check_array(x)
        require(isinstance(wanted, (np.ndarray, np.generic)), "another class of arrays")
        wanted = np.asarray(wanted)
        check_array(wanted)
        for memory, src in (("ordinary", x), ("shared", shared(x))):
            try:
                got = call(src)
                failure = None if is_same(got, wanted) else f"{got!r:.300} instead of {wanted!r:.300}"
            except Absent:
                raise
            except Exception as e:  # any exception is a failure, because NumPy had a result
                is_odd = any(n % x.itemsize for n in x.strides) and isinstance(e, (BufferError, TypeError, ValueError))
                require(not is_odd, "strides that elements do not divide")
                failure = f"{type(e).__name__}: {e}"
            if failure is not None:
                counts.unequal.append(f"{name} of {memory} {x.dtype} {x.shape} {x.strides}, {what}: {failure}")
                return None
        counts.compared[name] += 1
        return got
    except Absent as e:
        counts.absent[f"{name}: {e}"] += 1
        return None
    finally:
        counts.is_inside = False


# ---- What is in the place of NumPy's ---------------------------------------------------------------------
def pad(array, pad_width, mode="constant", **kwargs):
    wanted = FUNCTIONS["pad"](array, pad_width, mode, **kwargs)
    x = np.asarray(array)

    def call(src):
        require(mode in arrays.MODES, "another mode")
        require(kwargs.get("reflect_type", "even") == "even", "another reflect_type")
        value = kwargs.get("constant_values", 0)
        if mode == "constant":
            values = np.asarray(value)
            require(values.size and (values == values.flat[0]).all(), "several constants")
            with np.errstate(all="ignore"):
                cast = METHODS["astype"](values, x.dtype)
            require((cast == values).all(), "a constant that the type lacks")
        out = np.empty_like(wanted)  # the layout is that of wanted, which some tests check
        return client.pad(src, pad_width, mode, out=out, **({"constant_values": value} if mode == "constant" else {}))

    got = compare("pad", x, wanted, call, f"{pad_width!r} {mode} {kwargs}")
    return wanted if got is None else got


def take(self, indices, axis=None, out=None, mode="raise"):
    wanted = METHODS["take"](self, indices, axis, out, mode)

    def call(src):
        require(mode == "raise", "another mode")
        index = np.asarray(indices)
        require(index.dtype.kind in "iu", "an index of no integers")
        src = src.reshape(-1) if axis is None else src
        require(src.ndim > 0, "no dimension")
        at = 0 if axis is None else axis
        got = client.gather(src, index.reshape(-1), axis=at)
        at %= src.ndim
        return got.reshape(src.shape[:at] + index.shape + src.shape[at + 1:])

    got = compare("take", self, wanted, call, f"{indices!r:.100} axis {axis}")
    return got if got is not None and out is None and type(wanted) is np.ndarray else wanted


def transpose(self, *axes):
    wanted = METHODS["transpose"](self, *axes)
    order = None if not axes else axes[0] if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])) else axes
    compare("transpose", self, wanted, lambda src: client.transpose(src, order), axes)
    return wanted


def swapaxes(self, axis1, axis2):
    wanted = METHODS["swapaxes"](self, axis1, axis2)

    def call(src):
        axes = list(range(src.ndim))
        axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
        return client.transform(src, permute=axes)

    compare("swapaxes", self, wanted, call, (axis1, axis2))
    return wanted


def copy(self, *args, **kwargs):
    wanted = METHODS["copy"](self, *args, **kwargs)
    compare("copy", self, wanted, client.copy, args)
    return wanted


def ascontiguousarray(a, *args, **kwargs):
    wanted = FUNCTIONS["ascontiguousarray"](a, *args, **kwargs)
    x = np.asarray(a)

    def call(src):
        require(wanted.dtype == src.dtype, "a conversion of an object")
        return client.copy(src).reshape(wanted.shape)

    compare("ascontiguousarray", x, wanted, call, args)
    return wanted


def astype(self, dtype, *args, **kwargs):
    wanted = METHODS["astype"](self, dtype, *args, **kwargs)

    def call(src):
        to = wanted.dtype
        require("c" not in (src.dtype.kind, to.kind) or src.dtype == to, "a conversion of complex numbers")
        is_rounded = src.dtype.kind == to.kind == "f" and not (np.abs(src) > np.finfo(to).max).any()
        try:
            return client.copy(src, dtype=to, cast="saturate" if is_rounded and src.dtype != to else None
                               if src.dtype == to else "exact")
        except tma.OutOfRangeError:
            raise Absent("a value that the type lacks") from None

    compare("astype", self, wanted, call, f"to {wanted.dtype}", same_values)
    return wanted


def put_in_place():
    for function in (pad, ascontiguousarray):
        FUNCTIONS[function.__name__] = getattr(np, function.__name__)
        setattr(np, function.__name__, function)
    members = gc.get_referents(np.ndarray.__dict__)[0]  # the attributes of a class written in C cannot be set directly
    for method in (take, transpose, swapaxes, copy, astype):
        METHODS[method.__name__] = members[method.__name__]
        members[method.__name__] = method
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(np.ndarray))


def put_back():
    members = gc.get_referents(np.ndarray.__dict__)[0]
    members.update(METHODS)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(np.ndarray))
    for name, function in FUNCTIONS.items():
        setattr(np, name, function)


# ---- pytest's hooks --------------------------------------------------------------------------------------
failed = []


def pytest_configure(config):
    global client
    if os.environ["IN_PLACE"] == "1":
        client = tma.connect()
        put_in_place()


def pytest_runtest_logreport(report):
    if report.failed:
        failed.append(report.nodeid)


def pytest_unconfigure(config):
    if client is not None:
        put_back()
        client.close()
    with open(os.environ["IN_PLACE_RESULT"], "w", encoding="utf-8") as file:
        json.dump({"compared": counts.compared, "absent": counts.absent, "unequal": counts.unequal, "failed": failed}, file)
