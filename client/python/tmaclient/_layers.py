# SPDX-License-Identifier: Apache-2.0
"""Layers: arrays of one shape, type and strides. A gather or a scatter of layers moves the same blocks of each
array."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ._arrays import Array, adapt
from ._core import Tensor


class Layers:
    """The layers on one side of a move: separate arrays, or one array whose first dimension counts the layers. A gather
    and a scatter take a Layers object in place of a list of arrays, so that a caller who moves the same layers many
    times adapts them only once, with Layers.parse. layers[a:b] selects some of them.

    arrays   the caller's arrays: one for each layer, or the array that has them all
    first    tensor of the first layer
    whole    tensor of the array that has all layers; None: each layer is a separate array
    """

    __slots__ = ("_tensors", "arrays", "first", "whole")

    def __init__(self, arrays: tuple[Array, ...], tensors: tuple[Tensor, ...] | None, whole: Tensor | None) -> None:
        """Takes the caller's arrays, and either the tensors of the layers or, for one array that has all of them, its
        tensor as whole; the other argument is None."""
        self.arrays, self.whole, self._tensors = arrays, whole, tensors
        self.first = tensors[0] if tensors is not None else self._part(0)

    @classmethod
    def parse(cls, given: Any, name: str) -> Layers:
        """Returns the layers that a list of arrays gives. Errors name the first array that is wrong."""
        if isinstance(given, Layers):
            return given
        arrays = tuple(adapt(obj, f"{name}[{i}]") for i, obj in enumerate(given))
        if not arrays:
            raise ValueError(f"{name}: it is empty; there is at least one layer")
        first = arrays[0].tensor
        layout = (first.dtype, first.shape, first.strides)
        for i, t in enumerate(array.tensor for array in arrays):
            if (t.dtype, t.shape, t.strides) != layout and _layout_of(t) != _layout_of(first):
                raise ValueError(f"{name}[{i}]: {_words(t)}; {name}[0] is {_words(first)}: layers are laid out alike")
            if t.is_host != first.is_host:
                here, there = ("host", "device") if t.is_host else ("device", "host")
                raise ValueError(f"{name}[{i}]: {here} memory; {name}[0] is {there} memory: layers are in one of both")
        return cls(arrays, tuple(array.tensor for array in arrays), None)

    @classmethod
    def stacked(cls, array: Array) -> Layers:
        """Returns the layers of an array whose first dimension counts them."""
        return cls((array,), None, array.tensor)

    def __len__(self) -> int:
        return self.whole.shape[0] if self.whole is not None else len(self.tensors)

    def __getitem__(self, some: slice) -> Layers:
        start, stop, step = some.indices(len(self))
        numbers = range(start, stop, step)
        if len(numbers) == 0:
            raise ValueError(f"layers[{start}:{stop}]: there are {len(self)}, and a move has at least one")
        whole = self.whole
        if whole is None:
            arrays = self.arrays[some] if len(self.arrays) == len(self) else self.arrays
            return Layers(arrays, self.tensors[some], None)
        strides = (step * whole.strides[0], *whole.strides[1:])
        at = start * whole.strides[0] if whole.size else 0
        return Layers(self.arrays, None, whole.part(at, (len(numbers), *whole.shape[1:]), strides))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """A tensor for each layer."""
        if self._tensors is None:
            self._tensors = tuple(self._part(i) for i in range(len(self)))
        return self._tensors

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        """The tensors that cover all layers: the whole if they are one array, or else one for each layer."""
        return (self.whole,) if self.whole is not None else self.tensors

    def map(self, change: Callable[[Tensor], Tensor]) -> Layers:
        """Returns the same layers in the tensors that change() returns for them."""
        if self.whole is not None:
            return Layers(self.arrays, None, change(self.whole))
        return Layers(self.arrays, tuple(change(t) for t in self.tensors), None)

    def listed(self) -> Layers:
        """Returns the same layers as separate tensors."""
        return Layers(self.arrays, self.tensors, None)

    @property
    def all(self) -> Tensor:
        """The tensor that the block in a request belongs to: the whole, or the first layer if the request lists the
        layers."""
        return self.whole if self.has_step and self.whole is not None else self.tensors[0]

    @property
    def steps(self) -> int | tuple[Tensor, ...]:
        """The form in which a request gives the layers: bytes from one layer to the next, or a tensor for each."""
        if self.has_step and self.whole is not None:
            return self.whole.strides[0] * self.whole.itemsize if len(self) > 1 else 0
        return self.tensors

    @property
    def has_step(self) -> bool:
        """True if the layers are one array, at increasing addresses, so that a request can describe them by a step: the
        distance from one layer to the next."""
        return self.whole is not None and (self.whole.strides[0] > 0 or len(self) == 1)

    def _part(self, i: int) -> Tensor:
        assert self.whole is not None
        shape, strides = self.whole.shape, self.whole.strides
        return self.whole.part(i * strides[0] if self.whole.size else 0, shape[1:], strides[1:])


def is_layered(obj: Any) -> bool:
    """Returns whether an argument lists layers, and is not one array."""
    return isinstance(obj, (list, tuple, Layers))


def overlapping(these: Sequence[Tensor], others: Sequence[Tensor]) -> list[bool]:
    """Returns, for each of these tensors, whether the range of bytes from its first to its last element intersects the
    range of any of the others."""
    if len(these) == len(others) == 1:
        (a, a_size), (b, b_size) = these[0].extent, others[0].extent
        return [a < b + b_size and b < a + a_size and a_size > 0 and b_size > 0]
    extents = sorted((start, start + size) for start, size in (t.extent for t in others) if size)
    starts = [start for start, _ in extents]
    ends = list(accumulate((end for _, end in extents), max))

    def is_one(start: int, size: int) -> bool:
        before = bisect_left(starts, start + size)  # number of the others that begin before the end of this one
        return size > 0 and before > 0 and ends[before - 1] > start

    return [is_one(*t.extent) for t in these]


def _layout_of(t: Tensor) -> tuple[str, Sequence[int], tuple[int, ...]]:
    """Returns type, shape and strides, with 0 for strides of dimensions of at most one element, which do not matter."""
    return t.dtype, t.shape, tuple(s if n > 1 else 0 for n, s in zip(t.shape, t.strides, strict=True))


def _words(t: Tensor) -> str:
    return f"{t.dtype} {list(t.shape)} with strides {list(t.strides)}"
