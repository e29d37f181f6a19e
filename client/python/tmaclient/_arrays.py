# SPDX-License-Identifier: Apache-2.0
"""Adapts callers' arrays: finds the Tensor of each, which describes its memory, and its Kind, which makes results of
the same library.

The methods of a kind import its library only when they are given an object of that library. By then, the caller has
loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._core import DTYPES, Tensor, exchange_stream, parse_dtype

# Types that NumPy has only with ml_dtypes, and the integer types of the same size.
_EXTENDED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}

# This type holds exponents of powers of two. tmad does not have the type: its arrays are moved as uint8, and never
# converted.
EXPONENTS = "float8_e8m0fnu"
_AS_INTEGERS = {**_EXTENDED, EXPONENTS: "uint8"}

_USER_TYPES = 256  # the first of NumPy's type numbers for types that other packages define

# Format codes of Python's buffer protocol.
_FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q",
    "int64": "q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip

LEGACY_STREAM = 1  # CUDA's default stream, as DLPack and __cuda_array_interface__ number it


class Array(NamedTuple):
    """A caller's array, or one that was made for a result."""

    tensor: Tensor  # the memory of the array
    kind: Kind
    object: Any  # the array itself
    is_exponents: bool = False  # the array is of type EXPONENTS, and the tensor of uint8


class Kind:
    """A kind of array, usually the arrays of one library. It gets tensors of arrays, makes new arrays, and finds the
    CUDA stream in which its library works. This base class is the kind of any other object."""

    name = "array"

    def tensor(self, obj: Any) -> Tensor:
        """Returns a tensor that is a view of an object's memory."""
        return Tensor(obj)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        """Returns a new array with undefined contents, on the device of the array `like`. dtype is tmad's name of a
        type."""
        raise TypeError(
            f"out: tmaclient cannot make results like {type(like).__module__}.{type(like).__qualname__}; pass out=, "
            "and whatever else is written"
        )

    def finish(self, obj: Any) -> Any:
        """Returns what the caller gets for an array that `empty` made, once the array is filled."""
        return obj

    def refusal(self, obj: Any) -> Exception | None:
        """Returns an error that says why `tensor` failed for an object, and what to pass instead. None: the kind knows
        no more than the error of `tensor` says."""
        return None

    def is_exponents(self, obj: Any) -> bool:
        """Returns whether an object whose tensor is of uint8 is of type EXPONENTS."""
        return False

    def exponents(self, obj: Any) -> Any:
        """Returns a view of an array of uint8 as one of type EXPONENTS."""
        raise TypeError(f"scale_dtype: {self.name} has no {EXPONENTS}; uint8 has the same bytes")

    def of_exponents(self, obj: Any) -> Any:
        """Returns a view of an array of type EXPONENTS as one of uint8."""
        return obj

    def stream(self, obj: Any, tensor: Tensor) -> int:
        """Returns the handle of the CUDA stream in which the caller works on the object's device."""
        return tensor.stream if tensor.stream is not None else LEGACY_STREAM


class _NumPy(Kind):
    name = "numpy"

    def tensor(self, obj: Any) -> Tensor:
        if obj.dtype.num >= _USER_TYPES and obj.dtype.name in _AS_INTEGERS:
            name = obj.dtype.name
            return Tensor(obj.view(_AS_INTEGERS[name]), name if name in _EXTENDED else None)
        return Tensor(obj)

    def refusal(self, obj: Any) -> Exception | None:
        words = _dtype_refusal(obj.dtype)
        if words is not None:
            return TypeError(words)
        size = obj.dtype.itemsize
        for d, (extent, stride) in enumerate(zip(obj.shape, obj.strides, strict=True)):
            if extent > 1 and stride % size:
                return ValueError(
                    f"stride {d} is {stride} bytes, no multiple of the {size} of an element, as in packed records; "
                    "move numpy.ascontiguousarray(array), or into a plain array that is then assigned"
                )
        return None

    def is_exponents(self, obj: Any) -> bool:
        return bool(obj.dtype.num >= _USER_TYPES)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        import numpy as np

        return np.empty(tuple(shape), numpy_dtype(dtype))

    def exponents(self, obj: Any) -> Any:
        return obj.view(numpy_dtype(EXPONENTS))

    def of_exponents(self, obj: Any) -> Any:
        return obj.view("uint8")


