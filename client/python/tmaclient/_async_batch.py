# SPDX-License-Identifier: Apache-2.0
"""Batches on an asyncio loop: many moves in few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from . import _core
from ._arrays import OWN, Array, aligned
from ._asyncio import AsyncRunner
from ._batch import Collector, messages
from ._core import Request
from ._jobs import Job, Options, without_points


class AsyncBatch(Collector):
    """Moves that run together when the `async with` block ends. If the block raises, none of them runs. A result
    without out is an ordinary array: shared memory is not to be had without waiting."""

    _name = "tmaclient.aio.AsyncBatch"

    def __init__(self, client: AsyncRunner, options: Options) -> None:
        super().__init__(options)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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
