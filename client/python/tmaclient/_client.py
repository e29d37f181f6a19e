# SPDX-License-Identifier: Apache-2.0
"""The client: NumPy's operations on arrays of any kind, run by tmad."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from . import _core
from ._arrays import (
    EXPONENTS,
    NUMPY,
    OWN,
    Array,
    Kind,
    adapt,
    count,
    dense,
    dtype_name,
    mapping_of,
    numpy_dtype,
    tensor_of,
)
from ._batch import Batch
from ._conversion import NO_CASTING, Casting, Conversion, Inexact, Keywords, casting_of, parse_conversion
from ._core import Client as CoreClient
from ._core import Request, Tensor
from ._errors import (
    DisconnectedError,
    InvalidArgumentError,
    UnsupportedError,
    VersionError,
    WaitTimeoutError,
)
from ._layers import Layers, is_layered, overlapping
from ._moves import (
    Blocks,
    Index,
    Move,
    check_permutation,
    check_writable,
    count_of,
    parse_axes,
    parse_axis,
    parse_constant,
    parse_out,
    parse_outs,
    parse_pad,
    permuted_shape,
    result_shape,
    sequence,
)
from ._plan import Plan, PreparedPlan
from ._reshard import Reshard
from ._scales import Amax, Scaling, block_counts, is_exponents, parse_block, parse_scale, quantized_dtype
from ._staging import Staging
from ._timeline import Point, Timeline

MOST_MS = 2**31 - 1
PRIORITIES = {"normal": 0, "background": 1, "urgent": 2}


def milliseconds(seconds: float, name: str) -> int:
    """A limit, as the library takes it: one that is too long for it is the longest."""
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"{name}: {seconds!r}; it is a number of seconds, 0 or more")
    return MOST_MS if seconds >= MOST_MS / 1000 else round(seconds * 1000)


class Job:
    """A call that was checked: what to move, and the array to return."""

    __slots__ = ("_streams", "arrays", "kind", "move", "order", "out", "progress", "scales", "synchronous")

    def __init__(self, move: Move | Blocks, out: Any, kind: Kind, arrays: tuple[Array, ...], options: Options) -> None:
        self.move, self.out, self.kind, self.arrays = move, out, kind, arrays
        self.order, self.progress, self.synchronous = options.order(), options.progress, options.synchronous
        self.scales: tuple[tuple[Kind, Any], ...] | None = None  # arrays to return beside out
        self._streams: dict[tuple[int, int], None] | None = None

    def stream(self) -> tuple[int, int]:
        """The CUDA stream of the first array on a device: its handle and its device, because each device has default
        streams."""
        return next(iter(self.streams()))

    def streams(self) -> dict[tuple[int, int], None]:
        """Those of all arrays, in their order, as they are the first time that this is asked."""
        if self._streams is None:
            self._streams = streams_of(self.arrays)
        return self._streams

    def result(self) -> Any:
        """What the caller gets."""
        out = self.kind.finish(self.out)
        return out if self.scales is None else (out, *(kind.finish(obj) for kind, obj in self.scales))


def streams_of(arrays: Iterable[Array]) -> dict[tuple[int, int], None]:
    """The CUDA streams in which a caller works on arrays, in their order: the handle, and its device's ordinal."""
    ones: dict[Any, Array] = {}  # of each that may be another
    for array in arrays:
        t = array.tensor
        if not t.is_host:
            ones.setdefault((array.kind, t.device, t.stream), array)
    return {(a.kind.stream(a.object, a.tensor), a.tensor.device[1]): None for a in ones.values()}


class MoveKeywords(Keywords, total=False):
    """Keywords that every call takes; see Client."""

    wait: Point | None
    signal: Point | None
    wait_timeout: float | None
    priority: str
    multiprocessors: int
    host_threads: int
    progress: Any
    synchronous: bool


