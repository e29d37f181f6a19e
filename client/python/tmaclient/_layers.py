# SPDX-License-Identifier: Apache-2.0
"""Layers: arrays of one shape, type and strides, of which a gather or a scatter moves the same blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ._arrays import Array, adapt
from ._core import Tensor


class Layers:
    """The layers on one side of a move: arrays of their own, or one array with the layers in front. A gather and a
    scatter take it in place of a list: who moves the same layers many times adapts them once, with Layers.parse.
    layers[a:b] are some of them."""

    __slots__ = ("_tensors", "arrays", "first", "whole")

    def __init__(self, arrays: tuple[Array, ...], tensors: tuple[Tensor, ...] | None, whole: Tensor | None) -> None:
        """One of tensors and whole is None. arrays: those of the caller's that they are of."""
        self.arrays, self.whole, self._tensors = arrays, whole, tensors
        self.first = tensors[0] if tensors is not None else self._part(0)

    @classmethod
    def parse(cls, given: Any, name: str) -> Layers:
        """Of a list of arrays. Errors name the first array that is wrong."""
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
        """Of an array that has them in front."""
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
        """Each of them."""
        if self._tensors is None:
            self._tensors = tuple(self._part(i) for i in range(len(self)))
        return self._tensors

    @property
    def pieces(self) -> tuple[Tensor, ...]:
        """The same, as they lie in memory: one, if they are one array."""
        return (self.whole,) if self.whole is not None else self.tensors

    def map(self, change: Callable[[Tensor], Tensor]) -> Layers:
        """The same in other memory."""
        if self.whole is not None:
            return Layers(self.arrays, None, change(self.whole))
        return Layers(self.arrays, tuple(change(t) for t in self.tensors), None)

    def listed(self) -> Layers:
        """Returns the same layers, each by itself."""
        return Layers(self.arrays, self.tensors, None)

    @property
    def all(self) -> Tensor:
        """What a request's tensor is a block of."""
        return self.whole if self.has_step and self.whole is not None else self.tensors[0]

    @property
    def steps(self) -> int | tuple[Tensor, ...]:
        """How a request has them: bytes from layer to layer, or each by itself."""
        if self.has_step and self.whole is not None:
            return self.whole.strides[0] * self.whole.itemsize if len(self) > 1 else 0
        return self.tensors

    @property
    def has_step(self) -> bool:
        """Whether they are one array, with its layers in the order of addresses."""
        return self.whole is not None and (self.whole.strides[0] > 0 or len(self) == 1)

    def _part(self, i: int) -> Tensor:
        assert self.whole is not None
        shape, strides = self.whole.shape, self.whole.strides
        return self.whole.part(i * strides[0] if self.whole.size else 0, shape[1:], strides[1:])


def is_layered(obj: Any) -> bool:
    """Whether an argument lists layers."""
    return isinstance(obj, (list, tuple, Layers))


def overlapping(these: Sequence[Tensor], others: Sequence[Tensor]) -> list[bool]:
    """For each of these, whether the bytes that it lies between have some in common with those of any of the others."""
    if len(these) == len(others) == 1:
        (a, a_size), (b, b_size) = these[0].extent, others[0].extent
        return [a < b + b_size and b < a + a_size and a_size > 0 and b_size > 0]
    extents = sorted((start, start + size) for start, size in (t.extent for t in others) if size)
    starts = [start for start, _ in extents]
    ends = list(accumulate((end for _, end in extents), max))

    def is_one(start: int, size: int) -> bool:
        before = bisect_left(starts, start + size)  # the others that begin before its end
        return size > 0 and before > 0 and ends[before - 1] > start

    return [is_one(*t.extent) for t in these]


def _layout_of(t: Tensor) -> tuple[str, Sequence[int], tuple[int, ...]]:
    """Strides along which there is nothing do not count."""
    return t.dtype, t.shape, tuple(s if n > 1 else 0 for n, s in zip(t.shape, t.strides, strict=True))


def _words(t: Tensor) -> str:
    return f"{t.dtype} {list(t.shape)} with strides {list(t.strides)}"
