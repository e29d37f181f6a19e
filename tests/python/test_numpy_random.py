# SPDX-License-Identifier: Apache-2.0
"""Compares random transforms, gathers and scatters with NumPy in every byte, also between and around elements."""
import pytest

np = pytest.importorskip("numpy")

import arrays
from tmad import share

BLOCK = 500  # number of random cases in one test


def make(rng, client, shape, dtype, may_broadcast):
    """Returns a base, shared or not, and a random layout of an array in it."""
    layout = arrays.Layout(rng, shape, may_broadcast)
    base = client.empty(layout.base_shape(), dtype) if rng.random() < 0.4 else np.empty(layout.base_shape(), dtype)
    arrays.fill(rng, base)
    return base, layout


def same(result, wanted):
    assert result.shape == wanted.shape
    return np.ascontiguousarray(result).tobytes() == np.ascontiguousarray(wanted).tobytes()


def check_into(call, base, layout, wanted):
    """Returns whether a call changes the array in the base to the wanted values, and nothing else."""
    after = base.copy()
    arrays.raw(layout.view(after))[...] = wanted
    out = layout.view(base)
    returned = call(out)
    assert returned is out or returned is None
    return base.tobytes() == after.tobytes()


def transform_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    dtype = arrays.dtypes()[int(rng.integers(len(arrays.dtypes())))]
    shape = arrays.random_shape(rng)
    base, layout = make(rng, client, shape, dtype, True)
    src = layout.view(base)
    if rng.random() < 0.2 and src.flags.writeable:
        src.flags.writeable = False
    permute = tuple(int(d) for d in rng.permutation(len(shape))) if rng.random() < 0.7 else None
    permuted = shape if permute is None else tuple(shape[d] for d in permute)
    pads, mode = arrays.random_pads(rng, permuted) if rng.random() < 0.6 else (None, "constant")
    value = arrays.random_value(rng, dtype) if mode == "constant" else 0
    wanted = arrays.expected(src, permute, pads, mode, value)
    what = f"{client._staging._limit} {dtype} {shape} {src.strides} {permute} {pads} {mode} {value!r}"

    def call(out):
        return client.transform(src, permute=permute, pad=pads, mode=mode, value=value, out=out)

    if rng.random() < 0.5:
        assert same(call(None), wanted), what
    else:
        out_base, out_layout = make(rng, client, wanted.shape, dtype, False)
        assert check_into(call, out_base, out_layout, wanted), f"{what} out {out_layout.view(out_base).strides}"


def blocks_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    dtype = arrays.dtypes()[int(rng.integers(len(arrays.dtypes())))]
    shape = arrays.random_shape(rng)
    if not shape or 0 in shape:
        return
    axis = int(rng.integers(len(shape)))
    n = shape[axis]
    permute = tuple(int(d) for d in rng.permutation(len(shape))) if rng.random() < 0.5 else None
    is_scatter = rng.random() < 0.5
    count = int(rng.integers(0, n + 1 if is_scatter else 2 * n + 1))
    index = rng.permutation(n)[:count] if is_scatter else rng.integers(-n, n, count)
    given = index.astype(rng.choice(["int16", "int32", "int64"])) if rng.random() < 0.6 else [int(i) for i in index]
    base, layout = make(rng, client, shape, dtype, not is_scatter)
    array = layout.view(base)
    what = f"{client._staging._limit} {dtype} {shape} {array.strides} axis {axis} {index} {permute} {is_scatter}"
    if not is_scatter:
        taken = np.take(array, index, axis)
        wanted = arrays.raw(np.ascontiguousarray(taken if permute is None else taken.transpose(permute)))
        if rng.random() < 0.5:
            assert same(client.gather(array, given, axis=axis, permute=permute), wanted), what
            return
        out_base, out_layout = make(rng, client, wanted.shape, dtype, False)
        assert check_into(lambda out: client.gather(array, given, axis=axis, permute=permute, out=out), out_base,
                          out_layout, wanted), what
        return
    part = shape[:axis] + (count,) + shape[axis + 1:]
    inverse = None if permute is None else [permute.index(d) for d in range(len(shape))]
    source = part if permute is None else tuple(part[d] for d in inverse)
    src_base, src_layout = make(rng, client, source, dtype, True)
    src = src_layout.view(src_base)
    wanted = arrays.raw(array.copy())
    wanted[(slice(None),) * axis + (index,)] = arrays.raw(np.ascontiguousarray(
        src if permute is None else src.transpose(permute)))
    assert check_into(lambda out: client.scatter(out, given, src, axis=axis, permute=permute), base, layout,
                      wanted), what


@pytest.mark.parametrize("i", range(max(1, share(20))))
def test_transforms(clients, seed, i):
    rng = np.random.default_rng([seed, 1, i])
    for k in range(BLOCK):
        try:
            transform_case(rng, clients)
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e


@pytest.mark.parametrize("i", range(max(1, share(4))))
def test_blocks(clients, seed, i):
    rng = np.random.default_rng([seed, 2, i])
    for k in range(BLOCK):
        try:
            blocks_case(rng, clients)
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e
