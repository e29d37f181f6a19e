# SPDX-License-Identifier: Apache-2.0
"""Jobs: calls whose arguments have been checked and turned into moves. The class Maker makes them before anything runs,
for blocking and asyncio clients alike.

The order of a job, or of one of its requests, is a dict of keyword arguments for the calls of the core (the extension's
Client). They say when and how requests run: points to wait for and to signal, limits of time and of resources, and
priority.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Self, Unpack

from . import _core
from ._arrays import EXPONENTS, NUMPY, OWN, Array, Kind, adapt, count, dense, numpy_dtype, tensor_of
from ._conversion import NO_CASTING, Cast, Casting, Conversion, Keywords, casting_of, parse_conversion
from ._core import Tensor
from ._layers import Layers, is_layered, overlapping
from ._moves import (
    Blocks,
    Index,
    Move,
    check_writable,
    count_of,
    parse_axes,
    parse_axis,
    parse_out,
    parse_outs,
    parse_pad,
    permuted_shape,
    result_shape,
    sequence,
)
from ._reshard import Reshard
from ._scales import Amax, Scaling, block_counts, parse_block, parse_scale, quantized_dtype
from ._timeline import Point

MOST_MS = 2**31 - 1  # longest time limit that the library takes, in milliseconds
Priority = Literal["normal", "background", "urgent"]
PRIORITIES: dict[str, int] = {"normal": 0, "background": 1, "urgent": 2}


def milliseconds(seconds: float, name: str) -> int:
    """Returns a time limit in milliseconds, at most MOST_MS. name: name of the argument, for errors."""
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"{name}: {seconds!r}; it is a number of seconds, 0 or more")
    return MOST_MS if seconds >= MOST_MS / 1000 else round(seconds * 1000)


class Job:
    """A checked call: its move, and what it returns.

    move         what to move, and where to; for a multicast, to the first result
    out          the array for the result, or whatever else the call returns
    kind         the kind of out; its finish() turns out into what the caller gets
    arrays       all arrays that are read or written: results, sources and operands; further results of a multicast are
                 last
    order        the order of the requests (see above)
    progress     the keyword progress
    synchronous  whether the call waits for the end of the move even on a CUDA device
    """

    __slots__ = ("_streams", "arrays", "further", "kind", "move", "order", "out", "progress", "scales", "synchronous")

    def __init__(self, move: Move | Blocks, out: Any, kind: Kind, arrays: tuple[Array, ...], options: Options) -> None:
        self.move, self.out, self.kind, self.arrays = move, out, kind, arrays
        self.order, self.progress, self.synchronous = options.order(), options.progress, options.synchronous
        self.scales: tuple[tuple[Kind, Any], ...] | None = None  # arrays of scales that are returned beside out
        self.further: tuple[Array, ...] | None = None  # results of a multicast beside the first; None: not a multicast
        self._streams: dict[tuple[int, int], None] | None = None

    @property
    def has_host(self) -> bool:
        """True if any of the arrays is in host memory."""
        return any(a.tensor.is_host for a in self.arrays)

    def stream(self) -> tuple[int, int]:
        """Returns the CUDA stream of the first array that is on a device, as its handle and the ordinal of the device:
        a handle alone is not enough, because default streams have the same handles on every device."""
        return next(iter(self.streams()))

    def streams(self) -> dict[tuple[int, int], None]:
        """Returns the CUDA streams of all arrays, in the order of the arrays, as keys of a dict. The first call finds
        them; later calls return the same streams."""
        if self._streams is None:
            self._streams = streams_of(self.arrays)
        return self._streams

    def result(self) -> Any:
        """Returns the value that the call returns."""
        out = self.kind.finish(self.out)
        return out if self.scales is None else (out, *(kind.finish(obj) for kind, obj in self.scales))


def streams_of(arrays: Iterable[Array]) -> dict[tuple[int, int], None]:
    """Returns the CUDA streams in which a caller works on arrays, in the order of the arrays, each by its handle and
    the ordinal of its device. The values of the dict are None."""
    ones: dict[Any, Array] = {}  # one array for each combination of kind, device and stream
    for array in arrays:
        t = array.tensor
        if not t.is_host:
            ones.setdefault((array.kind, t.device, t.stream), array)
    return {(a.kind.stream(a.object, a.tensor), a.tensor.device[1]): None for a in ones.values()}


class MoveKeywords(Keywords, total=False):
    """The keywords that every call takes; see Client."""

    wait: Point | None
    signal: Point | None
    wait_timeout: float | None
    priority: Priority
    multiprocessors: int
    host_threads: int
    deadline: float | None
    progress: Any
    synchronous: bool


class Options:
    """The keywords of MoveKeywords, checked."""

    def __init__(
        self,
        *,
        wait: Point | None = None,
        signal: Point | None = None,
        wait_timeout: float | None = None,
        priority: Priority = "normal",
        multiprocessors: int = 0,
        host_threads: int = 0,
        deadline: float | None = None,
        progress: Any = False,
        synchronous: bool = False,
        dtype: Any = None,
        cast: Cast | None = None,
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
        if deadline is not None:
            self._order["deadline_ms"] = max(1, milliseconds(deadline, "deadline"))
        if priority != "normal":
            self._order["priority"] = PRIORITIES[priority]
        for name, number in (("multiprocessors", multiprocessors), ("host_threads", host_threads)):
            if operator.index(number) < 0 or number >> 32:
                raise ValueError(f"{name}: {number}; it is a number of them, or 0 for as many as the service allows")
            if number:
                self._order[name] = number

    @staticmethod
    def of(given: MoveKeywords) -> Options:
        """Returns the options that keywords give; without keywords, as in most calls, the shared NO_OPTIONS."""
        return Options(**given) if given else NO_OPTIONS

    def order(self) -> dict[str, Any]:
        """Returns a new dict of the keyword arguments of the core's calls, which the caller may change."""
        return self._order.copy()

    def converting(self, **casting: Unpack[Keywords]) -> Options:
        """Returns a copy of the options in which these keywords replace those of the conversion, or the options
        themselves if no keywords are given."""
        if not casting:
            return self
        options = copy.copy(self)
        options.casting = Casting(**casting)
        return options

    def check_no_casting(self, of: str) -> Self:
        """Raises TypeError, which gives `of` as the reason, if there are keywords of a conversion. Returns self."""
        for name, given in self.casting._asdict().items():
            if given is not None:
                raise TypeError(f"{name}: {of}")
        return self

    def check_reshard(self) -> Self:
        """Raises TypeError for keywords that a reshard does not take: those of a conversion, and progress, because a
        reshard is not staged in chunks. Returns self."""
        if self.progress:
            raise TypeError("progress: a reshard is one request")
        return self.check_no_casting("a reshard moves elements as they are")


