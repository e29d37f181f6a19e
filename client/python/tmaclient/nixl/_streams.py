# SPDX-License-Identifier: Apache-2.0
"""Waits for the work in CUDA streams without blocking. A stream that is awaited sets a word in memory when it has
finished that work, and every step of the stage polls these words. If a request to tmad waited for the stream instead,
it would hold up all requests behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import _core

_WORD_BYTES = 8
_REGION_BYTES = 4096

OnSignal = Callable[[None], None]


class _Awaited(NamedTuple):
    word: tuple[int, int]  # number of the region, and of the word in it
    value: int  # the value that the stream sets the word to
    on_end: OnSignal


class Streams:
    """The streams that are awaited. Callers must hold the stage's lock."""

    def __init__(self, core: _core.Client) -> None:
        self._core = core
        self._regions: list[_core.Region] = []
        self._words: list[memoryview] = []  # each region as 64-bit words
        self._free: list[tuple[int, int]] = []  # words that no stream is going to set
        self._awaited: list[_Awaited] = []

    def __len__(self) -> int:
        return len(self._awaited)

    def signal(self, stream: tuple[int, int], on_end: OnSignal) -> None:
        """Has on_end called by a later step, when a stream has finished all work that is queued in it now. stream: its
        handle and the ordinal of its device."""
        if not self._free:
            self._add_region()
        region, word = place = self._free[-1]
        value = self._words[region][word] + 1
        self._core.stream_point(self._regions[region], word * _WORD_BYTES, value, stream, False)
        self._free.pop()
        self._awaited.append(_Awaited(place, value, on_end))

    def _add_region(self) -> None:
        region = self._core.create(_REGION_BYTES)
        self._regions.append(region)
        self._words.append(memoryview(region)[:_REGION_BYTES].cast("Q"))
        number = len(self._regions) - 1
        self._free += [(number, word) for word in range(_REGION_BYTES // _WORD_BYTES)]

    def step(self) -> int:
        """Calls on_end of each stream that has set its word. Returns the number of these streams."""
        ended: list[_Awaited] = []
        awaited: list[_Awaited] = []
        for one in self._awaited:
            region, word = one.word
            (ended if self._words[region][word] == one.value else awaited).append(one)
        self._awaited = awaited
        for one in ended:
            self._free.append(one.word)
            one.on_end(None)
        return len(ended)
