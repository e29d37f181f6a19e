# SPDX-License-Identifier: Apache-2.0
"""The common base of sending and receiving: messages to peers that may be gone, requests to tmad, and the transfers
that callers wait for.

An Exchange belongs to one stage. Callers that change anything must hold the stage's lock; callers of tell_results()
must not.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from .. import _core
from .._core import Request
from .._errors import CanceledError, Error, NoReplyError, Status, class_of
from ._agent import Agent, Gone, Write
from ._messages import encode
from ._streams import Streams

_RETRY_S = 0.02  # delay before a request that failed with one of _PASSING is submitted again
MOST_TEXT = 1000  # limit of an error message that is sent to a peer, in characters
_PASSING = (Status.DISCONNECTED, Status.BUSY)  # errors that pass when the service is back, or other requests have ended

OnEnd = Callable[[Exception | None], None]


class Transfer(Future[int]):
    """A transfer under way: a future whose result is the number of bytes that were moved. When it is done, nothing
    reads or writes the arrays any more. A transfer that was canceled goes on for a moment; concurrent.futures.wait()
    waits for its end, too. Callbacks run in the stage's thread, or in a thread whose call ends the transfer. They may
    use the stage, and close it; but a callback that waits for another transfer may wait for ever.

    peer   name of the other side's agent
    tag    name of the transfer, which both sides use
    """

    def __init__(self, verb: str, peer: str, tag: str, timeout: float) -> None:
        super().__init__()
        self.peer, self.tag, self._verb = peer, tag, verb
        self._timeout, self._moved_at, self._doing = timeout, time.monotonic(), "not begun"
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<{self._verb} {self.tag!r}, peer {self.peer!r}: {'done' if self.done() else self._doing}>"

    def _touch(self, doing: str) -> None:
        """Notes that the transfer has advanced, which restarts its timeout. doing: its state, for error messages."""
        self._moved_at, self._doing = time.monotonic(), doing

    def _overdue(self, now: float) -> Exception | None:
        """Returns the error that the transfer has to end with if it was canceled or has timed out, or None."""
        if self.cancelled():
            return CanceledError(f"{self._verb} {self.tag!r}: it was canceled")
        if now - self._moved_at < self._timeout:
            return None
        return NoReplyError(
            f"{self._verb} {self.tag!r}, peer {self.peer!r}: {self._doing}, and nothing more for {self._timeout:g} s"
        )

    def _end(self, result: int | Exception) -> None:
        """Sets the result or the error of the future, unless the caller has canceled it."""
        with contextlib.suppress(InvalidStateError):  # another thread has ended it already
            if not self.set_running_or_notify_cancel():
                return
            if isinstance(result, Exception):
                self.set_exception(result)
            else:
                self.set_result(result)


class Work:
    """A request to tmad. After an error of _PASSING it is submitted again, unless is_given_up() returns True. on_end is
    called once, with the final error or None. order: keyword arguments of Client.submit."""

    __slots__ = ("exchange", "is_given_up", "on_end", "order", "request")

    def __init__(self, request: Request, order: dict[str, Any], on_end: OnEnd, is_given_up: Callable[[], bool]) -> None:
        self.request, self.order, self.on_end, self.is_given_up = request, order, on_end, is_given_up
        self.exchange: Exchange | None = None  # the exchange that started it


class Exchange:
    """A stage's channel to its peers, to tmad and to its callers.

    core      tmad client. Other stages may use the same one, and its completed() returns the completions of all: the
              exchange that calls it passes each completion on to the exchange that started the request
    number    random number of the stage, by which peers tell it from other stages whose agent has the same name
    lost      peers that were found to be gone, each with the reason; the stage's next step closes the connections
    told_at   when the last message was sent, as time.monotonic() counts
    """

    def __init__(self, core: _core.Client, agent: Agent, number: int) -> None:
        self.core, self.agent, self.number = core, agent, number
        self.lost: dict[str, str] = {}
        self.told_at = 0.0
        self._n_running = 0  # requests submitted whose completion has not been handled yet
        self._streams = Streams(core)
        self._again: deque[tuple[float, Work]] = deque()  # requests to submit again, each with the time for it
        self._arrived: deque[tuple[Work, int, str | None]] = deque()  # completions of this exchange's requests
        self._results: deque[tuple[Transfer, int | Exception]] = deque()  # ended transfers, not yet told to callers
        self._telling = threading.local()  # is_busy: this thread is in tell_results()

    def tell(self, peer: str, kind: str, **members: Any) -> None:
        """Sends a message. A peer that cannot be reached is added to `lost`, and gets no further messages."""
        if peer in self.lost:
            return
        self.told_at = time.monotonic()
        try:
            self.agent.notify(peer, encode(kind, self.number, **members))
        except Gone as e:
            self.lost[peer] = str(e)

    def tell_failed(self, peer: str, to: int, number: int, by: str, error: Exception) -> None:
        """Tells a peer that a transfer has failed on this side.

        to       number of the peer's stage; 0 if it is not known
        number   the sender's number of the transfer
        by       role of this side: "sender" or "receiver"
        """
        status = error.status if isinstance(error, Error) else Status.INVALID_ARGUMENT
        self.tell(peer, "failed", to=to, id=number, by=by, status=int(status), message=str(error)[:MOST_TEXT])

    def write(self, peer: str, place: tuple[int, str, int], address: int, size: int, **data: Any) -> Write | None:
        """Starts a write into a slot of a peer's, and returns the write. None: the peer is gone. When the write has
        ended, the peer gets a message of kind `data`, whose members are the arguments data. place, address: as for
        Agent.write."""
        if peer in self.lost:
            return None
        try:
            return self.agent.write(peer, place, address, size, encode("data", self.number, **data))
        except Gone as e:
            self.lost[peer] = str(e)
            return None

    # ---- Callers -----------------------------------------------------------------------------------------

    def end(self, transfer: Transfer, result: int | Exception) -> None:
        """Queues the result of a transfer for tell_results(). Later results of the same transfer are ignored."""
        if not transfer._is_ended:
            transfer._is_ended = True
            self._results.append((transfer, result))

    def tell_results(self) -> None:
        """Sets the queued results of transfers. The caller must not hold the stage's lock: callbacks of the futures may
        call anything."""
        if getattr(self._telling, "is_busy", False):
            return  # a callback has called the stage; the outer call goes on when the callback returns
        self._telling.is_busy = True
        try:
            while self._results:
                with contextlib.suppress(IndexError):  # another thread has taken the last result
                    transfer, result = self._results.popleft()
                    transfer._end(result)
        finally:
            self._telling.is_busy = False

    # ---- Requests to tmad --------------------------------------------------------------------------------

    def run(self, work: Work) -> None:
        """Submits a request. If that fails, the error is handled like one that the request ends with."""
        work.exchange = self
        try:
            self.core.submit(work.request, work, **work.order)
        except Exception as e:
            self._ended(work, e)
        else:
            self._n_running += 1

    def await_stream(self, stream: tuple[int, int], on_end: OnEnd) -> None:
        """Has on_end called when a CUDA stream, given as a handle and the ordinal of its device, has finished all work
        that is queued in it now."""
        self._streams.signal(stream, on_end)

    def step(self, now: float) -> bool:
        """Handles the streams and requests that have ended, and submits again the requests whose delay is over. Returns
        whether there were any."""
        n_signaled = self._streams.step()
        for entry in self.core.completed() if self._n_running else ():
            entry[0].exchange._arrived.append(entry)
        ended = started = 0
        while self._arrived:
            work, status, message = self._arrived.popleft()
            ended += 1
            self._n_running -= 1
            self._ended(work, None if status == 0 else class_of(status)(message or ""))
        while self._again and self._again[0][0] <= now:
            self.run(self._again.popleft()[1])
            started += 1
        return bool(ended or started or n_signaled)

    @property
    def is_running(self) -> bool:
        """True while a request is under way or waits to be submitted again, or while a stream is awaited."""
        return bool(self._n_running or self._again or len(self._streams))

    def _ended(self, work: Work, error: Exception | None) -> None:
        is_passing = isinstance(error, Error) and error.status in _PASSING
        if is_passing and not work.is_given_up() and not self.core.closed:
            self._again.append((time.monotonic() + _RETRY_S, work))
        else:
            work.on_end(error)