class _Torch(Kind):
    """The kind of PyTorch's tensors. Reading a tensor's attributes takes a tenth of the time that DLPack takes, and
    says as much. DLPack's table of C functions, which newer versions of PyTorch have, takes a hundredth, and is tried
    first."""

    name = "torch"

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def tensor(self, obj: Any) -> Tensor:
        exchanged = Tensor.exchanged(obj)
        if exchanged is not None:
            return exchanged
        if obj.requires_grad:
            raise TypeError("the tensor requires grad; pass tensor.detach()")
        device = obj.device
        if device.type == "cuda":
            place = (2, device.index)
        elif device.type == "cpu":
            place = (1, 0)
        else:
            raise TypeError(f"the tensor is on {device}; tmad takes CPU and CUDA memory")
        if obj.is_sparse or obj.is_conj() or obj.is_neg():
            raise TypeError("the tensor is sparse, or conjugated or negated lazily; make it dense and resolve it")
        name = self._names.get(obj.dtype)
        if name is None:
            name = self._names[obj.dtype] = str(obj.dtype).removeprefix("torch.")
            if name == EXPONENTS:
                name = self._names[obj.dtype] = "uint8"
        return Tensor.at(obj.data_ptr(), name, obj.shape, obj.stride(), place, obj)

    def is_exponents(self, obj: Any) -> bool:
        return bool(obj.dtype.is_floating_point)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=like.device)

    def exponents(self, obj: Any) -> Any:
        import torch

        if not hasattr(torch, EXPONENTS):
            return super().exponents(obj)
        return obj.view(getattr(torch, EXPONENTS))

    def of_exponents(self, obj: Any) -> Any:
        import torch

        return obj.view(torch.uint8)

    def stream(self, obj: Any, tensor: Tensor) -> int:
        handle = exchange_stream(obj, tensor.device[1])
        if handle is not None:
            return handle or LEGACY_STREAM

        import torch

        return int(torch.cuda.current_stream(obj.device).cuda_stream) or LEGACY_STREAM


class _CuPy(_NumPy):
    name = "cupy"

    def tensor(self, obj: Any) -> Tensor:
        name = obj.dtype.name
        if name in _AS_INTEGERS:
            return Tensor(obj.view(_AS_INTEGERS[name]), name if name in _EXTENDED else None, -1)
        return Tensor(obj, None, -1)

    def refusal(self, obj: Any) -> Exception | None:
        words = _dtype_refusal(obj.dtype)
        return None if words is None else TypeError(words)

    def is_exponents(self, obj: Any) -> bool:
        return bool(obj.dtype.name == EXPONENTS)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        import cupy  # type: ignore[import-not-found,unused-ignore]

        with like.device:
            return cupy.empty(tuple(shape), numpy_dtype(dtype))

    def stream(self, obj: Any, tensor: Tensor) -> int:
        import cupy

        return int(cupy.cuda.get_current_stream(obj.device.id).ptr) or LEGACY_STREAM


class _JAX(Kind):
    """The kind of JAX's arrays. They are immutable: a result is filled as a Tensor, which JAX then takes over."""

    name = "jax"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        if like.device.platform != "cpu":
            return super().empty(shape, dtype, like)
        return aligned(shape, dtype)

    def finish(self, obj: Any) -> Any:
        import jax.dlpack  # type: ignore[import-not-found,unused-ignore]

        return jax.dlpack.from_dlpack(obj)


class _Buffer(Kind):
    """The kind of objects that have only the buffer protocol. A result is a memoryview."""

    name = "buffer"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return memory_view(bytearray(count(shape) * DTYPES[dtype]), shape, dtype)


class _Own(Kind):
    """The kind of this package's Tensor."""

    name = "tensor"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return aligned(shape, dtype) if like.is_host else super().empty(shape, dtype, like)


