# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: every call is awaitable, and thousands can be in flight on one loop.

    async with tma.aio.connect() as c:
        y = await c.transform(x, permute=(0, 3, 1, 2))

Requests travel over one connection and run in their order; a task that is canceled takes its request back. What must
not hold up the loop, such as copying an array of gigabytes into staging memory, is done in threads, over a connection
of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Self

from . import _core
from ._arrays import adapt, dtype_name, numpy_dtype
from ._client import Client, Job, Maker, Options, check_version
from ._core import Region, Request
from ._errors import DisconnectedError, class_of
from ._moves import Index, Move, parse_constant
from ._plan import Plan, PreparedPlan
from ._staging import dense_like
from ._timeline import Timeline

IN_FLIGHT = 256  # requests of a client; more wait for their turn
_SLOTS, _SLOT_BYTES = 64, 128 << 10  # of staging memory for small arrays
_RETRY_S = 0.02
_ITEMS = 128  # of a request, which has to be one message


class _Flight:
    """A request under way: who waits for it, and what is free again when it ends."""

    __slots__ = ("ended", "future")

    def __init__(self, future: asyncio.Future[None], ended: Callable[[], None]) -> None:
        self.future, self.ended = future, ended


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
) -> _Connecting:
    """Connects to tmad from a running loop; arguments as those of tmaclient.connect. in_flight limits the requests that
    are under way at once: a call beyond it waits for its turn. For a timeout, use asyncio.timeout."""

    async def make() -> AsyncClient:
        core = await asyncio.to_thread(_core.Client, os.fspath(path) if path is not None else None, -1, 5000, server_uid)
        await asyncio.to_thread(check_version, core)
        return AsyncClient(core, reconnect, server_uid, staging, in_flight)

    return _Connecting(make)


