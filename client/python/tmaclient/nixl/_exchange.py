# SPDX-License-Identifier: Apache-2.0
"""What sending and receiving have in common: messages to peers that may be gone, requests to tmad under way, and
transfers with a deadline."""

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

_RETRY_S = 0.02
MOST_TEXT = 1000  # characters of an error that is sent
_PASSING = (Status.DISCONNECTED, Status.BUSY)  # what ends when the service is back, or something has ended

OnEnd = Callable[[Exception | None], None]


class Transfer(Future[int]):
    """A transfer under way: a future of the number of bytes that were moved. When it is done, nothing reads or writes
    the arrays any more. One that was canceled goes on for a moment: concurrent.futures.wait() waits for its end, too.
    Callbacks run in the stage's thread, or in that of a call which ends the transfer. They may use the stage, and close
    it; but one that waits for another transfer may wait for ever.

    peer   name of the other side's agent
    tag    what both sides call it
    """

    def __init__(self, verb: str, peer: str, tag: str, timeout: float) -> None:
        super().__init__()
        self.peer, self.tag, self._verb = peer, tag, verb
        self._timeout, self._moved_at, self._doing = timeout, time.monotonic(), "not begun"
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<{self._verb} {self.tag!r}, peer {self.peer!r}: {'done' if self.done() else self._doing}>"

    def _touch(self, doing: str) -> None:
        """Something has moved."""
        self._moved_at, self._doing = time.monotonic(), doing

    def _overdue(self, now: float) -> Exception | None:
        """Why it has to end, if so."""
        if self.cancelled():
            return CanceledError(f"{self._verb} {self.tag!r}: it was canceled")
        if now - self._moved_at < self._timeout:
            return None
        return NoReplyError(
            f"{self._verb} {self.tag!r}, peer {self.peer!r}: {self._doing}, and nothing more for {self._timeout:g} s"
        )

    def _end(self, result: int | Exception) -> None:
        """It is done, unless its caller gave it up."""
        with contextlib.suppress(InvalidStateError):  # somebody else has set it
            if not self.set_running_or_notify_cancel():
                return
            if isinstance(result, Exception):
                self.set_exception(result)
            else:
                self.set_result(result)


class Work:
    """A request to tmad, again where that may help, until it has ended or `is_given_up` says so."""

    __slots__ = ("exchange", "is_given_up", "on_end", "order", "request")

    def __init__(self, request: Request, order: dict[str, Any], on_end: OnEnd, is_given_up: Callable[[], bool]) -> None:
        self.request, self.order, self.on_end, self.is_given_up = request, order, on_end, is_given_up
        self.exchange: Exchange | None = None  # that it was started by


class Exchange:
    """The way to peers, to tmad and to the callers. Peers that are found to be gone wait in `lost`. Other stages may
    use the same client: whoever asks what has ended hands on what is theirs."""

    def __init__(self, core: _core.Client, agent: Agent, number: int) -> None:
        self.core, self.agent, self.number = core, agent, number
        self.lost: dict[str, str] = {}
        self.told_at = 0.0  # when the last message was sent
        self._n_running = 0
        self._streams = Streams(core)
        self._again: deque[tuple[float, Work]] = deque()
        self._arrived: deque[tuple[Work, int, str | None]] = deque()  # what has ended of this one's
        self._results: deque[tuple[Transfer, int | Exception]] = deque()
        self._telling = threading.local()

    def tell(self, peer: str, kind: str, **members: Any) -> None:
        """Sends a message, unless the peer is gone."""
        if peer in self.lost:
            return
        self.told_at = time.monotonic()
        try:
            self.agent.notify(peer, encode(kind, self.number, **members))
        except Gone as e:
            self.lost[peer] = str(e)

    def tell_failed(self, peer: str, to: int, number: int, by: str, error: Exception) -> None:
        """Says that a transfer has failed on this side; to is 0 if the peer's stage is not known."""
        status = error.status if isinstance(error, Error) else Status.INVALID_ARGUMENT
        self.tell(peer, "failed", to=to, id=number, by=by, status=int(status), message=str(error)[:MOST_TEXT])

    def write(self, peer: str, place: tuple[int, str, int], address: int, size: int, **data: Any) -> Write | None:
        """Starts to write into a peer's slot, and says so when it has ended; None: the peer is gone."""
        if peer in self.lost:
            return None
        try:
            return self.agent.write(peer, place, address, size, encode("data", self.number, **data))
        except Gone as e:
            self.lost[peer] = str(e)
            return None

    # ---- Callers -----------------------------------------------------------------------------------------

    def end(self, transfer: Transfer, result: int | Exception) -> None:
        """A transfer is done, as soon as tell_results() says so; the first time counts."""
        if not transfer._is_ended:
            transfer._is_ended = True
            self._results.append((transfer, result))

    def tell_results(self) -> None:
        """Tells callers of what is done, without the stage's lock: they may call anything."""
        if getattr(self._telling, "is_busy", False):
            return  # a callback has called the stage, and this goes on after it
        self._telling.is_busy = True
        try:
            while self._results:
                with contextlib.suppress(IndexError):  # another thread was faster
                    transfer, result = self._results.popleft()
                    transfer._end(result)
        finally:
            self._telling.is_busy = False

    # ---- Requests to tmad --------------------------------------------------------------------------------

    def run(self, work: Work) -> None:
        """Starts a request."""
        work.exchange = self
        try:
            self.core.submit(work.request, work, **work.order)
        except Exception as e:
            self._ended(work, e)
        else:
            self._n_running += 1

    def await_stream(self, stream: tuple[int, int], on_end: OnEnd) -> None:
        """Ends when a CUDA stream has done what is queued in it now."""
        self._streams.signal(stream, on_end)

    def step(self, now: float) -> bool:
        """Tells of what has ended, and starts again what waits for that. Whether there was anything."""
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
        """Whether a request is under way, or a stream is awaited."""
        return bool(self._n_running or self._again or len(self._streams))

    def _ended(self, work: Work, error: Exception | None) -> None:
        is_passing = isinstance(error, Error) and error.status in _PASSING
        if is_passing and not work.is_given_up() and not self.core.closed:
            self._again.append((time.monotonic() + _RETRY_S, work))
        else:
            work.on_end(error)