class _Refused(Kind):
    """The kind of arrays that mean more than their elements. They are refused, because a move would silently lose the
    rest of the meaning."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def tensor(self, obj: Any) -> Tensor:
        raise TypeError(self._reason)


NUMPY, TORCH, CUPY, JAX, BUFFER, OWN, OTHER = _NumPy(), _Torch(), _CuPy(), _JAX(), _Buffer(), _Own(), Kind()


_kinds: dict[type, Kind] = {}  # a cache of the kinds of all types that were seen


def kind_of(obj: Any) -> Kind:
    """Returns the kind of an object."""
    kind = _kinds.get(type(obj))
    if kind is None:
        kind = _kinds[type(obj)] = _find_kind(obj)
    return kind


def _find_kind(obj: Any) -> Kind:
    for name, kind in (("numpy", NUMPY), ("torch", TORCH), ("cupy", CUPY)):
        base = getattr(sys.modules.get(name), "Tensor" if kind is TORCH else "ndarray", None)
        if base is not None and isinstance(obj, base):
            return _kind_of_subclass(type(obj), base, kind)
    library = type(obj).__module__.partition(".")[0]
    known = {"numpy": NUMPY, "torch": TORCH, "cupy": CUPY, "jax": JAX, "jaxlib": JAX}.get(library)
    if known is not None:
        return known
    if isinstance(obj, Tensor):
        return OWN
    return BUFFER if _is_buffer(obj) else OTHER


def _is_buffer(obj: Any) -> bool:
    """Returns whether an object has the buffer protocol but none of the array protocols, as ctypes' arrays do."""
    try:
        memoryview(obj).release()
    except (BufferError, TypeError, ValueError):
        return isinstance(obj, memoryview)
    others = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    return not any(hasattr(type(obj), name) for name in others)


def _dtype_refusal(dtype: Any) -> str | None:
    """Returns the text of an error for an element type of NumPy's that tmad does not have, with a remedy. None: tmad
    has the type."""
    size = dtype.itemsize
    their_bytes = "array.view('uint8')" if size == 1 else f"array[..., None].view('uint8'), {size} of each element"
    if dtype.names is not None:
        first = dtype.names[0] if dtype.names else "name"
        return f"elements are records ({dtype}); move one field at a time, such as array[{first!r}]"
    if dtype.hasobject:
        return f"elements are Python objects ({dtype}); pass array.astype of a type of numbers"
    if dtype.kind in "mM":
        return f"elements of {dtype}: tmad has no such type; pass array.view('int64'), and view the result as {dtype}"
    if dtype.kind in "SUT":
        return f"elements are strings ({dtype}): tmad has no such type; pass their bytes, {their_bytes}"
    if not dtype.isnative:
        native = dtype.newbyteorder("=")
        return (
            f"elements of {dtype.str}: their byte order is not this machine's; pass array.astype('{native}'), or move "
            f"the bytes as they are: array.view('{native}'), and view the result as {dtype.str}"
        )
    if dtype.num < _USER_TYPES and dtype.char in "gG":
        instead = "complex128" if dtype.char == "G" else "float64"
        return f"elements of {dtype} ({size} bytes): tmad has no such type; pass array.astype('{instead}')"
    if dtype.num >= _USER_TYPES and dtype.name not in _AS_INTEGERS:
        return f"elements of {dtype.name}: tmad has no such type; pass their bytes, {their_bytes}, or array.astype"
    if dtype.kind == "V" and dtype.num < _USER_TYPES:
        return f"elements are bytes without a type ({dtype}); pass array.view of a type, or {their_bytes}"
    return None


# The arrays of a subclass that defines one of these methods are taken to mean more than their elements.
_HOOKS = {
    "numpy": ("__array_finalize__", "__array_function__", "__array_ufunc__", "__array_wrap__", "__getitem__"),
    "torch": ("__torch_dispatch__",),
}


