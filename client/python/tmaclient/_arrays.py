# SPDX-License-Identifier: Apache-2.0
"""What an array is: a tensor of its memory, and the kind of object that a result like it has to be.

A kind never imports its library: an object of the library is there, so the library is, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._core import DTYPES, Tensor, exchange_stream, parse_dtype

# Types that NumPy has only with ml_dtypes, and the integers that have their size.
_EXTENDED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}

# tmad does not have this type, of the exponents of powers of two: they are moved as uint8, and never converted.
EXPONENTS = "float8_e8m0fnu"
_AS_INTEGERS = {**_EXTENDED, EXPONENTS: "uint8"}

_USER_TYPES = 256  # the first number of types that are not NumPy's own

_FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q",
    "int64": "q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip

LEGACY_STREAM = 1  # CUDA's default stream, as DLPack and __cuda_array_interface__ number it


class Array(NamedTuple):
    """An array as the package sees it."""

    tensor: Tensor
    kind: Kind
    object: Any
    is_exponents: bool = False  # the tensor has their bytes


class Kind:
    """A kind of array: how to make one, and in which CUDA stream its library works."""

    name = "array"

    def tensor(self, obj: Any) -> Tensor:
        """A view of an object's memory."""
        return Tensor(obj)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        """A new array on the device of another one, its contents undefined. dtype is a name of tmad's."""
        raise TypeError(
            f"out: tmaclient cannot make results like {type(like).__module__}.{type(like).__qualname__}; pass out=, "
            "and whatever else is written"
        )

    def finish(self, obj: Any) -> Any:
        """What the caller gets of an array that `empty` made, once it is filled."""
        return obj

    def refusal(self, obj: Any) -> Exception | None:
        """Says why an object has no tensor, and what has one, if the kind knows more than the protocol that failed."""
        return None

    def is_exponents(self, obj: Any) -> bool:
        """Tells whether an object whose tensor is of uint8 is of EXPONENTS."""
        return False

    def exponents(self, obj: Any) -> Any:
        """An array of uint8 as one of EXPONENTS."""
        raise TypeError(f"scale_dtype: {self.name} has no {EXPONENTS}; uint8 has the same bytes")

    def of_exponents(self, obj: Any) -> Any:
        """The inverse."""
        return obj

    def stream(self, obj: Any, tensor: Tensor) -> int:
        """The CUDA stream in which the caller works on the object's device."""
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
    """PyTorch's tensors say all that DLPack would in a tenth of the time, and its table of C functions, which newer
    versions have, in a hundredth."""

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
    """JAX's arrays do not change: a result is filled as another array, which JAX then takes over."""

    name = "jax"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        if like.device.platform != "cpu":
            return super().empty(shape, dtype, like)
        return aligned(shape, dtype)

    def finish(self, obj: Any) -> Any:
        import jax.dlpack  # type: ignore[import-not-found,unused-ignore]

        return jax.dlpack.from_dlpack(obj)


class _Buffer(Kind):
    """Objects of the buffer protocol alone: a result is a memoryview."""

    name = "buffer"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return memory_view(bytearray(count(shape) * DTYPES[dtype]), shape, dtype)


class _Own(Kind):
    """Tensors of this package."""

    name = "tensor"

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return aligned(shape, dtype) if like.is_host else super().empty(shape, dtype, like)


class _Refused(Kind):
    """These arrays mean more than their elements, and a move would lose that without a word."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def tensor(self, obj: Any) -> Tensor:
        raise TypeError(self._reason)


NUMPY, TORCH, CUPY, JAX, BUFFER, OWN, OTHER = _NumPy(), _Torch(), _CuPy(), _JAX(), _Buffer(), _Own(), Kind()


_kinds: dict[type, Kind] = {}  # of the types that were seen


def kind_of(obj: Any) -> Kind:
    """Which kind of array an object is."""
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
    """Tells whether the buffer protocol alone says what an object is, as it does of ctypes' arrays."""
    try:
        memoryview(obj).release()
    except (BufferError, TypeError, ValueError):
        return isinstance(obj, memoryview)
    others = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    return not any(hasattr(type(obj), name) for name in others)


def _dtype_refusal(dtype: Any) -> str | None:
    """Says what elements of a type of NumPy's are to tmad, and the remedy. None: tmad has the type."""
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


# By defining one of these, a subclass says that its arrays are more than their elements.
_HOOKS = {
    "numpy": ("__array_finalize__", "__array_function__", "__array_ufunc__", "__array_wrap__", "__getitem__"),
    "torch": ("__torch_dispatch__",),
}


def _kind_of_subclass(cls: type, base: type, kind: Kind) -> Kind:
    """Returns kind, unless the arrays of the class have a meaning of their own. A np.memmap only lies elsewhere."""
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
    """The array that an argument is."""
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
    """Returns the mmap that an array's memory is of, as far as its bases tell, or None. NumPy's arrays keep it alive,
    but not open: an array may outlive its memory."""
    import mmap

    while obj is not None and not isinstance(obj, mmap.mmap):
        obj = obj.obj if isinstance(obj, memoryview) else getattr(obj, "base", None)
    return obj


def tensor_of(made: Any, kind: Kind, dtype: str) -> Tensor:
    """The tensor of a result that a kind has made. A memoryview has integers where Python lacks the type."""
    tensor = made if isinstance(made, Tensor) else kind.tensor(made)
    return tensor if tensor.dtype == dtype else Tensor(made, dtype)


def count(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    n = 1
    for extent in shape:
        n *= extent
    return n


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of C order, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def memory_view(owner: Any, shape: Sequence[int], dtype: str) -> memoryview:
    """Memory as elements of a type; as integers where Python has no such type."""
    code = _FORMATS.get(dtype) or _FORMATS.get(_EXTENDED.get(dtype, ""))
    if code is None:
        raise TypeError(f"dtype: Python's buffers have no type {dtype}; use NumPy's arrays")
    view: Any = memoryview(owner).cast("B")[: count(shape) * DTYPES[dtype]]
    result: memoryview = view.cast(code) if 0 in shape else view.cast(code, tuple(shape))  # it refuses extents of 0
    return result


def aligned(shape: Sequence[int], dtype: str) -> Tensor:
    """A new tensor of this process's memory whose address is a multiple of 64, as JAX wants it."""
    size = count(shape) * DTYPES[dtype]
    raw = Tensor(bytearray(size + 64))
    return raw.part(-raw.data % 64, (size,), (1,)).viewed(dtype, tuple(shape))


def numpy_dtype(name: str) -> Any:
    """NumPy's type of a name; those of ml_dtypes where NumPy has none."""
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
    """tmad's name of a type: of a name, a type of NumPy's or torch's, or a class such as float."""
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
