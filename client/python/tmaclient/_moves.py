# SPDX-License-Identifier: Apache-2.0
"""Turns arguments in NumPy's style into moves, and moves into requests. It does not depend on who runs them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from . import _core
from ._arrays import Array, adapt, count, dense
from ._conversion import Conversion
from ._core import Request, Tensor
from ._errors import OutOfRangeError, OverlapError
from ._layers import Layers, is_layered

MOST_LAYERS = 1024  # maximum number of layers in one request
_PLACE_BYTES = 16  # bytes that each layer takes in a request that lists its layers
_LIST_BYTES = 48 << 10  # limit of a block list that is sent within a request; a request has at most 64 KiB

Mode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
MODES: tuple[Mode, ...] = ("constant", "edge", "reflect", "symmetric", "wrap")


class _Converting:
    """The common base of moves: the conversion of elements. conversion None: they are not converted."""

    __slots__ = ("conversion",)
    conversion: Conversion | None

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The tensors for scale and bias."""
        return self.conversion.tensors if self.conversion is not None else ()

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that the move writes beside dst, which are scales."""
        return self.conversion.results if self.conversion is not None else ()


class Move(_Converting):
    """One transform: dst = pad(cast(permute(src) * scale + bias)). permute, before, after and conversion are None if
    the transform does without them. before, after: widths of the border before and after each dimension, in elements; a
    negative width crops."""

    __slots__ = ("after", "before", "dst", "further", "mode", "permute", "src", "value")

    def __init__(
        self,
        dst: Tensor,
        src: Tensor,
        permute: tuple[int, ...] | None = None,
        before: tuple[int, ...] | None = None,
        after: tuple[int, ...] | None = None,
        mode: str = "constant",
        value: Any = 0,
        conversion: Conversion | None = None,
    ) -> None:
        self.dst, self.src, self.permute, self.conversion = dst, src, permute, conversion
        self.before, self.after, self.mode, self.value = before, after, mode, value
        self.further: tuple[Tensor, ...] = ()  # further destinations of a multicast, which get the same result as dst

    @property
    def sides(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """dst and src, in the form of Blocks.sides."""
        return (self.dst,), (self.src,)

    def __str__(self) -> str:
        parts = [f"{layout_words(self.src)} -> {layout_words(self.dst)}"]
        if self.permute is not None:
            parts.append(f"permute {self.permute}")
        if self.before is not None and self.after is not None and any(self.before + self.after):
            parts.append(f"pad {tuple(zip(self.before, self.after, strict=True))}")
            parts.append(f"value {self.value!r}" if self.mode == "constant" else f"mode {self.mode}")
        return ", ".join(parts if self.conversion is None else [*parts, str(self.conversion)])

    def check(self) -> None:
        """Raises the errors that the service would raise if it saw all memory of the move. It is called before anything
        is staged."""
        written = [("out", self.dst)]  # sources and operands are not checked: those that overlap dst are copied first
        if self.conversion is not None and self.conversion.amax is not None:
            both = ("amax.scale", self.conversion.amax.scale), ("amax.inverse", self.conversion.amax.inverse)
            written += [(name, t) for name, t in both if t is not None]
        _core.check_apart(written, [])
        if self.before is not None and self.mode == "constant":
            _core.encode_number(self.dst.dtype, self.value)

    def requests(self, core: _core.Client) -> list[Request]:
        """Returns the requests of the move: a list of one."""
        return [self.request(core)]

    def request(self, core: _core.Client | None = None) -> Request:
        """Returns the request of the move."""
        if not isinstance(self.mode, str):
            raise TypeError(f"mode: {self.mode!r}; it is one of {', '.join(MODES)}")
        order = (self.dst, self.src, self.permute, self.before, self.after, self.mode, self.value)
        c = self.conversion
        if c is not None:
            return Request.transform(*order, c.cast, c.scale, c.bias, c.amax, self.further or None)
        if self.further:
            return Request.transform(*order, None, None, None, None, self.further)
        return Request.transform(*order)


class Blocks(_Converting):
    """A gather, a scatter or both: blocks of src along src_axis are permuted and become blocks of dst along dst_axis.
    The index selects the blocks. If its entries have numbers for one side only, the other side has a block for each
    entry, in the order of the entries. The operands of a conversion have an extent of 1 along dst_axis.

    layers: the layers of dst and those of src. The same blocks of each layer are moved, and dst and src are the first
    layers. None: there are no layers."""

    __slots__ = ("dst", "dst_axis", "index", "layers", "permute", "src", "src_axis")

    def __init__(
        self,
        dst: Tensor,
        src: Tensor,
        index: Index,
        dst_axis: int,
        src_axis: int,
        permute: tuple[int, ...] | None,
        conversion: Conversion | None = None,
        layers: tuple[Layers, Layers] | None = None,
    ) -> None:
        self.dst, self.src, self.index = dst, src, index
        self.dst_axis, self.src_axis, self.permute, self.conversion = dst_axis, src_axis, permute, conversion
        self.layers = layers

    @property
    def sides(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The tensors that are written, and those that are read, without scales and operands."""
        if self.layers is None:
            return (self.dst,), (self.src,)
        return self.layers[0].pieces, self.layers[1].pieces

    def place(self, dst: Layers, src: Layers) -> None:
        """Replaces the layers by copies in other memory."""
        self.layers, self.dst, self.src = (dst, src), dst.first, src.first

    def each(self) -> Iterator[Blocks]:
        """Yields a move for each layer."""
        if self.layers is None:
            yield self
            return
        for dst, src in zip(self.layers[0].tensors, self.layers[1].tensors, strict=True):
            yield Blocks(dst, src, self.index, self.dst_axis, self.src_axis, self.permute, self.conversion)

    @property
    def place_bytes(self) -> int:
        """The number of bytes that the lists of layers take in the largest request."""
        sides = [side for side in self.layers or () if not side.has_step]
        return sum(_PLACE_BYTES * min(len(side), MOST_LAYERS) for side in sides)

    @property
    def is_nothing(self) -> bool:
        """True if there is no element to move."""
        return len(self.index) == 0 or self.dst.size == 0 or self.src.size == 0

    @property
    def is_one_pool(self) -> bool:
        """True if dst and src are the same blocks, so that the pairs move blocks within one pool."""
        if not self.index.has_pairs or self.dst_axis != self.src_axis:
            return False
        sides = ((self.dst,), (self.src,)) if self.layers is None else (side.tensors for side in self.layers)
        return all(
            (d.data, d.dtype, d.shape, d.strides) == (s.data, s.dtype, s.shape, s.strides)
            for d, s in zip(*sides, strict=True)
        )

    def check(self) -> None:
        """Does as Move.check: raises OverlapError if elements of dst overlap. The index was checked when it was
        parsed."""
        if self.is_nothing:
            return
        _core.check_apart(self._named(0), [])

    def _named(self, side: int) -> list[tuple[str, Tensor]]:
        """Returns the tensors of a side, 0 for dst or 1 for src, each with its name in errors."""
        name = "src" if side == 1 else "out" if self.index.dst is None else "dst"
        is_one = self.layers is None or self.layers[side].whole is not None
        return [(name if is_one else f"{name}[{i}]", t) for i, t in enumerate(self.sides[side])]

    def block_permute(self) -> tuple[int, ...] | None:
        """Returns the permutation of the dimensions of a block, which lacks the axis along which blocks lie. None: the
        dimensions are not permuted."""
        if self.permute is None:
            return None
        return tuple(d - (d > self.src_axis) for d in self.permute if d != self.src_axis)

    def request(self, core: _core.Client) -> Request:
        """Returns the request of a move that takes only one. The move must have at most MOST_LAYERS layers and, if it
        is within one pool, a list that fits into one request."""
        (request,) = self.requests(core)
        return request

    def requests(self, core: _core.Client) -> list[Request]:
        """Returns all requests that the move takes. The service must reach all tensors. In a request, blocks are
        numbered in the order of addresses."""
        dst, src, index = self.dst, self.src, self.index
        dst_limit, src_limit = dst.shape[self.dst_axis], src.shape[self.src_axis]
        dst_stride, src_stride = dst.strides[self.dst_axis], src.strides[self.src_axis]
        if dst_stride < 0 or src_stride < 0:
            index = index.flipped(src_limit if src_stride < 0 else None, dst_limit if dst_stride < 0 else None)
        if dst_stride == 0 and dst_limit > 1:
            raise OverlapError("out: its stride along the axis is 0, so that its blocks overlap each other")
        if src_stride == 0 and src_limit > 1 and index.src is not None:
            index, src_limit = index.from_first(), 1
        beside = self.place_bytes
        lists = [part.placed(core, beside) for part in (index.parts(beside) if self.is_one_pool else (index,))]
        c = self.conversion.without(self.dst_axis) if self.conversion is not None else None
        permute, steps = self.block_permute(), (_step(dst, self.dst_axis), _step(src, self.src_axis))

        def make(
            tensor: Tensor, is_shared: bool, dst: Tensor, src: Tensor, all_dst: Tensor, all_src: Tensor, *layers: Any
        ) -> Request:
            return Request.blocks(
                index.src is None,
                _block(dst, self.dst_axis),
                _block(src, self.src_axis),
                permute,
                all_dst,
                all_src,
                tensor,
                is_shared,
                dst_limit,
                src_limit,
                *steps,
                *((None, None, None) if c is None else (c.cast, c.scale, c.bias)),
                *layers,
            )

        if self.layers is None:
            return [make(*part, dst, src, dst, src) for part in lists]
        return [
            make(*part, d.first, s.first, d.all, s.all, d.steps, s.steps)
            for d, s in _parts(*self.layers)
            for part in lists
        ]