class Options:
    """The same, checked."""

    def __init__(
        self,
        *,
        wait: Point | None = None,
        signal: Point | None = None,
        wait_timeout: float | None = None,
        priority: str = "normal",
        multiprocessors: int = 0,
        host_threads: int = 0,
        progress: Any = False,
        synchronous: bool = False,
        dtype: Any = None,
        cast: str | None = None,
        scale: Any = None,
        bias: Any = None,
        amax: Amax | None = None,
    ) -> None:
        casting = Casting(dtype, cast, scale, bias, amax)
        self.casting = NO_CASTING if all(given is None for given in casting) else casting
        if not isinstance(priority, str) or priority not in PRIORITIES:
            raise ValueError(f"priority: {priority!r}; it is one of {', '.join(PRIORITIES)}")
        self.progress, self.synchronous = progress, synchronous
        self._order: dict[str, Any] = {}
        for name, point in (("wait", wait), ("signal", signal)):
            if point is not None:
                if not isinstance(point, Point):
                    raise TypeError(f"{name}: {point!r} is no point of a timeline")
                self._order[name] = point.parts()
        if wait_timeout is not None:
            self._order["wait_ms"] = max(1, milliseconds(wait_timeout, "wait_timeout"))
        if priority != "normal":
            self._order["priority"] = PRIORITIES[priority]
        for name, number in (("multiprocessors", multiprocessors), ("host_threads", host_threads)):
            if operator.index(number) < 0 or number >> 32:
                raise ValueError(f"{name}: {number}; it is a number of them, or 0 for as many as the service allows")
            if number:
                self._order[name] = number

    @staticmethod
    def of(given: MoveKeywords) -> Options:
        """Checks keywords. Most calls have none."""
        return Options(**given) if given else NO_OPTIONS

    def order(self) -> dict[str, Any]:
        """The keywords of the core's calls, which are the caller's."""
        return self._order.copy()

    def converting(self, **casting: Unpack[Keywords]) -> Options:
        """The same, of a move that converts."""
        if not casting:
            return self
        options = copy.copy(self)
        options.casting = Casting(**casting)
        return options

    def check_no_casting(self, of: str) -> Self:
        """Refuses what moves have by themselves."""
        for name, given in self.casting._asdict().items():
            if given is not None:
                raise TypeError(f"{name}: {of}")
        return self

    def check_reshard(self) -> Self:
        """The same of a reshard, which is not staged in chunks either."""
        if self.progress:
            raise TypeError("progress: a reshard is one request")
        return self.check_no_casting("a reshard moves elements as they are")


NO_OPTIONS = Options()


