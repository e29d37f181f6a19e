# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: every call is awaitable, and thousands can be in flight on one loop.

    async with tma.aio.connect() as c:
        y = await c.transform(x, permute=(0, 3, 1, 2))

Requests travel over one connection and run in their order. A task that is canceled takes its request back, and ends
when the service has nothing more to do with its arrays.

What waits for the service never holds up the loop. The client has two threads: one for the few calls that wait for a
reply, during which the loop leaves the connection alone (`_call`); and one that moves large arrays through staging
memory, over a connection of its own (`_run_staged`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import operator
import os
import queue
import socket
import threading
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from . import _core
from ._arrays import NUMPY, adapt, dtype_name, mapping_of, numpy_dtype
from ._async_batch import AsyncBatch
from ._client import Client, make_core, progress_bar
from ._conversion import Casting, Inexact, Keywords
from ._core import Region, Request, Tensor, Ticket
from ._errors import CanceledError, DisconnectedError, OutOfRangeError, WaitTimeoutError, class_of
from ._jobs import (
    MOST_MS,
    Job,
    Maker,
    MoveKeywords,
    Options,
    check_multicast,
    multicast_parts,
    orders_of,
    without_points,
)
from ._moves import Blocks, Move, parse_constant
from ._plan import Plan, PreparedPlan
from ._reshard import Reshard
from ._scales import Scaling, is_exponents
from ._staging import Lane, round_up
from ._timeline import Timeline

_T = TypeVar("_T")

IN_FLIGHT = 256  # requests of a client; more wait for their turn
_SLOTS, _SLOT_BYTES = 64, 128 << 10  # of staging memory for small arrays
_RETRY_S = 0.02
_SILENT_S = 2.0  # for so long a task that is canceled waits for any word of the service
_REJOIN_MS = 5000  # while a service still releases what was shared with it, it may refuse to share it again
_LIST_BYTES = 1024  # of an index that is sent; a longer one is put into shared memory


class _Thread:
    """A thread that calls functions in turn. The process's end does not wait for it: the service may be silent."""

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
            del entry, future, function  # with what they keep, before the next one comes

    def submit(self, function: Callable[[], _T]) -> concurrent.futures.Future[_T]:
        """Calls a function after the earlier ones."""
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._queue.put((future, function))
        return future

    def stop(self) -> None:
        """Ends after what was submitted."""
        self._queue.put(None)


class _Flight:
    """A request under way: who waits for it, what is free again when it ends, and whether its task was canceled."""

    __slots__ = ("canceled", "ended", "future", "is_over")

    def __init__(self, future: asyncio.Future[None], ended: Callable[[], None]) -> None:
        self.future, self.ended, self.is_over = future, ended, False
        self.canceled: asyncio.Future[None] | None = None  # a canceled task waits for it


class _Patience:
    """For how long a call tries to reach a service that went away, from when it finds that out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds
        self._end: float | None = None

    def is_over(self) -> bool:
        if self._end is None:
            self._end = self._loop.time() + self._seconds
        return self._loop.time() > self._end


class _WouldWait(Exception):
    """A job needs new shared memory: it has to be made in the thread."""


class _Progress:
    """Progress of a staged move: the caller's bar, and the way to stop the move between two chunks."""

    def __init__(self, bar: Any) -> None:
        self._bar, self.is_stopped = bar, False

    def update(self, n: int) -> None:
        if self.is_stopped:
            raise CanceledError("the task was canceled")
        if self._bar is not None:
            self._bar.update(n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Connecting:
    """What `connect` returns: to be awaited, or entered with `async with`."""

    def __init__(self, make: Callable[[], Awaitable[AsyncClient]]) -> None:
        self._make = make
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._make().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._make()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    reconnect: float = 5.0,
    server_uid: int | None = None,
    staging: int = 64 << 20,
    in_flight: int = IN_FLIGHT,
    local: bool = True,
) -> _Connecting:
    """Connects to tmad from a running loop; arguments as those of tmaclient.connect. in_flight limits the requests that
    are under way at once: a call beyond it waits for its turn. For a timeout, use asyncio.timeout."""
    if in_flight < 1:
        raise ValueError(f"in_flight: {in_flight}; it is a number of requests, 1 or more")

    def deferring_core() -> _core.Client:
        core = make_core(path, -1, -1, server_uid, local)
        core.defer_releases()
        return core

    async def make() -> AsyncClient:
        thread = _Thread()
        try:
            core = await asyncio.wrap_future(thread.submit(deferring_core))
        except BaseException:
            thread.stop()
            raise
        return AsyncClient(core, thread, reconnect, server_uid, staging, in_flight)

    return _Connecting(make)


class AsyncClient(Maker):
    """A connection to tmad on an asyncio loop. See `connect`. Its methods are those of tmaclient.Client, to be awaited
    on the loop that made it, and raise the same exceptions. On a CUDA device, too, a call ends when its result is
    there.

    A call that is canceled asks the service to take its request back, and raises CancelledError when that is over: the
    request was canceled, or has ended, and nothing reads or writes its arrays any more. Canceling it again changes
    nothing. Only if the service says nothing at all for two seconds, the call ends without its word, and `out` may be
    written when the service goes on."""

    def __init__(
        self,
        core: _core.Client,
        thread: _Thread,
        reconnect: float,
        server_uid: int | None,
        staging: int,
        in_flight: int,
    ) -> None:
        self._core, self._thread, self._path = core, thread, core.path
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._reconnect, self._server_uid, self._staging_bytes = reconnect, server_uid, staging
        self._turns = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()  # which the loop itself would forget
        self._closing: asyncio.Task[None] | None = None

        self._is_busy = False  # the core is in the thread
        self._waiting: deque[asyncio.Future[None]] = deque()  # for the core, in turn
        self._is_releasing = False

        self._connecting = asyncio.Lock()
        self._socket = -1  # a duplicate: the library closes its own when it likes
        self._connection: tuple[int, int] = (-1, 0)
        self._is_writing = False  # the socket is full
        self._room = asyncio.Event()
        self._room.set()
        _, _, self._wake = core.poll_fds()

        self._making = asyncio.Lock()
        self._blocking: Client | None = None
        self._stager: _Thread | None = None
        self._slots_region: Region | None = None
        self._slots: asyncio.LifoQueue[int] = asyncio.LifoQueue()
        self._resume()

    def __del__(self) -> None:
        if getattr(self, "_closing", self) is None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            if self._socket >= 0:
                os.close(self._socket)
            self._thread.stop()
            if self._stager is not None:
                self._stager.stop()

    async def close(self) -> None:
        """Closes the connection, once what is under way has ended. Calls that wait for their turn raise ValueError. If
        this is canceled, the client is closed all the same."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
            self._closing.add_done_callback(self._stop_threads)
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._making:  # what it makes is there, or will not be
            stager, blocking = self._stager, self._blocking
        await self._call(self._core.close)
        if stager is not None and blocking is not None:
            await asyncio.wrap_future(stager.submit(blocking.close))

    def _stop_threads(self, _: object) -> None:
        """Closes what is still open after a task that was canceled, perhaps before it had begun. The loop may end
        before the threads have done that."""
        if not self._core.closed:
            self._pause()
            self._thread.submit(self._core.close)
        self._thread.stop()
        if self._stager is not None:
            if self._blocking is not None:
                self._stager.submit(self._blocking.close)
            self._stager.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- The thread ------------------------------------------------------------------------------------

    async def _call(self, function: Callable[[], _T]) -> _T:
        """Runs what waits for a reply in the thread. It holds the core's lock, so that the loop keeps off meanwhile;
        what others want of the core waits for the same service anyway."""
        await self._until_idle()
        if self._core.closed:
            raise ValueError("the client is closed")
        self._is_busy = True
        self._pause()
        future = self._thread.submit(function)
        future.add_done_callback(self._on_done)
        return await asyncio.wrap_future(future)

    async def _ask(self, function: Callable[[], _T]) -> _T:
        """The same for what may be asked again on a new connection, if the service went away."""
        patience = _Patience(self._loop, self._reconnect)
        while True:
            try:
                return await self._call(function)
            except DisconnectedError:
                if self._core.closed or patience.is_over():
                    raise
            await self._connect_again(patience)

    async def _until_idle(self) -> None:
        """Until the core is the loop's. Those who wait are woken one by one, as each may want the thread."""
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
        """Starts a task of the client's own."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _release(self) -> None:
        """Releases what destructors have left: that waits for a reply."""
        try:
            with contextlib.suppress(ValueError):  # it was closed meanwhile, which releases everything
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
        """Has the loop watch the connection that there is now."""
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
            if flight.future.done():  # canceled
                continue
            if status == 0:
                flight.future.set_result(None)
            else:
                flight.future.set_exception(class_of(status)(message or ""))

    # ---- Requests --------------------------------------------------------------------------------------

    async def _send(self, start: Callable[[_Flight], Ticket | None], order: dict[str, Any]) -> None:
        """Starts a request and waits for its end; again on a new connection, if the service went away. One that signals
        may have done so."""
        patience = _Patience(self._loop, self._reconnect)
        while True:
            try:
                await self._send_once(start, patience)
                return
            except DisconnectedError:
                if "signal" in order or self._core.closed or patience.is_over():
                    raise

    async def _send_once(self, start: Callable[[_Flight], Ticket | None], patience: _Patience) -> None:
        await self._turns.acquire()
        flight = _Flight(self._loop.create_future(), self._turns.release)
        try:
            await self._until_ready(patience)
            try:
                ticket = start(flight)
            finally:
                self._watch()  # there may be no connection any more
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

    async def _until_ready(self, patience: _Patience) -> None:
        """Until the core is the loop's and a request can be written without waiting."""
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

    def _take_back(self, flight: _Flight, ticket: Ticket | None) -> None:
        """Waits for the service's word. What is in a stream cannot be taken back."""
        if self._core.closed:
            return
        if ticket is None:
            self._core.ping()
        elif not flight.is_over:
            self._core.cancel(ticket)

    async def _until_over(self, over: asyncio.Future[Any], ask: Callable[[], None]) -> None:
        """For a task that was canceled: waits for the end, however often it is canceled again, for as long as the
        service answers what it is asked."""
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
        with contextlib.suppress(Exception):  # what was asked about ends by itself then
            await self._call(ask)

    async def _connect_again(self, patience: _Patience) -> None:
        if self._reconnect < 0:
            raise DisconnectedError(f"tmad at {self._path} went away")
        patience.is_over()  # begins
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
                    await asyncio.sleep(_RETRY_S)

    def _reach(self) -> None:
        """Connects again, if there is somebody. Only here: the library's patience would hold up the loop."""
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

    async def _job(self, make: Callable[..., Job], *args: Any) -> Job:
        """Makes a job; in the thread, if the result needs new shared memory."""
        await self._until_idle()
        try:
            return make(*args)
        except _WouldWait:
            return await self._ask(lambda: make(*args))

    def _make_tensor(self, shape: Sequence[int], dtype: str, device: str | None = None, zeroed: bool = True) -> Tensor:
        if threading.get_ident() == self._loop_thread:
            raise _WouldWait
        return super()._make_tensor(shape, dtype, device, zeroed)

    async def _run(self, job: Job) -> Any:
        """Runs a job, with the points of its order around it where it takes several requests."""
        await self._until_idle()
        move = job.move
        is_on_device = not all(a.tensor.is_host for a in job.arrays)
        if is_on_device:
            job.streams()  # as they are now
        is_nothing = isinstance(move, Blocks) and move.is_nothing
        requests: list[Request] = []
        if self._are_reached(move) and not is_nothing and not self._is_spread(job):
            requests = await self._requests(job)
        if not requests:
            self._check(move)
        if requests and is_on_device:
            for request, order in zip(requests, orders_of(job.order, len(requests)), strict=True):
                await self._enqueue(request, job, order)
            return job.result()
        if len(requests) == 1:
            await self._submit(requests[0], job.order)
            return job.result()
        signal = None
        if not is_on_device:
            order = job.order
            job.order, wait, signal = without_points(order, not is_nothing)
            await self._await(wait, order)
        tensors = (move.dst, move.src, *move.operands, *move.results)
        is_small = sum(round_up(t.nbytes) for t in tensors) <= _SLOT_BYTES
        if requests:
            await self._submit_all(requests, job)
        elif isinstance(move, Move) and is_small and not is_on_device:
            await self._run_in_slot(job, move)
        elif not is_nothing:
            await self._run_staged(job, is_on_device)
        if signal is not None:
            _core.signal_point(*signal)
        return job.result()

    @staticmethod
    def _is_spread(job: Job) -> bool:
        """Whether layers are on several devices, whose streams have to be waited for."""
        return isinstance(job.move, Blocks) and job.move.layers is not None and len(job.streams()) > 1

    async def _requests(self, job: Job) -> list[Request]:
        """A long list is put into memory that the service shares, which takes a request of its own."""
        move = job.move
        if isinstance(move, Blocks) and move.index.device is None and move.index.tensor.nbytes > _LIST_BYTES:
            move.index.message_bytes = _LIST_BYTES
            return await self._ask(lambda: move.requests(self._core))
        return move.requests(self._core)

    async def _submit(self, request: Request, order: dict[str, Any]) -> None:
        await self._send(lambda flight: self._core.submit(request, flight, **order), order)

    async def _submit_all(self, requests: list[Request], job: Job) -> None:
        """One after the other, of a move of many layers."""
        inexact = Inexact(job.move.dst, job.move.src)
        for request in requests:
            try:
                await self._submit(request, job.order)
            except OutOfRangeError as e:
                inexact.add(e)
        inexact.check()

    async def _enqueue(self, request: Request, job: Job, order: dict[str, Any]) -> None:
        stream = job.stream()
        if self._core.is_local:
            if any(a.tensor.is_host for a in job.arrays):
                await self._ask(lambda: self._core.run(request, stream, **order))
                return
            self._core.enqueue(request, stream, **order)
            await self._ask(lambda: self._core.synchronize(stream))
            return

        def start(flight: _Flight) -> None:
            self._core.enqueue(request, stream, flight, **order)

        await self._send(start, order)

    async def _await(self, wait: tuple[Region, int, int] | None, order: dict[str, Any]) -> None:
        """Waits for a point here: what is staged is read by this process, in several requests."""
        if wait is None or _core.wait_point(*wait, 0):
            return
        limit = order.get("wait_ms")
        if limit is None:
            info = await self._ask(self._core.info)
            limit = int(info.get("limits", {}).get("wait_deadline_ms", 0)) or MOST_MS
        deadline, pause = self._loop.time() + limit / 1000, 0.0005
        while not _core.wait_point(*wait, 0):
            if self._loop.time() > deadline:
                raise WaitTimeoutError(f"wait: the timeline has not reached {wait[2]} within {limit} ms")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.01)

    async def _run_in_slot(self, job: Job, move: Move) -> None:
        """A small array passes through a slot of shared memory."""
        async with self._making:
            if self._slots_region is None:
                self._slots_region = await self._ask(lambda: self._core.create(_SLOTS * _SLOT_BYTES))
                for i in range(_SLOTS):
                    self._slots.put_nowait(i * _SLOT_BYTES)
        at = await self._slots.get()
        flying: set[_Flight] = set()  # that use the slot
        is_left = False

        def start(flight: _Flight) -> Ticket:
            release = flight.ended

            def ended() -> None:
                release()
                flying.discard(flight)
                if is_left and not flying:
                    self._slots.put_nowait(at)

            ticket = self._core.submit(request, flight, **job.order)
            flight.ended = ended
            flying.add(flight)
            return ticket

        try:
            lane, dst, conversion = Lane(self._slots_region, at), move.dst, move.conversion
            src = move.src if self._is_reached(move.src) else lane.copy(move.src)
            if conversion is not None:
                conversion = conversion.map(lambda t: t if self._is_reached(t) else lane.copy(t))
            written: list[tuple[Tensor, Tensor]] = []  # in the slot, and where it goes

            def place(t: Tensor) -> Tensor:
                if self._is_reached(t):
                    return t
                written.append((lane.tensor(t.dtype, t.shape, t.strides), t))
                return written[-1][0]

            if conversion is not None:
                conversion = conversion.writing([place(t) for t in conversion.results])
            request = Move(
                place(dst), src, move.permute, move.before, move.after, move.mode, move.value, conversion
            ).request()
            try:
                await self._send(start, job.order)
            except OutOfRangeError:  # an exact cast is one to the nearest values all the same
                _copy_back(written)
                raise
            _copy_back(written)
        finally:  # a request that was canceled may still use the slot
            is_left = True
            if not flying:
                self._slots.put_nowait(at)

    async def _run_staged(self, job: Job, is_on_device: bool) -> None:
        """A large array passes through staging memory, in chunks; so does what is half on a device."""
        blocking, stager = await self._blocking_client()
        job.progress = progress = _Progress(progress_bar(job))
        run = blocking._run_on_device if is_on_device else blocking._run_on_host
        await self._in_thread(stager, lambda: run(job), progress)

    async def _in_thread(self, stager: _Thread, run: Callable[[], None], progress: _Progress | None = None) -> None:
        """Moves arrays in the thread. What is canceled does not begin, or stops between two chunks."""
        moving = stager.submit(run)
        over = asyncio.wrap_future(moving)
        try:
            await asyncio.wait((over,))
        except asyncio.CancelledError:
            if progress is not None:
                progress.is_stopped = True
            over.add_done_callback(lambda over: over.cancelled() or over.exception())  # nobody else asks for it
            if not moving.cancel():
                await self._until_over(over, self._core.ping)
            raise
        over.result()

    async def _blocking_client(self) -> tuple[Client, _Thread]:
        """A client for a thread: its calls wait, and its lock is not this one's."""
        async with self._making:
            if self._closing is not None:
                raise ValueError("the client is closed")
            if self._stager is None:
                self._stager = _Thread()
            patience = _Patience(self._loop, self._reconnect)
            while self._blocking is None:
                try:
                    self._blocking = await asyncio.wrap_future(self._stager.submit(self._make_blocking))
                except DisconnectedError:
                    if patience.is_over():
                        raise
                    await asyncio.sleep(_RETRY_S)
            return self._blocking, self._stager

    def _make_blocking(self) -> Client:
        return Client(self._path, reconnect=self._reconnect, server_uid=self._server_uid, staging=self._staging_bytes)

    # ---- Moves -----------------------------------------------------------------------------------------

    async def copy(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        """Client.copy; so are the others."""
        return await self._run(
            await self._job(self._transform_job, src, None, None, "constant", 0, out, Options.of(options))
        )

    async def transpose(
        self, src: Any, axes: Sequence[int] | None = None, out: Any = None, **options: Unpack[MoveKeywords]
    ) -> Any:
        """Client.transpose."""
        return await self._run(await self._job(self._transpose_job, src, axes, out, Options.of(options)))

    async def pad(
        self,
        src: Any,
        pad_width: Any,
        mode: str = "constant",
        constant_values: Any = 0,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Client.pad."""
        value = parse_constant(constant_values)
        return await self._run(
            await self._job(self._transform_job, src, None, pad_width, mode, value, out, Options.of(options))
        )

    async def transform(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Client.transform."""
        return await self._run(
            await self._job(self._transform_job, src, permute, pad, mode, value, out, Options.of(options))
        )

    async def multicast(
        self,
        src: Any,
        outs: Sequence[Any],
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        **options: Unpack[MoveKeywords],
    ) -> tuple[Any, ...]:
        """Client.multicast. If arrays are on several devices, each gets a request of its own."""
        await self._until_idle()
        job, further = self._multicast_job(src, outs, permute, pad, mode, value, Options.of(options))
        if len(job.streams()) <= 1 and self._is_one_request(job, further):
            await self._run(job)
            return tuple(outs)
        check_multicast(job, further)
        for part in multicast_parts(job, further):
            await self._run(part)
        return tuple(outs)

    async def quantize(
        self,
        src: Any,
        block: Any = (128, 128),
        *,
        permute: Sequence[int] | None = None,
        power_of_two: bool = False,
        least: float = 0.0,
        inverse: bool = False,
        scale_dtype: Any = None,
        out: Any = None,
        scale_out: Any = None,
        inverse_out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> tuple[Any, ...]:
        """Client.quantize."""
        scaling = Scaling(block, power_of_two, least, inverse, scale_dtype, scale_out, inverse_out)
        job = await self._job(self._quantize_job, src, permute, out, scaling, Options.of(options))
        result: tuple[Any, ...] = await self._run(job)
        return result

    async def gather(
        self,
        src: Any,
        index: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Client.gather, also of layers. Those on several devices are moved in a thread."""
        return await self._run(await self._job(self._gather_job, src, index, axis, permute, out, Options.of(options)))

    async def scatter(
        self,
        dst: Any,
        index: Any,
        src: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """Client.scatter."""
        await self._run(await self._job(self._scatter_job, dst, index, src, axis, permute, Options.of(options)))

    async def gather_scatter(
        self,
        dst: Any,
        src: Any,
        pairs: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """Client.gather_scatter."""
        await self._run(await self._job(self._scatter_job, dst, pairs, src, axis, permute, Options.of(options), True))

    async def reshard(
        self, destinations: Any, sources: Any, *, shape: Sequence[int] | None = None, **options: Unpack[MoveKeywords]
    ) -> None:
        """Client.reshard."""
        checked = Options.of(options).check_reshard()
        reshard = Reshard.parse(destinations, sources, shape)
        streams = reshard.streams()
        await self._until_idle()
        if not streams and all(self._is_reached(t) for t in reshard.tensors):
            request = reshard.request()
            await self._send(lambda flight: self._core.submit(request, flight, **checked.order()), checked.order())
            return
        is_staged = not all(self._is_reached(t) for t in reshard.tensors)
        if is_staged:
            reshard.check()
        order, wait, signal = without_points(checked.order(), is_staged)
        await self._await(wait, checked.order())
        blocking, stager = await self._blocking_client()
        await self._in_thread(stager, lambda: blocking._run_reshard(reshard, streams, order, True))
        if signal is not None:
            _core.signal_point(*signal)

    async def plan(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
        **casting: Unpack[Keywords],
    ) -> AsyncPlan:
        """Client.plan: `await plan(src, out)` runs it."""
        move = self._plan_move(src, permute, pad, mode, value, out, Casting(**casting))
        return AsyncPlan(self, await self._ask(lambda: PreparedPlan._make(self, self._core, move)))

    def batch(self, **options: Unpack[MoveKeywords]) -> AsyncBatch:
        """Client.batch, for `async with`."""
        return AsyncBatch(self, Options.of(options).check_no_casting("each move of a batch has its own"))

    # ---- Memory, order, and what the service says ------------------------------------------------------

    async def empty(
        self, shape: int | Sequence[int], dtype: Any = "float32", *, device: int | str | None = None
    ) -> Any:
        """Client.empty."""
        where = device if device is None or isinstance(device, str) else str(operator.index(device))
        extents = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(operator.index(n) for n in shape)
        if is_exponents(dtype):
            return NUMPY.exponents(await self._ask(lambda: self._make_shared(extents, "uint8", where)))
        name = dtype_name(dtype)
        try:
            numpy_dtype(name)
        except (ImportError, TypeError):
            return await self._ask(lambda: self._make_tensor(extents, name, where))
        return await self._ask(lambda: self._make_shared(extents, name, where))

    zeros = empty

    async def register(self, array: Any, *, readonly: bool = False) -> Region:
        """Client.register."""
        t = adapt(array, "array").tensor
        mapping = mapping_of(array) if t.is_host else None
        return await self._ask(lambda: self._core.register(t, readonly or t.readonly, mapping))

    async def timeline(self) -> Timeline:
        """Client.timeline. Its wait() holds up the loop: use asyncio.to_thread."""
        return await self._ask(lambda: Timeline(self._core))

    async def explain(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
        engine: str | None = None,
        **casting: Unpack[Keywords],
    ) -> Plan:
        """Client.explain."""
        move = self._plan_move(src, permute, pad, mode, value, out, Casting(**casting))
        return await self._ask(lambda: Plan(self._core, move, engine))

    async def ping(self) -> None:
        """Client.ping."""
        await self._ask(self._core.ping)

    async def info(self) -> dict[str, Any]:
        """Client.info."""
        return await self._ask(self._core.info)

    async def stats(self) -> dict[str, Any]:
        """Client.stats."""
        return await self._ask(self._core.stats)

    async def regions(self) -> list[dict[str, Any]]:
        """Client.regions."""
        return await self._ask(self._core.regions)

    @property
    def path(self) -> str:
        """Path of the service's socket."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._core.closed

    def __repr__(self) -> str:
        return f"<tmaclient.aio.AsyncClient{', closed' if self._core.closed else ' of ' + self._path}>"


def _copy_back(written: list[tuple[Tensor, Tensor]]) -> None:
    for staged, t in written:
        t.copy_from(staged)


class AsyncPlan:
    """A transform that was checked once: `await plan(src, out)` runs it and returns out."""

    def __init__(self, client: AsyncClient, plan: PreparedPlan) -> None:
        self._client, self._plan = client, plan

    async def __call__(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        return await self._client._run(await self._client._job(self._plan._job, src, out, Options.of(options)))

    def _job(self, src: Any, out: Any, options: Options) -> Job:
        return self._plan._job(src, out, options)

    def release(self) -> None:
        """Gives the plan up; runs in flight finish."""
        self._plan.release()

    def __repr__(self) -> str:
        return f"<tmaclient.aio.AsyncPlan: {self._plan._words()}>"


__all__ = ["AsyncBatch", "AsyncClient", "AsyncPlan", "connect"]
