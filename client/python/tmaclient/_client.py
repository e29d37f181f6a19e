# SPDX-License-Identifier: Apache-2.0
"""The client: NumPy's operations on arrays of any kind, run by tmad."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from . import _core
from ._arrays import NUMPY, Array, adapt, dtype_name, mapping_of, numpy_dtype
from ._batch import Batch
from ._conversion import Casting, Inexact, Keywords
from ._core import Request, Tensor
from ._errors import DisconnectedError, InvalidArgumentError, UnsupportedError, VersionError, WaitTimeoutError
from ._jobs import (
    MOST_MS,
    Job,
    Maker,
    MoveKeywords,
    Options,
    check_multicast,
    may_meet,
    milliseconds,
    multicast_parts,
    orders_of,
    separate,
    without_points,
)
from ._moves import Blocks, Move, parse_constant
from ._plan import Plan, PreparedPlan
from ._reshard import Reshard
from ._scales import Scaling, is_exponents
from ._staging import Staging
from ._timeline import Timeline


class Client(Maker):
    """A connection to tmad. See `connect`. Any thread may use it; calls of several threads take turns.

    Arrays are NumPy's, anything with `__dlpack__` or `__cuda_array_interface__` (PyTorch, CuPy, JAX), or buffers;
    results are of the same kind as `src`, or `out`. Arrays made by `empty` and `zeros`, or registered, are moved
    where they are; others are staged in chunks. Tensors on a CUDA device are moved in the caller's current
    stream, after what is queued there and before what will be, and the call does not wait. Between tensors on one
    device, this process launches the move itself, whichever client is called: that takes no longer than any kernel,
    and CUDA graphs can capture it. direct=False leaves it to the service, and so does cast="exact".

    out, where a call takes it, is an array to write into: of the result's shape and type, writable, with any
    strides along which no two elements share bytes (OverlapError). Extents, widths and indexes count elements.

    A call raises TypeError, ValueError or IndexError for an argument that is wrong by itself, and otherwise a class
    of tmaclient.Error: what the service refuses (InvalidArgumentError, OverlapError if out and src share elements,
    QuotaError, NoMemoryError), or that it is not there (DisconnectedError) or silent (NoReplyError). Nothing
    is moved before arguments are checked; a call that fails later leaves out undefined.

    Every method that moves something also takes these keywords. The first five convert: the result is
    cast(permute(src) * scale + bias), padded after that; all types but the complex ones become each other.

        dtype             type of the result: a name, or a type of NumPy's or torch's; None: src's, or with cast out's
        cast              "saturate", to the nearest finite value; "exact": OutOfRangeError, which says of how many
                          elements, if the value of any is not one of the type's; or "ieee", as astype has it:
                          infinities stay, and integers keep their low bits. Given dtype, it is "saturate"
        scale, bias       numbers, or arrays of float32 or float64 that broadcast against the permuted src; lists of
                          numbers, too. The calculation is in float32, or in float64 if either type is that, or an
                          integer of 32 or 64 bits
        amax              an Amax, instead of scale and bias: scales are computed on the way, for blocks of the result,
                          and written into arrays. Not for gather, scatter and gather_scatter. quantize makes all of it
        wait, signal      points of timelines: start when the one is reached, reach the other at the end
        wait_timeout      seconds that the wait may take (WaitTimeoutError)
        priority          "normal", "background" or "urgent", among the user's connections
        multiprocessors   of the device, that the move occupies at most
        host_threads      of the service, that move bytes at once at most
        deadline          seconds within which the move has to begin: otherwise nothing is moved (WaitTimeoutError). Not
                          for what goes into a CUDA stream, or takes several requests, as ordinary arrays do
        progress          show a progress bar (needs tqdm), or one with update(bytes) and close(); staged arrays only
        synchronous       wait for the end also on a CUDA device
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        reconnect: float = 5.0,
        server_uid: int | None = None,
        staging: int = 64 << 20,
        local: bool = True,
        direct: bool = True,
    ) -> None:
        self._direct = direct and _core.HAS_CUDA
        self._core = make_core(
            path,
            -1 if timeout is None else milliseconds(timeout, "timeout"),
            -1 if reconnect < 0 else milliseconds(reconnect, "reconnect"),
            server_uid,
            local,
        )
        self._staging = Staging(self._core, staging)
        self._has_launched = False
        self._last_core = self._core  # that ran the last request

    def close(self) -> None:
        """Closes the connection, once what is under way has ended. Arrays that it made remain valid; calls raise
        ValueError from now on. Closing again does nothing."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._core.closed:
            return "<tmaclient.Client, closed>"
        return f"<tmaclient.Client of {self._core.path}>"

    # ---- Moves -----------------------------------------------------------------------------------------

    def copy(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        """np.copy: an array of src's shape and type, in C order unless out has another one. With dtype, it is
        src.astype(dtype), but for what is out of range unless cast is "ieee"."""
        if not options:
            made = self._permuted(src, None, out)
            if made is not None:
                return made
        return self._run(self._transform_job(src, None, None, "constant", 0, out, Options.of(options)))

    def transpose(
        self, src: Any, axes: Sequence[int] | None = None, out: Any = None, **options: Unpack[MoveKeywords]
    ) -> Any:
        """np.transpose, copied: dimension d of the result, of extent src.shape[axes[d]], is dimension axes[d] of src.
        None reverses them; negative axes count from the end. ValueError or IndexError: no permutation."""
        if not options:
            made = self._permuted(src, axes, out, True)
            if made is not None:
                return made
        return self._run(self._transpose_job(src, axes, out, Options.of(options)))

    def pad(
        self,
        src: Any,
        pad_width: Any,
        mode: str = "constant",
        constant_values: Any = 0,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """np.pad with mode "constant", "edge", "reflect", "symmetric" or "wrap".

        pad_width is a number of elements, for every side; a pair (before, after), for every axis; a pair for each
        axis; or a dict of axes to numbers or pairs. The result's extents are before + extent + after. A negative
        width crops; ValueError if it crops all there is. constant_values is one number, which the result's type has
        to represent (InvalidArgumentError).
        """
        value = parse_constant(constant_values)
        return self._run(self._transform_job(src, None, pad_width, mode, value, out, Options.of(options)))

    def transform(
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
        """np.pad(np.transpose(src, permute), pad, mode) in one pass. permute is as transpose's axes, but None permutes
        nothing; pad is as pad's pad_width, for the axes of the result; value, one of the result's, is what mode
        "constant" fills with."""
        if pad is None and not options:
            made = self._permuted(src, permute, out)
            if made is not None:
                return made
        return self._run(self._transform_job(src, permute, pad, mode, value, out, Options.of(options)))

    def multicast(
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
        """transform into each of outs, and returns them: arrays of any kinds, on the host or on any devices, each of
        the result's shape and type, with strides of its own. They share no bytes.

        src is read once. Large arrays on several devices get it one from the other, in a chain along the fastest links.
        Arrays that are not shared are staged one by one. If the arrays on devices are on more than one, the call waits:
        first for the current stream of each, then for the end. A call that fails leaves all of outs undefined. amax
        makes scales of one result, and does not go with several (TypeError).
        """
        job, further = self._multicast_job(src, outs, permute, pad, mode, value, Options.of(options))
        self._run_multicast(job, further)
        return tuple(outs)

    def quantize(
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
        """Casts permute(src) to a small floating type, by a scale for each block that brings its largest magnitude to
        the type's largest value: returns (data, scale), or (data, scale, 1 / scale) with inverse. Both types are
        floating ones of 8 to 32 bits.

        scale is the number to multiply by when data is read, max(amax(abs(block)), least) / largest: data * scale,
        with each scale repeated over its block, is permute(src) but for rounding. It is what per_block_cast_to_fp8 of
        DeepGEMM returns (with least=1e-4), and weight_scale_inv of DeepSeek's checkpoints and vLLM. The inverse, by
        which elements were multiplied, is 1 / scale.

            block           as in Amax: (128, 128) for weights, also of many experts, [n, rows, columns]; 128 for each
                            128 elements of a row of activations; (1, -1) for whole rows; None for one scale of all
            dtype, cast     type of data: "float8_e4m3fn", or that of out if there is one. NumPy has it with ml_dtypes
            power_of_two    scales are rounded up to powers of two
            least           what the largest magnitude of a block is taken to be at least
            scale_dtype     of scale and inverse: "float32"; or, with power_of_two, "float8_e8m0fnu" or "uint8", the
                            biased exponents alone (torch has the former, NumPy with ml_dtypes)
            out             as in Client, for data
            scale_out,      likewise for scale and inverse, with any strides; of a type that scale_dtype may name. With
            inverse_out     inverse_out, the inverse is returned, too

        scale and inverse have as many dimensions as data, in each ceil(extent / block), and are otherwise arrays like
        src: new ones of the caller's, in C order, in shared memory if src is, on its device. They share no bytes with
        other arrays. The results are the same bit for bit in any kind of memory: what is staged is cut between
        blocks, and if a block is larger than a chunk, all of it has to fit into shared memory at once, whatever
        `staging` says (QuotaError, NoMemoryError).

        The scale of a block of zeros is 1; of one with a NaN it is NaN, and so are all elements; of one with an
        infinity it is infinity, and elements are 0, but NaN where they are infinite. None is below 2^-126.
        ValueError: another type of src or data, a block or an array of another shape, scale or bias beside it.
        TypeError: another type of scales. UnsupportedError: the service's engine does not compute scales.
        """
        scaling = Scaling(block, power_of_two, least, inverse, scale_dtype, scale_out, inverse_out)
        result: tuple[Any, ...] = self._run(self._quantize_job(src, permute, out, scaling, Options.of(options)))
        return result

    def gather(
        self,
        src: Any,
        index: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """np.take(src, index, axis), then transposed by permute: the result has len(index) entries along the axis.

        index is a list or an array of one dimension: of integers on the host, where negative ones count from the end
        and OutOfRangeError is raised for others; or contiguous int32 or int64 on the device, where -1 and what is
        out of range is skipped and leaves the result as it was. scale and bias are the same for all entries: they
        have an extent of 1 along the axis of the result, or do not have it.

        src may be a list of arrays of one shape, type and strides: layers, such as K and V of each layer of a cache.
        The result then has one more dimension in front, that of the layers, of which axis, permute, scale and bias do
        not know:

            np.stack([np.transpose(np.take(s, index, axis), permute) for s in src])

        So has out, or it is a list, too. The service moves up to 1024 layers in one request, wherever each one is. If
        it does not have the memory of some, they are staged one by one.
        """
        return self._run(self._gather_job(src, index, axis, permute, out, Options.of(options)))

    def scatter(
        self,
        dst: Any,
        index: Any,
        src: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """The inverse of gather: along the axis of dst, entry index[i] becomes entry i of src, which is first
        transposed by permute: src then has dst's shape, but for len(index) entries along the axis. No index may
        appear twice. Other entries of dst stay as they are. scale and bias are as for gather; dst is as out. With
        a list of layers as dst, as for gather, src is a list of as many, or an array that has the layers in front."""
        self._run(self._scatter_job(dst, index, src, axis, permute, Options.of(options)))

    def gather_scatter(
        self,
        dst: Any,
        src: Any,
        pairs: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """Gathers and scatters in one call: along the axis, block pairs[i][1] of dst becomes block pairs[i][0] of src,
        which is first transposed by permute: src then has dst's shape, but for any extent along the axis. With axis 0:

            dst[pairs[:, 1]] = np.transpose(src, permute)[pairs[:, 0]]

        pairs is a list of pairs, or an array of shape [n, 2] (the form of vLLM's block_mapping): of integers on the
        host, where negative ones count from the end and OutOfRangeError is raised for others; or contiguous int32 or
        int64 on the device, where a pair is skipped if either number is -1 or out of range. No block of dst may appear
        twice (OverlapError, for pairs on the host). Other blocks of dst stay as they are.

        dst and src may be the same array, to move blocks within one cache. The pairs must then be on the host, and no
        block may be both read and written (OverlapError). A list of more than 48 KiB then takes several requests.
        scale, bias and layers are as for scatter.
        """
        self._run(self._scatter_job(dst, pairs, src, axis, permute, Options.of(options), True))

    def reshard(
        self, destinations: Any, sources: Any, *, shape: Sequence[int] | None = None, **options: Unpack[MoveKeywords]
    ) -> None:
        """Puts the destinations together from the sources, in one request: parts of one tensor, which no array has to
        hold as a whole. That is what changes the tensor-parallel size of a model:

            c.reshard(tma.shards(eight, axis=1), tma.shards(four, axis=1))

        Both list slices: pairs of an array and the index of its first element in the tensor, as `shards` and `Slice`
        make them. All arrays are of one type and rank. Several sources may have the same elements, which are then taken
        to be equal: the nearest is read. Each element of a destination has to be in some source (OutOfRangeError names
        the first that is not). Destinations share no memory with each other or with sources (OverlapError). shape is
        that of the tensor, if all slices are to be held to it.

        Arrays in memory of this process alone are copied as a whole, not in chunks. With arrays on several CUDA devices
        the call waits, for what is queued in the current stream of each, and for the end. dtype and what else converts
        are not for reshard, nor is progress.
        """
        checked = Options.of(options).check_reshard()
        reshard = Reshard.parse(destinations, sources, shape)
        self._run_reshard(reshard, reshard.streams(), checked.order(), checked.synchronous)

    def plan(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: str = "constant",
        value: Any = 0,
        out: Any = None,
        **casting: Unpack[Keywords],
    ) -> PreparedPlan:
        """Checks a transform once. plan(src, out) then runs it for arrays of the same shape, strides and type as those
        given here, and raises ValueError for others; without out, the result is in C order. Only the layouts
        of src and out count here, not what is in them. The plan keeps scale and bias; if they are arrays, a run may
        have others of the same layout: plan(src, out, scale=other). So it does the arrays of amax, into which every
        run writes: plan(src, out, amax=other), of which only scale and inverse may differ."""
        move = self._plan_move(src, permute, pad, mode, value, out, Casting(**casting))
        return PreparedPlan._make(self, self._core, move)

    def batch(self, **options: Unpack[MoveKeywords]) -> Batch:
        """Collects moves and runs them together when the with block ends: none may read or write what another writes.

        with c.batch() as b:
            b.copy(x, out=y)
            z = b.transpose(w)       # is filled at the end of the block
        """
        return Batch(self, Options.of(options).check_no_casting("each move of a batch has its own"))

    # ---- Running ---------------------------------------------------------------------------------------

    def _permuted(self, src: Any, axes: Sequence[int] | None, out: Any, is_reversed: bool = False) -> Any:
        """The result of a move that does nothing but permute, done by this process without a job. None: only a job
        tells what the arguments are. Without axes they are reversed, or stay as they are."""
        core = self._core
        if not core.is_local:
            if not self._direct or not _core.has_exchange(src) or core.closed:
                return None
            from ._local import local  # which imports this module

            core = local()._core
        made = core.permuted(src, axes, out, is_reversed, core is self._core)
        if made is not None:
            self._has_launched = core is not self._core or self._has_launched
            self._last_core = core
        return made

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
        """Through staging memory; of layers, those that the service does not reach."""
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
        """Waits for a point here: what is staged is read by this thread, in several requests."""
        if wait is None:
            return
        limit = order.get("wait_ms") or int(self._core.info().get("limits", {}).get("wait_deadline_ms", 0)) or -1
        if not _core.wait_point(*wait, min(limit, MOST_MS)):
            raise WaitTimeoutError(f"wait: the timeline has not reached {wait[2]} within {limit} ms")

    def _run_on_device(self, job: Job) -> None:
        """In the caller's stream. With host memory on either side the call waits, as NumPy's arrays know no streams."""
        move = job.move
        if isinstance(move, Blocks) and move.is_nothing:
            for name in ("wait", "signal"):
                if name in job.order:
                    region, offset, value = job.order[name]
                    self._core.stream_point(region, offset, value, job.stream(), name == "wait")
            return
        is_any_host = any(array.tensor.is_host for array in job.arrays)
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
        """Launches requests into a job's first stream, which is waited for if there are others. Requests with memory
        of the host run behind that stream instead."""
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
        """Returns the client that runs a job on devices: this thread's of "local:" if all arrays are on one device,
        otherwise this client's own."""
        move = job.move
        is_exact = move.conversion is not None and move.conversion.cast == "exact"
        if self._core.is_local or self._core.closed or not self._direct or is_exact:
            return self._core
        if "wait" in job.order or "signal" in job.order or any(a.tensor.is_host for a in job.arrays):
            return self._core
        if len(job.streams()) != 1 or (isinstance(move, Blocks) and not move.index.is_near):
            return self._core
        from ._local import local  # which imports this module

        self._has_launched = True
        return local()._core

    def _core_of_all(self, jobs: Sequence[Job]) -> _core.Client:
        """Returns one client that can run all jobs of a stream."""
        return next((core for core in map(self._core_of, jobs) if core is self._core), self._core_of(jobs[0]))

    def _share_sides(self, blocks: Blocks) -> list[tuple[Tensor, Tensor]]:
        """Has copies in shared memory of what the service does not reach; returns those that are written, each with
        what it is to be copied back to."""
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

    def _run_multicast(self, job: Job, further: tuple[Array, ...]) -> None:
        on_device = not any(a.tensor.is_host for a in job.arrays) and len(job.streams()) == 1
        if on_device and self._core_of(job).is_local:
            assert isinstance(job.move, Move)
            check_multicast(job, further)
            job.move.further = tuple(array.tensor for array in further)
            self._run_on_device(job)
            return
        if not self._is_one_request(job, further):
            check_multicast(job, further)
            for part in multicast_parts(job, further):
                self._run(part)
            if any(not a.tensor.is_host for a in job.arrays):
                self._core.synchronize()
            return
        streams = job.streams()
        if not streams:
            self._core.run(job.move.request(self._core), **job.order)
            return
        if len(streams) > 1:
            self._await_streams(streams)
            self._core.run(job.move.request(self._core), **job.order)
            return
        self._core.enqueue(job.move.request(self._core), job.stream(), **job.order)
        if job.synchronous or any(a.tensor.is_host for a in job.arrays):
            self._core.synchronize()

    def _await_streams(self, streams: Collection[tuple[int, int]]) -> None:
        """Until they have done what is queued there: a request that does nothing ends when its stream comes to it."""
        for stream in streams:
            self._core.enqueue(Request.reshard([], [], 0, None), stream)
        if streams:
            self._core.synchronize()

    def _run_reshard(
        self, reshard: Reshard, streams: dict[int, tuple[int, int]], order: dict[str, Any], synchronous: bool
    ) -> None:
        """streams: those of the devices that it has arrays on, each in order with the move."""
        signal = None
        written: list[tuple[Tensor, Tensor]] = []  # in shared memory, and where it goes
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
        """A tensor, or its copy in shared memory, which for a destination is noted, to be copied back."""
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
        """Waits for everything that this client has in CUDA streams, and raises the first Error of it. Of what was
        launched by this process itself, that is what this thread has launched."""
        self._core.synchronize()
        if self._has_launched:
            from ._local import local

            local()._core.synchronize()

    # ---- Memory ----------------------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32", *, device: int | str | None = None) -> Any:
        """A NumPy array in memory that the service shares: it is moved without a copy. It is zeroed, in C order, and
        freed with the last array that uses it. Arrays of less than 1 MiB share regions; a larger one keeps a
        descriptor. dtype is a name, or a type of NumPy's or torch's. Where NumPy is not
        installed, or lacks the type, it is a Tensor. device: of a service with several, the one whose moves the array
        is for, by its UUID or its place in info()["devices"]; others map it when they first need it. QuotaError: a
        limit on the user's memory; NoMemoryError; NotFoundError: the service has no such device."""
        where = device if device is None or isinstance(device, str) else str(operator.index(device))
        extents = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(operator.index(n) for n in shape)
        if is_exponents(dtype):
            return NUMPY.exponents(self._make_shared(extents, "uint8", where))
        name = dtype_name(dtype)
        try:
            numpy_dtype(name)
        except (ImportError, TypeError):
            return self._make_tensor(extents, name, where)
        return self._make_shared(extents, name, where)

    zeros = empty

    def register(self, array: Any, *, readonly: bool = False) -> _core.Region:
        """Shares an array's memory where it is, until the returned region is released: device memory; or host memory
        that is a mapped file in memory, such as that of multiprocessing.shared_memory or a np.memmap in /dev/shm.
        Other host memory belongs to this process alone (UnsupportedError): make the array with empty() instead. A
        service with a GPU takes only memfds that it can seal from users that it does not trust (UnsupportedError, too).
        Keep the region for as long as the array is to be moved without staging. Until its release the memory stays
        mapped, as far as Python knows whose it is: close() of its mmap, or of its SharedMemory, raises BufferError. If
        other memory has come to lie there all the same, that is staged. readonly: the service may only read it;
        PermissionDeniedError for a request that writes."""
        t = adapt(array, "array").tensor
        try:
            return self._core.register(t, readonly or t.readonly, mapping_of(array) if t.is_host else None)
        except (InvalidArgumentError, UnsupportedError) as e:
            if not t.is_host or str(e).startswith("fd: "):  # the service says what to do about a file
                raise
            raise type(e)(
                f"array: the memory at {t.data:#x} cannot be shared as it is; make the array with empty() or zeros(), "
                f"or of shared memory that is mapped from a file in memory ({e})"
            ) from None

    # ---- Order -----------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """A number in shared memory that only grows: requests, threads and CUDA streams wait for it and signal it."""
        return Timeline(self._core)

    # ---- What the service says -------------------------------------------------------------------------

    def explain(
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
        """How the service would move a transform, without moving it. engine: "cpu" or "cuda", whether or not the
        service uses it; None: its own. Bytes, nanoseconds and strides in bytes, as tmactl explain has them."""
        move = self._plan_move(src, permute, pad, mode, value, out, Casting(**casting))
        return Plan(self._core, move, engine)

    def ping(self) -> None:
        """Returns if the service answers; DisconnectedError or NoReplyError if not."""
        self._core.ping()

    def info(self) -> dict[str, Any]:
        """Engine, devices, limits, methods and element types of the service."""
        return self._core.info()

    def stats(self) -> dict[str, Any]:
        """Counters of the whole service."""
        return self._core.stats()

    def regions(self) -> list[dict[str, Any]]:
        """The regions of this connection."""
        return self._core.regions()

    def last_result(self) -> dict[str, Any]:
        """What the last request did: kernel family ("path"), bytes and nanoseconds, and of a gather or scatter the
        entries that were moved. Of what this process has launched into a stream, path and bytes are known."""
        return self._last_core.last_result()

    @property
    def path(self) -> str:
        """Path of the service's socket."""
        return self._core.path

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._core.closed


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    timeout: float | None = None,
    reconnect: float = 5.0,
    server_uid: int | None = None,
    staging: int = 64 << 20,
    local: bool = True,
    direct: bool = True,
) -> Client:
    """Connects to tmad. path is that of its socket; None selects $TMAD_SOCKET, /run/tmad/tmad.sock or
    $XDG_RUNTIME_DIR/tmad/tmad.sock. "@NAME" is the abstract socket NAME, which has no file, and "local:" is this
    process itself.

    If neither path nor $TMAD_SOCKET names a service, and none is found, the client is one of "local:", as its repr
    says. local=False raises DisconnectedError instead.

    timeout limits each call, in seconds (NoReplyError); None: no limit. reconnect is for how long a call tries to
    reach a service that went away; negative: not at all. server_uid is one more user, besides root and this
    process's, that the service may run as. staging is how much memory the arrays of a call that are not shared
    pass through, in bytes. With direct=False, the service moves what lies on one CUDA device, too (see Client).
    """
    return Client(
        path,
        timeout=timeout,
        reconnect=reconnect,
        server_uid=server_uid,
        staging=staging,
        local=local,
        direct=direct,
    )


def make_core(
    path: str | os.PathLike[str] | None, timeout_ms: int, reconnect_ms: int, server_uid: int | None, local: bool
) -> _core.Client:
    """Connects to the service at path, or else to this process, as `connect` says."""
    named = os.fspath(path) if path is not None else None
    try:
        core = _core.Client(named, timeout_ms, reconnect_ms, server_uid)
    except DisconnectedError:
        if not local or named is not None or os.environ.get("TMAD_SOCKET"):
            raise
        core = _core.Client("local:", timeout_ms, reconnect_ms, server_uid)
    check_version(core)
    return core


def check_version(core: _core.Client) -> None:
    """Closes the connection to a service of another major version."""
    version = str(core.info().get("version", "?"))
    if version.partition(".")[0] != str(_core.VERSION_MAJOR):
        path = core.path
        core.close()
        raise VersionError(
            f"tmad at {path} is version {version}; tmaclient {_core.VERSION} works with version "
            f"{_core.VERSION_MAJOR}.x: install the same major version of both"
        )


def progress_bar(job: Job) -> Any:
    """tqdm's, in bytes read and written; None unless the caller asked for one."""
    if not job.progress or hasattr(job.progress, "update"):
        return job.progress or None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress: it needs the package tqdm") from None
    total = sum(t.nbytes + t.size * job.move.src.itemsize for t in job.move.sides[0])
    return tqdm(total=total, unit="B", unit_scale=True)


__all__ = ["Client", "DisconnectedError", "connect"]