class Maker:
    """Makes jobs of arguments. Clients differ in how they run one."""

    _core: _core.Client

    def _make_array(self, shape: Sequence[int], like: Array, dtype: str) -> Any:
        """A result of a type, otherwise like an array: in shared memory if that one is."""
        tensor = like.tensor
        if tensor.is_host and tensor.size and not self._core.is_local and self._core.is_shared(tensor):
            if like.kind is NUMPY:
                return self._make_shared(shape, dtype, zeroed=False)
            if like.kind is OWN:
                return self._make_tensor(shape, dtype, zeroed=False)
        return like.kind.empty(shape, dtype, like.object)

    def _result(self, out: Any, shape: Sequence[int], like: Array, casting: Casting) -> tuple[Any, Array]:
        """The array for a result, which is made if there is no out."""
        if out is not None:
            is_casting = casting is not NO_CASTING
            result = parse_out(out, shape, casting.out_dtype(like.tensor) if is_casting else like.tensor.dtype)
            casting_of(casting, like, result)
            return out, result
        return self._make_result(shape, like, casting.result_dtype(like.tensor))

    def _make_result(self, shape: Sequence[int], like: Array, dtype: str) -> tuple[Any, Array]:
        """Makes an array for a result like another array."""
        made = self._make_array(shape, like, dtype)
        tensor = tensor_of(made, like.kind, dtype)
        if like.is_exponents and dtype == like.tensor.dtype:
            made = like.kind.exponents(made)
        return made, Array(tensor, like.kind, made)

    def _make_tensor(self, shape: Sequence[int], dtype: str, device: str | None = None, zeroed: bool = True) -> Tensor:
        if any(n < 0 for n in shape):
            raise ValueError(f"shape: {tuple(shape)} has a negative extent")
        region = self._core.allocate(max(count(shape) * _core.DTYPES[dtype], 1), device, zeroed)
        return region.tensor(0, dtype, tuple(shape), dense(shape))

    def _make_shared(self, shape: Sequence[int], dtype: str, device: str | None = None, zeroed: bool = True) -> Any:
        import numpy as np

        return np.asarray(self._make_tensor(shape, dtype, device, zeroed)).view(numpy_dtype(dtype))

    def _transform_job(
        self, src: Any, permute: Any, pad: Any, mode: str, value: Any, out: Any, options: Options, name: str = "permute"
    ) -> Job:
        array = adapt(src, "src")
        rank = array.tensor.ndim
        axes = parse_axes(permute, rank, name)
        check_permutation(axes, name)
        pads = parse_pad(pad, rank)
        casting = casting_of(options.casting, array)
        _check_border(array, pads, mode)
        out, result = self._result(out, _shape(array.tensor, axes, pads, casting), array, casting)
        conversion, operands = _conversion(casting, result.tensor, array.tensor, axes, pads)
        before, after = pads if pads is not None else (None, None)
        move = Move(result.tensor, array.tensor, axes, before, after, mode, value, conversion)
        return Job(move, out, result.kind, (result, array, *operands), options)

    def _multicast_job(
        self, src: Any, outs: Any, permute: Any, pad: Any, mode: str, value: Any, options: Options
    ) -> tuple[Job, tuple[Array, ...]]:
        """The job of the first result, and the others, which are among its arrays too."""
        if options.casting.amax is not None:
            raise TypeError("amax: it makes the scales of one result; multicast has several")
        each = sequence(outs, "outs")
        if not each:
            raise ValueError("outs: it is empty; a move has at least one result")
        job = self._transform_job(src, permute, pad, mode, value, each[0], options)
        dst = job.move.dst
        further = tuple(parse_out(out, dst.shape, dst.dtype, f"outs[{i}]") for i, out in enumerate(each[1:], 1))
        casting_of(options.casting, job.arrays[1], *further)
        job.arrays = (*job.arrays, *further)
        return job, further

    def _is_one_request(self, job: Job, further: tuple[Array, ...]) -> bool:
        """Whether the service reaches all results and what they are made of, which then is the job's move."""
        assert isinstance(job.move, Move)
        if self._core.is_local or not (
            self._are_reached(job.move) and all(self._is_reached(array.tensor) for array in further)
        ):
            return False
        job.move.further = tuple(array.tensor for array in further)
        return True

    def _quantize_job(self, src: Any, permute: Any, out: Any, scaling: Scaling, options: Options) -> Job:
        array, casting = adapt(src, "src"), options.casting
        if casting.amax is not None:
            raise TypeError("amax: quantize makes its own, of its arguments")
        axes = parse_axes(permute, array.tensor.ndim, "permute")
        check_permutation(axes, "permute")
        shape = permuted_shape(array.tensor, axes)
        block = parse_block(scaling.block, shape)
        counts, dtype = block_counts(shape, block), scaling.dtype_name()
        scales = [self._scale(scaling.scale_out, "scale_out", counts, dtype, array, scaling)]
        if scaling.inverse or scaling.inverse_out is not None:
            scales.append(self._scale(scaling.inverse_out, "inverse_out", counts, dtype, array, scaling))
        tensors = [t for _, _, t in scales]
        amax = Amax(block, tensors[0], tensors[-1] if len(tensors) > 1 else None, scaling.power_of_two, scaling.least)
        to, cast = quantized_dtype(casting.dtype, casting.cast, out)
        options = options.converting(dtype=to, cast=cast, scale=casting.scale, bias=casting.bias, amax=amax)
        job = self._transform_job(src, permute, None, "constant", 0, out, options)
        job.scales = tuple((kind, obj) for kind, obj, _ in scales)
        return job

    def _scale(
        self, given: Any, name: str, shape: Sequence[int], dtype: str, like: Array, scaling: Scaling
    ) -> tuple[Kind, Any, Tensor]:
        """An array for scales, which is made if none is given; and as it is written."""
        if given is not None:
            return Kind(), given, parse_scale(given, name, shape, scaling.power_of_two).tensor
        written = "uint8" if dtype == EXPONENTS else dtype
        made = self._make_array(shape, like, written)
        tensor = tensor_of(made, like.kind, written)
        return like.kind, like.kind.exponents(made) if dtype == EXPONENTS else made, tensor

    def _transpose_job(self, src: Any, axes: Any, out: Any, options: Options) -> Job:
        if axes is None:
            axes = range(_rank(src) - 1, -1, -1)
        return self._transform_job(src, axes, None, "constant", 0, out, options, "axes")

    def _plan_move(self, src: Any, permute: Any, pad: Any, mode: str, value: Any, out: Any, casting: Casting) -> Move:
        """A move of which only the layouts of dst and src count."""
        array = adapt(src, "src")
        axes = parse_axes(permute, array.tensor.ndim, "permute")
        check_permutation(axes, "permute")
        pads = parse_pad(pad, array.tensor.ndim)
        casting = casting_of(casting, array)
        _check_border(array, pads, mode)
        shape = _shape(array.tensor, axes, pads, casting)
        if out is None:
            dst = _core.layout(casting.result_dtype(array.tensor), shape, dense(shape))
        else:
            result = parse_out(out, shape, casting.out_dtype(array.tensor))
            casting_of(casting, array, result)
            dst = _layout_of(result.tensor)
        conversion, _ = _conversion(casting, dst, array.tensor, axes, pads)
        before, after = pads if pads is not None else (None, None)
        return Move(dst, _layout_of(array.tensor), axes, before, after, mode, value, conversion)

    def _gather_job(self, src: Any, index: Any, axis: int, permute: Any, out: Any, options: Options) -> Job:
        layers = Layers.parse(src, "src") if is_layered(src) else None
        array = layers.arrays[0] if layers is not None else adapt(src, "src")
        t = array.tensor
        axis = parse_axis(axis, t.ndim)
        axes = parse_axes(permute, t.ndim, "permute")
        check_permutation(axes, "permute")
        parsed = Index.parse(index, t.shape[axis])
        shape = t.shape[:axis] + (len(parsed),) + t.shape[axis + 1 :]
        if axes is not None:
            shape = tuple(shape[d] for d in axes)
        dst_axis = axis if axes is None else axes.index(axis)
        both: tuple[Layers, Layers] | None = None
        arrays: tuple[Array, ...]
        casting = casting_of(options.casting, array)
        if layers is None:
            out, result = self._result(out, shape, array, casting)
            dst, kind, arrays = result.tensor, result.kind, (result, array)
        else:
            out, results = self._results(out, len(layers), shape, array, casting)
            dst, both, arrays = results.first, (results, layers), (*results.arrays, *layers.arrays)
            kind = results.arrays[0].kind if results.whole is not None else Kind()
        casting_of(casting, array, *arrays)
        conversion, operands = parse_conversion(casting, dst, t, shape, dst_axis)
        on_device = () if parsed.device is None else (parsed.device,)
        blocks = Blocks(dst, t, parsed, dst_axis, axis, axes, False, conversion, both)
        return Job(blocks, out, kind, (*arrays, *on_device, *operands), options)

    def _results(
        self, out: Any, layers: int, shape: Sequence[int], like: Array, casting: Casting
    ) -> tuple[Any, Layers]:
        """The arrays for the results of layers, or one for all, which is made if there is no out."""
        if out is None:
            out, result = self._result(None, (layers, *shape), like, casting)
            return out, Layers.stacked(result)
        dtype = casting.out_dtype(like.tensor) if casting is not NO_CASTING else like.tensor.dtype
        return out, parse_outs(out, layers, shape, dtype)

    def _scatter_job(self, dst: Any, index: Any, src: Any, axis: int, permute: Any, options: Options) -> Job:
        both: tuple[Layers, Layers] | None = None
        if is_layered(dst):
            both = _scattered_layers(dst, src)
            (into, source), arrays = (side.first for side in both), (*both[0].arrays, *both[1].arrays)
        else:
            arrays = adapt(dst, "dst"), adapt(src, "src")
            into, source = (array.tensor for array in arrays)
            check_writable(into, "dst")
        rank = into.ndim
        axis = parse_axis(axis, rank)
        if source.ndim != rank:
            raise ValueError(f"src: {source.ndim} dimensions; dst has {rank}")
        axes = parse_axes(permute, rank, "permute")
        check_permutation(axes, "permute")
        parsed = Index.parse(index, into.shape[axis], is_distinct=True)
        casting = casting_of(options.casting, arrays[-1], *arrays)
        shape = permuted_shape(source, axes)
        expected = into.shape[:axis] + (len(parsed),) + into.shape[axis + 1 :]
        dtype = casting.out_dtype(source) or into.dtype
        if shape != expected or dtype != into.dtype:
            raise ValueError(
                f"src: {dtype} {list(shape)} as permuted{' and cast' if dtype != source.dtype else ''}; the "
                f"blocks of dst that the index selects are {into.dtype} {list(expected)}"
            )
        src_axis = axis if axes is None else axes[axis]
        if source.strides[src_axis] == 0 and source.shape[src_axis] > 1:  # a request has steps from block to block
            if not source.is_host:
                raise ValueError("src: its stride along the axis is 0; on a device, its blocks have to lie apart")
            if both is None:
                source = copied(source)
                arrays = (arrays[0], arrays[1]._replace(tensor=source))
            else:
                both = (both[0], both[1].map(copied))
                source = both[1].first
        conversion, operands = parse_conversion(casting, into, source, shape, axis)
        on_device = () if parsed.device is None else (parsed.device,)
        blocks = Blocks(into, source, parsed, axis, src_axis, axes, True, conversion, both)
        return Job(blocks, dst, Kind(), (*arrays, *on_device, *operands), options)

    def _is_reached(self, t: Tensor) -> bool:
        return t.size == 0 or not t.is_host or self._core.is_shared(t)

    def _check(self, move: Move | Blocks) -> None:
        """Refuses, before anything is moved, what the service would refuse if it saw all of the memory."""
        if self._core.is_local or not self._are_reached(move):
            move.check()

    def _are_reached(self, move: Move | Blocks) -> bool:
        if not all(self._is_reached(t) for side in move.sides for t in side):
            return False
        return move.conversion is None or all(self._is_reached(t) for t in (*move.operands, *move.results))

    def _requests_of(self, move: Move | Blocks, core: CoreClient | None = None) -> list[Request]:
        """Returns the requests of a move whose memory is reached, made for core if it is given. Only a service has
        tables of layers, which it checks together."""
        core = core or self._core
        if not core.is_local or not isinstance(move, Blocks) or move.layers is None:
            return move.requests(core)
        if not move.is_nothing:
            move.check_apart()
        return [request for blocks in move.each() for request in blocks.requests(core)]


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
                          and written into arrays. Not for gather and scatter. quantize makes all of it
        wait, signal      points of timelines: start when the one is reached, reach the other at the end
        wait_timeout      seconds that the wait may take (WaitTimeoutError)
        priority          "normal", "background" or "urgent", among the user's connections
        multiprocessors   of the device, that the move occupies at most
        host_threads      of the service, that move bytes at once at most
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
        requests = self._requests_of(move) if is_reached else []
        if len(requests) == 1:
            self._core.run(requests[0], **job.order)
            return
        order, wait, signal = without_points(job.order)
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
                inexact.collect(partial(self._run_layer, blocks, bar, order))
            inexact.check()
        finally:
            if bar is not None:
                bar.close()

    def _run_layer(self, blocks: Blocks, bar: Any, order: dict[str, Any]) -> None:
        if self._are_reached(blocks):
            self._core.run(blocks.request(self._core), **order)
        else:
            self._staging.run_blocks(blocks, self._is_reached, bar, **order)

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
        dst, src = move.sides
        if isinstance(move, Blocks) and move.is_nothing:
            return
        is_any_host = any(array.tensor.is_host for array in job.arrays)
        core = self._core_of(job)
        if core.is_local and not is_any_host and len(job.streams()) == 1:
            self._last_core = core
            is_waited_for = job.synchronous or any(overlapping(src, dst))
            self._launch(core, self._requests_of(move, core), job, job.streams(), is_waited_for, False)
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
        requests = self._requests_of(move, core)
        is_waited_for = job.synchronous or is_any_host or any(overlapping(src, dst))
        if len(streams) > 1 and not core.is_local:
            self._await_streams(streams)
            for request in requests:
                core.run(request, **job.order)
        elif core.is_local:
            self._launch(core, requests, job, streams, is_waited_for, is_any_host)
        else:
            for request in requests:
                core.enqueue(request, job.stream(), **job.order)
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
        for request in requests:
            if is_any_host:
                core.run(request, job.stream(), **job.order)
            else:
                core.enqueue(request, job.stream(), **job.order)
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


