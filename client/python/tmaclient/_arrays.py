# SPDX-License-Identifier: Apache-2.0
"""What an array is: a tensor of its memory, and the kind of object that a result like it has to be.

A kind never imports its library: an object of the library is there, so the library is, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._core import DTYPES, Tensor

# Types that NumPy has only with ml_dtypes, and the integers that have their size.
_EXTENDED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}

# The exponents of powers of two, a type that tmad does not have: they are its uint8.
EXPONENTS = "float8_e8m0fnu"

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
        if obj.dtype.num >= _USER_TYPES and obj.dtype.name in _EXTENDED:
            return Tensor(obj.view(_EXTENDED[obj.dtype.name]), obj.dtype.name)
        return Tensor(obj)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        import numpy as np

        return np.empty(tuple(shape), numpy_dtype(dtype))

    def exponents(self, obj: Any) -> Any:
        return obj.view(numpy_dtype(EXPONENTS))

    def of_exponents(self, obj: Any) -> Any:
        return obj.view("uint8")


class _Torch(Kind):
    """PyTorch's tensors say all that DLPack would, in a tenth of the time."""

    name = "torch"

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def tensor(self, obj: Any) -> Tensor:
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
        return Tensor.at(obj.data_ptr(), name, obj.shape, obj.stride(), place, obj)

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
        import torch

        return int(torch.cuda.current_stream(obj.device).cuda_stream) or LEGACY_STREAM


class _CuPy(Kind):
    name = "cupy"

    def tensor(self, obj: Any) -> Tensor:
        name = obj.dtype.name
        if name in _EXTENDED:
            return Tensor(obj.view(_EXTENDED[name]), name, -1)
        return Tensor(obj, None, -1)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        import cupy  # type: ignore[import-not-found,unused-ignore]

        with like.device:
            return cupy.empty(tuple(shape), numpy_dtype(dtype))

    def of_exponents(self, obj: Any) -> Any:
        return obj.view("uint8")

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


NUMPY, TORCH, CUPY, JAX, BUFFER, OWN, OTHER = _NumPy(), _Torch(), _CuPy(), _JAX(), _Buffer(), _Own(), Kind()


_kinds: dict[type, Kind] = {}  # of the types that were seen


def kind_of(obj: Any) -> Kind:
    """Which kind of array an object is."""
    kind = _kinds.get(type(obj))
    if kind is None:
        kind = _kinds[type(obj)] = _find_kind(obj)
    return kind


def _find_kind(obj: Any) -> Kind:
    library = type(obj).__module__.partition(".")[0]
    known = {"numpy": NUMPY, "torch": TORCH, "cupy": CUPY, "jax": JAX, "jaxlib": JAX}.get(library)
    if known is not None:
        return known
    if isinstance(obj, Tensor):
        return OWN
    for name, kind in (("numpy", NUMPY), ("torch", TORCH), ("cupy", CUPY)):
        base = getattr(sys.modules.get(name), "Tensor" if kind is TORCH else "ndarray", None)
        if base is not None and isinstance(obj, base):
            return kind
    if isinstance(obj, (bytes, bytearray, memoryview)) or type(obj).__module__ in ("array", "mmap"):
        return BUFFER
    return OTHER


def adapt(obj: Any, name: str) -> Array:
    """The array that an argument is."""
    kind = kind_of(obj)
    try:
        return Array(kind.tensor(obj), kind, obj)
    except (BufferError, TypeError, ValueError) as e:
        kinds = (BufferError, TypeError, ValueError)
        raise next(k for k in kinds if isinstance(e, k))(f"{name}: {e}") from None
    except (AttributeError, NotImplementedError, OverflowError, RuntimeError) as e:
        of = f"{type(obj).__module__}.{type(obj).__qualname__}"
        raise TypeError(f"{name}: {of} is no array that can be moved: {e}") from None


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
    if name in DTYPES:
        return name
    try:
        import numpy as np

        name = np.dtype(dtype).name
    except (ImportError, TypeError):
        pass
    if name not in DTYPES:
        raise TypeError(f"dtype: tmad has no element type {dtype!r}; it has {', '.join(DTYPES)}")
    return name