def _parts(dst: Layers, src: Layers) -> Iterator[tuple[Layers, Layers]]:
    """Yields the layers of dst and of src in parts that each fit into one request. A request lists the layers of at
    least one of the two sides."""
    for at in range(0, len(dst), MOST_LAYERS):
        some = slice(at, at + MOST_LAYERS)
        yield (dst, src) if len(dst) <= MOST_LAYERS else (dst[some], src[some])


def _step(t: Tensor, axis: int) -> int:
    """Returns the distance from one block to the next at a higher address, in bytes. It is never 0: in a request, 0
    would stand for the size of a block."""
    return (abs(t.strides[axis]) or 1) * t.itemsize


def _block(t: Tensor, axis: int) -> Tensor:
    """Returns the block at the lowest address."""
    extent, stride = t.shape[axis], t.strides[axis]
    at = (extent - 1) * stride if stride < 0 and extent > 0 else 0
    return t.part(at, t.shape[:axis] + t.shape[axis + 1 :], t.strides[:axis] + t.strides[axis + 1 :])


class Index:
    """A list of blocks. Each entry is the number of a block in src (a gather) or in dst (a scatter), or a pair of both.
    If entries have a number for one side only, entry i is block i of the other side. A list on the host has been
    checked, and is of int64; the service checks a list in device memory.

    device   the caller's array if the list is in device memory, or None
    """

    def __init__(self, tensor: Tensor, is_scatter: bool = False, device: Array | None = None) -> None:
        self.tensor, self.device = tensor, device
        self._is_scatter = is_scatter
        self._shared: Tensor | None = None  # a copy in shared memory, made when a request first needs it
        self.message_bytes = _LIST_BYTES  # limit of a list that is sent within a request

    def __len__(self) -> int:
        return self.tensor.shape[0]

    @property
    def has_pairs(self) -> bool:
        """True if entries have numbers for both sides."""
        return self.tensor.ndim == 2

    @property
    def src(self) -> Tensor | None:
        """The numbers of blocks of src, or None if entries do not have them."""
        return self._column(0) if self.has_pairs else None if self._is_scatter else self.tensor

    @property
    def dst(self) -> Tensor | None:
        """The numbers of blocks of dst, or None if entries do not have them."""
        return self._column(1) if self.has_pairs else self.tensor if self._is_scatter else None

    def _column(self, i: int) -> Tensor:
        return self.tensor.part(i, (len(self),), (2,))

    @classmethod
    def parse(cls, given: Any, src: int | None = None, dst: int | None = None) -> Index:
        """Returns the index that a caller's array or list gives: numbers of blocks of src or of dst, or pairs of both.

        src, dst   number of blocks of each side; None: entries have no number for that side

        Negative numbers count from the end, as in NumPy. No two entries may name the same block of dst; for a list on a
        device this is not checked."""
        has_pairs = src is not None and dst is not None
        name, rank = ("pairs", 2) if has_pairs else ("index", 1)
        is_listed = isinstance(given, (list, tuple, range))
        if is_listed:
            flat = _flat_pairs(given) if has_pairs else given
            given = _listed(flat, name, max(n for n in (src, dst) if n is not None))
        array_ = adapt(given, name)
        t = _paired(array_.tensor) if has_pairs and is_listed else array_.tensor
        if t.ndim != rank:
            what = "has an entry of two numbers for each block" if has_pairs else "has to be a list, of one dimension"
            raise ValueError(f"{name}: {t.ndim} dimensions; it {what}")
        if has_pairs and t.shape[1] != 2:
            raise ValueError(f"pairs: {list(t.shape)}; each is of two numbers, a block of src and one of dst")
        if t.is_host:
            limits = (-1 if n is None else n for n in (src, dst))
            return cls(_core.check_index(t, *limits), src is None)
        is_dense = all(n <= 1 or s == d for n, s, d in zip(t.shape, t.strides, dense(t.shape), strict=True))
        if t.dtype not in ("int32", "int64") or not is_dense:
            how = f"strides {t.strides}" if has_pairs else f"stride {t.strides[0]}"
            raise TypeError(f"{name}: {t.dtype} with {how}; on a device it is contiguous int32 or int64")
        return cls(t, src is None, array_)

    def check_pool(self) -> None:
        """Raises OverlapError if pairs within one pool read a block that they also write."""
        if self.device is not None:
            raise OverlapError(
                "pairs: dst and src are the same blocks, and a list on a device does not prove that none is read and "
                "written; pass it on the host"
            )
        _core.check_pool(self.tensor)

    def flipped(self, src: int | None, dst: int | None) -> Index:
        """Returns the list for sides whose blocks are numbered in reverse. src, dst: number of blocks of a reversed
        side; None: the side is not reversed."""
        self._check_host("array with a negative stride")
        columns = self._columns()
        for numbers, n in zip(columns, (src, dst), strict=True):
            if n is not None and numbers is not None:
                numbers[:] = [n - 1 - i for i in numbers]
            elif n is not None:
                for others in filter(None, columns):
                    others.reverse()
        return self._of(*columns)

    def from_first(self) -> Index:
        """Returns the list with all numbers of src replaced by 0."""
        if self.has_pairs:
            self._check_host("src with a stride of 0")
        return self._of([0] * len(self), None if self.dst is None else self._columns()[1])

    def _check_host(self, what: str) -> None:
        if self.device is not None:
            name = "pairs" if self.has_pairs else "index"
            raise ValueError(f"{name}: a list on a device takes no {what} along the axis")

    def _columns(self) -> list[list[int] | None]:
        """Returns the numbers of src and those of dst; None for a side that entries have no numbers for."""
        return [None if column is None else memoryview(column).tolist() for column in (self.src, self.dst)]

    def _of(self, src: list[int] | None, dst: list[int] | None) -> Index:
        if src is None or dst is None:
            return Index(Tensor(_int64(src or dst or [])), src is None)
        return Index(_paired(Tensor(_int64([n for pair in zip(src, dst, strict=True) for n in pair]))))

    def is_sent(self, beside: int) -> bool:
        """Returns whether the list is sent within a request. beside: bytes that lists of layers take in the request."""
        return self.device is None and self.tensor.nbytes <= self.message_bytes - beside

    @property
    def is_near(self) -> bool:
        """True if a device needs no shared memory to read the list: it is in device memory, or sent in the request."""
        return self.device is not None or self.is_sent(0)

    def parts(self, beside: int) -> Iterator[Index]:
        """Yields the list, which must be on the host, in parts, each of which fits into a request. beside: as for
        is_sent."""
        row = dense(self.tensor.shape)[0]
        most = max(1, (_LIST_BYTES - beside) // (row * self.tensor.itemsize))
        for at in range(0, len(self), most):
            shape = (min(most, len(self) - at), *self.tensor.shape[1:])
            yield Index(self.tensor.part(at * row, shape, dense(shape)), self._is_scatter)

    def placed(self, core: _core.Client, beside: int = 0) -> tuple[Tensor, bool]:
        """Returns the tensor of the list for a request, and True if the list is read where that tensor is: by the
        service, or by this process if it moves without a service. False: the list is sent within the request. beside:
        as for is_sent."""
        if self.device is not None or (core.is_local and not self.is_sent(beside)):
            return self.tensor, True
        if self.is_sent(beside):
            return self.tensor, False
        if self._shared is None:
            shape = self.tensor.shape
            self._shared = core.allocate(self.tensor.nbytes, None, False).tensor(0, "int64", shape, dense(shape))
            self._shared.copy_from(self.tensor)
        return self._shared, True


def _int64(values: Sequence[int]) -> Any:
    import array

    return array.array("q", values)


def _paired(flat: Tensor) -> Tensor:
    """Returns a flat list of numbers as a tensor of pairs, of shape [n, 2]."""
    return flat.part(0, (flat.size // 2, 2), (2, 1))


def _flat_pairs(given: Any) -> list[Any]:
    """Returns the numbers of a list of pairs, one after the other."""
    flat: list[Any] = []
    for i, entry in enumerate(given):
        pair = sequence(entry, f"pairs[{i}]")
        if len(pair) != 2:
            raise ValueError(f"pairs[{i}]: {entry!r} is no pair of a block of src and one of dst")
        flat += pair
    return flat


def _listed(given: Any, name: str, most: int) -> Any:
    """Returns a list of numbers as an array of int64. most: number of blocks, which the error names if a number does
    not fit into int64."""
    try:
        return _int64(given)
    except OverflowError:
        far = max((integer(i, name) for i in given), key=abs)
        raise OutOfRangeError(f"{name}: {far} is beyond any of {most} blocks") from None
    except TypeError:
        return _int64([integer(i, name) for i in given])  # integer() names an entry that is no integer


# ---- Arguments -----------------------------------------------------------------------------------------


def integer(x: Any, name: str) -> int:
    """Returns an argument as an int. TypeError: it is not an integer."""
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name}: {x!r} is no integer") from None


def sequence(x: Any, name: str) -> list[Any]:
    """Returns an argument as a list. TypeError: it is not a sequence."""
    try:
        return list(x)
    except TypeError:
        raise TypeError(f"{name}: {x!r} is no sequence") from None


def parse_axes(axes: Any, rank: int, name: str) -> tuple[int, ...] | None:
    """Returns a permutation of `rank` axes, numbered from 0, or None if there is none. Negative axes of the argument
    count from the end."""
    if axes is None:
        return None
    axes = tuple(integer(a, name) for a in sequence(axes, name))
    if len(axes) != rank:
        raise ValueError(f"{name}: {len(axes)} axes for an array of {rank} dimensions")
    permute = tuple(parse_axis(a, rank, name) for a in axes)
    if len(set(permute)) != len(permute):
        twice = next(d for d in permute if permute.count(d) > 1)
        raise ValueError(f"{name}: {twice} appears twice; a permutation names each axis once")
    return permute


def parse_axis(axis: Any, rank: int, name: str = "axis") -> int:
    """Returns an axis, numbered from 0. A negative argument counts from the end."""
    n = integer(axis, name)
    if not -rank <= n < rank:
        raise IndexError(f"{name}: {n} is no axis of an array of {rank} dimensions")
    return n % rank


def parse_pad(pad: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the widths before and after each axis, from np.pad's pad_width: a number, a pair for every axis, a pair
    for each axis, or a dict of axes. None: there is no border."""
    if pad is None:
        return None
    if isinstance(pad, dict):
        pairs = [(0, 0)] * rank
        for axis, width in pad.items():
            pairs[parse_axis(axis, rank, "pad")] = _pair(width)
        return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    if _is_number(pad):
        n = integer(pad, "pad")
        return (n,) * rank, (n,) * rank
    pad = sequence(pad, "pad")
    if all(_is_number(p) for p in pad) and len(pad) in (1, 2):
        pairs = [_pair(pad)] * rank
    else:
        pairs = [_pair(p) for p in pad]
        if len(pairs) == 1:
            pairs *= rank
    if len(pairs) != rank:
        raise ValueError(f"pad: {len(pairs)} pairs for an array of {rank} dimensions")
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def _is_number(x: Any) -> bool:
    return hasattr(x, "__index__") and not getattr(x, "ndim", 0)


def _pair(width: Any) -> tuple[int, int]:
    if _is_number(width):
        return integer(width, "pad"), integer(width, "pad")
    pair = tuple(integer(w, "pad") for w in sequence(width, "pad"))
    if len(pair) == 1:
        pair *= 2
    if len(pair) != 2:
        raise ValueError(f"pad: {width!r} is no pair of elements before and after")
    return pair[0], pair[1]


def parse_constant(values: Any) -> Any:
    """Returns the value of np.pad's constant_values. They must all be equal, because a request pads with one value."""
    if isinstance(values, str):
        raise TypeError(f"constant_values: {values!r} is no value")
    if getattr(values, "ndim", None) == 0:
        return values
    if hasattr(values, "__len__") or hasattr(values, "ndim"):
        flat = [v for row in values for v in (row if hasattr(row, "__len__") else [row])]
        if not flat or any(v != flat[0] for v in flat):
            raise ValueError(f"constant_values: {values!r} has several values; tmad pads with one")
        return flat[0]
    return values


def permuted_shape(src: Tensor, permute: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the shape of permute(src)."""
    return src.shape if permute is None else tuple(src.shape[d] for d in permute)


def result_shape(src: Tensor, permute: Sequence[int] | None, pads: Any, itemsize: int) -> tuple[int, ...]:
    """Returns the shape of permute(src) with borders of these widths. pads: the widths before and after each axis.
    ValueError: an axis is cropped completely, or the size of the result in bytes, with elements of itemsize, exceeds
    2^63 - 1."""
    shape = permuted_shape(src, permute)
    padded = tuple(n + b + a for n, b, a in zip(shape, *pads, strict=True))
    for d, (n, b, a) in enumerate(zip(shape, *pads, strict=True)):
        if (b < 0 or a < 0) and n + min(b, 0) + min(a, 0) < 1:
            raise ValueError(f"pad: ({b}, {a}) crops all of axis {d}, which has {n} elements")
    if count(padded) * itemsize >= 1 << 63 or max(map(abs, pads[0] + pads[1] + padded), default=0) >> 63:
        raise ValueError(f"pad: the result would be {list(padded)}, which is more than can be counted")
    return padded


def parse_out(out: Any, shape: Sequence[int], dtype: str | None, name: str = "out") -> Array:
    """Returns the caller's array for the result, which must be writable and have this shape and type. dtype None: any
    type."""
    array = adapt(out, name)
    check_out(array.tensor, shape, dtype, name)
    return array


def parse_outs(outs: Any, layers: int, shape: Sequence[int], dtype: str | None, name: str = "out") -> Layers:
    """Returns the caller's arrays for the results of layers, each of this shape and type. outs is one array whose first
    dimension counts the layers, or a list of arrays."""
    if not is_layered(outs):
        return Layers.stacked(parse_out(outs, (layers, *shape), dtype, name))
    each = Layers.parse(outs, name)
    if len(each) != layers:
        raise ValueError(f"{name}: {count_of(len(each), 'layer')}; the result has {layers}")
    for i, t in enumerate(each.tensors):
        check_out(t, shape, dtype, f"{name}[{i}]")
    return each


def check_out(t: Tensor, shape: Sequence[int], dtype: str | None, name: str) -> None:
    """Raises ValueError if a tensor does not have the result's shape and type, or is read-only. dtype None: any
    type."""
    dtype = dtype or t.dtype
    if t.shape != tuple(shape) or t.dtype != dtype:
        raise ValueError(f"{name}: {t.dtype} {list(t.shape)}; the result is {dtype} {list(shape)}")
    check_writable(t, name)


def check_writable(t: Tensor, name: str) -> None:
    if t.readonly:
        raise ValueError(f"{name}: the array is read-only")


def layout_words(t: Tensor) -> str:
    """Returns a description of a tensor: type, shape, and strides unless they are those of C order."""
    is_dense = all(n == 1 or s == d for n, s, d in zip(t.shape, t.strides, dense(t.shape), strict=True))
    return f"{t.dtype} {t.shape}" + ("" if is_dense or t.size == 0 else f" with strides {t.strides}")


def count_of(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