def check_multicast(job: Job, further: tuple[Array, ...]) -> None:
    """Refuses results that share bytes, which no single request shows to the service."""
    assert isinstance(job.move, Move)
    job.move.check()
    outs = (job.move.dst, *(array.tensor for array in further))
    _core.check_apart([(f"outs[{i}]", t) for i, t in enumerate(outs)], [])


def multicast_parts(job: Job, further: tuple[Array, ...]) -> Iterator[Job]:
    """Jobs that make several results one after the other: the first, and copies of it. The first waits for the point
    to wait for, and the last signals."""
    points, signal = job.order, job.order.get("signal")
    plain, _, _ = without_points(points)
    first, source = job.arrays[0], job.arrays[: len(job.arrays) - len(further)]
    job.order = {name: point for name, point in points.items() if name != "signal" or not further}
    job.arrays = source
    yield job
    for i, array in enumerate(further, 1):
        copy = Job(Move(array.tensor, first.tensor), None, Kind(), (array, first), Options())
        copy.order, copy.synchronous = dict(plain), job.synchronous
        if signal is not None and i == len(further):
            copy.order["signal"] = signal
        yield copy
    job.arrays = (*source, *further)


def without_points(
    order: dict[str, Any],
) -> tuple[dict[str, Any], tuple[_core.Region, int, int] | None, tuple[_core.Region, int, int] | None]:
    """An order without its points, which come after it: that to wait for, and that to signal."""
    plain = {name: value for name, value in order.items() if name not in ("wait", "signal", "wait_ms")}
    return plain, order.get("wait"), order.get("signal")


