# SPDX-License-Identifier: Apache-2.0
"""The runner whose calls block. It runs jobs where their arrays are, through staging memory, or in CUDA streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from . import _core
from ._conversion import Inexact
from ._core import Request, Tensor
from ._errors import WaitTimeoutError
from ._jobs import (
    MOST_MS,
    Job,
    MoveKeywords,
    Options,
    check_multicast,
    may_meet,
    multicast_parts,
    orders_of,
    separate,
    without_points,
)
from ._moves import Blocks, Move
from ._reshard import Reshard
from ._staging import Staging
from ._verbs import ClientVerbs


class Runner(ClientVerbs):
    """Runs jobs with a core (a connection of the C extension), and waits for their end, unless they are in a CUDA
    stream."""

    def __init__(self, core: _core.Client, staging: int, direct: bool) -> None:
        self._core = core
        self._direct = direct and _core.HAS_CUDA  # whether this process launches moves on one CUDA device itself
        self._staging = Staging(core, staging)
        self._has_launched = False  # whether a client of "local:" has launched a move for this client
        self._last_core = core  # the core that ran the last request

    def _do(self, make: Callable[..., Job], given: MoveKeywords, *args: Any) -> Any:
        job = make(*args, Options.of(given))
        return self._run(job) if job.further is None else self._run_multicast(job)

    def _transform(self, given: MoveKeywords, is_transpose: bool, *args: Any) -> Any:
        """Runs a transform. Without padding and keywords, it is a mere permutation, which this process may do without a
        job; otherwise a job is made from the arguments."""
        src, axes, pad, _, _, out = args
        if pad is None and not given:
            core = self._core
            if not core.is_local and self._direct and _core.has_exchange(src) and not core.closed:
                core = self._local()._core
            if core.is_local:
                made = core.permuted(src, axes, out, is_transpose, core is self._core)
                if made is not None:
                    self._has_launched = core is not self._core or self._has_launched
                    self._last_core = core
                    return made
        make: Callable[..., Job] = self._transpose_job if is_transpose else self._transform_job
        return self._run(make(*args, Options.of(given)))

    def _local(self) -> Runner:
        """Returns this thread's client of "local:"."""
        raise NotImplementedError

    def _run(self, job: Job) -> Any:
        if all(a.tensor.is_host for a in job.arrays):
            self._run_on_host(job)
        else:
            self._run_on_device(job)
        return job.result()

    def _run_on_host(self, job: Job) -> None:
        self._last_core = self._core
        move = job.move
        is_nothing = isinstance(move, Blocks) and move.is_nothing
        is_reached = self._are_reached(move) and not is_nothing
        if not is_reached:
            move.check()
        requests = move.requests(self._core) if is_reached else []
        if len(requests) == 1:
            self._core.run(requests[0], **job.order)
            return
        order, wait, signal = without_points(job.order, not is_nothing)
        self._await(wait, job.order)
        if is_reached:
            inexact = Inexact(move.dst, move.src)
            for request in requests:
                inexact.collect(partial(self._core.run, request, **order))
            inexact.check()
        elif not is_nothing:
            self._run_staged(job, order)
        if signal is not None:
            _core.signal_point(*signal)

    def _run_staged(self, job: Job, order: dict[str, Any]) -> None:
        """Moves arrays through staging memory. With layers, those that the service reaches are not staged."""
        move = job.move
        separate(move)
        bar = progress_bar(job)
        try:
            if isinstance(move, Move):
                self._staging.run(move, self._is_reached, bar, **order)
                return
            inexact = Inexact(move.dst, move.src)
            for blocks in move.each():
                self._run_layer(blocks, bar, order, inexact)
            inexact.check()
        finally:
            if bar is not None:
                bar.close()

    def _run_layer(self, blocks: Blocks, bar: Any, order: dict[str, Any], inexact: Inexact) -> None:
        if self._are_reached(blocks):
            for request in blocks.requests(self._core):
                inexact.collect(partial(self._core.run, request, **order))
        else:
            inexact.collect(partial(self._staging.run_blocks, blocks, self._is_reached, bar, **order))

    def _await(self, wait: tuple[_core.Region, int, int] | None, order: dict[str, Any]) -> None:
        """Waits until the point is reached that a move of several requests has to wait for; wait None: there is none.
        This thread waits, and not the service, because it reads staged arrays itself. order: the move's order, for its
        wait_ms."""
        if wait is None:
            return
        limit = order.get("wait_ms") or int(self._core.info().get("limits", {}).get("wait_deadline_ms", 0)) or -1
        if not _core.wait_point(*wait, min(limit, MOST_MS)):
            raise WaitTimeoutError(f"wait: the timeline has not reached {wait[2]} within {limit} ms")

    def _run_on_device(self, job: Job) -> None:
        """Runs a job in the caller's stream. If any array is in host memory, the call waits for the end, because
        NumPy's arrays know no streams."""
        move = job.move
        if isinstance(move, Blocks) and move.is_nothing:
            for name in ("wait", "signal"):
                if name in job.order:
                    region, offset, value = job.order[name]
                    self._core.stream_point(region, offset, value, job.stream(), name == "wait")
            return
        is_any_host = job.has_host
        core = self._core_of(job)
        if core.is_local and not is_any_host and len(job.streams()) == 1:
            self._last_core = core
            is_waited_for = job.synchronous or may_meet(move)
            self._launch(core, move.requests(core), job, job.streams(), is_waited_for, False)
            return
        is_reached = self._are_reached(move)
        if not is_reached:
            move.check()
        if isinstance(move, Move) and not is_reached:
            if move.src.is_host:
                separate(move)
            self._staging.run(move, self._is_reached, None, job.stream(), **job.order)
            return
        written = self._share_sides(move) if isinstance(move, Blocks) else []
        streams = job.streams() if isinstance(move, Blocks) and move.layers is not None else {job.stream()}
        core = self._last_core = self._core
        requests = move.requests(core)
        is_waited_for = job.synchronous or is_any_host or may_meet(move)
        if len(streams) > 1 and not core.is_local:
            self._await_streams(streams)
            for request, order in zip(requests, orders_of(job.order, len(requests)), strict=True):
                core.run(request, **order)
        elif core.is_local:
            self._launch(core, requests, job, streams, is_waited_for, is_any_host)
        else:
            for request, order in zip(requests, orders_of(job.order, len(requests)), strict=True):
                core.enqueue(request, job.stream(), **order)
            if is_waited_for:
                core.synchronize()
        for staged, t in written:
            t.copy_from(staged)

    @staticmethod
    def _launch(
        core: _core.Client,
        requests: list[Request],
        job: Job,
        streams: Collection[tuple[int, int]],
        is_waited_for: bool,
        is_any_host: bool,
    ) -> None:
        """Launches the requests of a job into its first stream. If there are several streams, first waits for the work
        in all of them. Waits for the end of the requests if there are several streams, or if is_waited_for. If
        is_any_host, each request runs when the work in the first stream has ended, and its end is waited for."""
        for stream in streams if len(streams) > 1 else ():
            core.synchronize(stream)
        for request, order in zip(requests, orders_of(job.order, len(requests)), strict=True):
            if is_any_host:
                core.run(request, job.stream(), **order)
            else:
                core.enqueue(request, job.stream(), **order)
        if is_waited_for or len(streams) > 1:
            core.synchronize(job.stream())

    def _core_of(self, job: Job) -> _core.Client:
        """Returns the core that runs a job on devices: that of this thread's client of "local:" if this process can
        launch the move itself, with all arrays on one device, and otherwise this client's own."""
        move = job.move
        is_exact = move.conversion is not None and move.conversion.cast == "exact"
        if self._core.is_local or self._core.closed or not self._direct or is_exact:
            return self._core
        if "wait" in job.order or "signal" in job.order or job.has_host:
            return self._core
        if len(job.streams()) != 1 or (isinstance(move, Blocks) and not move.index.is_near):
            return self._core
        self._has_launched = True
        return self._local()._core

    def _core_of_all(self, jobs: Sequence[Job]) -> _core.Client:
        """Returns one core that can run all jobs of a stream."""
        return next((core for core in map(self._core_of, jobs) if core is self._core), self._core_of(jobs[0]))

    def _share_sides(self, blocks: Blocks) -> list[tuple[Tensor, Tensor]]:
        """Replaces tensors that the service does not reach by copies in shared memory. Returns the copies that are
        written, each with the tensor that the caller copies it back to."""
        written: list[tuple[Tensor, Tensor]] = []

        def read(t: Tensor) -> Tensor:
            return t if self._is_reached(t) else self._shared_copy(t)

        def write(t: Tensor) -> Tensor:
            if self._is_reached(t):
                return t
            written.append((self._shared_copy(t), t))
            return written[-1][0]

        if blocks.conversion is not None:
            blocks.conversion = blocks.conversion.map(read)
        if blocks.layers is not None:
            blocks.place(blocks.layers[0].map(write), blocks.layers[1].map(read))
        else:
            blocks.dst, blocks.src = write(blocks.dst), read(blocks.src)
        return written

    def _run_multicast(self, job: Job) -> Any:
        on_device = not job.has_host and len(job.streams()) == 1
        if on_device and self._core_of(job).is_local:
            assert isinstance(job.move, Move) and job.further is not None
            check_multicast(job)
            job.move.further = tuple(array.tensor for array in job.further)
            self._run_on_device(job)
        elif not self._is_one_request(job):
            for part in multicast_parts(job):
                self._run(part)
            if any(not a.tensor.is_host for a in job.arrays):
                self._core.synchronize()
        elif len(job.streams()) == 1:
            self._core.enqueue(job.move.request(self._core), job.stream(), **job.order)
            if job.synchronous or job.has_host:
                self._core.synchronize()
        else:
            self._await_streams(job.streams())
            self._core.run(job.move.request(self._core), **job.order)
        return job.result()

    def _await_streams(self, streams: Collection[tuple[int, int]]) -> None:
        """Waits for the work that is queued in streams now, by enqueuing an empty request in each."""
        for stream in streams:
            self._core.enqueue(Request.reshard([], [], 0, None), stream)
        if streams:
            self._core.synchronize()

    def _reshard(self, options: Options, reshard: Reshard) -> None:
        self._run_reshard(reshard, reshard.streams(), options.order(), options.synchronous)

    def _run_reshard(
        self, reshard: Reshard, streams: dict[int, tuple[int, int]], order: dict[str, Any], synchronous: bool
    ) -> None:
        """Runs a reshard after the work that is queued in the streams. streams: the caller's stream on each device that
        has arrays, by the ordinal of the device."""
        signal = None
        written: list[tuple[Tensor, Tensor]] = []  # copies in shared memory, each with the tensor it is copied back to
        if not all(self._is_reached(t) for t in reshard.tensors):
            reshard.check()
            plain, wait, signal = without_points(order)
            self._await(wait, order)
            order = plain
        request = reshard.request([self._shared_slice(reshard, i, written) for i in range(len(reshard.tensors))])
        if len(streams) == 1:
            self._core.enqueue(request, next(iter(streams.values())), **order)
            if written or synchronous or any(t.is_host for t in reshard.tensors):
                self._core.synchronize()
        else:
            self._await_streams(streams.values())
            self._core.run(request, **order)
        for staged, t in written:
            t.copy_from(staged)
        if signal is not None:
            _core.signal_point(*signal)

    def _shared_slice(self, reshard: Reshard, i: int, written: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Returns tensor i of a reshard, or a copy in shared memory if the service does not reach it. The copy of a
        destination is appended to written, from which the caller copies it back."""
        t = reshard.tensors[i]
        if self._is_reached(t):
            return t
        if i >= reshard.n_destinations:
            return self._shared_copy(t)
        written.append((self._make_tensor(t.shape, t.dtype, zeroed=False), t))
        return written[-1][0]

    def _shared_copy(self, t: Tensor) -> Tensor:
        shared = self._make_tensor(t.shape, t.dtype, zeroed=False)
        shared.copy_from(t)
        return shared

    def synchronize(self) -> None:
        """Waits for all moves that this client has in CUDA streams, and raises the first Error of theirs. Of the moves
        that this process has launched itself, it waits only for those of the calling thread."""
        self._core.synchronize()
        if self._has_launched:
            self._local()._core.synchronize()


def progress_bar(job: Job) -> Any:
    """Returns the caller's progress bar, or one of tqdm that counts bytes read and written. None: the caller asked for
    none."""
    if not job.progress or hasattr(job.progress, "update"):
        return job.progress or None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress: it needs the package tqdm") from None
    total = sum(t.nbytes + t.size * job.move.src.itemsize for t in job.move.sides[0])
    return tqdm(total=total, unit="B", unit_scale=True)
