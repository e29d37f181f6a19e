# SPDX-License-Identifier: Apache-2.0
"""Slots, which are equal parts of a stage's memory, and the queue of transfers that wait for one. Callers that change
anything must hold the stage's lock."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Generic, Protocol, TypeVar

from .._core import Tensor


class Slots:
    """A pool of n slots of slot_bytes each, in memory from byte `first` on. A transfer takes a slot for its peer. At
    the end it gives the slot back or, if the peer may still write to it, leaves it behind under a key: nobody can take
    the slot then until recover() is called with that key."""

    def __init__(self, memory: Tensor, first: int, n: int, slot_bytes: int) -> None:
        self._memory, self._first, self.n, self.slot_bytes = memory, first, n, slot_bytes
        self._free = list(range(n))
        self._left: dict[Any, list[int]] = {}  # slots that were left behind, by key
        self._peers: dict[int, str] = {}  # the peer that each slot was taken for, unless the slot is free
        self._n_of: Counter[str] = Counter()  # number of slots taken for each peer

    @property
    def n_free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    @property
    def n_left(self) -> int:
        """The number of slots that were left behind."""
        return sum(map(len, self._left.values()))

    def n_of(self, peer: str) -> int:
        """Returns how many slots are taken for a peer, including those that were left behind."""
        return self._n_of[peer]

    def may_take(self, peer: str) -> bool:
        """Returns whether a slot may be taken for a peer. The last free slot is reserved for a peer that has none, so
        that a peer that hangs does not hold up the others."""
        return len(self._free) > (1 if self._n_of[peer] and self.n > 1 else 0)

    def take(self, peer: str) -> int:
        """Takes a free slot for a peer, and returns its number. The caller must have checked may_take()."""
        slot = self._free.pop()
        self._peers[slot] = peer
        self._n_of[peer] += 1
        return slot

    def give(self, slot: int) -> None:
        """Frees a slot."""
        peer = self._peers.pop(slot)
        self._n_of[peer] -= 1
        if self._n_of[peer] == 0:
            del self._n_of[peer]
        self._free.append(slot)

    def leave(self, slots: list[int], behind: Any) -> None:
        """Leaves slots behind, under the key `behind`, until recover() is called with it."""
        if slots:
            self._left.setdefault(behind, []).extend(slots)

    def left_behind(self) -> list[Any]:
        """Returns the keys that slots were left behind under."""
        return list(self._left)

    def rename(self, behind: Any) -> object:
        """Moves the slots of a key to a new unique key, and returns the new key. Only a caller that has the new key can
        recover the slots."""
        name = object()
        self._left[name] = self._left.pop(behind)
        return name

    def recover(self, behind: Any) -> None:
        """Frees the slots that were left behind under a key, if there are any."""
        for slot in self._left.pop(behind, []):
            self.give(slot)

    def address(self, slot: int) -> int:
        """Returns the address of a slot."""
        return self._memory.data + self._offset(slot)

    def _offset(self, slot: int) -> int:
        return self._first + slot * self.slot_bytes

    def bytes(self, slot: int, n: int) -> Tensor:
        """Returns the first n bytes of a slot."""
        return self._memory.part(self._offset(slot), (n,), (1,))


class Waiting(Protocol):
    """A transfer that may want slots."""

    is_queued: bool

    @property
    def peer(self) -> str:
        """The name of the peer that slots are taken for."""

    @property
    def wants(self) -> bool:
        """True if the transfer could use another slot now."""

    @property
    def n_slots(self) -> int:
        """The number of slots that the transfer occupies."""


W = TypeVar("W", bound=Waiting)


class Queue(Generic[W]):
    """The transfers that wait for a slot. The next slot goes to the peer that has the fewest slots, and among its
    transfers to the one that has the fewest slots. Those that have equally many take turns."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: dict[str, deque[W]] = {}  # by peer

    def add(self, one: W) -> None:
        """Appends a transfer, unless it wants no slot or is in the queue already."""
        if one.wants and not one.is_queued:
            one.is_queued = True
            self._waiting.setdefault(one.peer, deque()).append(one)

    def take(self) -> tuple[W, int] | None:
        """Takes a slot for the next transfer, and returns both. None: no transfer waits, or none may take a slot."""
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
    """Returns the first of the transfers that have the fewest slots. The search ends early in most cases, because all
    but a few transfers have none."""
    least = waiting[0]
    for one in waiting:
        if one.n_slots < least.n_slots:
            least = one
        if least.n_slots == 0:
            break
    return least
