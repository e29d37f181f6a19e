# SPDX-License-Identifier: Apache-2.0
"""Slices of a tensor that is divided among several arrays, as in tensor parallelism, and the move between two such
divisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from . import _core
from ._arrays import Array, adapt
from ._core import Request, Tensor
from ._moves import integer, parse_axis, sequence


class Slice(NamedTuple):
    """A part of a larger tensor: an array, and the index in that tensor of its element [0, ..., 0]."""

    array: Any
    start: Sequence[int]


def shards(arrays: Iterable[Any], axis: int = 0) -> list[Slice]:
    """Returns the slices of arrays that lie one after the other along an axis of a tensor, as in tensor parallelism,
    where array r belongs to rank r. Their extents along the axis may differ. For other tilings, make each Slice
    yourself."""
    slices: list[Slice] = []
    at = 0
    for i, array in enumerate(arrays):
        shape = _shape(array, f"arrays[{i}]")
        axis_ = parse_axis(axis, len(shape))
        slices.append(Slice(array, tuple(at if d == axis_ else 0 for d in range(len(shape)))))
        at += shape[axis_]
    return slices


def _shape(array: Any, name: str) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    return tuple(shape) if shape is not None else adapt(array, name).tensor.shape


class Reshard:
    """A move that assembles destinations from sources.

    arrays          the callers' arrays, destinations first
    starts          the start of each array in the whole tensor
    n_destinations  number of destinations
    shape           shape of the whole tensor; None: the slices are not checked against it
    tensors         the tensor of each array
    """

    __slots__ = ("arrays", "n_destinations", "shape", "starts", "tensors")

    def __init__(
        self, arrays: list[Array], starts: list[tuple[int, ...]], n_destinations: int, shape: tuple[int, ...] | None
    ) -> None:
        self.arrays, self.starts, self.n_destinations, self.shape = arrays, starts, n_destinations, shape
        self.tensors = [a.tensor for a in arrays]

    @classmethod
    def parse(cls, destinations: Any, sources: Any, shape: Any) -> Reshard:
        """Returns the reshard that lists of slices give, each of which is a pair of an array and its start."""
        written = [_parse_slice(s, f"destinations[{i}]") for i, s in enumerate(sequence(destinations, "destinations"))]
        read = [_parse_slice(s, f"sources[{i}]") for i, s in enumerate(sequence(sources, "sources"))]
        for i, (array, _) in enumerate(written):
            if array.tensor.readonly:
                raise ValueError(f"destinations[{i}]: the array is read-only")
        both = written + read
        given = None if shape is None else _integers(shape, "shape")
        return cls([array for array, _ in both], [start for _, start in both], len(written), given)

    def check(self) -> None:
        """Raises the errors that the service would raise if it reached all memory. It is called before anything is
        staged."""
        n, tensors = self.n_destinations, self.tensors
        written = [(f"destinations[{i}]", t) for i, t in enumerate(tensors[:n])]
        _core.check_apart(written, [(f"sources[{i}]", t) for i, t in enumerate(tensors[n:])])

    def request(self, tensors: Sequence[Tensor] | None = None) -> Request:
        """Returns the request of the reshard. tensors: tensors to take in place of its own; None: its own."""
        given = self.tensors if tensors is None else tensors
        return Request.reshard(given, self.starts, self.n_destinations, self.shape)

    def streams(self) -> dict[int, tuple[int, int]]:
        """Returns the caller's stream on each device that has arrays, by the ordinal of the device: that of the first
        array there, as its handle and the ordinal."""
        streams: dict[int, tuple[int, int]] = {}
        for a in self.arrays:
            if a.tensor.is_host or a.tensor.size == 0:
                continue
            device = _core.device_of(a.tensor.data)
            if device not in streams:
                streams[device] = (a.kind.stream(a.object, a.tensor), device)
        return streams


def _parse_slice(slice_: Any, name: str) -> tuple[Array, tuple[int, ...]]:
    if not isinstance(slice_, (tuple, list)) or len(slice_) != 2:
        raise TypeError(f"{name}: {type(slice_).__name__}; a slice is a pair of an array and where it starts")
    array = adapt(slice_[0], f"{name}[0]")
    start = _integers(slice_[1], f"{name}[1]")
    if len(start) != array.tensor.ndim:
        raise ValueError(f"{name}[1]: {len(start)} numbers for an array of {array.tensor.ndim} dimensions")
    return array, start


def _integers(numbers: Any, name: str) -> tuple[int, ...]:
    return tuple(integer(n, name) for n in sequence(numbers, name))
