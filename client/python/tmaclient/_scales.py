# SPDX-License-Identifier: Apache-2.0
"""Parses the arguments for scales that the service computes during a move, one for each block of the result, and the
arrays that the scales are written into."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._arrays import EXPONENTS, Array, adapt, dtype_name, kind_of
from ._core import Tensor

_DTYPES = ("float32", "uint8")  # types of scales; uint8 holds exponents of powers of two
_DEFAULT = "float8_e4m3fn"  # type of the result of quantize, unless the caller gives one


class Amax(NamedTuple):
    """Scales that a call computes during its move, one for each block of its result:

        scale = max(amax(abs(block)), least) / largest finite value of the result's type
        result = cast(permute(src) * (1 / scale))

    A block is a part of permute(src). Both types are floating-point types of 8 to 32 bits, and the calculation is in
    float32. The result may be cropped, but not padded. scale and bias of the call cannot be combined with it.

        block          extents of a block. If it has fewer entries than the result has dimensions, they are those of the
                       last dimensions, and blocks have an extent of 1 in the others. -1, or more than the dimension
                       has, stands for the whole dimension; None stands for the whole result. The last block of a
                       dimension may be smaller
        scale          writable array for the scales, of as many dimensions as the result, with an extent of
                       ceil(extent / block) in each; float32, or with power_of_two also uint8 or float8_e8m0fnu, which
                       hold only the biased exponents. None: the scales are not written
        inverse        writable array for 1 / scale, of the same shape and types; None: they are not written. At least
                       one of the two must be given, and they must share no bytes with other arrays
        power_of_two   True: scales are rounded up to powers of two
        least          lower bound of the largest magnitude of a block; 0 or more

    The scale of a block of zeros is 1, and that of a block with a NaN is NaN; no scale is below 2^-126. The arrays
    belong to the caller. They are written when the call, or the batch, has ended; a plan keeps them as long as it
    lives.
    """

    block: Any
    scale: Any = None
    inverse: Any = None
    power_of_two: bool = False
    least: float = 0.0

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that are written. Valid only for an Amax from parse_amax, which has tensors in place of
        arrays."""
        return tuple(t for t in (self.scale, self.inverse) if t is not None)

    def map(self, change: Callable[[Tensor], Tensor]) -> Amax:
        """Returns the same Amax with the tensors that change() returns for scale and inverse."""
        scale, inverse = (None if t is None else change(t) for t in (self.scale, self.inverse))
        return self._replace(scale=scale, inverse=inverse)

    def box(self, starts: Sequence[int], extents: Sequence[int]) -> Amax:
        """Returns the same Amax for a part of the result. The starts must be multiples of the extents of a block."""

        def part(t: Tensor) -> Tensor:
            shape = block_counts(extents, self.block)
            at = sum(s // b * stride for s, b, stride in zip(starts, self.block, t.strides, strict=True))
            return t.part(at if 0 not in shape else 0, shape, t.strides)

        return self.map(part)


class Scaling(NamedTuple):
    """The arguments of quantize that concern scales, as the caller gave them; see Client.quantize."""

    block: Any
    power_of_two: bool
    least: float
    inverse: bool
    scale_dtype: Any
    scale_out: Any
    inverse_out: Any

    def dtype_name(self) -> str:
        """Returns the type of the arrays that are made for scales. It may be EXPONENTS."""
        if self.scale_dtype is None:
            return _DTYPES[0]
        if is_exponents(self.scale_dtype):
            name = EXPONENTS
        else:
            try:
                name = dtype_name(self.scale_dtype)
            except TypeError:
                name = str(self.scale_dtype)
        check_dtype(name, "scale_dtype", self.power_of_two)
        return name


def quantized_dtype(dtype: Any, cast: Any, out: Any) -> tuple[Any, Any]:
    """Returns dtype and cast for the transform that quantize becomes. If dtype is None and there is an out, the type is
    out's: dtype stays None, and there is a cast. If out is None, too, dtype is _DEFAULT."""
    if dtype is not None:
        return dtype, cast
    return (_DEFAULT, cast) if out is None else (None, cast or "saturate")


# ---- Arguments -----------------------------------------------------------------------------------------


def parse_amax(amax: Any, shape: Sequence[int], arrays: list[Array]) -> Amax:
    """Returns a caller's Amax with tensors in place of arrays. Its block has an extent for each dimension of the
    result, whose shape is given, and none larger than the result's. Appends the Arrays for the scales to arrays."""
    if not isinstance(amax, Amax):
        raise TypeError(f"amax: {amax!r} is no tmaclient.Amax")
    if amax.scale is None and amax.inverse is None:
        raise ValueError("amax: scale and inverse are missing; at least one of them is an array to write into")
    block, least = parse_block(amax.block, shape), parse_least(amax.least)
    counts, is_power = block_counts(shape, block), bool(amax.power_of_two)
    tensors: list[Tensor | None] = []
    for name, given in (("amax.scale", amax.scale), ("amax.inverse", amax.inverse)):
        if given is not None:
            arrays.append(parse_scale(given, name, counts, is_power))
        tensors.append(None if given is None else arrays[-1].tensor)
    return Amax(block, tensors[0], tensors[1], is_power, least)


def parse_block(block: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the extents of a block in every dimension of a tensor of this shape, none larger than the tensor's."""
    if block is None:
        return tuple(max(n, 1) for n in shape)
    numbers = [block] if hasattr(block, "__index__") else block
    try:
        given = tuple(operator.index(n) for n in numbers)
    except TypeError:
        raise TypeError(f"block: {block!r}; it is a number, a sequence of them, or None") from None
    missing = len(shape) - len(given)
    if missing < 0:
        raise ValueError(f"block: {list(given)} for a result of {len(shape)} dimensions")
    for n in given:
        if n < 1 and n != -1:
            raise ValueError(f"block: {n}; an extent is 1 or more, or -1 for all of the dimension")
    return tuple(
        max(n, 1) if b == -1 else min(b, max(n, 1)) for b, n in zip((1,) * missing + given, shape, strict=True)
    )


def block_counts(shape: Sequence[int], block: Sequence[int]) -> tuple[int, ...]:
    """Returns the number of blocks along each dimension."""
    return tuple(-(-n // b) for n, b in zip(shape, block, strict=True))


def parse_least(least: Any) -> float:
    """Returns the argument least as a number: the lower bound of the largest magnitude of a block."""
    try:
        number = float(least)
    except (TypeError, ValueError):
        raise TypeError(f"least: {least!r} is no real number") from None
    if not number >= 0:
        raise ValueError(f"least: {least!r}; it is 0 or more")
    return number


def parse_scale(obj: Any, name: str, shape: Sequence[int], is_power: bool) -> Array:
    """Returns a caller's array for scales or for their inverses. An array of type EXPONENTS is viewed as uint8.
    is_power: whether the scales are powers of two. ValueError: its shape is not `shape`, or it is read-only. TypeError:
    its type does not fit."""
    if is_exponents(getattr(obj, "dtype", None)):
        obj = kind_of(obj).of_exponents(obj)
    array = adapt(obj, name)
    t = array.tensor
    check_dtype(t.dtype, name, is_power)
    if t.shape != tuple(shape):
        raise ValueError(f"{name}: {list(t.shape)}; there are {list(shape)} blocks")
    if t.readonly:
        raise ValueError(f"{name}: the array is read-only")
    return array


def check_dtype(dtype: str, name: str, is_power: bool) -> None:
    """Raises an error if scales cannot have this type. is_power: whether they are powers of two."""
    if dtype not in (*_DTYPES, EXPONENTS):
        raise TypeError(f"{name}: {dtype}; it is float32, or with power_of_two uint8 or {EXPONENTS}")
    if dtype != _DTYPES[0] and not is_power:
        raise ValueError(f"{name}: {dtype} has the exponents of powers of two; only with power_of_two")


def is_exponents(dtype: Any) -> bool:
    """Returns whether a type of NumPy's or torch's, or the name of a type, is EXPONENTS."""
    return EXPONENTS in (str(dtype).removeprefix("torch."), getattr(dtype, "__name__", None))
