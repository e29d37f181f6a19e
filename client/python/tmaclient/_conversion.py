# SPDX-License-Identifier: Apache-2.0
"""Conversions of elements during a move:

    dst = cast(permute(src) * scale + bias)

scale and bias are the operands: numbers, or tensors of the rank of the permuted source, which are broadcast along
dimensions where their extent is 1. Instead of them, the service may compute scales for blocks of dst (Amax).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from ._arrays import EXPONENTS, Array, adapt, dtype_name
from ._core import Tensor
from ._errors import OutOfRangeError
from ._scales import Amax, is_exponents, parse_amax

Cast = Literal["saturate", "exact", "ieee"]
CASTS: tuple[Cast, ...] = ("saturate", "exact", "ieee")
_OPERANDS = ("float32", "float64")  # types of operands that are arrays

Operand = Any  # a number, a Tensor or None


class Keywords(TypedDict, total=False):
    """The keywords of calls that convert; see Client."""

    dtype: Any
    cast: Cast | None
    scale: Any
    bias: Any
    amax: Amax | None


class Casting(NamedTuple):
    """The keywords of Keywords, as the caller gave them; None where there is none."""

    dtype: Any = None
    cast: Cast | None = None
    scale: Any = None
    bias: Any = None
    amax: Amax | None = None

    def result_dtype(self, src: Tensor) -> str:
        """Returns the type of a result that is made for the caller."""
        return src.dtype if self.dtype is None else dtype_name(self.dtype)

    def out_dtype(self, src: Tensor) -> str | None:
        """Returns the type that the caller's array for the result must have. None: any type will do."""
        return None if self.dtype is None and self.cast is not None else self.result_dtype(src)


NO_CASTING = Casting()


def casting_of(casting: Casting, src: Array, *outs: Array) -> Casting:
    """Returns the casting for a move between arrays: NO_CASTING if one of them is of type EXPONENTS, which is moved but
    never converted. Raises TypeError if the caller wants such an array converted."""
    if casting is NO_CASTING or not any(array.is_exponents for array in (src, *outs)):
        return casting
    dtype = None if casting.dtype is None or is_exponents(casting.dtype) else casting.dtype
    for name, given in casting._replace(dtype=dtype, cast=None)._asdict().items():
        if given is not None:
            raise TypeError(
                f"{name}: {EXPONENTS} is moved as it is; to convert the exponents as numbers, pass array.view('uint8')"
            )
    if src.tensor.dtype != "uint8":
        raise TypeError(f"out: {EXPONENTS} takes exponents as they are; only quantize makes scales of it")
    return NO_CASTING


class Conversion(NamedTuple):
    """A checked conversion: a cast, its operands, and the scales that are written beside the result."""

    cast: Cast
    scale: Operand
    bias: Operand
    amax: Amax | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The operands that are tensors, scale first."""
        return tuple(o for o in (self.scale, self.bias) if isinstance(o, Tensor))

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors of scales that are written."""
        return self.amax.results if self.amax is not None else ()

    def __str__(self) -> str:
        words = [f"cast {self.cast}"]
        for name, operand in (("scale", self.scale), ("bias", self.bias)):
            if operand is not None:
                is_tensor = isinstance(operand, Tensor)
                words.append(f"{name} {f'{operand.dtype} {operand.shape}' if is_tensor else operand}")
        if self.amax is not None:
            words.append(f"amax of blocks {self.amax.block}")
        return ", ".join(words)

    def map(self, change: Callable[[Tensor], Tensor]) -> Conversion:
        """Returns the same conversion with the tensors that change() returns for the operands."""
        scale, bias = (change(o) if isinstance(o, Tensor) else o for o in (self.scale, self.bias))
        return self._replace(scale=scale, bias=bias)

    def replaced(self, tensors: Sequence[Tensor]) -> Conversion:
        """Returns the same conversion with other tensors as operands, in the order of the property tensors."""
        rest = iter(tensors)
        return self.map(lambda _: next(rest))

    def writing(self, results: Sequence[Tensor]) -> Conversion:
        """Returns the same conversion with other tensors of scales to write, in the order of the property results."""
        rest = iter(results)
        return self if self.amax is None else self._replace(amax=self.amax.map(lambda _: next(rest)))

    def box(self, starts: Sequence[int], extents: Sequence[int]) -> Conversion:
        """Returns the conversion of the part of the permuted source that has these starts and extents, with amax
        unchanged."""
        return self.map(lambda t: box_of(t, starts, extents))

    def without(self, axis: int) -> Conversion:
        """Returns the conversion of a single block, whose operands lack the axis. The operands here must have an extent
        of 1 along it."""
        return self.map(
            lambda t: t.part(0, t.shape[:axis] + t.shape[axis + 1 :], t.strides[:axis] + t.strides[axis + 1 :])
        )


def box_of(t: Tensor, starts: Sequence[int], extents: Sequence[int]) -> Tensor:
    """Returns the part of an operand that belongs to a part of the permuted source."""
    at, shape = 0, []
    for n, stride, start, extent in zip(t.shape, t.strides, starts, extents, strict=True):
        at += 0 if n == 1 else start * stride
        shape.append(1 if n == 1 else extent)
    return t.part(at if 0 not in shape else 0, tuple(shape), t.strides)


