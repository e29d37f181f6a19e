# SPDX-License-Identifier: Apache-2.0
"""A connection to tmad on an asyncio loop, the requests that it has under way, and a thread.

Calls of the core that wait for a reply would hold up the loop, so they run in the thread (`_call`). The core is then
busy: it belongs to the thread, and the loop does not touch it before the call has ended. At all other times it belongs
to the loop. Methods run on the loop unless they say otherwise.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from . import _core
from ._core import Ticket
from ._errors import DisconnectedError, class_of
from ._jobs import Maker

_T = TypeVar("_T")

RETRY_S = 0.02  # delay between two attempts to connect again
_SILENT_S = 2.0  # how long a canceled task waits for a service that does not answer
# How long a new connection tries to share the memory that the old one shared: the service may refuse it until it has
# released the same memory of the old connection.
_REJOIN_MS = 5000


class Thread:
    """A thread that calls functions one after the other. It is a daemon thread, so that the end of the process does not
    wait for a service that does not answer."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._queue = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self._queue,), name="tmaclient", daemon=True).start()

    @staticmethod
    def _work(queue_: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]) -> None:
        while (entry := queue_.get()) is not None:
            future, function = entry
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as e:
                    future.set_exception(e)
            del entry, future, function  # frees what they refer to, before get() waits for the next entry

    def submit(self, function: Callable[[], _T]) -> concurrent.futures.Future[_T]:
        """Has the thread call a function after those submitted earlier. Returns the future of its result. Any thread
        may call this."""
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._queue.put((future, function))
        return future

    def stop(self) -> None:
        """Ends the thread once it has called all functions that were submitted before."""
        self._queue.put(None)


class Flight:
    """A request under way.

    future    what the caller's task waits for
    ended     called when the request ends, even if the task was canceled; frees what the request uses
    is_over   whether the request has ended
    canceled  future that a canceled task waits for; None: the task was not canceled
    """

    __slots__ = ("canceled", "ended", "future", "is_over")

    def __init__(self, future: asyncio.Future[None], ended: Callable[[], None]) -> None:
        self.future, self.ended, self.is_over = future, ended, False
        self.canceled: asyncio.Future[None] | None = None


