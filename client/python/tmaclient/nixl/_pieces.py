# SPDX-License-Identifier: Apache-2.0
"""How a transfer is divided into what fits into a slot: the same on both sides, by the same few numbers."""

from __future__ import annotations

from typing import NamedTuple

MOST_LAYERS = 1024  # of a request to tmad
MOST_BLOCKS = 4096  # of a piece: its part of the list goes along with the request


class Piece(NamedTuple):
    """Blocks first_block and on, n_blocks of them, of layers first_layer and on; layer by layer in the slot."""

    first_layer: int
    n_layers: int
    first_block: int
    n_blocks: int


class Pieces:
    """The pieces of layers times blocks, each block of block_bytes, for slots of slot_bytes. A piece is as many whole
    layers as fit or, where that takes fewer, some of the blocks of all layers."""

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
    """At most so many of a total at a time, as evenly as that goes."""
    return -(-total // -(-total // most))


def _by_layers(layers: int, blocks: int, fit: int) -> tuple[int, int]:
    """Layers of a piece, and blocks: whole layers, or parts of one."""
    most = min(fit, MOST_BLOCKS)
    if blocks > most:
        return 1, _even(blocks, most)
    return _even(layers, min(fit // blocks, MOST_LAYERS)), blocks


def _by_blocks(layers: int, blocks: int, fit: int) -> tuple[int, int]:
    """Likewise: parts of all layers."""
    most = min(layers, fit, MOST_LAYERS)
    return _even(layers, most), _even(blocks, min(fit // most, MOST_BLOCKS))
