# SPDX-License-Identifier: Apache-2.0
"""Divides a transfer into pieces, each of which fits into a slot. Both sides compute the same division from the same
numbers, so that a piece is named by its number alone."""

from __future__ import annotations

from typing import NamedTuple

MOST_LAYERS = 1024  # maximum number of layers in a piece, as in one request to tmad
MOST_BLOCKS = 4096  # maximum number of blocks in a piece, so that its part of the block list fits into the request


class Piece(NamedTuple):
    """A part of a transfer that fits into a slot: entries first_block to first_block + n_blocks - 1 of the block list,
    in layers first_layer to first_layer + n_layers - 1. The slot holds them layer by layer."""

    first_layer: int
    n_layers: int
    first_block: int
    n_blocks: int


class Pieces:
    """The sequence of pieces of a transfer of layers * blocks blocks, each of block_bytes, for slots of slot_bytes. A
    piece is either as many whole layers as fit, or some of the blocks of all layers, whichever takes fewer pieces.
    ValueError: a block does not fit into a slot."""

    def __init__(self, layers: int, blocks: int, block_bytes: int, slot_bytes: int) -> None:
        self.layers, self.blocks = layers, blocks
        if layers == 0 or blocks == 0 or block_bytes == 0:
            self._n_layers, self._n_blocks, self._columns, self._n = 0, 0, 0, 0
            return
        fit = slot_bytes // block_bytes
        if fit < 1:
            raise ValueError(f"a block has {block_bytes} bytes; the slots have {slot_bytes}")
        self._n_layers, self._n_blocks = min(
            _by_layers(layers, blocks, fit), _by_blocks(layers, blocks, fit), key=self._count_of
        )
        self._columns = -(-blocks // self._n_blocks)
        self._n = -(-layers // self._n_layers) * self._columns

    def _count_of(self, sizes: tuple[int, int]) -> int:
        return -(-self.layers // sizes[0]) * -(-self.blocks // sizes[1])

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> Piece:
        if not 0 <= i < self._n:
            raise IndexError(i)
        row, column = divmod(i, self._columns)
        layer, block = row * self._n_layers, column * self._n_blocks
        return Piece(layer, min(self._n_layers, self.layers - layer), block, min(self._n_blocks, self.blocks - block))


def _even(total: int, most: int) -> int:
    """Returns the size of the parts that divide total as evenly as possible into the fewest parts of at most `most`."""
    return -(-total // -(-total // most))


def _by_layers(layers: int, blocks: int, fit: int) -> tuple[int, int]:
    """Returns the numbers of layers and of blocks of a piece that consists of whole layers, or of a part of one. fit:
    number of blocks that a slot has room for."""
    most = min(fit, MOST_BLOCKS)
    if blocks > most:
        return 1, _even(blocks, most)
    return _even(layers, min(fit // blocks, MOST_LAYERS)), blocks


def _by_blocks(layers: int, blocks: int, fit: int) -> tuple[int, int]:
    """Returns the numbers of layers and of blocks of a piece that consists of some blocks of as many layers as fit.
    fit: as for _by_layers."""
    most = min(layers, fit, MOST_LAYERS)
    return _even(layers, most), _even(blocks, min(fit // most, MOST_BLOCKS))
