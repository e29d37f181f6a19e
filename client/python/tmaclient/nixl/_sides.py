# SPDX-License-Identifier: Apache-2.0
"""The two sides of a transfer. Each has arrays, one for each layer, and a list of blocks, and makes the requests to
tmad that move a piece of these blocks into a slot or out of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from .. import _core
from .._arrays import adapt, count, dense
from .._client import Client
from .._conversion import array_of, is_number
from .._core import Request, Tensor
from .._jobs import Job, Options, streams_of
from .._layers import Layers, is_layered
from .._moves import Blocks, Index, parse_axes, parse_axis
from ._pieces import Piece


class Side:
    """Arrays of one shape, type and strides, and the blocks of each along an axis. On the wire a block is contiguous,
    its element type is `dtype` and its extents are `shape`. A source permutes the dimensions of its arrays on the way
    to the wire, a destination permutes those of the wire on the way to its arrays."""

    dtype: str

    def __init__(self, client: Client, layers: Any, blocks: Any, axis: int, permute: Any, options: Options) -> None:
        self._client, self._options = client, _reaching(client, options)
        self.layers = _parse_layers(client, layers)
        first = self.layers.first
        self._axis = parse_axis(axis, first.ndim)
        self._permute = parse_axes(permute, first.ndim, "permute")
        limit = first.shape[self._axis]
        index = Index.parse(range(limit) if blocks is None else blocks, limit)
        if index.device is not None:
            raise TypeError("blocks: the list is on a device; a stage divides it on the host")
        self._index = index.tensor
        self.n_layers, self.n_blocks = len(self.layers), len(index)
        self.shape = self._wire_shape(first.shape)
        # Request.again() makes a request again for other layers and another block list, but only if the request lists
        # the layers and numbers the blocks as the arguments do. With one array for all layers, a request has a step
        # from layer to layer instead; along a negative stride, it numbers the blocks backwards.
        self._is_repeating = self.layers.whole is None and first.strides[self._axis] > 0
        self._made: dict[tuple[int, int], Request] = {}  # requests to reuse, by numbers of layers and blocks

    def _wire_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def block_bytes(self) -> int:
        """The size of a block on the wire, in bytes."""
        return count(self.shape) * _core.DTYPES[self.dtype]

    @property
    def nbytes(self) -> int:
        """The size of all blocks of all layers on the wire, in bytes."""
        return self.n_layers * self.n_blocks * self.block_bytes

    def streams(self) -> Iterable[tuple[int, int]]:
        """Returns the CUDA streams in which the caller works on the arrays and on the arrays for scale and bias, each
        stream with the ordinal of its device."""
        arrays = list(self.layers.arrays)
        for name, given in (("scale", self._options.casting.scale), ("bias", self._options.casting.bias)):
            if given is not None and not is_number(given):
                arrays.append(adapt(array_of(given, name), name))
        return streams_of(arrays)

    def request(self, piece: Piece, slot: Tensor) -> Request:
        """Returns a request that moves a piece between the layers and slot, the bytes of a slot that the piece
        takes."""
        size = (piece.n_layers, piece.n_blocks)
        blocks = self._index.part(piece.first_block, (piece.n_blocks,), (1,))
        some = slice(piece.first_layer, piece.first_layer + piece.n_layers)
        made = self._made.get(size)
        if made is not None:
            return made.again(blocks, slot, self.layers.tensors[some])
        move = self._job(piece, self.layers[some], blocks, slot).move
        assert isinstance(move, Blocks)
        made = move.request(self._client._core)
        if self._is_repeating and move.index.is_sent(move.place_bytes):
            self._made[size] = made
        return made

    def _job(self, piece: Piece, layers: Layers, blocks: Tensor, slot: Tensor) -> Job:
        raise NotImplementedError

    def piece_bytes(self, piece: Piece) -> int:
        """Returns the size of a piece on the wire, in bytes."""
        return piece.n_layers * piece.n_blocks * self.block_bytes

    def _on_wire(self, slot: Tensor, piece: Piece, axis: int) -> Tensor:
        """Returns a piece in a slot, where it lies layer by layer and block by block, as a tensor of [layer, ...] whose
        blocks are along an axis of each layer."""
        inner, size = dense(self.shape), count(self.shape)
        shape = (*self.shape[:axis], piece.n_blocks, *self.shape[axis:])
        strides = (*inner[:axis], size, *inner[axis:])
        elements = slot.viewed(self.dtype, (piece.n_layers * piece.n_blocks * size,))
        return elements.part(0, (piece.n_layers, *shape), (piece.n_blocks * size, *strides))


class Source(Side):
    """The side of a send: pieces are gathered from its arrays."""

    def __init__(self, client: Client, layers: Any, blocks: Any, axis: int, permute: Any, options: Options) -> None:
        super().__init__(client, layers, blocks, axis, permute, options)
        self.dtype = options.casting.result_dtype(self.layers.first)

    def _wire_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        order = self._permute if self._permute is not None else range(len(shape))
        self._wire_axis = list(order).index(self._axis)
        return tuple(shape[d] for d in order if d != self._axis)

    def _job(self, piece: Piece, layers: Layers, blocks: Tensor, slot: Tensor) -> Job:
        out = self._on_wire(slot, piece, self._wire_axis)
        return self._client._gather_job(layers, blocks, self._axis, self._permute, out, self._options)


class Destination(Side):
    """The side of a receive: pieces are scattered into its arrays."""

    def __init__(self, client: Client, layers: Any, blocks: Any, axis: int, permute: Any, options: Options) -> None:
        super().__init__(client, layers, blocks, axis, permute, options)
        self.dtype = self.layers.first.dtype
        for i, t in enumerate(self.layers.tensors):
            if t.readonly:
                raise ValueError(f"layers[{i}]: the array is read-only")
        first_at: dict[int, int] = {}
        for i, t in enumerate(self.layers.tensors if self.nbytes else ()):
            if first_at.setdefault(t.data, i) != i:
                raise ValueError(f"layers[{i}]: it is the memory of layers[{first_at[t.data]}]; each is written once")
        entries = memoryview(self._index).tolist()
        if len(set(entries)) < len(entries):
            twice = next(a for a, b in itertools.pairwise(sorted(entries)) if a == b)
            raise ValueError(f"blocks: block {twice} is there twice; each is written once")

    def _wire_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._permute is None:
            self._wire_axis = self._axis
            return shape[: self._axis] + shape[self._axis + 1 :]
        self._wire_axis = self._permute[self._axis]
        extents = dict(zip(self._permute, shape, strict=True))
        return tuple(extents[d] for d in range(len(shape)) if d != self._wire_axis)

    def is_casting(self) -> bool:
        """Returns whether the type on the wire may differ from that of the arrays."""
        return self._options.casting.cast is not None

    def _job(self, piece: Piece, layers: Layers, blocks: Tensor, slot: Tensor) -> Job:
        src = self._on_wire(slot, piece, self._wire_axis)
        return self._client._scatter_job(layers, blocks, src, self._axis, self._permute, self._options)


def _parse_layers(client: Client, given: Any) -> Layers:
    """Returns the layers that an argument lists. ValueError: the service cannot reach the memory of one of them."""
    layers = Layers.parse(given if is_layered(given) else [given], "layers")
    for i, t in enumerate(layers.tensors):
        if not client._is_reached(t):
            raise ValueError(f"layers[{i}]: the service does not have its memory; make it by empty() or register() it")
    return layers


def _reaching(client: Client, options: Options) -> Options:
    """Returns the options with scale and bias in memory that the service reaches. If they are elsewhere, they are
    copied, once for all pieces."""

    def reach(given: Any, name: str) -> Any:
        if given is None or is_number(given):
            return given
        array = adapt(array_of(given, name), name)
        return given if client._is_reached(array.tensor) else client._shared_copy(array.tensor)

    c = options.casting
    scale, bias = reach(c.scale, "scale"), reach(c.bias, "bias")
    if scale is c.scale and bias is c.bias:
        return options
    return options.converting(dtype=c.dtype, cast=c.cast, scale=scale, bias=bias)
