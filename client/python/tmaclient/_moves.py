# SPDX-License-Identifier: Apache-2.0
"""From arguments in NumPy's manner to requests: what is moved, whoever runs it."""

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

MOST_LAYERS = 1024  # of a request
_PLACE_BYTES = 16  # of a layer, in a request that has each by itself
_LIST_BYTES = 48 << 10  # A list that is sent has at most so many bytes, and its request 64 KiB.

Mode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
MODES: tuple[Mode, ...] = ("constant", "edge", "reflect", "symmetric", "wrap")


class _Converting:
    """What moves have in common: how elements are converted, if they are."""

    __slots__ = ("conversion",)
    conversion: Conversion | None

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The tensors that it converts by."""
        return self.conversion.tensors if self.conversion is not None else ()

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that it writes beside dst."""
        return self.conversion.results if self.conversion is not None else ()


class Move(_Converting):
    """One transform: dst = pad(cast(permute(src) * scale + bias)). What it lacks is None."""

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
        self.further: tuple[Tensor, ...] = ()  # destinations that get what dst gets

    @property
    def sides(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """dst and src, as Blocks have them."""
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
        """Refuses what the service would, of memory that it is not shown: before anything is staged."""
        written = [("out", self.dst)]  # what is read may lie in it: it is copied first
        if self.conversion is not None and self.conversion.amax is not None:
            both = ("amax.scale", self.conversion.amax.scale), ("amax.inverse", self.conversion.amax.inverse)
            written += [(name, t) for name, t in both if t is not None]
        _core.check_apart(written, [])
        if self.before is not None and self.mode == "constant":
            _core.encode_number(self.dst.dtype, self.value)

    def requests(self, core: _core.Client) -> list[Request]:
        """The requests that it takes: one."""
        return [self.request(core)]

    def request(self, core: _core.Client | None = None) -> Request:
        """The request of it."""
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
    """A gather, a scatter or both: blocks of src along src_axis become, permuted, blocks of dst along dst_axis. The
    index says which; a side that it has no numbers of has as many blocks as the index has entries. The operands of a
    conversion have an extent of 1 along dst_axis.

    With layers, those of dst and those of src, all of that is of each layer, and dst and src are the first."""

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
        """All that it writes, and all that it reads but for operands."""
        if self.layers is None:
            return (self.dst,), (self.src,)
        return self.layers[0].pieces, self.layers[1].pieces

    def place(self, dst: Layers, src: Layers) -> None:
        """Has the layers in other memory."""
        self.layers, self.dst, self.src = (dst, src), dst.first, src.first

    def each(self) -> Iterator[Blocks]:
        """The moves of its layers, one by one."""
        if self.layers is None:
            yield self
            return
        for dst, src in zip(self.layers[0].tensors, self.layers[1].tensors, strict=True):
            yield Blocks(dst, src, self.index, self.dst_axis, self.src_axis, self.permute, self.conversion)

    @property
    def place_bytes(self) -> int:
        """What places of layers take of its largest request."""
        sides = [side for side in self.layers or () if not side.has_step]
        return sum(_PLACE_BYTES * min(len(side), MOST_LAYERS) for side in sides)

    @property
    def is_nothing(self) -> bool:
        """Whether there is no element to move."""
        return len(self.index) == 0 or self.dst.size == 0 or self.src.size == 0

    @property
    def is_one_pool(self) -> bool:
        """Returns whether dst and src are the same blocks, so that the pairs move blocks within one pool."""
        if not self.index.has_pairs or self.dst_axis != self.src_axis:
            return False
        sides = ((self.dst,), (self.src,)) if self.layers is None else (side.tensors for side in self.layers)
        return all(
            (d.data, d.dtype, d.shape, d.strides) == (s.data, s.dtype, s.shape, s.strides)
            for d, s in zip(*sides, strict=True)
        )

    def check(self) -> None:
        """Does as Move.check; the index was checked when it was parsed."""
        if self.is_nothing:
            return
        _core.check_apart(self._named(0), [])

    def _named(self, side: int) -> list[tuple[str, Tensor]]:
        """The tensors of a side, with their names in errors."""
        name = "src" if side == 1 else "out" if self.index.dst is None else "dst"
        is_one = self.layers is None or self.layers[side].whole is not None
        return [(name if is_one else f"{name}[{i}]", t) for i, t in enumerate(self.sides[side])]

    def block_permute(self) -> tuple[int, ...] | None:
        """The permutation of a block, which lacks the axis."""
        if self.permute is None:
            return None
        return tuple(d - (d > self.src_axis) for d in self.permute if d != self.src_axis)

    def request(self, core: _core.Client) -> Request:
        """The request of it, of MOST_LAYERS layers at most."""
        (request,) = self.requests(core)
        return request

    def requests(self, core: _core.Client) -> list[Request]:
        """All that it takes, of tensors that the service has. Blocks are numbered in the order of addresses there."""
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
    """As many of both as a request has. Of one of the two, a request has each layer by itself."""
    for at in range(0, len(dst), MOST_LAYERS):
        some = slice(at, at + MOST_LAYERS)
        yield (dst, src) if len(dst) <= MOST_LAYERS else (dst[some], src[some])


def _step(t: Tensor, axis: int) -> int:
    """Bytes from block to block, in the direction of addresses. 0 would stand for the size of a block."""
    return (abs(t.strides[axis]) or 1) * t.itemsize


def _block(t: Tensor, axis: int) -> Tensor:
    """The block at the lowest address."""
    extent, stride = t.shape[axis], t.strides[axis]
    at = (extent - 1) * stride if stride < 0 and extent > 0 else 0
    return t.part(at, t.shape[:axis] + t.shape[axis + 1 :], t.strides[:axis] + t.strides[axis + 1 :])


class Index:
    """A list of blocks, with an entry for each: its number in src (a gather), in dst (a scatter), or both in a pair. On
    a side that it has no numbers of, entry i is block i. A list on the host is checked, and of int64; the service
    checks one in device memory."""

    def __init__(self, tensor: Tensor, is_scatter: bool = False, device: Array | None = None) -> None:
        self.tensor, self.device = tensor, device
        self._is_scatter = is_scatter
        self._shared: Tensor | None = None  # a copy that the service reads, once there is one
        self.message_bytes = _LIST_BYTES  # A longer list is not sent.

    def __len__(self) -> int:
        return self.tensor.shape[0]

    @property
    def has_pairs(self) -> bool:
        """Returns whether it has numbers of both sides."""
        return self.tensor.ndim == 2

    @property
    def src(self) -> Tensor | None:
        """Returns the numbers of blocks of src, if it has them."""
        return self._column(0) if self.has_pairs else None if self._is_scatter else self.tensor

    @property
    def dst(self) -> Tensor | None:
        """Returns the numbers of blocks of dst, if it has them."""
        return self._column(1) if self.has_pairs else self.tensor if self._is_scatter else None

    def _column(self, i: int) -> Tensor:
        return self.tensor.part(i, (len(self),), (2,))

    @classmethod
    def parse(cls, given: Any, src: int | None = None, dst: int | None = None) -> Index:
        """Takes an array, a list or a tensor on a device: numbers of so many blocks of src or of dst, or pairs of both.
        Negative ones count from the end, as in NumPy. No two may name one block of dst; in a list on a device the
        caller sees to that."""
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
        """Refuses pairs of one pool of which a block is both read and written."""
        if self.device is not None:
            raise OverlapError(
                "pairs: dst and src are the same blocks, and a list on a device does not prove that none is read and "
                "written; pass it on the host"
            )
        _core.check_pool(self.tensor)

    def flipped(self, src: int | None, dst: int | None) -> Index:
        """Returns the list for sides whose blocks, so many, are numbered backwards. None stands for any other side."""
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
        """Returns the list for blocks of src that are all the first one."""
        if self.has_pairs:
            self._check_host("src with a stride of 0")
        return self._of([0] * len(self), None if self.dst is None else self._columns()[1])

    def _check_host(self, what: str) -> None:
        if self.device is not None:
            name = "pairs" if self.has_pairs else "index"
            raise ValueError(f"{name}: a list on a device takes no {what} along the axis")

    def _columns(self) -> list[list[int] | None]:
        """Returns the numbers of either side, or None for one that it has none of."""
        return [None if column is None else memoryview(column).tolist() for column in (self.src, self.dst)]

    def _of(self, src: list[int] | None, dst: list[int] | None) -> Index:
        if src is None or dst is None:
            return Index(Tensor(_int64(src or dst or [])), src is None)
        return Index(_paired(Tensor(_int64([n for pair in zip(src, dst, strict=True) for n in pair]))))

    def is_sent(self, beside: int) -> bool:
        """Whether it goes with a request that has so many bytes beside it."""
        return self.device is None and self.tensor.nbytes <= self.message_bytes - beside

    @property
    def is_near(self) -> bool:
        """Whether a device needs no shared memory to read it: it is on one, or goes with the request."""
        return self.device is not None or self.is_sent(0)

    def parts(self, beside: int) -> Iterator[Index]:
        """Yields the list, which is on the host, in parts that are each sent with a request."""
        row = dense(self.tensor.shape)[0]
        most = max(1, (_LIST_BYTES - beside) // (row * self.tensor.itemsize))
        for at in range(0, len(self), most):
            shape = (min(most, len(self) - at), *self.tensor.shape[1:])
            yield Index(self.tensor.part(at * row, shape, dense(shape)), self._is_scatter)

    def placed(self, core: _core.Client, beside: int = 0) -> tuple[Tensor, bool]:
        """Its tensor, and whether it is read where it is, by the service or by this process without one."""
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
    """Returns a flat list of numbers as pairs, [n, 2]."""
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
    """Returns an array of numbers, of which none is valid from most on."""
    try:
        return _int64(given)
    except OverflowError:
        far = max((integer(i, name) for i in given), key=abs)
        raise OutOfRangeError(f"{name}: {far} is beyond any of {most} blocks") from None
    except TypeError:
        return _int64([integer(i, name) for i in given])  # This says what is no integer.


# ---- Arguments -----------------------------------------------------------------------------------------


def integer(x: Any, name: str) -> int:
    """A number that an argument is."""
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name}: {x!r} is no integer") from None


def sequence(x: Any, name: str) -> list[Any]:
    """What an argument lists."""
    try:
        return list(x)
    except TypeError:
        raise TypeError(f"{name}: {x!r} is no sequence") from None


def parse_axes(axes: Any, rank: int, name: str) -> tuple[int, ...] | None:
    """A permutation, each axis once; negative axes count from the end. None stands for none."""
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
    """An axis; a negative one counts from the end."""
    n = integer(axis, name)
    if not -rank <= n < rank:
        raise IndexError(f"{name}: {n} is no axis of an array of {rank} dimensions")
    return n % rank


def parse_pad(pad: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """np.pad's pad_width: a number, a pair for every axis, a pair for each axis, or a dict of axes. None: none."""
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
    """np.pad's constant_values, which must be one value: pads of several constants are several requests."""
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
    """The shape of permute(src)."""
    return src.shape if permute is None else tuple(src.shape[d] for d in permute)


def result_shape(src: Tensor, permute: Sequence[int] | None, pads: Any, itemsize: int) -> tuple[int, ...]:
    """The same, padded, with elements of a size that it has to be countable with."""
    shape = permuted_shape(src, permute)
    padded = tuple(n + b + a for n, b, a in zip(shape, *pads, strict=True))
    for d, (n, b, a) in enumerate(zip(shape, *pads, strict=True)):
        if (b < 0 or a < 0) and n + min(b, 0) + min(a, 0) < 1:
            raise ValueError(f"pad: ({b}, {a}) crops all of axis {d}, which has {n} elements")
    if count(padded) * itemsize >= 1 << 63 or max(map(abs, pads[0] + pads[1] + padded), default=0) >> 63:
        raise ValueError(f"pad: the result would be {list(padded)}, which is more than can be counted")
    return padded


def parse_out(out: Any, shape: Sequence[int], dtype: str | None, name: str = "out") -> Array:
    """An array for the result, of the result's shape and type. dtype None: of any type."""
    array = adapt(out, name)
    check_out(array.tensor, shape, dtype, name)
    return array


def parse_outs(outs: Any, layers: int, shape: Sequence[int], dtype: str | None, name: str = "out") -> Layers:
    """The same of so many results: one array with all of them in front, or a list of arrays."""
    if not is_layered(outs):
        return Layers.stacked(parse_out(outs, (layers, *shape), dtype, name))
    each = Layers.parse(outs, name)
    if len(each) != layers:
        raise ValueError(f"{name}: {count_of(len(each), 'layer')}; the result has {layers}")
    for i, t in enumerate(each.tensors):
        check_out(t, shape, dtype, f"{name}[{i}]")
    return each


def check_out(t: Tensor, shape: Sequence[int], dtype: str | None, name: str) -> None:
    """Refuses what is not as a result, or may not be written."""
    dtype = dtype or t.dtype
    if t.shape != tuple(shape) or t.dtype != dtype:
        raise ValueError(f"{name}: {t.dtype} {list(t.shape)}; the result is {dtype} {list(shape)}")
    check_writable(t, name)


def check_writable(t: Tensor, name: str) -> None:
    if t.readonly:
        raise ValueError(f"{name}: the array is read-only")


def layout_words(t: Tensor) -> str:
    """Names type and shape, and strides unless they are those of C order."""
    is_dense = all(n == 1 or s == d for n, s, d in zip(t.shape, t.strides, dense(t.shape), strict=True))
    return f"{t.dtype} {t.shape}" + ("" if is_dense or t.size == 0 else f" with strides {t.strides}")


def count_of(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
