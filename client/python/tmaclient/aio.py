# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: every call is awaitable, and thousands can be in flight on one loop.

    async with tma.aio.connect() as c:
        y = await c.transform(x, permute=(0, 3, 1, 2))

Requests travel over one connection and run in their order. A task that is canceled takes its request back, and ends
when the service has nothing more to do with its arrays.

What waits for the service never holds up the loop. The client has two threads: one for the few calls that wait for a
reply (`_loop`); and one that moves large arrays through staging memory, over a connection of its own (`_asyncio`).
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from . import _core
from ._arrays import OWN, Array, aligned
from ._asyncio import AsyncRunner
from ._batch import Collector, messages
from ._client import Client, make_core
from ._core import Request
from ._jobs import Job, MoveKeywords, Options, without_points
from ._loop import Thread
from ._plan import AsyncPlan, PreparedPlan

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Call = TypeVar("_Call", bound=Callable[..., Any])
_Method = Callable[Concatenate[Any, _Arguments], _Result]
_AsyncMethod = Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Result]]

IN_FLIGHT = 256  # requests of a client; more wait for their turn


_DOCS = {
    "copy": "Client.copy; so are the others.",
    "gather": "Client.gather, also of layers. Those on several devices are moved in a thread.",
    "multicast": "Client.multicast. If arrays are on several devices, each gets a request of its own.",
    "plan": "Client.plan: `await plan(src, out)` runs it.",
    "timeline": "Client.timeline. Its wait() holds up the loop: use asyncio.to_thread.",
}


def _like(method: Callable[..., Any], call: _Call) -> _Call:
    """Has a function tell of itself as the method of Client does that it is derived from."""
    functools.update_wrapper(call, method).__doc__ = _DOCS.get(method.__name__, f"Client.{method.__name__}.")
    return call


def _awaited(verb: _Method[_Arguments, _Result]) -> _AsyncMethod[_Arguments, _Result]:
    """Derives a verb: what it hands to the runner's `_do` is a coroutine here, and is awaited. With no other parameter,
    mypy derives every overload."""

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        result: _Result = await cast(Any, verb(self, *args, **kwargs))
        return result

    return _like(verb, call)


def _asked(method: _Method[_Arguments, _Result]) -> _AsyncMethod[_Arguments, _Result]:
    """Derives a method that waits for a reply: the thread calls it. It uses no more of Client than Maker has."""

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        result: _Result = await self._ask(functools.partial(method, self, *args, **kwargs))
        return result

    return _like(method, call)


def _planned(plan: _Method[_Arguments, PreparedPlan]) -> _AsyncMethod[_Arguments, AsyncPlan]:
    """Derives Client.plan, whose plans are awaited."""
    ask = _asked(plan)

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> AsyncPlan:
        return AsyncPlan(self, await ask(self, *args, **kwargs))

    return _like(plan, call)


class AsyncBatch(Collector):
    """Moves that run together when the `async with` block ends. If the block raises, none of them runs. A result
    without out is an ordinary array: shared memory is not to be had without waiting."""

    _name = "tmaclient.aio.AsyncBatch"

    def __init__(self, client: AsyncRunner, options: Options) -> None:
        super().__init__(options)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            await self.run()

    async def run(self) -> None:
        """Runs what was collected: in few requests what the service reaches, and the rest beside them. The first
        exception is raised when all have ended."""
        client, jobs = self._client, self._jobs
        self._jobs = []
        await client._until_idle()
        together: list[Job] = []
        rest: list[Job] = []
        for job in jobs:
            is_shared = all(a.tensor.is_host and client._is_reached(a.tensor) for a in job.arrays)
            (together if is_shared else rest).append(job)
        for job in rest:
            client._check(job.move)
        order, wait, signal = self._options.order(), None, None
        parts = list(messages(together))
        if rest or len(parts) > 1:  # several requests are one to those who wait for a point
            order, wait, signal = without_points(order)
            await client._await(wait, self._options.order())
        for job in rest:
            job.order = order
        pending = [client._run(job) for job in rest]
        pending += [self._run_items(part, order) for part in parts]
        for result in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if signal is not None:
            _core.signal_point(*signal)

    async def _run_items(self, jobs: list[Job], order: dict[str, Any]) -> None:
        await self._client._submit(Request.items([j.move.request(self._client._core) for j in jobs]), order)

    def _make_array(self, shape: Sequence[int], like: Array, dtype: str) -> Any:
        return aligned(shape, dtype) if like.kind is OWN else like.kind.empty(shape, dtype, like.object)


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

    async def __aexit__(self, kind: object, value: object, trace: object) -> None:
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
        thread = Thread()
        try:
            core = await asyncio.wrap_future(thread.submit(deferring_core))
        except BaseException:
            thread.stop()
            raise
        return AsyncClient(core, thread, reconnect, server_uid, staging, in_flight)

    return _Connecting(make)


class AsyncClient(AsyncRunner):
    """A connection to tmad on an asyncio loop. See `connect`. Its methods are those of tmaclient.Client, to be awaited
    on the loop that made it, and raise the same exceptions. On a CUDA device, too, a call ends when its result is
    there.

    A call that is canceled asks the service to take its request back, and raises CancelledError when that is over: the
    request was canceled, or has ended, and nothing reads or writes its arrays any more. Canceling it again changes
    nothing. Only if the service says nothing at all for two seconds, the call ends without its word, and `out` may be
    written when the service goes on."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, value: object, trace: object) -> None:
        await self.close()

    copy = _awaited(Client.copy)
    transpose = _awaited(Client.transpose)
    pad = _awaited(Client.pad)
    transform = _awaited(Client.transform)
    multicast = _awaited(Client.multicast)
    quantize = _awaited(Client.quantize)
    gather = _awaited(Client.gather)
    scatter = _awaited(Client.scatter)
    gather_scatter = _awaited(Client.gather_scatter)
    reshard = _awaited(Client.reshard)
    plan = _planned(Client.plan)

    def batch(self, **options: Unpack[MoveKeywords]) -> AsyncBatch:
        """Client.batch, for `async with`."""
        return AsyncBatch(self, Options.of(options).check_no_casting("each move of a batch has its own"))

    empty = zeros = _asked(Client.empty)
    register = _asked(Client.register)
    timeline = _asked(Client.timeline)
    explain = _asked(Client.explain)
    ping = _asked(Client.ping)
    info = _asked(Client.info)
    stats = _asked(Client.stats)
    regions = _asked(Client.regions)

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


__all__ = ["AsyncBatch", "AsyncClient", "AsyncPlan", "connect"]
