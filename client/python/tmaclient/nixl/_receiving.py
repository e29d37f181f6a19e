# SPDX-License-Identifier: Apache-2.0
"""The receives of a stage: each meets the offer of its peer and tag, lends slots to the sender, and scatters what
comes.

A slot that is lent is the sender's to write into until the data has come, or the sender has said that no write is under
way, or it is gone. Until then it is lent to nobody else, even if the receive has failed: what comes late would be taken
for another transfer's. After a peer is gone and its connection closed, what had already arrived of it may still be
written for a moment.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._errors import (
    BusyError,
    CanceledError,
    DisconnectedError,
    Error,
    InvalidArgumentError,
    ProtocolError,
    QuotaError,
)
from ._exchange import Exchange, Transfer, Work
from ._messages import Message
from ._pieces import Pieces
from ._sides import Destination
from ._slots import Queue, Slots

MOST_OFFERS = 4096  # of a peer, that no receive has met; of all together whose metadata the agent has not
_MOST_GRANTS = 1024  # in a message
SETTLE_S = 1.0

Key = tuple[str, int, int]  # peer, number of its stage, and its number of the transfer


class Receiving:
    """A receive under way."""

    def __init__(self, transfer: Transfer, destination: Destination, order: dict[str, Any]) -> None:
        self.transfer, self.destination, self.order = transfer, destination, order
        self.key: Key | None = None  # of the offer that it has met
        self.pieces: Pieces | None = None
        self.lent: dict[int, int] = {}  # slot: loan
        self.arrived: set[int] = set()
        self.n_done = self.n_scatters = self.n_streams = 0
        self.error: Exception | None = None
        self.is_queued = False

    @property
    def peer(self) -> str:
        """Name of the sender's agent."""
        return self.transfer.peer

    @property
    def n_slots(self) -> int:
        """How many it has."""
        return len(self.lent) + self.n_scatters

    @property
    def wants(self) -> bool:
        """Whether it could lend another slot."""
        return bool(
            self.error is None
            and self.pieces is not None
            and self.n_streams == 0
            and len(self.arrived) + len(self.lent) < len(self.pieces)
        )