NO_OPTIONS = Options()


class Maker:
    """Makes jobs from the arguments of calls. Subclasses define what is done with a job."""

    _core: _core.Client

    def _do(self, make: Callable[..., Job], given: MoveKeywords, *args: Any) -> Any:
        """Calls make() with args and with the options that the keywords `given` make. Runs the job that make() returns,
        or keeps it for later. Returns the result of the job."""
        raise NotImplementedError

    def _transform(self, given: MoveKeywords, is_transpose: bool, *args: Any) -> Any:
        """Runs a transform. args: the arguments of _transform_job that precede the options. Subclasses may handle
        simple cases without a job. is_transpose: whether the axes are reversed if none are given."""
        return self._do(self._transpose_job if is_transpose else self._transform_job, given, *args)

    def _reshard(self, options: Options, reshard: Reshard) -> Any:
        """Runs a reshard."""
        raise NotImplementedError

    def _make_array(self, shape: Sequence[int], like: Array, dtype: str) -> Any:
        """Returns a new array for a result, of the kind of `like` and on its device. If `like` is in shared memory, and
        is one of NumPy's arrays or a Tensor, the new array is in shared memory, too."""
        tensor = like.tensor
        if tensor.is_host and tensor.size and not self._core.is_local and self._core.is_shared(tensor):
            if like.kind is NUMPY:
                return self._make_shared(shape, dtype, zeroed=False)
            if like.kind is OWN:
                return self._make_tensor(shape, dtype, zeroed=False)
        return like.kind.empty(shape, dtype, like.object)

    def _result(self, out: Any, shape: Sequence[int], like: Array, casting: Casting) -> tuple[Any, Array]:
        """Returns what the caller gets for a result, and its Array: out, which is checked, or a new array if out is
        None."""
        if out is not None:
            is_casting = casting is not NO_CASTING
            result = parse_out(out, shape, casting.out_dtype(like.tensor) if is_casting else like.tensor.dtype)
            casting_of(casting, like, result)
            return out, result
        return self._make_result(shape, like, casting.result_dtype(like.tensor))

    def _make_result(self, shape: Sequence[int], like: Array, dtype: str) -> tuple[Any, Array]:
        """Returns a new array for a result, of the kind of `like`, and the Array that describes it."""
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
    ) -> Job:
        """Returns the job of a multicast. Its move makes the first result; the arrays for the others are in
        job.further."""
        if options.casting.amax is not None:
            raise TypeError("amax: it makes the scales of one result; multicast has several")
        each = sequence(outs, "outs")
        if not each:
            raise ValueError("outs: it is empty; a move has at least one result")
        job = self._transform_job(src, permute, pad, mode, value, each[0], options)
        dst = job.move.dst
        further = tuple(parse_out(out, dst.shape, dst.dtype, f"outs[{i}]") for i, out in enumerate(each[1:], 1))
        casting_of(options.casting, job.arrays[1], *further)
        job.out, job.kind, job.further, job.arrays = tuple(each), Kind(), further, (*job.arrays, *further)
        return job

    def _is_one_request(self, job: Job) -> bool:
        """Returns whether one request can make all results of a multicast: there is a service, and it reaches all
        memory. If so, adds the further destinations to the job's move."""
        assert isinstance(job.move, Move) and job.further is not None
        further = tuple(array.tensor for array in job.further)
        if self._core.is_local or not (self._are_reached(job.move) and all(map(self._is_reached, further))):
            return False
        job.move.further = further
        return True

    def _quantize_job(self, src: Any, permute: Any, out: Any, scaling: Scaling, options: Options) -> Job:
        array, casting = adapt(src, "src"), options.casting
        if casting.amax is not None:
            raise TypeError("amax: quantize makes its own, of its arguments")
        axes = parse_axes(permute, array.tensor.ndim, "permute")
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
        """Returns the kind of an array for scales, the array, and the tensor that is written. given: the caller's
        array; None: the array is made."""
        if given is not None:
            return Kind(), given, parse_scale(given, name, shape, scaling.power_of_two).tensor
        written = "uint8" if dtype == EXPONENTS else dtype
        made = self._make_array(shape, like, written)
        tensor = tensor_of(made, like.kind, written)
        return like.kind, like.kind.exponents(made) if dtype == EXPONENTS else made, tensor

    def _transpose_job(self, src: Any, axes: Any, pad: Any, mode: str, value: Any, out: Any, options: Options) -> Job:
        """Returns the job of a transform whose axes are reversed if none are given."""
        if axes is None:
            axes = range(_rank(src) - 1, -1, -1)
        return self._transform_job(src, axes, pad, mode, value, out, options, "axes")

    def _plan_move(self, src: Any, permute: Any, pad: Any, mode: str, value: Any, out: Any, casting: Casting) -> Move:
        """Returns a move for a plan: its dst and src are layouts without memory."""
        array = adapt(src, "src")
        axes = parse_axes(permute, array.tensor.ndim, "permute")
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
        blocks = Blocks(dst, t, parsed, dst_axis, axis, axes, conversion, both)
        return Job(blocks, out, kind, (*arrays, *on_device, *operands), options)

    def _results(
        self, out: Any, layers: int, shape: Sequence[int], like: Array, casting: Casting
    ) -> tuple[Any, Layers]:
        """Returns what a gather of layers returns, and the layers of its results. out: one array for all, or a list of
        arrays; None: one array is made."""
        if out is None:
            out, result = self._result(None, (layers, *shape), like, casting)
            return out, Layers.stacked(result)
        dtype = casting.out_dtype(like.tensor) if casting is not NO_CASTING else like.tensor.dtype
        return out, parse_outs(out, layers, shape, dtype)

    def _scatter_job(
        self, dst: Any, index: Any, src: Any, axis: int, permute: Any, options: Options, has_pairs: bool = False
    ) -> Job:
        """Returns the job of a scatter. has_pairs: whether an entry of the index is a pair, of a block of src and one
        of dst; if not, it is the number of a block of dst."""
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
        src_axis = axis if axes is None else axes[axis]
        parsed = Index.parse(index, source.shape[src_axis] if has_pairs else None, into.shape[axis])
        casting = casting_of(options.casting, arrays[-1], *arrays)
        shape = permuted_shape(source, axes)
        blocks = len(parsed) if parsed.src is None else shape[axis]
        expected = into.shape[:axis] + (blocks,) + into.shape[axis + 1 :]
        dtype = casting.out_dtype(source) or into.dtype
        if shape != expected or dtype != into.dtype:
            raise ValueError(
                f"src: {dtype} {list(shape)} as permuted{' and cast' if dtype != source.dtype else ''}; the "
                f"blocks of dst {'are like' if has_pairs else 'that the index selects are'} {into.dtype} "
                f"{list(expected)}"
            )
        has_no_step = source.strides[src_axis] == 0 and source.shape[src_axis] > 1
        if has_no_step and parsed.src is None:  # a request needs a nonzero step between blocks
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
        move = Blocks(into, source, parsed, axis, src_axis, axes, conversion, both)
        if move.is_one_pool:
            parsed.check_pool()
            if both is not None:  # the service sees by equal lists of layers that it is one pool
                move.layers = both[0].listed(), both[1].listed()
        return Job(move, None, Kind(), (*arrays, *on_device, *operands), options)

    def _pairs_job(self, dst: Any, pairs: Any, src: Any, axis: int, permute: Any, options: Options) -> Job:
        """Returns the job of a scatter whose index has pairs."""
        return self._scatter_job(dst, pairs, src, axis, permute, options, True)

    def _is_reached(self, t: Tensor) -> bool:
        return t.size == 0 or not t.is_host or self._core.is_shared(t)

    def _check(self, move: Move | Blocks) -> None:
        """Raises, before anything is moved, the errors that the service would raise if it reached all memory of the
        move. If the service does reach it, this is left to the service."""
        if self._core.is_local or not self._are_reached(move):
            move.check()

    def _are_reached(self, move: Move | Blocks) -> bool:
        dst, src = move.sides
        tensors = dst + src if move.conversion is None else (*dst, *src, *move.operands, *move.results)
        return all(map(self._is_reached, tensors))


