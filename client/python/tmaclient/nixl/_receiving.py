# SPDX-License-Identifier: Apache-2.0
"""The receives of a stage. Each is matched with an offer of the same peer and tag, lends slots to the sender, and
scatters the data that arrives in them.

The sender may write into a slot that is lent to it until the slot's data has arrived, the sender has said that no write
is under way, or the sender is gone. Until then the slot is lent to nobody else, even if the receive has failed: data
that arrives late would be taken for that of another transfer. After a peer is gone and its connection is closed, the
network card may go on for a moment to write data that it had received before, so the peer's slots are free only after
SETTLE_S.

Callers that change anything must hold the stage's lock.
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

# This limits the offers of one peer that no receive has matched yet. All peers whose metadata the agent does not have
# count as one.
MOST_OFFERS = 4096
_MOST_GRANTS = 1024  # maximum number of slots in one grant message
SETTLE_S = 1.0  # time from the loss of a peer until the slots that were lent to it are free again

Key = tuple[str, int, int]  # names an offer: peer, number of the peer's stage, and the peer's number of the transfer


class Receiving:
    """A receive under way.

    order       keyword arguments of the requests to tmad
    key         key of the offer that it was matched with; None: there is none yet
    pieces      the division into pieces; None: it was not matched yet
    lent        slots that the sender may write into, each with the number of the loan
    arrived     numbers of the pieces that have arrived
    n_done      number of pieces that were scattered
    n_scatters  number of scatters under way
    n_streams   number of CUDA streams whose earlier work on the arrays has not ended
    error       why it has failed; set once
    is_queued   whether it is in the queue for slots; Queue writes it
    """

    def __init__(self, transfer: Transfer, destination: Destination, order: dict[str, Any]) -> None:
        self.transfer, self.destination, self.order = transfer, destination, order
        self.key: Key | None = None
        self.pieces: Pieces | None = None
        self.lent: dict[int, int] = {}
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
        """The number of slots that it occupies."""
        return len(self.lent) + self.n_scatters

    @property
    def wants(self) -> bool:
        """True if it could lend another slot to its sender now."""
        return bool(
            self.error is None
            and self.pieces is not None
            and self.n_streams == 0
            and len(self.arrived) + len(self.lent) < len(self.pieces)
        )


class Receivers:
    """All receives of a stage, the offers that no receive has matched yet, and the pool of slots that receives lend."""

    def __init__(self, exchange: Exchange, slots: Slots) -> None:
        self._exchange, self.slots = exchange, slots
        self._loans = itertools.count(1)  # numbers of loans, so that late data of an earlier loan is recognized
        self._expected: dict[tuple[str, str], deque[Receiving]] = {}  # unmatched receives, by peer and tag
        self._offers: dict[tuple[str, str], dict[Key, Message]] = {}  # unmatched offers, by peer and tag
        # This has the tag and the account of each unmatched offer. The account is what the offer counts against: the
        # name of the peer, or "" for all peers whose metadata the agent does not have.
        self._waiting: dict[Key, tuple[str, str]] = {}
        self._n_offers: Counter[str] = Counter()  # unmatched offers of each account
        self._stages: dict[str, int] = {}  # by peer: number of its stage that made the last offer
        self._met: dict[Key, Receiving] = {}  # receives that were matched with an offer
        self._all: set[Receiving] = set()
        self._queue: Queue[Receiving] = Queue(slots)
        # Keys under which slots that were lent to lost peers are left behind, each with the time when the slots are
        # free again.
        self._settling: list[tuple[float, object]] = []
        self.bytes = 0  # bytes that were scattered so far

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Receiving]:
        return iter(list(self._all))

    @property
    def is_receiving(self) -> bool:
        """True if a receive was matched with an offer, so that its sender may write at any time."""
        return bool(self._met)

    @property
    def n_offers(self) -> int:
        """The number of offers that no receive has matched."""
        return len(self._waiting)

    def start(self, transfer: Transfer, destination: Destination, order: dict[str, Any]) -> None:
        """Begins a receive. It lends no slot before the CUDA streams of its arrays have finished their earlier work."""
        receiving = Receiving(transfer, destination, order)
        self._all.add(receiving)
        try:
            for stream in destination.streams():
                self._exchange.await_stream(stream, lambda error: self._on_stream(receiving, error))
                receiving.n_streams += 1
        except BaseException:
            # Some of the streams may be awaited already. Their callbacks will see the error, and start nothing.
            receiving.error = CanceledError("it was not begun")
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
        """Handles a peer's offer of a transfer. is_known: the agent has the peer's metadata and can send it
        messages."""
        key = (peer, message["from"], message["id"])
        if key in self._met or key in self._waiting:
            return
        if is_known:  # there may be any number of unknown peers, so their stages are not recorded
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
        """Checks that an offer matches the destination, and returns its division into pieces. Sets the destination's
        dtype to the offer's, which is the type on the wire. Errors say what does not match."""
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
        """Handles the arrival of a piece in a slot, and starts its scatter."""
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
        """Handles the failure of a transfer at its sender, which writes no more: all slots that were lent for the
        transfer are free."""
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
        """Frees the slots of a failed transfer, because its sender writes no more into them."""
        self.slots.recover((peer, message["from"], message["id"]))

    def lose(self, peer: str, why: str, stage: int | None = None) -> None:
        """Fails the receives of a peer that is gone, and drops its offers. The slots that were lent to it are free
        after SETTLE_S. stage: number of the peer's stage that is gone, if only one is; None: all of them."""
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
        """Loses the peer's earlier stage if the number of its stage has changed: the peer has started anew."""
        earlier = self._stages.get(peer, stage)
        self._stages[peer] = stage
        if earlier != stage:
            self.lose(peer, "it has started anew", earlier)

    # ---- Pieces --------------------------------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Frees slots of lost peers whose SETTLE_S is over, and lends free slots to senders. Returns whether any slot
        was lent."""
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
        """Marks a receive as failed, unless it has failed already. The receive ends when its scatters under way have
        ended. tell: whether the sender has to be told."""
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
        """Ends a receive that has failed or is complete, once no scatter of it is under way."""
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