def separate(move: Move | Blocks) -> None:
    """Replaces what is read by a copy if chunks of the destination could be written into what is still to be read."""
    dst, src = move.sides
    shared = iter(overlapping(src, (*dst, *move.results)))
    if isinstance(move, Blocks) and move.layers is not None:
        move.place(move.layers[0], move.layers[1].map(lambda t: copied(t) if next(shared) else t))
    elif next(shared):
        move.src = copied(move.src)
    if move.conversion is not None:
        move.conversion = move.conversion.map(lambda t: copied(t) if any(overlapping((t,), dst)) else t)


def copied(t: Tensor) -> Tensor:
    """A copy, in memory of this process alone."""
    copy = Tensor(bytearray(t.nbytes)).viewed(t.dtype, t.shape)
    copy.copy_from(t)
    return copy


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


def _scattered_layers(dst: Any, src: Any) -> tuple[Layers, Layers]:
    """Those of dst, a list, and those of src, one or an array with the layers in front."""
    into = Layers.parse(dst, "dst")
    for i, t in enumerate(into.tensors):
        check_writable(t, f"dst[{i}]")
    if is_layered(src):
        sources = Layers.parse(src, "src")
    else:
        array = adapt(src, "src")
        if array.tensor.ndim != into.first.ndim + 1 or array.tensor.shape[0] != len(into):
            raise ValueError(
                f"src: {list(array.tensor.shape)}; dst has {count_of(len(into), 'layer')} of {into.first.ndim} "
                "dimensions, and src has the layers in front"
            )
        sources = Layers.stacked(array)
    if len(sources) != len(into):
        raise ValueError(f"src: {count_of(len(sources), 'layer')}; dst has {len(into)}")
    return into, sources


