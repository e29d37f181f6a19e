# SPDX-License-Identifier: Apache-2.0
"""The sends of a stage. Each is offered to its receiver, and goes piece by piece into the slots that the receiver
grants.

A piece takes a slot of this stage only when the receiver has granted one for it, so that a slow receiver does not hold
up the others. A send waits for the writes that it has begun, unless the peer is gone: NIXL cannot cancel a write, and
the receiver must not lend the slot to another transfer before the write has ended.

Callers that change anything must hold the stage's lock.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from .._errors import CanceledError, DisconnectedError, Error, ProtocolError
from ._agent import Gone, Write
from ._exchange import Exchange, Transfer, Work
from ._messages import Message, is_list_of_counts
from ._pieces import Pieces
from ._sides import Source
from ._slots import Queue, Slots

_MOST_AT_ONCE = 2  # maximum number of gathers that one step starts; small, so that gathered pieces are written soon


class Grant(NamedTuple):
    """A slot of the receiver's that one piece may be written into."""

    slot: int  # the receiver's number of the slot
    loan: int  # the receiver's number of this loan of the slot
    place: tuple[int, str, int]  # address, kind of memory and device


class Sending:
    """A send under way.

    number      number of the transfer in messages
    order       keyword arguments of the requests to tmad
    receiver    number of the peer's stage; None: it has not answered yet
    pieces      the division into pieces; None: the receiver has granted no slot yet
    grants      slots of the receiver's that no piece has taken yet
    next_piece  number of the next piece to gather
    n_gathers   number of gathers under way
    n_writes    number of writes under way
    n_streams   number of CUDA streams whose earlier work on the arrays has not ended
    error       why it has failed; set once
    is_offered  whether the offer was sent
    is_done     whether the receiver has all pieces
    is_queued   whether it is in the queue for slots; Queue writes it
    """

    def __init__(self, number: int, transfer: Transfer, source: Source, order: dict[str, Any]) -> None:
        self.number, self.transfer, self.source, self.order = number, transfer, source, order
        self.receiver: int | None = None
        self.pieces: Pieces | None = None
        self.grants: deque[Grant] = deque()
        self.next_piece = 0
        self.n_gathers = self.n_writes = self.n_streams = 0
        self.error: Exception | None = None
        self.is_offered = self.is_done = self.is_queued = False

    @property
    def peer(self) -> str:
        """Name of the receiver's agent."""
        return self.transfer.peer

    @property
    def n_slots(self) -> int:
        """The number of slots that it occupies."""
        return self.n_gathers + self.n_writes

    @property
    def wants(self) -> bool:
        """True if another piece could be gathered now."""
        return bool(self.error is None and self.grants and self.pieces and self.next_piece < len(self.pieces))


class _Writing(NamedTuple):
    sending: Sending
    slot: int
    write: Write


