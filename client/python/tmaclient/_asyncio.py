# SPDX-License-Identifier: Apache-2.0
"""The runner whose calls are awaited. It sends requests for arrays that the service reaches. Of the other arrays, it
passes small ones through slots of shared memory, and has a thread, the stager, move large ones through staging memory.
The stager uses a blocking client with a connection of its own.

All methods run on the loop, except functions that are passed to a Thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._blocking import progress_bar
from ._client import Client
from ._conversion import Inexact
from ._core import Region, Request, Tensor, Ticket
from ._errors import CanceledError, DisconnectedError, OutOfRangeError, WaitTimeoutError
from ._jobs import MOST_MS, Job, MoveKeywords, Options, multicast_parts, orders_of, without_points
from ._loop import RETRY_S, Connection, Flight, Patience, Thread
from ._moves import Blocks, Move
from ._reshard import Reshard
from ._staging import Lane, round_up

_SLOTS, _SLOT_BYTES = 64, 128 << 10  # number and size of the slots for small arrays
_LIST_BYTES = 1024  # limit of a block list that is sent within a request; a longer one is put into shared memory


class _WouldWait(Exception):
    """Raised on the loop when a job needs new shared memory, which takes a request. The job is then made in the
    thread."""


class _Progress:
    """The progress of a staged move. It forwards to the caller's progress bar, if any, and stops the move between two
    chunks when is_stopped is set."""

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


class AsyncRunner(Connection):
    """Runs jobs on a loop, each in the task of its caller."""

    def __init__(
        self, core: _core.Client, thread: Thread, reconnect: float, server_uid: int | None, staging: int, in_flight: int
    ) -> None:
        super().__init__(core, thread, reconnect, in_flight)
        self._server_uid, self._staging_bytes = server_uid, staging
        self._closing: asyncio.Task[None] | None = None  # the task that closes the client; None: close() was not called
        self._making = asyncio.Lock()  # held while one of the next three attributes is made
        self._blocking: Client | None = None  # the client of the stager
        self._stager: Thread | None = None
        self._slots_region: Region | None = None
        self._slots: asyncio.LifoQueue[int] = asyncio.LifoQueue()  # offsets of the free slots in the region

    def __del__(self) -> None:
        if getattr(self, "_closing", self) is None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            if self._socket >= 0:
                os.close(self._socket)
            self._thread.stop()
            if self._stager is not None:
                self._stager.stop()

    async def close(self) -> None:
        """Closes the connection when all requests under way have ended. Calls that wait for their turn raise
        ValueError. If this call is canceled, the client is closed all the same."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
            self._closing.add_done_callback(self._stop_threads)
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._making:  # after this, the stager and its client exist, or will never be made
            stager, blocking = self._stager, self._blocking
        await self._call(self._core.close)
        if stager is not None and blocking is not None:
            await asyncio.wrap_future(stager.submit(blocking.close))

    def _stop_threads(self, _: object) -> None:
        """Stops the threads when the task _close() has ended. If it was canceled, perhaps before it began, the threads
        close the connections first. The loop may end before they have done so."""
        if not self._core.closed:
            self._pause()
            self._thread.submit(self._core.close)
        self._thread.stop()
        if self._stager is not None:
            if self._blocking is not None:
                self._stager.submit(self._blocking.close)
            self._stager.stop()

    # ---- Jobs ------------------------------------------------------------------------------------------

    async def _do(self, make: Callable[..., Job], given: MoveKeywords, *args: Any) -> Any:
        """Makes a job and runs it. A job whose result needs new shared memory is made in the thread."""
        options = Options.of(given)
        if self._is_busy:
            await self._until_idle()
        try:
            job = make(*args, options)
        except _WouldWait:
            job = await self._ask(lambda: make(*args, options))
        return await (self._run(job) if job.further is None else self._run_multicast(job))

    def _make_tensor(self, shape: Sequence[int], dtype: str, device: str | None = None, zeroed: bool = True) -> Tensor:
        if threading.get_ident() == self._loop_thread:
            raise _WouldWait
        return super()._make_tensor(shape, dtype, device, zeroed)

    async def _run(self, job: Job) -> Any:
        """Runs a job. If the job takes several requests, waits for the point of its order before the first, and signals
        after the last."""
        await self._until_idle()
        move = job.move
        is_on_device = not all(a.tensor.is_host for a in job.arrays)
        if is_on_device:
            job.streams()  # finds the caller's current streams, before the caller can change them
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
        """Returns whether a job's layers are on several devices, whose streams have to be waited for."""
        return isinstance(job.move, Blocks) and job.move.layers is not None and len(job.streams()) > 1

    async def _requests(self, job: Job) -> list[Request]:
        """Returns the requests of a job. A long block list is put into shared memory. To get such memory takes a
        request of its own, so the thread does this."""
        move = job.move
        if isinstance(move, Blocks) and move.index.device is None and move.index.tensor.nbytes > _LIST_BYTES:
            move.index.message_bytes = _LIST_BYTES
            return await self._ask(lambda: move.requests(self._core))
        return move.requests(self._core)

    async def _submit(self, request: Request, order: dict[str, Any]) -> None:
        await self._send(lambda flight: self._core.submit(request, flight, **order), order)

    async def _submit_all(self, requests: list[Request], job: Job) -> None:
        """Runs the requests of one move one after the other, and raises one error for all inexact elements."""
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
            if job.has_host:
                await self._ask(lambda: self._core.run(request, stream, **order))
                return
            self._core.enqueue(request, stream, **order)
            await self._ask(lambda: self._core.synchronize(stream))
            return

        def start(flight: Flight) -> None:
            self._core.enqueue(request, stream, flight, **order)

        await self._send(start, order)

    async def _await(self, wait: tuple[Region, int, int] | None, order: dict[str, Any]) -> None:
        """Waits until the point is reached that a move of several requests has to wait for; wait None: there is none.
        This process waits, and not the service, because it reads staged arrays itself. order: the move's order, for its
        wait_ms."""
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

    async def _run_multicast(self, job: Job) -> Any:
        """Runs a multicast: as one request if the service reaches all memory and arrays on devices are used in one
        stream, and otherwise as one job for each result."""
        if len(job.streams()) <= 1 and self._is_one_request(job):
            return await self._run(job)
        for part in multicast_parts(job):
            await self._run(part)
        return job.result()

    async def _reshard(self, options: Options, reshard: Reshard) -> None:
        streams = reshard.streams()
        await self._until_idle()
        is_staged = not all(self._is_reached(t) for t in reshard.tensors)
        if not streams and not is_staged:
            await self._submit(reshard.request(), options.order())
            return
        if is_staged:
            reshard.check()
        order, wait, signal = without_points(options.order(), is_staged)
        await self._await(wait, options.order())
        blocking, stager = await self._blocking_client()
        await self._in_thread(stager, lambda: blocking._run_reshard(reshard, streams, order, True))
        if signal is not None:
            _core.signal_point(*signal)

    async def _run_in_slot(self, job: Job, move: Move) -> None:
        """Runs a move of small arrays through a slot of shared memory."""
        async with self._making:
            if self._slots_region is None:
                self._slots_region = await self._ask(lambda: self._core.create(_SLOTS * _SLOT_BYTES))
                for i in range(_SLOTS):
                    self._slots.put_nowait(i * _SLOT_BYTES)
        at = await self._slots.get()
        flying: set[Flight] = set()  # requests under way that use the slot
        is_left = False  # whether this call is done with the slot, which is then free when the last request ends

        def start(flight: Flight) -> Ticket:
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
            written: list[tuple[Tensor, Tensor]] = []  # tensors in the slot, each with the one it is copied back to

            def place(t: Tensor) -> Tensor:
                return t if self._is_reached(t) else lane.place(t, written)

            if conversion is not None:
                conversion = conversion.writing([place(t) for t in conversion.results])
            request = Move(
                place(dst), src, move.permute, move.before, move.after, move.mode, move.value, conversion
            ).request()
            try:
                await self._send(start, job.order)
            except OutOfRangeError:  # an exact cast that fails has still written the nearest values
                _copy_back(written)
                raise
            _copy_back(written)
        finally:  # a request that was canceled may still use the slot
            is_left = True
            if not flying:
                self._slots.put_nowait(at)

    async def _run_staged(self, job: Job, is_on_device: bool) -> None:
        """Runs a move in the stager: a move of large arrays, in chunks through staging memory, or a move with a side on
        a device that cannot be sent to the service as it is."""
        blocking, stager = await self._blocking_client()
        job.progress = progress = _Progress(progress_bar(job))
        run = blocking._run_on_device if is_on_device else blocking._run_on_host
        await self._in_thread(stager, lambda: run(job), progress)

    async def _in_thread(self, stager: Thread, run: Callable[[], None], progress: _Progress | None = None) -> None:
        """Calls run() in the stager and waits for its end. If the task is canceled before run() has begun, it does not
        begin; after that, a move with progress stops between two chunks."""
        moving = stager.submit(run)
        over = asyncio.wrap_future(moving)
        try:
            await asyncio.wait((over,))
        except asyncio.CancelledError:
            if progress is not None:
                progress.is_stopped = True
            # Retrieves the exception, which nobody else does, so that asyncio does not log it.
            over.add_done_callback(lambda over: over.cancelled() or over.exception())
            if not moving.cancel():
                await self._until_over(over, self._core.ping)
            raise
        over.result()

    async def _blocking_client(self) -> tuple[Client, Thread]:
        """Returns the stager and its client, which are made by the first call. The client has a connection and a lock
        of its own, so that its blocking calls do not hold up the loop."""
        async with self._making:
            if self._closing is not None:
                raise ValueError("the client is closed")
            if self._stager is None:
                self._stager = Thread()
            patience = Patience(self._loop, self._reconnect)
            while self._blocking is None:
                try:
                    self._blocking = await asyncio.wrap_future(self._stager.submit(self._make_blocking))
                except DisconnectedError:
                    if patience.is_over():
                        raise
                    await asyncio.sleep(RETRY_S)
            return self._blocking, self._stager

    def _make_blocking(self) -> Client:
        return Client(self._path, reconnect=self._reconnect, server_uid=self._server_uid, staging=self._staging_bytes)


def _copy_back(written: list[tuple[Tensor, Tensor]]) -> None:
    for staged, t in written:
        t.copy_from(staged)
