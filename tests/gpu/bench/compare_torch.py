# SPDX-License-Identifier: Apache-2.0
"""A row in torch: its tensors, made again from its request, and the operation by eager torch and by torch.compile.

A source and its destination are views of two arenas. `places` of them, side by side, are twice as large as the
device's L2, as in bench_gpu, and calls take one after the other.
"""
import sys

import torch
from torch._inductor.runtime import triton_heuristics
from torch.nn import functional

from compare_rows import read_report

ALIGN = 256
LOW, HIGH = 16, 64  # bytes of random data: as the highest byte of a float, they make no NaN and nothing denormal
TORCH_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def pitch_of(row):
    """Returns the bytes from one place to the next on either side, as in bench_gpu."""
    most = max(row.src_elements * row.element, row.dst_elements * row.element, int(row.bytes) // 2)
    return (most // ALIGN + 2) * ALIGN


def random_arena(size, device):
    return torch.randint(LOW, HIGH, (size,), dtype=torch.uint8, device=device)


def source(row, arena, place=0):
    """Returns the source at a place, with reversed axes turned around, since torch has no negative strides."""
    start = place * pitch_of(row) // row.element + row.src_low
    typed = arena[:arena.numel() // row.element * row.element].view(getattr(torch, row.dtype))
    return typed.as_strided(row.shape, tuple(map(abs, row.strides)), start)


def destination(row, arena, place=0):
    start = place * pitch_of(row) // row.element + row.dst_offset
    n = row.dst_elements - row.dst_offset
    return arena[:arena.numel() // row.element * row.element].view(getattr(torch, row.dtype))[start:start + n].view(
        row.dst_shape)


# ---- The operation ---------------------------------------------------------------------------------------------------


def viewer(row):
    """Returns a function from a source to what the destination shows of it, without its border: a view, or a copy where
    eager torch reverses an axis. What depends only on the row is computed here, once."""
    backwards, perm = row.reversed, row.perm
    kept = [(axis, max(-before, 0), row.shape[row.perm[axis]] - max(-before, 0) - max(-after, 0))
            for axis, (before, after) in enumerate(zip(row.before, row.after)) if min(before, after) < 0]

    def view(src):
        ret = (src.flip(backwards) if backwards else src).permute(perm)
        for axis, start, n in kept:
            ret = ret.narrow(axis, start, n)
        return ret

    return view


def border_of(row):
    return tuple(zip((max(n, 0) for n in row.before), (max(n, 0) for n in row.after)))


def padded_axes(row):
    """Returns how many of the innermost axes include all padded ones."""
    return max((len(row.before) - axis for axis, sides in enumerate(border_of(row)) if any(sides)), default=0)


def takes_pad(row, is_compiled):
    """Returns whether torch.nn.functional.pad supports the row: modes other than constant work on the innermost one to
    three axes with one or two axes around them, and in eager torch only for floats."""
    n = padded_axes(row)
    return (row.mode == "constant" or n == 0 or
            row.mode in TORCH_MODES and n <= 3 and len(row.before) - n in (1, 2) and
            (is_compiled or row.dtype.startswith(("float", "bfloat"))))


def pad_arguments(row):
    """Returns the arguments of torch.nn.functional.pad after the tensor."""
    flat = [n for sides in reversed(border_of(row)) for n in sides]
    if row.mode == "constant":
        return flat, "constant", row.value
    return flat[:2 * padded_axes(row)], TORCH_MODES[row.mode]


def index_of(n, before, after, mode):
    """Returns, for each element along a padded axis, the element of which it is a copy."""
    at = torch.arange(-before, n + after)
    if mode == "edge":
        return at.clamp(0, n - 1)
    if mode == "wrap":
        return at % n
    period = 2 * n if mode == "symmetric" else max(2 * n - 2, 1)
    at = at % period
    return torch.where(at < n, at, period - at - int(mode == "symmetric"))


def indices_of(row, device):
    """Yields each padded axis, and the indexes along it."""
    return [(axis, index_of(row.dst_shape[axis] - before - after, before, after, row.mode).to(device))
            for axis, (before, after) in enumerate(border_of(row)) if before or after]


def operation(row, device, is_compiled):
    """Returns a function of the source whose result has the destination's values: a view of it if there is no
    border."""
    view = viewer(row)
    if not padded_axes(row):
        return view
    if takes_pad(row, is_compiled):
        arguments = pad_arguments(row)
        return lambda src: functional.pad(view(src), *arguments)
    indices = indices_of(row, device)

    def result(src):
        ret = view(src)
        for axis, index in indices:
            ret = ret.index_select(axis, index)
        return ret

    return result


def eager(row, device):
    """Returns run(dst, src), which returns what it filled: a new tensor for a pad, as in a program, otherwise dst."""
    result = operation(row, device, False)
    if padded_axes(row):
        return lambda dst, src: result(src).contiguous()
    return lambda dst, src: dst.copy_(result(src))


def compiled(row, device):
    """Returns the same by torch.compile, which may fuse the operation with the copy into dst."""
    result = operation(row, device, True)
    torch._dynamo.reset()
    return torch.compile(lambda dst, src: dst.copy_(result(src)), dynamic=False, fullgraph=True)


def same_bytes(a, b):
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


# ---- Compiling ahead -------------------------------------------------------------------------------------------------


def compile_only(limit, first, step, device="cuda"):
    """Compiles some of the first rows of the report on stdin into torch's cache on disk without running them, so that
    the process that measures finds them there. Takes no time of the device."""
    triton_heuristics.CachingAutotuner.run = lambda self, *args, **kwargs: None
    _, rows = read_report(sys.stdin.read())
    with torch.no_grad():
        for row in rows[:limit][first::step]:
            dst, src = (torch.empty(pitch_of(row), dtype=torch.uint8, device=device) for _ in range(2))
            try:
                compiled(row, device)(destination(row, dst), source(row, src))
            except Exception as error:  # pylint: disable=broad-except  # the process that measures meets it again
                print(f"{row.label}: {str(error).splitlines()[0]}", file=sys.stderr)
            del dst, src
            if device == "cuda":
                torch.cuda.empty_cache()