def multicast_parts(job: Job) -> Iterator[Job]:
    """Yields jobs that make the results of a multicast one after the other: the first result, and copies of it. If the
    order has points, the first job waits and the last one signals. Results that share bytes are refused here: the
    service cannot notice them, because no request has two results."""
    further = job.further or ()
    check_multicast(job)
    points, signal = job.order, job.order.get("signal")
    plain, _, _ = without_points(points, bool(further))
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


def check_multicast(job: Job) -> None:
    """Raises OverlapError if results of a multicast share bytes, and the errors of the move's check()."""
    job.move.check()
    outs = (job.move.dst, *(array.tensor for array in job.further or ()))
    _core.check_apart([(f"outs[{i}]", t) for i, t in enumerate(outs)], [])


def without_points(
    order: dict[str, Any], takes_several: bool = True
) -> tuple[dict[str, Any], tuple[_core.Region, int, int] | None, tuple[_core.Region, int, int] | None]:
    """Returns three things: an order without its points, the point to wait for, and the point to signal. A point that
    the order does not have is None. takes_several: whether the move takes several requests. If it does and has a
    deadline, raises ValueError, because some of the requests might run and others not."""
    if takes_several and "deadline_ms" in order:
        raise ValueError("deadline: this move takes several requests, as ordinary arrays do; some might be moved alone")
    plain = {name: value for name, value in order.items() if name not in ("wait", "signal", "wait_ms")}
    return plain, order.get("wait"), order.get("signal")


