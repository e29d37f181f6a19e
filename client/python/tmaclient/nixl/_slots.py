# SPDX-License-Identifier: Apache-2.0
"""Slots: equal parts of a stage's memory, each free or with a transfer."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Generic, Protocol, TypeVar

from .._core import Tensor


class Slots:
    """A pool of slots in memory from a byte on. Each is taken for a peer. Who has one gives it back, or leaves it
    behind with somebody who may still write to it, and until then it is lost to all."""

    def __init__(self, memory: Tensor, first: int, n: int, slot_bytes: int) -> None:
        self._memory, self._first, self.n, self.slot_bytes = memory, first, n, slot_bytes
        self._free = list(range(n))
        self._left: dict[Any, list[int]] = {}
        self._peers: dict[int, str] = {}  # for which each that is not free was taken
        self._n_of: Counter[str] = Counter()

    @property
    def n_free(self) -> int:
        """How many are free."""
        return len(self._free)

    @property
    def n_left(self) -> int:
        """How many were left behind."""
        return sum(map(len, self._left.values()))

    def n_of(self, peer: str) -> int:
        """How many were taken for a peer, those among them that were left behind."""
        return self._n_of[peer]

    def may_take(self, peer: str) -> bool:
        """Whether a peer gets another one. The last is for one that has none, so that a peer that hangs does not hold
        up the others."""
        return len(self._free) > (1 if self._n_of[peer] and self.n > 1 else 0)

    def take(self, peer: str) -> int:
        """The number of a free one."""
        slot = self._free.pop()
        self._peers[slot] = peer
        self._n_of[peer] += 1
        return slot

    def give(self, slot: int) -> None:
        """It is free again."""
        peer = self._peers.pop(slot)
        self._n_of[peer] -= 1
        if self._n_of[peer] == 0:
            del self._n_of[peer]
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
        for slot in self._left.pop(behind, []):
            self.give(slot)

    def address(self, slot: int) -> int:
        """Of its first byte."""
        return self._memory.data + self._offset(slot)

    def _offset(self, slot: int) -> int:
        return self._first + slot * self.slot_bytes

    def bytes(self, slot: int, n: int) -> Tensor:
        """Its first n bytes."""
        return self._memory.part(self._offset(slot), (n,), (1,))


class Waiting(Protocol):
    """A transfer that may want slots."""

    is_queued: bool

    @property
    def peer(self) -> str:
        """For whom."""

    @property
    def wants(self) -> bool:
        """Whether it wants another one."""

    @property
    def n_slots(self) -> int:
        """How many it has."""


W = TypeVar("W", bound=Waiting)


class Queue(Generic[W]):
    """Transfers that want a slot. The next is for a peer that has the fewest, and there for the transfer that has the
    fewest; equal ones take turns."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: dict[str, deque[W]] = {}  # for each peer

    def add(self, one: W) -> None:
        """It waits, if it wants one."""
        if one.wants and not one.is_queued:
            one.is_queued = True
            self._waiting.setdefault(one.peer, deque()).append(one)

    def take(self) -> tuple[W, int] | None:
        """The next one and its slot; None: there is no slot for any."""
        while True:
            peers = [peer for peer in self._waiting if self._slots.may_take(peer)]
            if not peers:
                return None
            peer = min(peers, key=self._slots.n_of)
            waiting = self._waiting.pop(peer)
            one = _fewest(waiting)
            waiting.remove(one)
            if waiting:
                self._waiting[peer] = waiting
            one.is_queued = False
            if one.wants:
                return one, self._slots.take(peer)


def _fewest(waiting: deque[W]) -> W:
    """The first of those that have the fewest slots. All but a few have none."""
    least = waiting[0]
    for one in waiting:
        if one.n_slots < least.n_slots:
            least = one
        if least.n_slots == 0:
            break
    return least