def _kind_of_subclass(cls: type, base: type, kind: Kind) -> Kind:
    """Returns the kind of a subclass of a library's array class: that of the library, unless the arrays mean more than
    their elements. np.memmap is not such a class: only its memory is of another origin."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    if any(c.__name__ == "MaskedArray" and c.__module__.startswith("numpy.ma") for c in cls.__mro__):
        return _Refused(
            f"{name}: a move would lose the mask; pass array.filled(value), or array.data and array.mask in two calls"
        )
    for c in cls.__mro__[: cls.__mro__.index(base)]:
        is_memmap = c.__name__ == "memmap" and c.__module__.partition(".")[0] == "numpy"
        if not is_memmap and any(hook in vars(c) for hook in _HOOKS.get(kind.name, ())):
            plain = "numpy.asarray(array)" if kind is NUMPY else "a plain tensor of its elements"
            return _Refused(f"{name}: a move would lose what this subclass of {base.__name__} adds; pass {plain}")
    return kind


def adapt(obj: Any, name: str) -> Array:
    """Returns the Array for an argument. name: name of the argument, for errors."""
    kind = kind_of(obj)
    try:
        tensor = kind.tensor(obj)
        return Array(tensor, kind, obj, tensor.dtype == "uint8" and kind.is_exponents(obj))
    except (BufferError, TypeError, ValueError) as e:
        kinds = (BufferError, TypeError, ValueError)
        refusal = kind.refusal(obj) or e
        raise next(k for k in kinds if isinstance(refusal, k))(f"{name}: {refusal}") from None
    except (AttributeError, NotImplementedError, OverflowError, RuntimeError) as e:
        of = f"{type(obj).__module__}.{type(obj).__qualname__}"
        raise TypeError(f"{name}: {of} is no array that can be moved: {e}") from None


def mapping_of(obj: Any) -> Any:
    """Returns the mmap object that an array's memory belongs to, if the chain of its bases leads to one, or None.
    NumPy's arrays keep the mmap object alive, but not open: an array may outlive its memory."""
    import mmap

    while obj is not None and not isinstance(obj, mmap.mmap):
        obj = obj.obj if isinstance(obj, memoryview) else getattr(obj, "base", None)
    return obj


def tensor_of(made: Any, kind: Kind, dtype: str) -> Tensor:
    """Returns the tensor of a result that a kind has made. The tensor is of type dtype, even if the result is a
    memoryview of integers because Python's buffers lack dtype."""
    tensor = made if isinstance(made, Tensor) else kind.tensor(made)
    return tensor if tensor.dtype == dtype else Tensor(made, dtype)


def count(shape: Sequence[int]) -> int:
    """Returns the number of elements of a shape."""
    n = 1
    for extent in shape:
        n *= extent
    return n


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of C order, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def memory_view(owner: Any, shape: Sequence[int], dtype: str) -> memoryview:
    """Returns the memory of owner as a memoryview of this shape and type, or of integers of the same size where Python
    lacks the type."""
    code = _FORMATS.get(dtype) or _FORMATS.get(_EXTENDED.get(dtype, ""))
    if code is None:
        raise TypeError(f"dtype: Python's buffers have no type {dtype}; use NumPy's arrays")
    view: Any = memoryview(owner).cast("B")[: count(shape) * DTYPES[dtype]]
    # cast() refuses shapes with an extent of 0; such a result has one dimension.
    result: memoryview = view.cast(code) if 0 in shape else view.cast(code, tuple(shape))
    return result


def aligned(shape: Sequence[int], dtype: str) -> Tensor:
    """Returns a new tensor in this process's memory whose address is a multiple of 64, which JAX needs."""
    size = count(shape) * DTYPES[dtype]
    raw = Tensor(bytearray(size + 64))
    return raw.part(-raw.data % 64, (size,), (1,)).viewed(dtype, tuple(shape))


def numpy_dtype(name: str) -> Any:
    """Returns NumPy's type for tmad's name of a type, which ml_dtypes provides where NumPy has none."""
    import numpy as np

    if name not in _EXTENDED and name != EXPONENTS:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"dtype: NumPy has {name} only with the package ml_dtypes, which is not installed") from None
    if not hasattr(ml_dtypes, name):
        raise TypeError(f"dtype: NumPy has {name} only with a newer version of the package ml_dtypes")
    return np.dtype(getattr(ml_dtypes, name))


def dtype_name(dtype: Any) -> str:
    """Returns tmad's name of a type that is given as a name, a type of NumPy's or torch's, or a class such as float."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    name = str(dtype).removeprefix("torch.")
    known = parse_dtype(name) if isinstance(dtype, str) or name in DTYPES else None
    if known is not None:
        return known
    try:
        import numpy as np

        name = np.dtype(dtype).name
    except (ImportError, TypeError, ValueError):
        pass
    if name == EXPONENTS or getattr(dtype, "__name__", None) == EXPONENTS:
        raise TypeError(f"dtype: {EXPONENTS} is moved as uint8, which has its bytes; only quantize makes scales of it")
    if name not in DTYPES:
        raise TypeError(f"dtype: tmad has no element type {dtype!r}; it has {', '.join(DTYPES)}")
    return name