def orders_of(order: dict[str, Any], n: int) -> Iterator[dict[str, Any]]:
    """Yields the orders of n consecutive requests of a move with this order: the first one waits, the last one
    signals."""
    if n == 1:
        yield order
        return
    plain, _, _ = without_points(order)
    for i in range(n):
        names = {"wait", "wait_ms"} if i == 0 else set()
        names |= {"signal"} if i == n - 1 else set()
        yield plain | {name: order[name] for name in names & order.keys()}


def may_meet(move: Move | Blocks) -> bool:
    """Returns whether the ranges of bytes of dst and src overlap, so that the request may be refused. Pairs within one
    pool cannot be refused for that: they have been checked, and none of their blocks is both read and written."""
    dst, src = move.sides
    return any(overlapping(src, dst)) and not (isinstance(move, Blocks) and move.is_one_pool)


def separate(move: Move | Blocks) -> None:
    """Replaces sources and operands that overlap the destination by copies, so that no chunk is written into memory
    that a later chunk reads."""
    dst, src = move.sides
    shared = iter(overlapping(src, (*dst, *move.results)))
    if isinstance(move, Blocks) and move.is_one_pool:
        pass  # no block is both read and written
    elif isinstance(move, Blocks) and move.layers is not None:
        move.place(move.layers[0], move.layers[1].map(lambda t: copied(t) if next(shared) else t))
    elif next(shared):
        move.src = copied(move.src)
    if move.conversion is not None:
        move.conversion = move.conversion.map(lambda t: copied(t) if any(overlapping((t,), dst)) else t)


def copied(t: Tensor) -> Tensor:
    """Returns a copy of a tensor in memory that only this process has."""
    copy = Tensor(bytearray(t.nbytes)).viewed(t.dtype, t.shape)
    copy.copy_from(t)
    return copy


def _scattered_layers(dst: Any, src: Any) -> tuple[Layers, Layers]:
    """Returns the layers of dst, a list, and those of src, a list or an array whose first dimension counts the
    layers."""
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
    """Returns the shape of a result. If the result is padded, its size must not exceed 2^63 - 1 bytes, in neither the
    type of src nor that of the result (ValueError)."""
    if pads is None:
        return permuted_shape(src, axes)
    return result_shape(src, axes, pads, max(src.itemsize, _core.DTYPES[casting.result_dtype(src)]))


def _check_border(src: Array, pads: Any, mode: str) -> None:
    """Raises TypeError if an array of exponents is padded with a constant, because that would have to be converted to
    an exponent."""
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