def _rank(obj: Any) -> int:
    rank = getattr(obj, "ndim", None)
    return rank if isinstance(rank, int) else adapt(obj, "src").tensor.ndim


def _shape(src: Tensor, axes: Sequence[int] | None, pads: Any, casting: Casting) -> tuple[int, ...]:
    """The shape of a result, which has to be countable in bytes on either side."""
    if pads is None:
        return permuted_shape(src, axes)
    return result_shape(src, axes, pads, max(src.itemsize, _core.DTYPES[casting.result_dtype(src)]))


def _check_border(src: Array, pads: Any, mode: str) -> None:
    """Refuses to pad exponents by a number: which byte that is would be a conversion."""
    if src.is_exponents and mode == "constant" and pads is not None and any(n > 0 for widths in pads for n in widths):
        raise TypeError(f"mode: {EXPONENTS} has no 0 to pad with; pad array.view('uint8') by an exponent")


def _conversion(
    casting: Casting, dst: Tensor, src: Tensor, axes: Sequence[int] | None, pads: Any
) -> tuple[Conversion | None, tuple[Array, ...]]:
    if casting is NO_CASTING:
        return None, ()
    if casting.amax is not None and pads is not None and any(n > 0 for widths in pads for n in widths):
        raise ValueError("amax: the result is padded; with amax it can only be cropped")
    return parse_conversion(casting, dst, src, permuted_shape(src, axes))


def _layout_of(t: Tensor) -> Tensor:
    return _core.layout(t.dtype, t.shape, t.strides)


__all__ = ["Client", "DisconnectedError", "connect"]
