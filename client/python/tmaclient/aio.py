# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: every call is awaitable, and thousands can be in flight on one loop.

    async with tma.aio.connect() as c:
        y = await c.transform(x, permute=(0, 3, 1, 2))

Requests are sent over one connection and run in order. A task that is canceled cancels its request, and ends when the
service does not use its arrays any more.

Calls that wait for the service never hold up the loop. The client has two threads: one for the few calls that wait for
a reply (`_loop`), and one that moves large arrays through staging memory, over a connection of its own (`_asyncio`).
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

IN_FLIGHT = 256  # default maximum number of a client's requests under way; further ones wait for their turn


_DOCS = {
    "copy": "Client.copy; so are the others.",
    "gather": "Client.gather, also of layers. Those on several devices are moved in a thread.",
    "multicast": "Client.multicast. If arrays are on several devices, each gets a request of its own.",
    "plan": "Client.plan: `await plan(src, out)` runs it.",
    "timeline": "Client.timeline. Its wait() holds up the loop: use asyncio.to_thread.",
}


def _like(method: Callable[..., Any], call: _Call) -> _Call:
    """Gives a function the name and signature of the method of Client that it is derived from, and a docstring that
    refers to it. Returns the function."""
    functools.update_wrapper(call, method).__doc__ = _DOCS.get(method.__name__, f"Client.{method.__name__}.")
    return call


def _awaited(verb: _Method[_Arguments, _Result]) -> _AsyncMethod[_Arguments, _Result]:
    """Derives an awaitable verb from one of Client. The runner's `_do`, which the verb calls, returns a coroutine here,
    and that is awaited. _awaited has no other parameter, so that mypy derives every overload."""

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        result: _Result = await cast(Any, verb(self, *args, **kwargs))
        return result

    return _like(verb, call)


def _asked(method: _Method[_Arguments, _Result]) -> _AsyncMethod[_Arguments, _Result]:
    """Derives an awaitable method from a method of Client that waits for a reply, which the thread then calls. That
    method may use only those members of Client that Maker has, too."""

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        result: _Result = await self._ask(functools.partial(method, self, *args, **kwargs))
        return result

    return _like(method, call)


def _planned(plan: _Method[_Arguments, PreparedPlan]) -> _AsyncMethod[_Arguments, AsyncPlan]:
    """Derives the awaitable Client.plan, whose result is an AsyncPlan."""
    ask = _asked(plan)

    async def call(self: Any, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> AsyncPlan:
        return AsyncPlan(self, await ask(self, *args, **kwargs))

    return _like(plan, call)


class AsyncBatch(Collector):
    """Moves that run together when the `async with` block ends. If the block raises, none of them runs. A result that
    is made because there is no out is an ordinary array, because getting shared memory would have to wait."""

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
        """Runs the collected moves. Moves whose arrays the service reaches share a few requests; the others run
        concurrently, each by itself. The first exception is raised when all have ended."""
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
        if rest or len(parts) > 1:  # with several requests, the points are handled here, once for all of them
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
    """The object that `connect` returns. It is awaited, or entered with `async with`."""

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
    """Connects to tmad from a running loop. The arguments are those of tmaclient.connect. in_flight limits the requests
    that are under way at once: further calls wait for their turn. For a timeout, use asyncio.timeout."""
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
    """A connection to tmad on an asyncio loop; see `connect`. Its methods are those of tmaclient.Client. They are
    awaited on the loop that made the client, and raise the same exceptions. Calls on arrays of a CUDA device, too, end
    only when the result is there.

    A call that is canceled asks the service to cancel its request. It raises CancelledError when the request was
    canceled or has ended, and nothing reads or writes its arrays any more. Canceling the call again changes nothing.
    Only if the service does not answer at all for two seconds does the call end earlier; then `out` may be written when
    the service goes on."""

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
        """Does as Client.batch. The result is to be entered with `async with`."""
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
        """The path of the service's socket."""
        return self._path

    @property
    def closed(self) -> bool:
        """True if the client is closed."""
        return self._core.closed

    def __repr__(self) -> str:
        return f"<tmaclient.aio.AsyncClient{', closed' if self._core.closed else ' of ' + self._path}>"


__all__ = ["AsyncBatch", "AsyncClient", "AsyncPlan", "connect"]
