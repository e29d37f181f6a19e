# SPDX-License-Identifier: Apache-2.0
"""Gathers and scatters of layers: lists of arrays, wherever each one is, against NumPy's stack of them."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import arrays
import tmaclient as tma
from tmaclient._moves import Layers
from tmad import share

CASES = 150  # of a test


def bases(rng, client, layout, n, dtype, memory):
    """A base for each layer: in shared memory, in memory of this process, some in either, or all in one array."""
    shape = layout.base_shape()
    if memory == "one":
        whole = client.empty((n, *shape), dtype)
        made = list(whole)
    else:
        is_shared = [memory == "shared" or (memory == "mixed" and rng.random() < 0.5) for _ in range(n)]
        made = [client.empty(shape, dtype) if shared else np.empty(shape, dtype) for shared in is_shared]
    for base in made:
        arrays.fill(rng, base)
    return made


def check_into(call, made, layout, wanted, what):
    """Only the arrays in the bases change, and to what is wanted."""
    after = [base.copy() for base in made]
    for base, one in zip(after, wanted, strict=True):
        arrays.raw(layout.view(base))[...] = one
    call([layout.view(base) for base in made])
    for i, (base, one) in enumerate(zip(made, after, strict=True)):
        assert base.tobytes() == one.tobytes(), f"{what}: layer {i}"


class Case:
    """Layers of any layout, an axis of them, an index and a permutation."""

    def __init__(self, rng, clients):
        self.rng, self.client = rng, clients[int(rng.integers(len(clients)))]
        self.dtype = arrays.dtypes()[int(rng.integers(len(arrays.dtypes())))]
        self.n = int(rng.choice([1, 2, 3, 7]))
        while True:
            self.shape = arrays.random_shape(rng, 2000)
            if self.shape and 0 not in self.shape and len(self.shape) < 6:
                break
        self.axis = int(rng.integers(len(self.shape)))
        self.permute = tuple(int(d) for d in rng.permutation(len(self.shape))) if rng.random() < 0.5 else None
        self.is_scatter = rng.random() < 0.5
        extent = self.shape[self.axis]
        count = int(rng.integers(0, extent + 1 if self.is_scatter else 2 * extent + 1))
        self.index = rng.permutation(extent)[:count] if self.is_scatter else rng.integers(-extent, extent, count)
        self.given = self.index if rng.random() < 0.5 else [int(i) for i in self.index]
        self.layout, self.memory = arrays.Layout(rng, self.shape, not self.is_scatter), self.choose_memory()
        self.made = bases(rng, self.client, self.layout, self.n, self.dtype, self.memory)
        self.layers = [self.layout.view(base) for base in self.made]
        self.what = (f"{self.client._staging._limit} {self.n} {self.dtype} {self.memory} {self.shape} "
                     f"{self.layers[0].strides} {self.axis} {self.index} {self.permute} {self.is_scatter}")

    def choose_memory(self):
        return str(self.rng.choice(["shared", "shared", "own", "mixed", "one"]))

    def permuted(self, array):
        return array if self.permute is None else array.transpose(self.permute)

    def stacked(self, shape):
        """An array for all layers, and its base: any layout, also with the layers elsewhere than outside."""
        layout = arrays.Layout(self.rng, (self.n, *shape), False)
        base = (self.client.empty if self.rng.random() < 0.6 else np.empty)(layout.base_shape(), self.dtype)
        arrays.fill(self.rng, base)
        return base, layout

    def gather(self):
        wanted = [arrays.raw(np.ascontiguousarray(self.permuted(np.take(a, self.index, self.axis)))) for a in self.layers]
        how, shape = self.rng.random(), wanted[0].shape
        arguments = {"axis": self.axis, "permute": self.permute}
        if how < 0.3:
            result = self.client.gather(self.layers, self.given, **arguments)
            assert result.shape == (self.n, *shape) and result.dtype == self.dtype, self.what
            assert result.tobytes() == np.stack(wanted).tobytes(), self.what
        elif how < 0.6:
            base, layout = self.stacked(shape)
            check_into(lambda out: self.client.gather(tuple(self.layers), self.given, out=out[0], **arguments), [base],
                       layout, [np.stack(wanted)], f"{self.what} into {layout.view(base).strides}")
        else:
            layout, memory = arrays.Layout(self.rng, shape, False), self.choose_memory()
            made = bases(self.rng, self.client, layout, self.n, self.dtype, memory)
            check_into(lambda out: self.client.gather(Layers.parse(self.layers, "src"), self.given, out=out, **arguments),
                       made, layout, wanted, f"{self.what} into {memory}")

    def scatter(self):
        part = self.shape[:self.axis] + (len(self.index),) + self.shape[self.axis + 1:]
        inverse = None if self.permute is None else [self.permute.index(d) for d in range(len(part))]
        shape = part if inverse is None else tuple(part[d] for d in inverse)
        if self.rng.random() < 0.5:
            base, layout = self.stacked(shape)
            src = layout.view(base)
        else:
            layout, memory = arrays.Layout(self.rng, shape, True), self.choose_memory()
            src = [layout.view(base) for base in bases(self.rng, self.client, layout, self.n, self.dtype, memory)]
        wanted = [arrays.raw(a.copy()) for a in self.layers]
        for one, s in zip(wanted, src, strict=True):
            one[(slice(None),) * self.axis + (self.index,)] = arrays.raw(np.ascontiguousarray(self.permuted(s)))
        check_into(lambda out: self.client.scatter(out, self.given, src, axis=self.axis, permute=self.permute), self.made,
                   self.layout, wanted, self.what)


@pytest.mark.parametrize("i", range(max(1, share(8))))
def test_random(clients, seed, i):
    rng = np.random.default_rng([seed, 9, i])
    for k in range(CASES):
        try:
            case = Case(rng, clients)
            case.scatter() if case.is_scatter else case.gather()
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e
