# SPDX-License-Identifier: Apache-2.0
"""Moves arrays that the service cannot reach: in chunks, through staging buffers in memory that is shared with it.

Each chunk is copied into a staging buffer, moved by the service into another one, and copied out. While the service
moves a chunk, the next one is copied in and the previous one is copied out. The staging memory of a move is bounded,
whatever the size of its arrays.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _core
from ._arrays import count
from ._conversion import Conversion, Inexact
from ._core import Region, Request, Tensor, Ticket
from ._errors import DisconnectedError, Error, OutOfRangeError
from ._moves import Blocks, Move
from ._scales import block_counts

# A box describes a chunk of the part of the destination that the source fills. It has the chunk's starts, counted from
# the first element of that part, and its extents.
Box = tuple[tuple[int, ...], tuple[int, ...]]

_LANES = 4  # maximum number of chunks of a move that are under way at once
_KEPT = 8  # maximum number of regions that are kept for later moves; as many threads can reuse one at once
_CHUNK = 1 << 20  # largest chunk, in bytes of one side; chunks that fit into a CPU's cache are copied faster
_ALIGNMENT = 64  # alignment of tensors in a staging buffer, in bytes


class Staging:
    """The staging memory of a client. Each move takes a region of shared memory, and at its end leaves it for a later
    move.

    A move never waits for the region of another one: while it runs, other code may run in its thread (finalizers,
    signal handlers, the caller's progress bar), and that code may move arrays itself, or wait for a thread that does. A
    move that fails does not leave its region, because a request may still be using it; the region is released with its
    last tensor.

    limit   maximum bytes of staging memory that a move takes, and that are kept for later moves; only a chunk that
            cannot be cut may take more
    """

    def __init__(self, core: _core.Client, limit: int) -> None:
        self._core = core
        self._limit = limit
        # Regions for later moves, by numbers below _KEPT. There is no lock: pop() and setdefault() are atomic.
        self._kept: dict[int, Region] = {}

    def run(
        self,
        move: Move,
        reached: Callable[[Tensor], bool],
        progress: Any = None,
        stream: tuple[int, int] | None = None,
        **order: Any,
    ) -> None:
        """Runs a move. reached: returns whether the service can reach a tensor. progress: a progress bar, or None.
        stream: the CUDA stream in which the caller uses the side that is in device memory; None: both sides are in host
        memory. order: the order of the requests (see _jobs)."""
        _Staged(self, move, reached, stream, order).run(progress)

    def run_blocks(self, blocks: Blocks, reached: Callable[[Tensor], bool], progress: Any = None, **order: Any) -> None:
        """Runs a gather or a scatter. The blocks are selected when they are copied into or out of the staging buffers.
        The other arguments are those of run."""
        dst, src = blocks.dst, blocks.src
        per_block = count(src.shape) // max(src.shape[blocks.src_axis], 1)
        n = len(blocks.index)
        step = max(1, self.chunk_bytes() // max(per_block * max(dst.itemsize, src.itemsize), 1))
        inexact = Inexact(dst, src)
        region: Region | None = None  # the first request, which is the largest, takes it for all of them
        for start in range(0, n, step):
            k = min(step, n - start)
            region = self._run_some(blocks, start, k, reached, inexact, order, region)
            if progress is not None:
                progress.update(k * per_block * (dst.itemsize + src.itemsize))
        if region is not None:
            self.leave(region)
        inexact.check()

    def _run_some(
        self,
        blocks: Blocks,
        start: int,
        k: int,
        reached: Callable[[Tensor], bool],
        inexact: Inexact,
        order: dict[str, Any],
        region: Region | None,
    ) -> Region:
        dst, src, conversion = blocks.dst, blocks.src, blocks.conversion
        result_shape = dst.shape[: blocks.dst_axis] + (k,) + dst.shape[blocks.dst_axis + 1 :]
        source_shape = src.shape[: blocks.src_axis] + (k,) + src.shape[blocks.src_axis + 1 :]
        n = count(source_shape)
        staged = [t for t in blocks.operands if not reached(t)]
        size = round_up(n * src.itemsize) + round_up(n * dst.itemsize) + sum(round_up(t.nbytes) for t in staged)
        region = region if region is not None else self.take(size)
        lane = Lane(region, 0)
        staged_src = lane.tensor(src.dtype, source_shape, src.strides)
        staged_dst = lane.tensor(dst.dtype, result_shape, dst.strides)
        if conversion is not None:
            conversion = conversion.map(lambda t: t if reached(t) else lane.copy(t))
        if blocks.index.src is None:
            staged_src.copy_from(part(src, blocks.src_axis, start, k))
        else:
            staged_src.copy_blocks(src, blocks.src_axis, blocks.index.src, start, False)
        request = Move(staged_dst, staged_src, blocks.permute, conversion=conversion).request()
        try:
            self._core.run(request, **order)
        except OutOfRangeError as e:
            inexact.add(e)
        if blocks.index.dst is None:
            part(dst, blocks.dst_axis, start, k).copy_from(staged_dst)
        else:
            dst.copy_blocks(staged_dst, blocks.dst_axis, blocks.index.dst, start, True)
        return region

    def take(self, size: int) -> Region:
        """Returns a region of shared memory of at least size bytes, which belongs to the caller until leave()."""
        for number in range(_KEPT):
            region = self._kept.pop(number, None)
            if region is not None and region.size >= size:
                return region
        region = None  # frees the region that was popped last, which is too small, before one is made
        rounded = max(1 << 16, 1 << (size - 1).bit_length())
        return self._core.create(max(size, min(rounded, self._limit)))

    def leave(self, region: Region) -> None:
        """Keeps a region for a later move, or drops it if the regions kept would exceed the limit. No request may be
        using the region any more."""
        if sum(kept.size for kept in list(self._kept.values())) + region.size <= self._limit:
            for number in range(_KEPT):
                if self._kept.setdefault(number, region) is region:
                    return

    def chunk_bytes(self, n: int = 2) -> int:
        """Returns the size of a chunk in each of n tensors, in bytes. A chunk that cannot be cut further may be
        larger."""
        return min(_CHUNK, self._limit // (n * _LANES))


class Lane:
    """The staging buffer of one chunk: the part of a region from byte `at` on, in which tensors are placed one after
    the other. A region has several lanes, which the chunks of a move use in turn."""

    def __init__(self, region: Region, at: int) -> None:
        self._region, self._at = region, at

    def tensor(self, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Places a new tensor without gaps, and returns it. Its dimensions are in memory in the order that the given
        strides have."""
        t = self._region.tensor(self._at, dtype, tuple(shape), dense_like(shape, strides))
        self._at += round_up(t.nbytes)
        return t

    def copy(self, t: Tensor) -> Tensor:
        """Places a copy of a tensor that is in this process's memory, and returns the copy."""
        copy = self.tensor(t.dtype, t.shape, t.strides)
        copy.copy_from(t)
        return copy

    def place(self, t: Tensor, written: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Places a tensor that is written instead of t, which is in this process's memory, and returns it. Appends both
        to written, so that the caller can copy the placed one back to t."""
        staged = self.tensor(t.dtype, t.shape, t.strides)
        written.append((staged, t))
        return staged


class _Staged:
    """One move under way.

    has_...   whether the service can reach a tensor, so that it is not staged
    grain     extents of a block that has a scale of its own; a chunk consists of whole blocks; 1 without scales
    n         extents of the permuted source
    before    width of the border before each dimension of the source, negative where it is cropped
    after     width of the border after each dimension, negative where it is cropped
    low       first index that the source fills in each dimension of the destination
    high      index after the last one that the source fills; what is outside of low to high is border
    extents   high - low
    chunk     extents of a chunk, in elements of the destination
    is_cut    whether each dimension is divided into chunks; the border of such a dimension is filled at the end
    """

    def __init__(
        self,
        staging: Staging,
        move: Move,
        reached: Callable[[Tensor], bool],
        stream: tuple[int, int] | None,
        order: dict[str, Any],
    ) -> None:
        self.staging, self.core, self.move, self.stream, self.order = staging, staging._core, move, stream, order
        dst, src = move.dst, move.src
        self.has_dst, self.has_src = reached(dst), reached(src)
        self.has_operand = [reached(t) for t in move.operands]
        self.has_result = [reached(t) for t in move.results]
        amax = move.conversion.amax if move.conversion is not None else None
        self.grain = amax.block if amax is not None else (1,) * dst.ndim
        self.inexact = Inexact(dst, src)
        rank = dst.ndim
        self.permute = move.permute if move.permute is not None else tuple(range(rank))
        self.before = move.before or (0,) * rank
        self.after = move.after or (0,) * rank
        n = tuple(src.shape[d] for d in self.permute)
        self.low = tuple(max(0, b) for b in self.before)
        self.high = tuple(
            max(lo, min(m, b + e)) for lo, m, b, e in zip(self.low, dst.shape, self.before, n, strict=True)
        )
        self.extents = tuple(hi - lo for lo, hi in zip(self.low, self.high, strict=True))
        self.n = n
        self.chunk, self.is_cut = self._choose_chunk()

    def _choose_chunk(self) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        """Returns the extents of a chunk that fits into a staging buffer, and which dimensions it cuts. The dimensions
        that are outer ones on both sides are halved first, so that copies keep long contiguous runs. Blocks that have a
        scale are not cut, even if one alone does not fit."""
        dst, src = self.move.dst, self.move.src
        limit = self.staging.chunk_bytes(2 + len(self.move.operands) + len(self.move.results))
        chunk = list(self.extents)
        # The border of a dimension that is cut is filled by this process, from the elements inside. That is not
        # possible in device memory, nor where elements that the border repeats are cropped, so such dimensions are not
        # cut.
        fixed = [
            (b > 0 or a > 0) and (not dst.is_host or (self.move.mode != "constant" and (b < 0 or a < 0)))
            for b, a in zip(self.before, self.after, strict=True)
        ]

        def rank_of(d: int) -> tuple[int, int]:
            return min(abs(dst.strides[d]), abs(src.strides[self.permute[d]]) or 1 << 62), chunk[d]

        cut = [False] * len(chunk)
        while self._bytes(chunk, cut) > limit and 0 not in chunk:
            # The first cut of a dimension that has borders only removes them from the chunk; later ones halve its
            # extent.
            choice = [
                d
                for d in range(len(chunk))
                if not fixed[d] and (chunk[d] > self.grain[d] or (not cut[d] and dst.shape[d] > chunk[d]))
            ]
            if not choice:
                break
            d = max(choice, key=rank_of)
            if cut[d] or dst.shape[d] == chunk[d]:
                chunk[d] = -(-chunk[d] // (2 * self.grain[d])) * self.grain[d]
            cut[d] = True
        return tuple(chunk), tuple(cut)

    def _bytes(self, chunk: Sequence[int], cut: Sequence[bool]) -> int:
        """Returns the size in bytes of a chunk in the tensor where it is largest, with the borders of dimensions that
        are not cut."""
        move = self.move
        dst = tuple(c if is_cut else m for m, c, is_cut in zip(move.dst.shape, chunk, cut, strict=True))
        src = tuple(c if is_cut else n for n, c, is_cut in zip(self.n, chunk, cut, strict=True))
        sizes = [count(dst) * move.dst.itemsize, count(src) * move.src.itemsize]
        for t in move.operands:
            sizes.append(count([min(m, n) for m, n in zip(t.shape, src, strict=True)]) * t.itemsize)
        for t in move.results:
            sizes.append(count(block_counts(dst, self.grain)) * t.itemsize)
        return max(sizes)

    def boxes(self) -> Iterator[Box]:
        """Yields the chunks, in C order."""
        if 0 in self.extents:
            yield (0,) * len(self.extents), self.extents
            return
        starts = [0] * len(self.chunk)
        while True:
            yield (
                tuple(starts),
                tuple(min(c, e - s) for c, e, s in zip(self.chunk, self.extents, starts, strict=True)),
            )
            for d in reversed(range(len(starts))):
                starts[d] += self.chunk[d]
                if starts[d] < self.extents[d]:
                    break
                starts[d] = 0
            else:
                return

    def part(self, box: Box) -> Move:
        """Returns the move of a chunk, with the borders of the dimensions that are not cut."""
        move, dst, src = self.move, self.move.dst, self.move.src
        dst_starts, dst_extents, before, after = [], [], [], []
        src_starts, src_extents = [0] * src.ndim, [0] * src.ndim
        for d, (start, extent) in enumerate(zip(*box, strict=True)):
            if self.is_cut[d]:
                dst_starts.append(self.low[d] + start)
                dst_extents.append(extent)
                before.append(0)
                after.append(0)
                src_starts[self.permute[d]] = self.low[d] + start - self.before[d]
                src_extents[self.permute[d]] = extent
            else:
                dst_starts.append(0)
                dst_extents.append(dst.shape[d])
                before.append(self.before[d])
                after.append(self.after[d])
                src_extents[self.permute[d]] = self.n[d]
        conversion = move.conversion
        if conversion is not None:
            conversion = conversion.box([src_starts[d] for d in self.permute], [src_extents[d] for d in self.permute])
            if conversion.amax is not None:
                amax = conversion.amax.box(dst_starts, dst_extents)
                conversion = Conversion(conversion.cast, None, None, amax)
        return Move(
            sub(dst, dst_starts, dst_extents),
            sub(src, src_starts, src_extents),
            self.permute,
            tuple(before),
            tuple(after),
            move.mode,
            move.value,
            conversion,
        )

    def lane_bytes(self, first: Move) -> int:
        """Returns the size of the staging buffer that a chunk needs, in bytes. first: the move of the first chunk,
        which is the largest."""
        staged = [t for t, has in zip(first.operands, self.has_operand, strict=True) if not has]
        staged += [t for t, has in zip(first.results, self.has_result, strict=True) if not has]
        staged += [t for t, has in ((first.dst, self.has_dst), (first.src, self.has_src)) if not has]
        return sum(round_up(t.nbytes) for t in staged)

    def run(self, progress: Any) -> None:
        if 0 in self.extents and self.move.mode == "constant" and self.move.dst.is_host:
            fill(self.move.dst, self.move.value)
            return
        boxes = list(self.boxes())
        lane_bytes = self.lane_bytes(self.part(boxes[0]))
        lanes = max(1, min(_LANES, len(boxes), self.staging._limit // max(1, lane_bytes)))
        region = self.staging.take(max(1, lanes * lane_bytes))
        under_way: deque[tuple[Ticket | None, Request, Move, list[tuple[Tensor, Tensor]]]] = deque()
        requests: list[Request | None] = [None] * lanes  # the last request of each lane, noted before it is submitted
        try:
            for i, box in enumerate(boxes):
                if len(under_way) == lanes:
                    self.finish(*under_way.popleft(), progress)
                lane, move = Lane(region, i % lanes * lane_bytes), self.part(box)
                written: list[tuple[Tensor, Tensor]] = []  # tensors in the lane, each with the one it is copied back to
                if not self.has_src:
                    move.src = lane.copy(move.src)
                if move.conversion is not None:
                    both = zip(move.operands, self.has_operand, strict=True)
                    conversion = move.conversion.replaced([t if has else lane.copy(t) for t, has in both])
                    both = zip(move.results, self.has_result, strict=True)
                    move.conversion = conversion.writing([t if has else lane.place(t, written) for t, has in both])
                if not self.has_dst:
                    move.dst = lane.place(move.dst, written)
                requests[i % lanes] = request = move.request()
                under_way.append((self.submit(request), request, move, written))
            while under_way:
                self.finish(*under_way.popleft(), progress)
        except BaseException:
            with contextlib.suppress(Error):  # the first error is the one to raise
                self.settle(requests)
            under_way.clear()  # forgets the requests now: the exception keeps this frame alive
            raise
        self.staging.leave(region)
        for d in range(self.move.dst.ndim):
            if self.is_cut[d]:
                fill_border(self, d)
        self.inexact.check()

    def settle(self, requests: list[Request | None]) -> None:
        """Waits until no request writes into the caller's arrays any more."""
        if self.stream is not None:
            self.core.synchronize()
        elif self.has_dst or any(self.has_result):
            for request in requests:
                if request is not None:
                    self.core.settle(request)

    def submit(self, request: Request) -> Ticket | None:
        if self.stream is not None:
            self.core.enqueue(request, self.stream, **self.order)
            return None
        try:
            return self.core.submit(request, None, **self.order)
        except DisconnectedError:
            self.core.ping()  # connects again, as long as the client may try
            return self.core.submit(request, None, **self.order)

    def finish(
        self, ticket: Ticket | None, request: Request, move: Move, written: list[tuple[Tensor, Tensor]], progress: Any
    ) -> None:
        try:
            self.wait(ticket, request)
        except OutOfRangeError as e:
            self.inexact.add(e)
        for staged, t in written:
            t.copy_from(staged)
        if progress is not None:
            progress.update(move.dst.nbytes + move.dst.size * move.src.itemsize)

    def wait(self, ticket: Ticket | None, request: Request) -> None:
        try:
            self.core.synchronize() if ticket is None else self.core.wait(ticket)
        except DisconnectedError:
            if ticket is None:
                raise
            self.core.run(request, **self.order)  # moving a chunk twice has the same result as moving it once


# ---- Borders -------------------------------------------------------------------------------------------


def fill_border(staged: _Staged, d: int) -> None:
    """Fills the border of dimension d, which is divided into chunks, over all other dimensions: with the constant,
    or with copies of the elements inside."""
    dst, mode = staged.move.dst, staged.move.mode
    low, high, end = staged.low[d], staged.high[d], dst.shape[d]
    if mode == "constant":
        fill(part(dst, d, 0, low), staged.move.value)
        fill(part(dst, d, high, end - high), staged.move.value)
        return
    rows = [*range(low), *range(high, end)]
    sources = [source_of(i - staged.before[d], staged.n[d], mode) + staged.before[d] for i in rows]
    at = 0
    # Each copy fills a run of rows: from rows that are adjacent in one direction, or from a single row.
    while at < len(rows):
        n, step = 1, 0
        while at + n < len(rows) and rows[at + n] == rows[at] + n:
            s = sources[at + n] - sources[at + n - 1]
            if n > 1 and s != step or abs(s) > 1:
                break
            step, n = s, n + 1
        shape = dst.shape[:d] + (n,) + dst.shape[d + 1 :]
        strides = dst.strides[:d] + (step * dst.strides[d],) + dst.strides[d + 1 :]
        part(dst, d, rows[at], n).copy_from(dst.part(sources[at] * dst.strides[d], shape, strides))
        at += n


def fill(dst: Tensor, value: Any) -> None:
    """Fills a tensor with one number."""
    if dst.size == 0:
        return
    element = Tensor(bytearray(_core.encode_number(dst.dtype, value))).viewed(dst.dtype, ())
    dst.copy_from(element.part(0, dst.shape, (0,) * dst.ndim))


def source_of(i: int, n: int, mode: str) -> int:
    """Returns which of n elements one of np.pad's modes puts at coordinate i, which is outside of 0 to n - 1."""
    if mode == "edge":
        return min(max(i, 0), n - 1)
    if mode == "wrap":
        return i % n
    if mode == "symmetric":
        i %= 2 * n
        return i if i < n else 2 * n - 1 - i
    if n == 1:
        return 0
    i %= 2 * (n - 1)  # the mode is "reflect"
    return i if i < n else 2 * (n - 1) - i


# ---- Tensors -------------------------------------------------------------------------------------------


def round_up(size: int) -> int:
    """Returns a size in bytes, rounded up to _ALIGNMENT."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def sub(t: Tensor, starts: Sequence[int], extents: Sequence[int]) -> Tensor:
    """Returns the part of a tensor with these starts and extents."""
    offset = sum(s * stride for s, stride in zip(starts, t.strides, strict=True))
    return t.part(offset if 0 not in extents else 0, tuple(extents), t.strides)


def part(t: Tensor, axis: int, start: int, n: int) -> Tensor:
    """Returns n entries of a tensor along an axis, from entry start on."""
    shape = t.shape[:axis] + (n,) + t.shape[axis + 1 :]
    return t.part(start * t.strides[axis] if 0 not in shape else 0, shape, t.strides)


def dense_like(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Returns strides without gaps for a shape. They put the dimensions into memory in the order that the given strides
    have, so that a copy between the two layouts has the longest contiguous runs."""
    order = sorted(range(len(shape)), key=lambda d: abs(strides[d]) if shape[d] > 1 else 0, reverse=True)
    result, step = [0] * len(shape), 1
    for d in reversed(order):
        result[d] = step
        step *= max(shape[d], 1)
    return tuple(result)