class AsyncClient(Maker):
    """A connection to tmad on an asyncio loop. See `connect`. Its methods are those of tmaclient.Client, to be awaited
    on the loop that made it. On a CUDA device, too, a call ends when its result is there."""

    def __init__(
        self, core: _core.Client, reconnect: float, server_uid: int | None, staging: int, in_flight: int
    ) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._reconnect, self._server_uid, self._staging_bytes = reconnect, server_uid, staging
        self._turns = asyncio.Semaphore(in_flight)
        self._connecting = asyncio.Lock()
        self._socket = -1  # a duplicate: the library closes its own when it likes
        self._connection: tuple[int, int] = (-1, 0)
        self._is_writing = False
        _, _, self._wake = core.poll_fds()
        self._loop.add_reader(self._wake, self._on_ready)
        self._blocking: Client | None = None
        self._making = asyncio.Lock()
        self._slots_region: Region | None = None
        self._slots: asyncio.LifoQueue[int] = asyncio.LifoQueue()
        self._watch()

    async def close(self) -> None:
        """Closes the connection, once what is under way has ended."""
        if self._core.closed:
            return
        self._loop.remove_reader(self._wake)
        self._unwatch()
        blocking, self._blocking = self._blocking, None
        for ended in self._core.completed():
            self._end(*ended)
        await asyncio.to_thread(self._core.close)
        for ended in self._core.completed():
            self._end(*ended)
        if blocking is not None:
            await asyncio.to_thread(blocking.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- The socket ------------------------------------------------------------------------------------

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
                self._loop.add_writer(self._socket, self._on_ready)
            else:
                self._loop.remove_writer(self._socket)

    def _unwatch(self) -> None:
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            os.close(self._socket)
        self._socket, self._is_writing, self._connection = -1, False, (-1, 0)

    def _on_ready(self) -> None:
        if self._core.closed:
            return
        for ended in self._core.completed():
            self._end(*ended)
        self._watch()

    def _end(self, flight: _Flight, status: int, message: str | None) -> None:
        flight.ended()
        if flight.future.done():  # canceled
            return
        if status == 0:
            flight.future.set_result(None)
        else:
            flight.future.set_exception(class_of(status)(message or ""))

    # ---- Requests --------------------------------------------------------------------------------------

    async def _send(self, start: Callable[[_Flight], int | None], is_repeatable: bool) -> None:
        """Starts a request and waits for its end; again on a new connection, if the service went away."""
        deadline = self._loop.time() + self._reconnect
        while True:
            try:
                await self._send_once(start)
                return
            except DisconnectedError as e:
                if not is_repeatable or self._reconnect < 0 or self._loop.time() > deadline:
                    raise
                try:
                    await self._connect_again(deadline)
                except OSError:
                    raise e from None

    async def _send_once(self, start: Callable[[_Flight], int | None]) -> None:
        await self._turns.acquire()
        flight = _Flight(self._loop.create_future(), self._turns.release)
        try:
            ticket = start(flight)
        except BaseException:
            self._turns.release()
            raise
        self._watch()
        try:
            await flight.future
        except asyncio.CancelledError:
            if ticket and not self._core.closed:
                self._loop.run_in_executor(None, self._take_back, ticket)
            raise

    def _take_back(self, ticket: int) -> None:
        with contextlib.suppress(Exception):  # it ends by itself then
            self._core.cancel(ticket)

    async def _connect_again(self, deadline: float) -> None:
        """Waits until the service can be reached; only then may the library, whose patience would hold up the loop."""
        async with self._connecting:
            while True:
                try:
                    _, writer = await asyncio.open_unix_connection(self._core.path)
                    writer.close()
                    await asyncio.to_thread(self._core.ping)
                    return
                except (DisconnectedError, OSError):
                    if self._loop.time() > deadline:
                        raise
                    await asyncio.sleep(_RETRY_S)

    async def _run(self, job: Job) -> Any:
        move = job.move
        if not all(a.tensor.is_host for a in job.arrays):
            await self._run_on_device(job)
        elif self._is_reached(move.dst) and self._is_reached(move.src):
            request = await self._request(job)
            await self._send(lambda flight: self._core.submit(request, flight, **job.order), "signal" not in job.order)
        elif isinstance(move, Move) and max(move.dst.nbytes, move.src.nbytes) <= _SLOT_BYTES // 2:
            await self._run_in_slot(job, move)
        else:
            blocking = await self._blocking_client()
            await asyncio.to_thread(blocking._run, job)
        return job.result()

    async def _request(self, job: Job) -> Request:
        """A long list is put into shared memory, which takes a request of its own."""
        index: Index | None = getattr(job.move, "index", None)
        if index is not None and index.tensor.nbytes > 1024:
            index.message_bytes = 1024
            return await asyncio.to_thread(job.move.request, self._core)
        return job.move.request(self._core)

    async def _run_on_device(self, job: Job) -> None:
        if any(a.tensor.is_host and not self._is_reached(a.tensor) for a in job.arrays):
            blocking = await self._blocking_client()
            await asyncio.to_thread(blocking._run, job)
            return
        request, stream = await self._request(job), job.stream()

        def start(flight: _Flight) -> None:
            self._core.enqueue(request, stream, flight, **job.order)

        await self._send(start, "signal" not in job.order)

    async def _run_in_slot(self, job: Job, move: Move) -> None:
        """A small array passes through a slot of shared memory."""
        async with self._making:
            if self._slots_region is None:
                self._slots_region = await asyncio.to_thread(self._core.create, _SLOTS * _SLOT_BYTES)
                for i in range(_SLOTS):
                    self._slots.put_nowait(i * _SLOT_BYTES)
        region, dst, src = self._slots_region, move.dst, move.src
        at = await self._slots.get()
        flying: set[_Flight] = set()  # that use the slot
        is_left = False

        def start(flight: _Flight) -> int:
            release = flight.ended

            def ended() -> None:
                release()
                flying.discard(flight)
                if is_left and not flying:
                    self._slots.put_nowait(at)

            flight.ended = ended
            ticket = self._core.submit(request, flight, **job.order)
            flying.add(flight)
            return ticket

        try:
            staged_src, staged_dst = src, dst
            if not self._is_reached(src):
                staged_src = region.tensor(at, src.dtype, src.shape, dense_like(src.shape, src.strides))
                staged_src.copy_from(src)
            if not self._is_reached(dst):
                half = at + _SLOT_BYTES // 2
                staged_dst = region.tensor(half, dst.dtype, dst.shape, dense_like(dst.shape, dst.strides))
            request = Move(
                staged_dst, staged_src, move.permute, move.before, move.after, move.mode, move.value
            ).request()
            await self._send(start, "signal" not in job.order)
            if staged_dst is not dst:
                dst.copy_from(staged_dst)
        finally:  # a request that was canceled may still use the slot
            is_left = True
            if not flying:
                self._slots.put_nowait(at)

    async def _blocking_client(self) -> Client:
        """A client for threads: its calls wait, and its lock is not this one's."""
        async with self._making:
            if self._blocking is None:
                self._blocking = await asyncio.to_thread(
                    lambda: Client(
                        self._core.path,
                        reconnect=self._reconnect,
                        server_uid=self._server_uid,
                        staging=self._staging_bytes,
                    )
                )
            return self._blocking

    # ---- Moves -----------------------------------------------------------------------------------------

    async def copy(self, src: Any, out: Any = None, **options: Any) -> Any:
        """Client.copy; so are the others."""
        return await self._run(self._transform_job(src, None, None, "constant", 0, out, Options(**options)))

    async def transpose(self, src: Any, axes: Sequence[int] | None = None, out: Any = None, **options: Any) -> Any:
        """Client.transpose."""
        return await self._run(self._transpose_job(src, axes, out, Options(**options)))

    async def pad(
        self,
        src: Any,
        pad_width: Any,
        mode: str = "constant",
        constant_values: Any = 0,
        out: Any = None,
        **options: Any,
    ) -> Any:
        """Client.pad."""
        value = parse_constant(constant_values)
        return await self._run(self._transform_job(src, None, pad_width, mode, value, out, Options(**options)))

    async def transform(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
        **options: Any,
    ) -> Any:
        """Client.transform."""
        return await self._run(self._transform_job(src, permute, pad, mode, value, out, Options(**options)))

    async def gather(
        self,
        src: Any,
        index: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        out: Any = None,
        **options: Any,
    ) -> Any:
        """Client.gather."""
        return await self._run(self._gather_job(src, index, axis, permute, out, Options(**options)))

    async def scatter(
        self,
        dst: Any,
        index: Any,
        src: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        """Client.scatter."""
        await self._run(self._scatter_job(dst, index, src, axis, permute, Options(**options)))

    async def plan(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
    ) -> AsyncPlan:
        """Client.plan: `await plan(src, out)` runs it."""
        move = self._plan_move(src, permute, pad, mode, value, out)
        return AsyncPlan(self, await asyncio.to_thread(PreparedPlan._make, self, self._core, move))

    def batch(self, **options: Any) -> AsyncBatch:
        """Client.batch, for `async with`."""
        return AsyncBatch(self, Options(**options))

    # ---- Memory, order, and what the service says ------------------------------------------------------

    async def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """Client.empty."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        name = dtype_name(dtype)
        try:
            numpy_dtype(name)
        except (ImportError, TypeError):
            return await asyncio.to_thread(self._make_tensor, shape, name)
        return await asyncio.to_thread(self._make_shared, shape, name)

    zeros = empty

    async def register(self, array: Any, *, readonly: bool = False) -> Region:
        """Client.register."""
        t = adapt(array, "array").tensor
        return await asyncio.to_thread(self._core.register, t, readonly or t.readonly)

    async def timeline(self) -> Timeline:
        """Client.timeline. Its wait() holds up the loop: use asyncio.to_thread."""
        return await asyncio.to_thread(Timeline, self._core)

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
    ) -> Plan:
        """Client.explain."""
        move = self._plan_move(src, permute, pad, mode, value, out)
        return await asyncio.to_thread(Plan, self._core, move, engine)

    async def ping(self) -> None:
        """Client.ping."""
        await asyncio.to_thread(self._core.ping)

    async def info(self) -> dict[str, Any]:
        """Client.info."""
        return await asyncio.to_thread(self._core.info)

    async def stats(self) -> dict[str, Any]:
        """Client.stats."""
        return await asyncio.to_thread(self._core.stats)

    async def regions(self) -> list[dict[str, Any]]:
        """Client.regions."""
        return await asyncio.to_thread(self._core.regions)

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._core.closed

    def __repr__(self) -> str:
        if self._core.closed:
            return "<tmaclient.aio.AsyncClient, closed>"
        return f"<tmaclient.aio.AsyncClient of {self._core.path}>"


class AsyncPlan:
    """A transform that was checked once: `await plan(src, out)` runs it and returns out."""

    def __init__(self, client: AsyncClient, plan: PreparedPlan) -> None:
        self._client, self._plan = client, plan

    async def __call__(self, src: Any, out: Any = None, **options: Any) -> Any:
        return await self._client._run(self._plan._job(src, out, Options(**options)))

    def release(self) -> None:
        """Gives the plan up; runs in flight finish."""
        self._plan.release()

    def __repr__(self) -> str:
        return f"<tmaclient.aio.AsyncPlan {self._plan.src!r} -> {self._plan.dst!r}>"


class AsyncBatch:
    """Moves that run together when the `async with` block ends. If the block raises, none of them runs."""

    def __init__(self, client: AsyncClient, options: Options) -> None:
        self._client, self._options = client, options
        self._jobs: list[Job] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.run()

    def copy(self, src: Any, out: Any = None) -> Any:
        """Batch.copy; so are the others."""
        return self._add(self._client._transform_job(src, None, None, "constant", 0, out, self._options))

    def transpose(self, src: Any, axes: Sequence[int] | None = None, out: Any = None) -> Any:
        """Batch.transpose."""
        return self._add(self._client._transpose_job(src, axes, out, self._options))

    def pad(self, src: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0, out: Any = None) -> Any:
        """Batch.pad."""
        value = parse_constant(constant_values)
        return self._add(self._client._transform_job(src, None, pad_width, mode, value, out, self._options))

    def transform(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
    ) -> Any:
        """Batch.transform."""
        return self._add(self._client._transform_job(src, permute, pad, mode, value, out, self._options))

    def _add(self, job: Job) -> Any:
        self._jobs.append(job)
        return job.out

    async def run(self) -> None:
        """Runs what was collected."""
        client, jobs = self._client, self._jobs
        self._jobs = []
        together = [j for j in jobs if all(a.tensor.is_host and client._is_reached(a.tensor) for a in j.arrays)]
        pending = [client._run(j) for j in jobs if j not in together]
        for i in range(0, len(together), _ITEMS):
            pending.append(self._run_items(together[i : i + _ITEMS]))
        await asyncio.gather(*pending)

    async def _run_items(self, jobs: list[Job]) -> None:
        core, order = self._client._core, self._options.order()
        request = Request.items([j.move.request(core) for j in jobs])
        await self._client._send(lambda flight: core.submit(request, flight, **order), "signal" not in order)


__all__ = ["AsyncBatch", "AsyncClient", "AsyncPlan", "connect"]