class Patience:
    """The time for which a call tries to reach a service that went away. It begins with the first call of is_over()."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds
        self._end: float | None = None

    def is_over(self) -> bool:
        if self._end is None:
            self._end = self._loop.time() + self._seconds
        return self._loop.time() > self._end


class Connection(Maker):
    """A core (a connection of the C extension) that is used on an asyncio loop, and the requests that it has under
    way."""

    def __init__(self, core: _core.Client, thread: Thread, reconnect: float, in_flight: int) -> None:
        self._core, self._thread, self._path = core, thread, core.path
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._reconnect = reconnect
        self._turns = asyncio.Semaphore(in_flight)  # limits the requests under way
        self._tasks: set[asyncio.Task[None]] = set()  # keeps tasks alive: the loop has only weak references

        self._is_busy = False  # the core belongs to the thread
        self._waiting: deque[asyncio.Future[None]] = deque()  # futures of the calls that wait for the core, in order
        self._is_releasing = False  # _release() is under way

        self._connecting = asyncio.Lock()  # held by the task that connects again
        self._socket = -1  # duplicate of the library's descriptor, which the library may close at any time; -1: none
        self._connection: tuple[int, int] = (-1, 0)  # the library's descriptor, and the number of its reconnects
        self._is_writing = False  # requests wait in the library because the socket is full
        self._room = asyncio.Event()  # set while the socket is not full
        self._room.set()
        _, _, self._wake = core.poll_fds()
        self._resume()

    # ---- The thread ------------------------------------------------------------------------------------

    async def _call(self, function: Callable[[], _T]) -> _T:
        """Calls a function that waits for a reply in the thread, and returns its result. The function holds the core's
        lock, so the loop does not use the core meanwhile; other calls would have to wait for the same service
        anyway."""
        await self._until_idle()
        if self._core.closed:
            raise ValueError("the client is closed")
        self._is_busy = True
        self._pause()
        future = self._thread.submit(function)
        future.add_done_callback(self._on_done)
        return await asyncio.wrap_future(future)

    async def _ask(self, function: Callable[[], _T]) -> _T:
        """Does as _call, for a function that may be called again on a new connection if the service went away."""
        patience = Patience(self._loop, self._reconnect)
        while True:
            try:
                return await self._call(function)
            except DisconnectedError:
                if self._core.closed or patience.is_over():
                    raise
            await self._connect_again(patience)

    async def _until_idle(self) -> None:
        """Waits until the core belongs to the loop. Calls that wait here are woken one by one, because each may give
        the core to the thread again."""
        while self._is_busy:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                self._loop.call_soon(self._wake_next)

    def _wake_next(self) -> None:
        while self._waiting and not self._is_busy:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _on_done(self, _: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._on_called)

    def _on_called(self) -> None:
        self._is_busy = False
        self._wake_next()
        if self._core.closed:
            self._take_ended()
        else:
            self._resume()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that belongs to the client, and not to a caller."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _release(self) -> None:
        """Releases what destructors have deferred. This is done in the thread, because it waits for a reply."""
        try:
            with contextlib.suppress(ValueError):  # the client was closed meanwhile, which has released everything
                await self._call(self._core.release_deferred)
        finally:
            self._is_releasing = False

    # ---- The socket ------------------------------------------------------------------------------------

    def _pause(self) -> None:
        self._loop.remove_reader(self._wake)
        self._unwatch()

    def _resume(self) -> None:
        self._loop.add_reader(self._wake, self._on_ready)
        self._on_ready()

    def _watch(self) -> None:
        """Has the loop watch the library's current socket for replies and, while requests wait because the socket is
        full, for when it can be written."""
        fd, wants_write, _ = self._core.poll_fds()
        connection = (fd, self._core.reconnects)
        if connection != self._connection:
            self._unwatch()
            self._connection = connection
            if fd >= 0:
                self._socket = os.dup(fd)
                self._loop.add_reader(self._socket, self._on_ready)
        if self._socket >= 0 and wants_write != self._is_writing:
            self._is_writing = wants_write
            if wants_write:
                self._room.clear()
                self._loop.add_writer(self._socket, self._on_ready)
            else:
                self._room.set()
                self._loop.remove_writer(self._socket)

    def _unwatch(self) -> None:
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            os.close(self._socket)
        self._socket, self._is_writing, self._connection = -1, False, (-1, 0)
        self._room.set()

    def _on_ready(self) -> None:
        self._take_ended()
        self._watch()
        if self._core.has_deferred and not self._is_releasing:
            self._is_releasing = True
            self._start(self._release())

    def _take_ended(self) -> None:
        for flight, status, message in self._core.completed():
            flight.is_over = True
            flight.ended()
            if flight.canceled is not None and not flight.canceled.done():
                flight.canceled.set_result(None)
            if flight.future.done():  # the task was canceled
                continue
            if status == 0:
                flight.future.set_result(None)
            else:
                flight.future.set_exception(class_of(status)(message or ""))

    # ---- Requests --------------------------------------------------------------------------------------

    async def _send(self, start: Callable[[Flight], Ticket | None], order: dict[str, Any]) -> None:
        """Starts a request by calling start() with its Flight, and waits for its end. If the service went away, starts
        it again on a new connection, unless the order has a point to signal: the request may have signaled it
        already."""
        patience = Patience(self._loop, self._reconnect)
        while True:
            try:
                await self._send_once(start, patience)
                return
            except DisconnectedError:
                if "signal" in order or self._core.closed or patience.is_over():
                    raise

    async def _send_once(self, start: Callable[[Flight], Ticket | None], patience: Patience) -> None:
        await self._turns.acquire()
        flight = Flight(self._loop.create_future(), self._turns.release)
        try:
            await self._until_ready(patience)
            try:
                ticket = start(flight)
            finally:
                self._watch()  # start() may have filled the socket, or found the connection closed
        except BaseException:
            self._turns.release()
            raise
        try:
            await flight.future
        except asyncio.CancelledError:
            if not flight.is_over:
                flight.canceled = self._loop.create_future()
                await self._until_over(flight.canceled, partial(self._take_back, flight, ticket))
            raise

    async def _until_ready(self, patience: Patience) -> None:
        """Waits until the core belongs to the loop and a request can be written without waiting."""
        while not self._core.closed:
            if self._is_busy:
                await self._until_idle()
            elif self._socket < 0:
                await self._connect_again(patience)
            elif self._is_writing:
                await self._room.wait()
            else:
                return
        raise ValueError("the client is closed")

    def _take_back(self, flight: Flight, ticket: Ticket | None) -> None:
        """Asks the service to cancel a request, and waits for its reply. A request in a CUDA stream, which has no
        ticket, cannot be canceled; the service is only asked for an answer. Runs in the thread."""
        if self._core.closed:
            return
        if ticket is None:
            self._core.ping()
        elif not flight.is_over:
            self._core.cancel(ticket)

    async def _until_over(self, over: asyncio.Future[Any], ask: Callable[[], None]) -> None:
        """Waits in a canceled task until `over` is done, or the service has not answered ask() for _SILENT_S. Canceling
        the task again does not end the wait."""
        waiting = self._start(self._ask_until(over, ask))
        while not waiting.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((waiting,))

    async def _ask_until(self, over: asyncio.Future[Any], ask: Callable[[], None]) -> None:
        while not over.done():
            answer = self._start(self._ask_once(ask))
            await asyncio.wait((over, answer), timeout=_SILENT_S, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return
            await asyncio.wait((over,), timeout=_SILENT_S)

    async def _ask_once(self, ask: Callable[[], None]) -> None:
        with contextlib.suppress(Exception):  # if this fails, the connection is gone, and requests end with it
            await self._call(ask)

    async def _connect_again(self, patience: Patience) -> None:
        if self._reconnect < 0:
            raise DisconnectedError(f"tmad at {self._path} went away")
        patience.is_over()  # starts the time, if it has not started yet
        async with self._connecting:
            while True:
                await self._until_idle()
                if self._socket >= 0 or self._core.closed:
                    return
                try:
                    await self._call(self._reach)
                except DisconnectedError:
                    if patience.is_over():
                        raise
                    await asyncio.sleep(RETRY_S)

    def _reach(self) -> None:
        """Connects again if a service listens at the path. Runs in the thread. The library may reconnect only here: at
        other times its retries would hold up the loop."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self._path)
        except OSError as e:
            raise DisconnectedError(f"no tmad at {self._path} ({e.strerror})") from None
        self._core.set_reconnect(_REJOIN_MS)
        try:
            self._core.ping()
        finally:
            self._core.set_reconnect(-1)
