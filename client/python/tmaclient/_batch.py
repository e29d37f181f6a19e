# SPDX-License-Identifier: Apache-2.0
"""Batches: many moves in one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, cast

from . import _core
from ._arrays import JAX
from ._blocking import Runner
from ._conversion import Keywords
from ._core import Request
from ._jobs import Job, MoveKeywords, Options, orders_of, without_points
from ._moves import count_of
from ._plan import AsyncPlan, PreparedPlan
from ._scales import Amax
from ._verbs import Verbs

_SHOWN = 3  # number of moves that the repr of a batch describes
_ELEMENTS = 4000  # maximum number of MessagePack elements for the moves in one message, without the request itself


class Collector(Verbs):
    """The common base of batches. It has the verbs of Client, but the moves run together at the end of the block. Each
    verb takes the keywords of conversions; all other keywords are given once, to the batch."""

    _name = "tmaclient.Batch"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._jobs: list[Job] = []

    def __repr__(self) -> str:
        moves = [str(job.move) for job in self._jobs[:_SHOWN]] + ["..."] * (len(self._jobs) > _SHOWN)
        return f"<{self._name} of {count_of(len(self._jobs), 'move')}{': ' if moves else ''}{'; '.join(moves)}>"

    def _do(self, make: Callable[..., Job], given: MoveKeywords, *args: Any) -> Any:
        options = self._options.converting(**cast(Keywords, given)) if given else self._options
        return self._add(make(*args, options))

    def run_plan(
        self,
        plan: PreparedPlan | AsyncPlan,
        src: Any,
        out: Any,
        *,
        scale: Any = None,
        bias: Any = None,
        amax: Amax | None = None,
    ) -> Any:
        """Adds a run of a plan of the same client, and returns the array that the run will fill. The arguments are
        those of a call of the plan."""
        return self._add(plan._job(src, out, self._options.converting(scale=scale, bias=bias, amax=amax)))

    def _add(self, job: Job) -> Any:
        if job.kind is JAX:
            raise TypeError("src: JAX's arrays do not change, so that none can be filled at the end of the block")
        self._jobs.append(job)
        return job.result()


class Batch(Collector):
    """Moves that run together when the with block ends. If the block raises, none of them runs."""

    def __init__(self, client: Runner, options: Options) -> None:
        super().__init__(options)
        self._client, self._core = client, client._core

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self.run()

    def run(self) -> None:
        """Runs the collected moves. Those whose arrays the service reaches share one request; the others run after it,
        each by itself. Moves on devices take at least one request for each stream."""
        client, jobs = self._client, self._jobs
        self._jobs = []
        on_device = [j for j in jobs if not j.has_host]
        on_host = [j for j in jobs if j.has_host]
        shared: list[Job] = []
        rest: list[Job] = []
        for j in on_host:
            is_shared = all(a.tensor.is_host and client._is_reached(a.tensor) for a in j.arrays)
            (shared if is_shared else rest).append(j)
        for job in rest:
            client._check(job.move)
        streams = {j.stream() for j in on_device}
        order, wait, signal = self._options.order(), None, None
        if rest or len(streams) + bool(shared) > 1:  # the points are handled here, once for all of several requests
            order, wait, signal = without_points(order)
            client._await(wait, self._options.order())
        if shared:
            request = Request.items([j.move.request(client._core) for j in shared])
            client._core.run(request, **order)
        for stream in streams:
            of_stream = [j for j in on_device if j.stream() == stream]
            core = client._core_of_all(of_stream)
            parts = list(messages(of_stream))
            for part, order_of_part in zip(parts, orders_of(order, len(parts)), strict=True):
                request = Request.items([j.move.request(core) for j in part])
                core.enqueue(request, stream, **order_of_part)
        if on_device and (self._options.synchronous or signal is not None):
            client.synchronize()
        for job in rest:
            job.order = order
            client._run(job)
        if signal is not None:
            _core.signal_point(*signal)


def messages(jobs: list[Job]) -> Iterator[list[Job]]:
    """Yields jobs in parts, each of which fits into one message. For a batch that is run and waited for, the core does
    this itself, but not for one that is enqueued in a stream or submitted on a loop."""
    part: list[Job] = []
    left = _ELEMENTS
    for job in jobs:
        move = job.move
        elements = 50 + 7 * move.dst.ndim  # shapes, strides, axes and widths, each with its key
        elements += sum(12 + 2 * t.ndim for t in move.operands)
        elements += sum(12 + 3 * t.ndim for t in move.results)  # results also have the extents of a block
        if elements > left:
            yield part
            part, left = [], _ELEMENTS
        part.append(job)
        left -= elements
    if part:
        yield part