def parse_conversion(
    casting: Casting, dst: Tensor, src: Tensor, shape: Sequence[int], axis: int | None = None
) -> tuple[Conversion | None, tuple[Array, ...]]:
    """Returns a conversion between two tensors, and the arrays that it reads and writes beside them. None: elements are
    not converted. shape: that of the permuted source. axis: the axis of blocks of a gather or a scatter, along which
    the operands have an extent of 1; None: a transform."""
    if casting is NO_CASTING:
        return None, ()
    cast = casting.cast
    if cast is not None and not isinstance(cast, str):
        raise TypeError(f"cast: {cast!r}; it is one of {', '.join(CASTS)}")
    if cast is not None and cast not in CASTS:
        raise ValueError(f"cast: {cast!r}; it is one of {', '.join(CASTS)}")
    if all(given is None for given in casting[1:]) and dst.dtype == src.dtype:
        return None, ()
    arrays: list[Array] = []
    scale, bias = (
        parse_operand(given, name, shape, axis, arrays)
        for name, given in zip(("scale", "bias"), (casting.scale, casting.bias), strict=True)
    )
    amax = None
    if casting.amax is not None:
        if axis is not None:
            raise TypeError("amax: gather and scatter compute no scales; transform, plans and batches do")
        for name, operand in (("scale", scale), ("bias", bias)):
            if operand is not None:
                raise ValueError(f"{name}: not beside amax, which scales by what it computes")
        amax = parse_amax(casting.amax, dst.shape, arrays)
    return Conversion(cast or CASTS[0], scale, bias, amax), tuple(arrays)


def parse_operand(obj: Any, name: str, shape: Sequence[int], axis: int | None, arrays: list[Array]) -> Operand:
    """Returns the argument scale or bias as an operand, a tensor with as many dimensions as shape. Appends its array to
    arrays. axis: as for parse_conversion."""
    if obj is None or is_number(obj):
        return obj
    array = adapt(array_of(obj, name), name)
    t = array.tensor
    if t.dtype not in _OPERANDS:
        dtype = EXPONENTS if array.is_exponents else t.dtype
        raise TypeError(f"{name}: {dtype}; it is a number, or an array of {' or '.join(_OPERANDS)}")
    missing = len(shape) - t.ndim
    if missing < 0 or any(n not in (1, extent) for n, extent in zip(t.shape, shape[missing:], strict=True)):
        raise ValueError(f"{name}: {list(t.shape)} does not broadcast against {list(shape)}, the permuted source")
    # Dimensions with a stride of 0 get an extent of 1, so that repeated elements are staged only once.
    extents = (1,) * missing + tuple(1 if step == 0 and n else n for n, step in zip(t.shape, t.strides, strict=True))
    t = t.part(0, extents, (0,) * missing + t.strides)
    if axis is not None and extents[axis] != 1:
        raise ValueError(f"{name}: {extents[axis]} entries along the axis; it has to be the same for all blocks")
    arrays.append(array._replace(tensor=t))
    return t


def is_number(obj: Any) -> bool:
    """Returns whether an operand is a number. An array without dimensions is one, too, unless it is on a device:
    reading it would have to wait for the device."""
    is_on_device = getattr(getattr(obj, "device", None), "type", "cpu") != "cpu"
    is_number = hasattr(obj, "__float__") or hasattr(obj, "__index__") or hasattr(obj, "__complex__")
    return is_number and not getattr(obj, "ndim", 0) and not is_on_device


def array_of(obj: Any, name: str) -> Any:
    """Returns a list of numbers as an array of float64, as NumPy does, and any other object as it is."""
    if not isinstance(obj, (list, tuple)):
        return obj
    import array

    try:
        return array.array("d", obj)
    except TypeError:
        raise TypeError(f"{name}: {obj!r} is no list of numbers; several dimensions need an array") from None


class Inexact:
    """Counts the elements that an exact cast has changed, over all requests of a move."""

    def __init__(self, dst: Tensor, src: Tensor) -> None:
        self._dst, self._src, self._count = dst.dtype, src.dtype, 0

    def add(self, error: OutOfRangeError) -> None:
        """Adds the elements that an error of a request counts. Raises the error if it is not one of an exact cast."""
        match = re.search(r"the values of (\d+) element", str(error))
        if match is None:
            raise error
        self._count += int(match[1])

    def collect(self, run: Callable[[], None]) -> None:
        """Calls run(), which runs a request. If that raises an OutOfRangeError, adds the number of elements that the
        error reports to the count."""
        try:
            run()
        except OutOfRangeError as e:
            self.add(e)

    def check(self) -> None:
        """Raises one error for all requests, in the service's words, if any element was changed."""
        if self._count:
            raise OutOfRangeError(
                f"cast: exact, but the values of {self._count} element{'' if self._count == 1 else 's'} of {self._src} "
                f"are not values of {self._dst}; dst has the nearest"
            )
