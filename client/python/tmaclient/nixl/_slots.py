# SPDX-License-Identifier: Apache-2.0
"""Slots: equal parts of a stage's memory, each free or with a transfer."""

from __future__ import annotations

from typing import Any

from .._core import Tensor


class Slots:
    """A pool of slots in memory from a byte on. Who has one gives it back, or leaves it behind with somebody who may
    still write to it, and until then it is lost to all."""

    def __init__(self, memory: Tensor, first: int, n: int, slot_bytes: int) -> None:
        self._memory, self._first, self.n, self.slot_bytes = memory, first, n, slot_bytes
        self._free = list(range(n))
        self._left: dict[Any, list[int]] = {}

    @property
    def n_free(self) -> int:
        """How many are free."""
        return len(self._free)

    @property
    def n_left(self) -> int:
        """How many were left behind."""
        return sum(map(len, self._left.values()))

    def may_take(self, n_taken: int) -> bool:
        """Whether a transfer that has so many gets another one. The last is for one that has none, so that a peer that
        hangs does not hold up the others."""
        return len(self._free) > (1 if n_taken and self.n > 1 else 0)

    def take(self) -> int:
        """The number of a free one."""
        return self._free.pop()

    def give(self, slot: int) -> None:
        """It is free again."""
        self._free.append(slot)

    def leave(self, slots: list[int], behind: Any) -> None:
        """They are lost until `recover` names the same one."""
        if slots:
            self._left.setdefault(behind, []).extend(slots)

    def left_behind(self) -> list[Any]:
        """With whom slots were left."""
        return list(self._left)

    def rename(self, behind: Any) -> object:
        """Another name for those with whom slots were left, under which nobody else recovers them."""
        name = object()
        self._left[name] = self._left.pop(behind)
        return name

    def recover(self, behind: Any) -> None:
        """What was left there is free again."""
        self._free += self._left.pop(behind, [])

    def address(self, slot: int) -> int:
        """Of its first byte."""
        return self._memory.data + self._offset(slot)

    def _offset(self, slot: int) -> int:
        return self._first + slot * self.slot_bytes

    def bytes(self, slot: int, n: int) -> Tensor:
        """Its first n bytes."""
        return self._memory.part(self._offset(slot), (n,), (1,))