class Receivers:
    """All of them, the offers that nobody expects yet, and the slots that they lend."""

    def __init__(self, exchange: Exchange, slots: Slots) -> None:
        self._exchange, self.slots = exchange, slots
        self._loans = itertools.count(1)
        self._expected: dict[tuple[str, str], deque[Receiving]] = {}
        self._offers: dict[tuple[str, str], dict[Key, Message]] = {}  # by peer and tag
        self._waiting: dict[Key, tuple[str, str]] = {}  # tag and account of each of them
        self._n_offers: Counter[str] = Counter()  # of each account
        self._stages: dict[str, int] = {}  # numbers of those that offered something last
        self._met: dict[Key, Receiving] = {}
        self._all: set[Receiving] = set()
        self._queue: Queue[Receiving] = Queue(slots)
        self._settling: list[tuple[float, object]] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Receiving]:
        return iter(list(self._all))

    @property
    def is_receiving(self) -> bool:
        """Whether a sender is about to write."""
        return bool(self._met)

    @property
    def n_offers(self) -> int:
        """How many offers no receive has met."""
        return len(self._waiting)

    def start(self, transfer: Transfer, destination: Destination, order: dict[str, Any]) -> None:
        """Begins a receive."""
        receiving = Receiving(transfer, destination, order)
        self._all.add(receiving)
        try:
            for stream in destination.streams():
                self._exchange.await_stream(stream, lambda error: self._on_stream(receiving, error))
                receiving.n_streams += 1
        except BaseException:
            receiving.error = CanceledError("it was not begun")  # what is awaited already finds it so
            self._all.discard(receiving)
            raise
        place = (transfer.peer, transfer.tag)
        offers = self._offers.get(place)
        if offers:
            self._meet(receiving, self._take_offer(place, next(iter(offers))))
        else:
            transfer._touch("no offer has come")
            self._expected.setdefault(place, deque()).append(receiving)

    def _on_stream(self, receiving: Receiving, error: Exception | None) -> None:
        receiving.n_streams -= 1
        if error is not None:
            self.fail(receiving, error)
        self._queue.add(receiving)
        self._check(receiving)

    # ---- What senders say ----------------------------------------------------------------------------------

    def on_offer(self, peer: str, message: Message, is_known: bool) -> None:
        """A transfer that a peer wants to begin. is_known: whether it can be told anything."""
        key = (peer, message["from"], message["id"])
        if key in self._met or key in self._waiting:
            return
        if is_known:  # of others there may be any number
            self._lose_earlier(peer, message["from"])
        place = (peer, message["tag"])
        expected = self._expected.get(place)
        if expected:
            receiving = expected.popleft()
            if not expected:
                del self._expected[place]
            self._meet(receiving, message)
            return
        account = peer if is_known else ""
        if self._n_offers[account] >= MOST_OFFERS:
            if not is_known:
                return
            error = BusyError(f"{MOST_OFFERS} offers of {peer!r} wait to be received, and there can be no more")
            self._exchange.tell_failed(peer, message["from"], message["id"], "receiver", error)
            return
        self._offers.setdefault(place, {})[key] = message
        self._waiting[key] = (message["tag"], account)
        self._n_offers[account] += 1

    def _take_offer(self, place: tuple[str, str], key: Key) -> Message:
        offers = self._offers[place]
        message = offers.pop(key)
        if not offers:
            del self._offers[place]
        _, account = self._waiting.pop(key)
        self._n_offers[account] -= 1
        if self._n_offers[account] == 0:
            del self._n_offers[account]
        return message

    def _meet(self, receiving: Receiving, message: Message) -> None:
        receiving.key = (receiving.peer, message["from"], message["id"])
        self._met[receiving.key] = receiving
        before = ", and the stream of its arrays has work before it" if receiving.n_streams else ""
        receiving.transfer._touch(f"it has met its offer{before}")
        try:
            receiving.pieces = self._divide(receiving.destination, message)
        except (Error, ValueError) as e:
            error = e if isinstance(e, Error) else InvalidArgumentError(str(e))
            self.fail(receiving, error)
            return
        self._queue.add(receiving)
        self._check(receiving)

    def _divide(self, destination: Destination, message: Message) -> Pieces:
        """The pieces of an offer that fits to what is expected."""
        shape, dtype = message["shape"], message["dtype"]
        if message["slot_bytes"] < 1:
            raise ProtocolError(f"the offer's slot_bytes is {message['slot_bytes']}; it is 1 or more")
        if dtype not in _core.DTYPES:
            raise ProtocolError(f"the offer's dtype {dtype[:16]!r} is unknown")
        offered, expected = (message["layers"], message["blocks"]), (destination.n_layers, destination.n_blocks)
        for name, a, b in zip(("layers", "blocks"), offered, expected, strict=True):
            if a != b:
                raise InvalidArgumentError(f"{name}: the sender has {a}, the receiver {b}")
        if tuple(shape) != destination.shape:
            raise InvalidArgumentError(
                f"a block: the sender has {shape}, the receiver {list(destination.shape)}, both as it is on the wire"
            )
        if dtype != destination.dtype and not destination.is_casting():
            raise InvalidArgumentError(
                f"dtype: the sender has {dtype}, the receiver {destination.dtype}; to convert, one of them names a cast"
            )
        destination.dtype = dtype
        size = min(self.slots.slot_bytes, message["slot_bytes"])
        pieces = Pieces(*expected, destination.block_bytes, size)
        if len(pieces) and self.slots.n == 0:
            raise QuotaError("the stage was made with receive_slots=0")
        return pieces

    def on_data(self, peer: str, message: Message) -> None:
        """A piece that is in its slot."""
        receiving = self._met.get((peer, message["from"], message["id"]))
        if receiving is None or receiving.error is not None:
            return
        slot, number = message["slot"], message["piece"]
        assert receiving.pieces is not None
        if receiving.lent.get(slot) != message["loan"] or not 0 <= number < len(receiving.pieces):
            self.fail(
                receiving, ProtocolError(f"{peer!r} has written piece {number} to slot {slot}, which is not lent")
            )
            return
        if number in receiving.arrived:
            self.fail(receiving, ProtocolError(f"{peer!r} has written piece {number} twice"))
            return
        del receiving.lent[slot]
        receiving.arrived.add(number)
        receiving.transfer._touch(f"piece {number} has arrived")
        self._scatter(receiving, slot, number)

    def on_failed(self, peer: str, message: Message, error: Error) -> None:
        """The sender has failed, and writes no more."""
        key = (peer, message["from"], message["id"])
        self.slots.recover(key)
        receiving = self._met.get(key)
        if receiving is not None:
            for slot in receiving.lent:
                self.slots.give(slot)
            receiving.lent.clear()
            self.fail(receiving, error, tell=False)
            return
        if key in self._waiting:
            self._take_offer((peer, self._waiting[key][0]), key)

    def on_closed(self, peer: str, message: Message) -> None:
        """The sender writes no more into the slots of a transfer that has failed."""
        self.slots.recover((peer, message["from"], message["id"]))

    def lose(self, peer: str, why: str, stage: int | None = None) -> None:
        """The peer, or that stage of its, is gone. Its slots are lent again when what had arrived has settled."""
        for key in [k for k in self._waiting if k[0] == peer and stage in (None, k[1])]:
            self._take_offer((peer, self._waiting[key][0]), key)
        if stage is None:
            self._stages.pop(peer, None)
        error = DisconnectedError(f"peer {peer!r} is gone ({why})")
        for receiving in self:
            if receiving.peer == peer and (stage is None or (receiving.key and receiving.key[1] == stage)):
                self.fail(receiving, error, tell=False)
        until = time.monotonic() + SETTLE_S
        for left in self.slots.left_behind():
            if isinstance(left, tuple) and left[0] == peer and stage in (None, left[1]):
                self._settling.append((until, self.slots.rename(left)))

    def _lose_earlier(self, peer: str, stage: int) -> None:
        """A peer that has a new stage has none of its earlier ones."""
        earlier = self._stages.get(peer, stage)
        self._stages[peer] = stage
        if earlier != stage:
            self.lose(peer, "it has started anew", earlier)

    # ---- Pieces --------------------------------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Lends slots. Whether there was anything."""
        while self._settling and self._settling[0][0] <= now:
            self.slots.recover(self._settling.pop(0)[1])
        lent: dict[Receiving, list[int]] = {}
        while (taken := self._queue.take()) is not None:
            receiving, slot = taken
            receiving.lent[slot] = next(self._loans)
            lent.setdefault(receiving, []).append(slot)
            self._queue.add(receiving)
        for receiving, slots in lent.items():
            for i in range(0, len(slots), _MOST_GRANTS):
                self._grant(receiving, slots[i : i + _MOST_GRANTS])
        return bool(lent)

    def _grant(self, receiving: Receiving, slots: list[int]) -> None:
        assert receiving.key is not None
        _, stage, number = receiving.key
        self._exchange.tell(
            receiving.peer,
            "grant",
            to=stage,
            id=number,
            slots=[[slot, receiving.lent[slot], self.slots.address(slot)] for slot in slots],
            slot_bytes=self.slots.slot_bytes,
            memory=self._exchange.agent.memory,
            device=self._exchange.agent.device,
        )

    def _scatter(self, receiving: Receiving, slot: int, number: int) -> None:
        assert receiving.pieces is not None
        piece, destination = receiving.pieces[number], receiving.destination
        size = destination.piece_bytes(piece)
        receiving.n_scatters += 1

        def on_end(error: Exception | None) -> None:
            receiving.n_scatters -= 1
            self.slots.give(slot)
            if error is not None:
                self.fail(receiving, error)
            else:
                receiving.n_done += 1
                self.bytes += size
                receiving.transfer._touch(f"piece {number} was scattered")
                self._queue.add(receiving)
            self._check(receiving)

        try:
            request = destination.request(piece, self.slots.bytes(slot, size))
        except Exception as e:
            on_end(e)
            return
        self._exchange.run(Work(request, receiving.order, on_end, lambda: receiving.error is not None))

    # ---- The end -------------------------------------------------------------------------------------------

    def fail(self, receiving: Receiving, error: Exception, tell: bool = True) -> None:
        """Ends a receive with an error, when what is under way of it has ended."""
        if receiving.error is None:
            receiving.error = error
            if receiving.key is None:
                self._forget_expected(receiving)
            else:
                self.slots.leave(list(receiving.lent), receiving.key)
                receiving.lent.clear()
                if tell:
                    _, stage, number = receiving.key
                    self._exchange.tell_failed(receiving.peer, stage, number, "receiver", error)
        self._check(receiving)

    def _forget_expected(self, receiving: Receiving) -> None:
        place = (receiving.peer, receiving.transfer.tag)
        expected = self._expected.get(place)
        if expected and receiving in expected:
            expected.remove(receiving)
            if not expected:
                del self._expected[place]

    def _check(self, receiving: Receiving) -> None:
        """Ends what has nothing under way any more."""
        if receiving.n_scatters or receiving not in self._all:
            return
        is_complete = receiving.pieces is not None and receiving.n_done == len(receiving.pieces)
        if receiving.error is None and not is_complete:
            return
        self._all.discard(receiving)
        if receiving.key is not None:
            self._met.pop(receiving.key, None)
        if receiving.error is not None:
            self._exchange.end(receiving.transfer, receiving.error)
            return
        assert receiving.key is not None
        _, stage, number = receiving.key
        self._exchange.tell(receiving.peer, "done", to=stage, id=number)
        self._exchange.end(receiving.transfer, receiving.destination.nbytes)
