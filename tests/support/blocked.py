# SPDX-License-Identifier: Apache-2.0
"""Splits in NumPy, by pad, reshape and transpose; and random splits."""
import numpy as np


def view_shape(shape, split):
    """Returns the shape of the view that the splits make."""
    shape = list(shape)
    for d, n in zip(split[::2], split[1::2]):
        shape[d:d + 1] = [-(-shape[d] // n), n]
    return shape


def blocked(array, split, value):
    """Returns the view of an array, with each split dimension padded to whole blocks and reshaped."""
    for d, n in zip(split[::2], split[1::2]):
        pads = [(0, -array.shape[d] % n if i == d else 0) for i in range(array.ndim)]
        shape = view_shape(array.shape, (d, n))
        array = np.pad(array, pads, constant_values=value).reshape(shape)
    return array


def plain(view, shape, split):
    """Returns the part of a view that exists in a tensor of this shape."""
    shapes = [list(shape)]
    for d, n in zip(split[::2], split[1::2]):
        shapes.append(view_shape(shapes[-1], (d, n)))
    for (d, n), before in zip(reversed(list(zip(split[::2], split[1::2]))), reversed(shapes[:-1])):
        joined = view.shape[:d] + (view.shape[d] * n,) + view.shape[d + 2:]
        view = view.reshape(joined)[tuple(slice(before[i] if i == d else None) for i in range(len(joined)))]
    return view


def moved(array, src_split, perm, dst_shape, dst_split, value):
    return plain(blocked(array, src_split, value).transpose(perm), dst_shape, dst_split)


def joins_of(shape, split):
    """Returns an output's splits as --join writes them: dimensions, and their extents once joined."""
    shapes = [list(shape)]
    for d, n in zip(split[::2], split[1::2]):
        shapes.append(view_shape(shapes[-1], (d, n)))
    return [(d, before[d]) for d, before in zip(reversed(split[::2]), reversed(shapes[:-1]))]


def random_splits(draw, extents, first):
    """Returns random pairs that split dimension first into these extents, from the outermost or from the innermost."""
    n = len(extents)
    inner = [int(np.prod(extents[i:], dtype=np.int64)) for i in range(1, n)]
    if draw.random() < 0.5:
        return [x for i in range(n - 1) for x in (first + i, inner[i])]
    return [x for i in range(n - 1, 0, -1) for x in (first, extents[i])]


def random_view(draw, extents):
    """Returns a shape, sometimes ragged, and its splits into these extents."""
    shape, split, d = [], [], 0
    while d < len(extents):
        n = min(draw.choice((1, 1, 2, 2, 3)), len(extents) - d)
        inner = int(np.prod(extents[d + 1:d + n], dtype=np.int64))
        shape.append(extents[d] * inner if n == 1 or draw.random() < 0.25
                     else (extents[d] - 1) * inner + draw.randint(1, inner))
        split += random_splits(draw, extents[d:d + n], d)
        d += n
    return shape, split