class Senders:
    """All sends of a stage, and the pool of slots that they share."""

    def __init__(self, exchange: Exchange, slots: Slots) -> None:
        self._exchange, self.slots = exchange, slots
        self._numbers = itertools.count(1)
        self._all: dict[int, Sending] = {}  # by number
        self._queue: Queue[Sending] = Queue(slots)
        self._writing: list[_Writing] = []
        self.bytes = 0  # bytes whose writes were started so far

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sending]:
        return iter(list(self._all.values()))

    @property
    def is_sending(self) -> bool:
        """True if the receiver of a send has answered, so that grants or the ends of writes are expected soon."""
        return any(sending.receiver is not None for sending in self._all.values())

    def start(self, transfer: Transfer, source: Source, order: dict[str, Any]) -> None:
        """Begins a send. It is offered when the CUDA streams of its arrays have finished the work that is queued in
        them now."""
        sending = Sending(next(self._numbers), transfer, source, order)
        self._all[sending.number] = sending
        try:
            for stream in source.streams():
                self._exchange.await_stream(stream, lambda error: self._on_stream(sending, error))
                sending.n_streams += 1
        except BaseException:
            # Some of the streams may be awaited already. Their callbacks will see the error, and start nothing.
            sending.error = CanceledError("it was not begun")
            del self._all[sending.number]
            raise
        if sending.n_streams == 0:
            self._offer(sending)
        else:
            transfer._touch("the stream of its arrays has work before it")

    def _on_stream(self, sending: Sending, error: Exception | None) -> None:
        sending.n_streams -= 1
        if error is not None:
            self.fail(sending, error)
        elif sending.n_streams == 0 and sending.error is None:
            self._offer(sending)
        self._check(sending)

    def _offer(self, sending: Sending) -> None:
        source = sending.source
        sending.is_offered = True
        sending.transfer._touch("it was offered")
        self._exchange.tell(
            sending.peer,
            "offer",
            id=sending.number,
            tag=sending.transfer.tag,
            dtype=source.dtype,
            shape=source.shape,
            layers=source.n_layers,
            blocks=source.n_blocks,
            slot_bytes=self.slots.slot_bytes,
        )

    # ---- What receivers say --------------------------------------------------------------------------------

    def on_grant(self, peer: str, message: Message) -> None:
        """Handles a grant of slots to write into."""
        sending = self._find(peer, message)
        if sending is None or sending.error is not None or sending.is_done:
            return  # the receiver gets, or has got, `failed` or `closed` for these slots
        sending.receiver = message["from"]
        try:
            sending.grants += self._parse(message)
            if sending.pieces is None:
                size = min(self.slots.slot_bytes, message["slot_bytes"])
                source = sending.source
                sending.pieces = Pieces(source.n_layers, source.n_blocks, source.block_bytes, size)
            if sending.next_piece + len(sending.grants) > len(sending.pieces):
                raise ValueError(f"it makes more grants than the {len(sending.pieces)} pieces that there are")
        except ValueError as e:
            self.fail(sending, ProtocolError(f"grant of {peer!r}: {e}"))
            return
        sending.transfer._touch("the receiver has granted slots")
        self._queue.add(sending)

    def _parse(self, message: Message) -> list[Grant]:
        if message["memory"] not in ("DRAM", "VRAM"):
            raise ValueError(f"memory {message['memory'][:16]!r} is neither DRAM nor VRAM")
        if not all(isinstance(entry, list) and is_list_of_counts(entry, 3) for entry in message["slots"]):
            raise ValueError("its slots are no lists of number, loan and address")
        place = (message["memory"], message["device"])
        return [Grant(slot, loan, (address, *place)) for slot, loan, address in message["slots"]]

    def on_done(self, peer: str, message: Message) -> None:
        """Handles the receiver's message that it has all pieces."""
        sending = self._find(peer, message)
        if sending is None or sending.error is not None:
            return
        sending.receiver = message["from"]
        n = 0 if sending.pieces is None else len(sending.pieces)
        if sending.next_piece < n or (n == 0 and sending.source.nbytes > 0):
            self.fail(
                sending, ProtocolError(f"{peer!r} says that it has all, and {sending.next_piece} pieces were sent")
            )
            return
        sending.is_done = True
        self._check(sending)

    def on_failed(self, peer: str, message: Message, error: Error) -> None:
        """Handles the failure of a transfer at its receiver. The receiver is told, by `failed` or `closed`, when no
        write into its slots is under way."""
        sending = self._find(peer, message)
        if sending is None:
            self._exchange.tell(peer, "closed", to=message["from"], id=message["id"])
            return
        sending.receiver = message["from"]
        self.fail(sending, error)

    def _find(self, peer: str, message: Message) -> Sending | None:
        sending = self._all.get(message["id"])
        if sending is None or sending.peer != peer or not sending.is_offered:
            return None
        if sending.receiver not in (None, message["from"]):
            return None
        return sending

    def lose(self, peer: str, why: str) -> None:
        """Fails the sends to a peer that is gone. The connection to the peer must be closed, so that writes to it have
        ended."""
        for writing in [w for w in self._writing if w.sending.peer == peer]:
            self._writing.remove(writing)
            writing.write.release()
            self.slots.give(writing.slot)
            writing.sending.n_writes -= 1
        for sending in self:
            if sending.peer == peer:
                self.fail(sending, DisconnectedError(f"peer {peer!r} is gone ({why})"))

    # ---- Pieces --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Handles writes that have ended, and starts a few gathers. Returns whether there were any."""
        n = self._poll()
        for _ in range(_MOST_AT_ONCE):
            taken = self._queue.take()
            if taken is None:
                break
            n += 1
            self._gather(*taken)
            self._queue.add(taken[0])
        return n > 0

    def _gather(self, sending: Sending, slot: int) -> None:
        assert sending.pieces is not None
        number, grant = sending.next_piece, sending.grants.popleft()
        piece = sending.pieces[number]
        size = sending.source.piece_bytes(piece)
        sending.next_piece += 1
        sending.n_gathers += 1

        def on_end(error: Exception | None) -> None:
            sending.n_gathers -= 1
            if error is not None or sending.error is not None:
                self.slots.give(slot)
                self.fail(sending, error or sending.error)
            else:
                self._write(sending, number, grant, slot, size)

        try:
            request = sending.source.request(piece, self.slots.bytes(slot, size))
        except Exception as e:
            on_end(e)
            return
        self._exchange.run(Work(request, sending.order, on_end, lambda: sending.error is not None))

    def _write(self, sending: Sending, number: int, grant: Grant, slot: int, size: int) -> None:
        sending.transfer._touch(f"piece {number} was gathered")
        try:
            write = self._exchange.write(
                sending.peer,
                grant.place,
                self.slots.address(slot),
                size,
                to=sending.receiver,
                id=sending.number,
                piece=number,
                slot=grant.slot,
                loan=grant.loan,
            )
        except Error as e:
            self.slots.give(slot)
            self.fail(sending, e)
            return
        if write is None:  # the peer is gone
            self.slots.give(slot)
            return
        sending.n_writes += 1
        self._writing.append(_Writing(sending, slot, write))
        self.bytes += size

    def _poll(self) -> int:
        """Releases the writes that have ended and frees their slots. Returns how many there were."""
        ended: list[_Writing] = []
        for writing in self._writing:
            if writing.sending.peer in self._exchange.lost:
                continue
            try:
                if writing.write.is_done():
                    ended.append(writing)
            except Gone as e:
                self._exchange.lost[writing.sending.peer] = str(e)
        for writing in ended:
            sending = writing.sending
            self._writing.remove(writing)
            writing.write.release()
            self.slots.give(writing.slot)
            sending.n_writes -= 1
            sending.transfer._touch("a piece was written")
            self._check(sending)
        return len(ended)

    # ---- The end -------------------------------------------------------------------------------------------

    def fail(self, sending: Sending, error: Exception | None) -> None:
        """Marks a send as failed, unless it has failed already. The send ends when those of its gathers that are under
        way have ended, and the receiver is told of the failure when its writes have ended, too."""
        if sending.error is None:
            sending.error = error
            sending.grants.clear()
        self._check(sending)

    def _check(self, sending: Sending) -> None:
        """Ends a send that has failed or is done, once no gather of it is under way. It is forgotten once no write is
        under way either."""
        if sending.n_gathers or sending.number not in self._all:
            return
        if sending.error is not None:
            self._exchange.end(sending.transfer, sending.error)
        if sending.n_writes or not (sending.error is not None or sending.is_done):
            return
        del self._all[sending.number]
        if sending.error is None:
            self._exchange.end(sending.transfer, sending.source.nbytes)
        elif sending.is_offered:
            self._exchange.tell_failed(sending.peer, sending.receiver or 0, sending.number, "sender", sending.error)
