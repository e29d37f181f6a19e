# SPDX-License-Identifier: Apache-2.0
"""Tests the operators of tmaclient.torch: by PyTorch's own checks, compiled, with wrong arguments, and in worker
processes."""
import os

import pytest

torch = pytest.importorskip("torch")

import tmaclient as tma
import tmaclient.torch
from tmad import ENGINE, share

pytestmark = pytest.mark.skipif(ENGINE != "cpu", reason="tensors of the host, which the other tests move on a device")
ops = torch.ops.tma
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.uint16, torch.uint32, torch.uint64]


@pytest.fixture(autouse=True)
def used(c):
    tmaclient.torch.use(c)
    yield
    tmaclient.torch.use(None)


def filled(shape, dtype):
    """Returns a tensor of random bytes; bools are 0 or 1."""
    size = torch.empty(0, dtype=dtype).element_size()
    n = int(torch.tensor(shape).prod()) * size
    return torch.randint(0, 2 if dtype is torch.bool else 256, (n,), dtype=torch.uint8).view(dtype).reshape(shape)


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


# ---- The client ------------------------------------------------------------------------------------------------
def test_an_operator_while_the_client_connects(tmad, monkeypatch):
    """A finalizer or a signal handler may call an operator while the client connects."""
    def connect(path):
        paths.append(path)
        if len(paths) == 1:
            nested.append(tmaclient.torch.client())
        return tma.connect(tmad.path)

    paths, nested = [], []
    tmaclient.torch.use(None)
    monkeypatch.setattr(tmaclient.torch, "connect", connect)
    client = tmaclient.torch.client()
    assert paths == [None, None] and client is not nested[0] and not nested[0].closed
    assert tmaclient.torch.client() is client
    for each in (client, nested[0]):
        each.close()


# ---- Results -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results(dtype):
    x = filled((4, 6, 5), dtype)
    out = torch.empty(5, 4, 6, dtype=dtype)
    ops.transform(x, out, permute=[2, 0, 1])
    assert same(out, x.permute(2, 0, 1))
    padded = torch.full((4, 8, 5), 1, dtype=torch.uint8).to(dtype)
    ops.transform(x, padded, pad=[0, 0, 1, 1, 0, 0])
    assert same(padded[:, 1:7], x) and not padded[:, 0].contiguous().view(torch.uint8).any()
    index = torch.tensor([3, 1, 3])
    taken = torch.empty(3, 6, 5, dtype=dtype)
    ops.gather(x, index, taken)
    assert same(taken, x[[3, 1, 3]])
    into = torch.zeros(4, 6, 5, dtype=torch.uint8).to(dtype)
    ops.scatter(into, torch.tensor([2, 0]), x[:2])
    assert same(into[2], x[0]) and same(into[0], x[1])
    ops.gather_scatter(into, x, torch.tensor([[3, 1], [3, 3]]))
    assert same(into, x[[1, 3, 0, 3]])
    ops.gather_scatter(into, into, torch.tensor([[2, 0]]))
    assert same(into, x[[0, 3, 0, 3]])


def test_dimensions():
    x = torch.randn(4, 6, 5)
    for dim in range(-3, 3):
        n = x.shape[dim]
        index = torch.arange(n).flip(0)[: n - 1]
        expected = x.index_select(dim, index)
        out = torch.empty_like(expected)
        ops.gather(x, index, out, dim=dim)
        assert same(out, expected)
        turned = torch.empty(expected.permute(1, 2, 0).shape)
        ops.gather(x, index, turned, dim=dim, permute=[1, 2, 0])
        assert same(turned, expected.permute(1, 2, 0))
        back = torch.zeros_like(x)
        ops.scatter(back, index, turned, dim=dim, permute=[2, 0, 1])
        assert same(back, torch.zeros_like(x).index_copy(dim, index, expected))
    for permute in ([0, 1, 2], [-1, 0, 1]):
        out = torch.empty(x.permute(permute).shape)
        ops.transform(x, out, permute=permute)
        assert same(out, x.permute(permute))
    out = torch.empty(4, 6, 7)
    ops.transform(x, out, pad=[0, 0, 0, 0, 1, 1], pad_mode="reflect")
    assert same(out, torch.nn.functional.pad(x, (1, 1), "reflect"))
    ints = torch.empty(6, dtype=torch.int32)
    ops.transform(torch.arange(4, dtype=torch.int32), ints, pad=[1, 1], value=7.0)
    assert ints.tolist() == [7, 0, 1, 2, 3, 7]
    bools = torch.empty(3, dtype=torch.bool)
    ops.transform(torch.zeros(1, dtype=torch.bool), bools, pad=[1, 1], value=1.0)
    assert bools.tolist() == [True, False, True]
    ops.transform(torch.tensor(3.5), scalar := torch.empty(()))
    assert scalar.item() == 3.5


def floats(n):
    """Returns numbers of all exponents next to values where small types round, and n numbers of random bits."""
    high = (torch.arange(1 << 14) << 18)[:, None]
    near = high | torch.tensor([0, 1, 0x1ffff, 0x20000, 0x20001, 0x3ffff])
    return torch.cat([near.ravel(), torch.randint(0, 1 << 32, (n,))]).to(torch.uint32).view(torch.float32)


def ieee_cast(x, dtype):
    """Casts as NumPy does with ml_dtypes. Some versions of PyTorch saturate, because float8_e4m3fn has no infinity."""
    if dtype != torch.float8_e4m3fn:
        return x.to(dtype)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return torch.from_numpy(x.numpy().astype(ml_dtypes.float8_e4m3fn).view("u1")).view(dtype)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16], ids=str)
def test_casts(dtype):
    """Casts are those of tensor.to(), after a clamp unless the cast is ieee. NaNs stay NaNs, whose payload may
    differ."""
    x = floats(share(10_000_000))
    most = torch.finfo(dtype).max
    expected = x.clamp(-most, most).to(dtype)
    out = torch.empty(x.shape, dtype=dtype)
    ops.transform(x, out, cast="saturate")
    is_nan = x.isnan()
    assert torch.equal(out.float().isnan(), is_nan)
    assert same(out[~is_nan], expected[~is_nan])
    back = torch.empty_like(x)
    ops.transform(out, back, cast="exact")
    assert torch.equal(back[~is_nan], out.float()[~is_nan])
    ops.transform(x, out, cast="ieee")
    wanted = ieee_cast(x, dtype)
    is_nan = wanted.float().isnan()
    assert torch.equal(out.float().isnan(), is_nan) and same(out[~is_nan], wanted[~is_nan])


def cast_by_block(x, block):
    """DeepGEMM's per_block_cast_to_fp8 and per_token_cast_to_fp8, for sizes that are multiples of the block's."""
    blocks = x.view(x.shape[0] // block[0], block[0], x.shape[1] // block[1], block[1])
    sf = blocks.abs().float().amax(dim=(1, 3), keepdim=True).clamp(1e-4) / 448.0
    return (blocks * (1.0 / sf)).to(torch.float8_e4m3fn).view_as(x), sf


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("block", [(128, 128), (1, 128)])
def test_weights_as_deepgemm_casts_them(dtype, block):
    w = (torch.randn(256, 384) * torch.exp2(torch.randint(-20, 6, (256, 1)).float())).to(dtype)
    expected, sf = cast_by_block(w, block)
    blocks = w.view(256 // block[0], block[0], 384 // block[1], block[1])
    out = torch.empty_like(w, dtype=torch.float8_e4m3fn)
    ops.transform(blocks, out.view(blocks.shape), cast="saturate", scale=1.0 / sf)
    assert same(out, expected) and out.float().abs().max() == 448


def test_operands():
    x = torch.randn(4, 6, 5)
    out = torch.empty(5, 4, 6, dtype=torch.float16)
    scale, bias = torch.rand(6, requires_grad=True), torch.rand(5, 1, 1)
    ops.transform(x, out, permute=[2, 0, 1], cast="saturate", scale=scale, bias=bias)
    assert same(out, (x.permute(2, 0, 1) * scale.detach() + bias).half())
    same_type = torch.empty_like(x)
    ops.transform(x, same_type, scale=torch.tensor(2), bias=torch.tensor(0.5))
    assert same(same_type, x * 2 + 0.5)
    padded = torch.empty(6, dtype=torch.int8)
    ops.transform(torch.tensor([-200.0, 1.9, 3, 300]), padded, pad=[1, 1], value=7.0, cast="saturate")
    assert padded.tolist() == [7, -128, 1, 3, 127, 7]
    taken = torch.empty(6, 2, 5, dtype=torch.bfloat16)
    ops.gather(x, torch.tensor([3, 1]), taken, permute=[1, 0, 2], cast="saturate", scale=bias[:, :, 0].T)
    assert same(taken, (x[[3, 1]].permute(1, 0, 2) * bias[:, :, 0].T).bfloat16())
    into = torch.zeros(9, 6, 5, dtype=torch.float64)
    ops.scatter(into, torch.tensor([8, 0, 1, 2]), x, cast="exact", bias=torch.ones(()))
    assert same(into[8], x[0].double() + 1) and not into[3:8].any()
    with pytest.raises(tma.OutOfRangeError, match="of 2 elements of float32 are not values of int32"):
        ops.transform(torch.tensor([0.5, 1, float("nan")]), torch.empty(3, dtype=torch.int32), cast="exact")
    client = tmaclient.torch.client()
    made = client.copy(x, dtype=torch.float8_e5m2, scale=torch.tensor(3.0))
    assert same(made, (x * 3).to(torch.float8_e5m2))


def test_quantize():
    w = (torch.randn(3, 256, 384) * torch.exp2(torch.randint(-20, 6, (3, 256, 1)).float())).bfloat16()
    out, scale = torch.empty_like(w, dtype=torch.float8_e4m3fn), torch.empty(3, 2, 3)
    inverse = torch.empty_like(scale)
    ops.quantize(w, out, scale, [128, 128], least=1e-4, inverse_out=inverse)
    for i, expert in enumerate(w):
        expected, sf = cast_by_block(expert, (128, 128))
        assert same(out[i], expected) and same(scale[i], sf[:, 0, :, 0]) and same(inverse[i], 1.0 / sf[:, 0, :, 0])
    turned, one = torch.empty(384, 3, 256, dtype=torch.float8_e5m2), torch.empty(1, 1, 1)
    ops.quantize(w, turned, one, None, permute=[2, 0, 1])
    assert one.item() == w.abs().max().float() / torch.tensor(57344.0)
    assert same(turned, (w.float() * (1.0 / one)).to(torch.float8_e5m2).permute(2, 0, 1))
    exponents = torch.empty(3, 256, 3, dtype=torch.float8_e8m0fnu)
    ops.quantize(w, out, exponents, [128], power_of_two=True)
    amax = w.float().view(3, 256, 3, 128).abs().amax(3)
    assert torch.equal(exponents.float(), torch.exp2(torch.ceil(torch.log2(amax.double() / 448))).float())


def test_grad():
    """Operators that write have no derivative, but accept sources that require grad."""
    x = torch.randn(3, 4, requires_grad=True)
    with torch.no_grad():
        out = torch.empty(4, 3)
        ops.transform(x, out, permute=[1, 0])
    assert same(out, x.detach().T)


def test_layers():
    pools = [torch.randn(4, 6, 5) for _ in range(3)]
    before, index, out = torch.stack(pools), torch.tensor([3, 1]), torch.empty(3, 5, 6, 2)
    ops.gather_layers(pools, index, out, permute=[2, 1, 0])
    assert same(out, before[:, [3, 1]].permute(0, 3, 2, 1))
    ops.scatter_layers(pools, torch.tensor([0, 2]), out, permute=[2, 1, 0])
    assert same(torch.stack(pools), before[:, [3, 1, 1, 3]])
    halves = torch.empty(3, 2, 6, 5, dtype=torch.float16)
    ops.gather_layers(pools, index, halves, cast="saturate", scale=torch.tensor([2.0]))
    assert same(halves, (before[:, [3, 1]] * 2).half())
    compiled = torch.compile(lambda a, b, i, o: ops.gather_layers([a, b], i, o), backend="eager", fullgraph=True)
    out = torch.empty(2, 2, 6, 5)
    compiled(pools[0], pools[1], index, out)
    assert same(out, before[:2, [3, 1]])


# ---- As operators --------------------------------------------------------------------------------------------
def test_opcheck():
    x, index = torch.randn(4, 6, 5), torch.tensor([1, 0])
    checks = [
        (ops.transform, (x, torch.empty(5, 4, 6), [2, 0, 1])),
        (ops.transform, (x, torch.empty(6, 6, 5), None, [1, 1, 0, 0, 0, 0], "edge")),
        (ops.transform, (x, torch.empty(4, 6, 7), [0, -2, -1], [0, 0, 0, 0, 2, 0], "constant", 1.5)),
        (ops.gather, (x, index, torch.empty(2, 6, 5))),
        (ops.gather, (x, index, torch.empty(4, 5, 2), 1, [0, 2, 1])),
        (ops.scatter, (x.clone(), index, torch.randn(2, 6, 5))),
        (ops.scatter, (x.clone(), index, torch.randn(4, 5, 2), -2, [0, 2, 1])),
        (ops.gather_scatter, (x.clone(), torch.randn(3, 6, 5), torch.tensor([[2, 0], [0, 3]]))),
        (ops.gather_scatter, (x.clone(), torch.randn(4, 5, 9).half(), torch.tensor([[8, 0]]), -2, [0, 2, 1], "saturate",
                              torch.rand(1, 5))),
        (ops.gather_layers, ([x, x.clone()], index, torch.empty(2, 4, 5, 2), 1, [0, 2, 1])),
        (ops.scatter_layers, ([x.clone(), x.clone()], index, torch.randn(2, 4, 5, 2), -2, [0, 2, 1])),
        (ops.transform, (x, torch.empty(5, 4, 6, dtype=torch.float16), [2, 0, 1], None, "constant", 0.0, "saturate",
                         torch.rand(6), torch.rand(4, 1))),
        (ops.gather, (x, index, torch.empty(2, 6, 5, dtype=torch.bfloat16), 0, None, "saturate", torch.rand(6, 1))),
        (ops.scatter, (x.clone(), index, torch.ones(2, 6, 5, dtype=torch.int8), 0, None, "exact", None, torch.ones(()))),
        (ops.quantize, (x, torch.empty(4, 6, 5, dtype=torch.bfloat16), torch.empty(4, 1, 5), [-1, 1])),
        (ops.quantize, (x, torch.empty(5, 4, 6, dtype=torch.float16), torch.empty(1, 1, 1, dtype=torch.uint8), None, [2, 0, 1],
                        True, 1.0, torch.empty(1, 1, 1))),
    ]
    for op, arguments in checks:
        torch.library.opcheck(op.default, arguments)


def test_meta():
    """Arguments that would fail are refused while a graph is traced."""
    def meta(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device="meta")

    x, index = meta(4, 6, 5), meta(2, dtype=torch.int64)
    ops.transform(x, meta(5, 4, 6), permute=[2, 0, 1])
    ops.gather(x, index, meta(4, 2, 5), dim=1)
    ops.gather(x, index, meta(5, 2, 4), dim=1, permute=[2, 1, 0])
    ops.scatter(x, index, meta(5, 2, 4), dim=1, permute=[2, 1, 0])
    pairs = meta(7, 2, dtype=torch.int32)
    ops.gather_scatter(x, meta(5, 99, 4), pairs, dim=1, permute=[2, 1, 0])
    half = meta(4, 6, 5, dtype=torch.float16)
    ops.transform(x, half, cast="saturate", scale=meta(6, 1, dtype=torch.float64), bias=meta(1, 1, 1))
    ops.quantize(x, half, meta(4, 2, 1), [5, 128], inverse_out=meta(4, 2, 1))
    ops.quantize(x, half, meta(1, 1, 1, dtype=torch.float8_e8m0fnu), None, power_of_two=True)
    for wrong in [
        lambda: ops.transform(x, meta(4, 6)),
        lambda: ops.transform(x, meta(4, 6, 6)),
        lambda: ops.transform(x, meta(4, 6, 5, dtype=torch.float16)),
        lambda: ops.transform(x, meta(4, 6, 5), permute=[2, 0, 1]),
        lambda: ops.transform(x, meta(4, 6, 5), permute=[0, 1]),
        lambda: ops.transform(x, meta(4, 6, 5), permute=[0, 0, 1]),
        lambda: ops.transform(x, meta(4, 6, 5), permute=[0, 1, 3]),
        lambda: ops.transform(x, meta(4, 6, 5), pad=[1, 1]),
        lambda: ops.transform(x, meta(4, 6, 6), pad=[0, 0, 0, 0, 0, 0]),
        lambda: ops.transform(x, half, cast="round"),
        lambda: ops.transform(x, half, scale=meta(5)),
        lambda: ops.transform(x, half, cast="exact", scale=meta(6)),
        lambda: ops.transform(x, half, cast="exact", scale=meta(1, 4, 6, 5)),
        lambda: ops.transform(x, half, cast="exact", bias=meta(5, dtype=torch.int32)),
        lambda: ops.quantize(x, meta(4, 6, 6), meta(4, 2, 1), [5, 128]),
        lambda: ops.quantize(x, half, meta(2, 1), [5, 128]),
        lambda: ops.quantize(x, half, meta(4, 6, 1), [5, 128]),
        lambda: ops.quantize(x, half, meta(4, 2, 1), [0, 128]),
        lambda: ops.quantize(x, half, meta(4, 2, 1), [1, 1, 5, 128]),
        lambda: ops.quantize(x, half, meta(4, 2, 1, dtype=torch.uint8), [5, 128]),
        lambda: ops.quantize(x, half, meta(4, 2, 1), [5, 128], inverse_out=meta(4, 1, 1)),
        lambda: ops.gather(x, index, half[:2], cast="exact", scale=meta(2, 1, 1)),
        lambda: ops.scatter(half, index, meta(2, 6, 5)),
        lambda: ops.scatter(half, index, meta(2, 6, 5), cast="exact", bias=meta(2, 6, 5)),
        lambda: ops.gather(x, meta(2, 1, dtype=torch.int64), meta(2, 6, 5)),
        lambda: ops.gather(x, meta(2, dtype=torch.float32), meta(2, 6, 5)),
        lambda: ops.gather(x, index, meta(3, 6, 5)),
        lambda: ops.gather(x, index, meta(2, 6, 4)),
        lambda: ops.gather(x, index, meta(2, 6)),
        lambda: ops.gather(x, index, meta(2, 6, 5), dim=3),
        lambda: ops.gather(x, index, meta(2, 6, 5, dtype=torch.int32)),
        lambda: ops.gather(x, index, meta(2, 6, 5), permute=[2, 0, 1]),
        lambda: ops.gather_layers([], index, meta(0, 2, 6, 5)),
        lambda: ops.gather_layers([x, meta(4, 6, 4)], index, meta(2, 2, 6, 5)),
        lambda: ops.gather_layers([x, half], index, meta(2, 2, 6, 5)),
        lambda: ops.gather_layers([x, x], index, meta(3, 2, 6, 5)),
        lambda: ops.gather_layers([x, x], index, meta(2, 3, 6, 5)),
        lambda: ops.scatter_layers([x, meta(4, 6, 5)], index, meta()),
        lambda: ops.scatter_layers([x, meta(4, 6, 5)], index, meta(2, 6, 5)),
        lambda: ops.scatter(x, index, meta(3, 6, 5)),
        lambda: ops.scatter(x, index, meta(2, 5, 6)),
        lambda: ops.scatter(x, index, meta(2, 5, 6), permute=[0, 1, 2]),
        lambda: ops.gather_scatter(x, meta(5, 99, 4), pairs),
        lambda: ops.gather_scatter(x, meta(4, 6), pairs),
        lambda: ops.gather_scatter(half, x, pairs),
        lambda: ops.gather_scatter(half, x, pairs, cast="exact", scale=meta(4, 1, 1)),
        lambda: ops.gather_scatter(x, x, index),
        lambda: ops.gather_scatter(x, x, meta(7, 3, dtype=torch.int32)),
        lambda: ops.gather_scatter(x, x, meta(7, 2)),
        lambda: ops.gather_scatter(x, x, pairs, dim=3),
    ]:
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            wrong()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    def turn(x, index):
        out = torch.empty(x.shape[2], x.shape[0], x.shape[1], dtype=x.dtype)
        ops.transform(x * 2, out, permute=[2, 0, 1])
        taken = torch.empty(index.shape[0], x.shape[0], x.shape[1], dtype=torch.float64)
        ops.gather(out, index, taken, cast="exact", scale=x[:, :, 0].sign())
        data, scale = torch.empty(x.shape, dtype=torch.float16), torch.empty(1, x.shape[1], (x.shape[2] + 1) // 2)
        ops.quantize(x, data, scale, [-1, 1, 2])
        return taken + 1, data * 1, scale

    compiled = torch.compile(turn, fullgraph=True, backend=backend, dynamic=True)
    for n in (4, 7):
        x, index = torch.randn(n, 6, 5), torch.tensor([4, 0, 1])
        taken, data, scale = compiled(x, index)
        assert torch.equal(taken, ((x * 2).permute(2, 0, 1)[index] * x[:, :, 0].sign()).double() + 1)
        wide = scale.repeat_interleave(2, 2)[:, :, :5]
        assert torch.equal(scale[:, :, 2], x[:, :, 4].abs().amax(0, keepdim=True) / 65504)
        assert torch.equal(data, (x * (1 / wide)).half())


# ---- Errors --------------------------------------------------------------------------------------------------
def test_errors():
    x = torch.randn(4, 6)
    for kind, word, wrong in [
        (ValueError, "out", lambda: ops.transform(x, torch.empty(4, 5))),
        (ValueError, "out", lambda: ops.transform(x, torch.empty(4, 6, dtype=torch.float16))),
        (ValueError, "cast", lambda: ops.transform(x, torch.empty(4, 6), cast="round")),
        (ValueError, "scale", lambda: ops.transform(x, torch.empty(4, 6), scale=torch.ones(4))),
        (TypeError, "bias: float16", lambda: ops.transform(x, torch.empty(4, 6), bias=torch.ones(6).half())),
        (ValueError, "permute", lambda: ops.transform(x, torch.empty(4, 6), permute=[0, 0])),
        (ValueError, "scale_out", lambda: ops.quantize(x, torch.empty(4, 6), torch.empty(4, 6), [1, 3])),
        (ValueError, "pad", lambda: ops.transform(x, torch.empty(4, 6), pad=[1, 1])),
        (ValueError, "mode", lambda: ops.transform(x, torch.empty(4, 6), pad=[0, 0, 0, 0], pad_mode="mirror")),
        (IndexError, "index", lambda: ops.gather(x, torch.tensor([4]), torch.empty(1, 6))),
        (IndexError, "axis", lambda: ops.gather(x, torch.tensor([1]), torch.empty(1, 6), dim=2)),
        (TypeError, "index", lambda: ops.gather(x, torch.tensor([1.0]), torch.empty(1, 6))),
        (TypeError, "sparse", lambda: ops.transform(x.to_sparse(), torch.empty(4, 6))),
        (ValueError, "uint8", lambda: ops.transform(torch.zeros(1, dtype=torch.uint8),
                                                    torch.zeros(2, dtype=torch.uint8), pad=[1, 0], value=300.0)),
        (ValueError, "1.5", lambda: ops.transform(torch.zeros(1, dtype=torch.uint8),
                                                  torch.zeros(2, dtype=torch.uint8), pad=[1, 0], value=1.5)),
    ]:
        with pytest.raises(kind, match=word):
            wrong()


def test_client(tmad, monkeypatch):
    tmaclient.torch.use(None)
    monkeypatch.setenv("TMAD_SOCKET", tmad.path)
    first = tmaclient.torch.client()
    assert first.path == tmad.path and tmaclient.torch.client() is first
    first.close()
    assert tmaclient.torch.client() is not first
    tmaclient.torch.client().close()
    tmaclient.torch.use(None)
    monkeypatch.setenv("TMAD_SOCKET", tmad.path + "-not")
    with pytest.raises(tma.DisconnectedError):
        ops.transform(torch.zeros(1), torch.zeros(1))


# ---- Processes -----------------------------------------------------------------------------------------------
class Images(torch.utils.data.Dataset):
    """Images that a worker process transposes with its own client."""

    def __init__(self, path):
        self._path, self._pid, self._client = path, None, None

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if self._pid != os.getpid():
            self._pid, self._client = os.getpid(), tma.connect(self._path)
        return self._client.transpose(torch.full((8, 6, 3), i, dtype=torch.uint8), (2, 0, 1))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(tmad, method):
    loader = torch.utils.data.DataLoader(Images(tmad.path), batch_size=4, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert [b.shape for b in batches] == [(4, 3, 8, 6)] * 6
    assert torch.equal(torch.cat(batches)[:, 0, 0, 0], torch.arange(24, dtype=torch.uint8))


class Inherited(Images):
    def __getitem__(self, i):
        return self._client.copy(torch.zeros(2))


def test_workers_with_a_client_of_their_parent(tmad, c):
    images = Inherited(tmad.path)
    images._client = c
    loader = torch.utils.data.DataLoader(images, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="another process"):
        list(loader)
    assert c.copy(torch.ones(2)).tolist() == [1, 1]


def test_operators_in_workers(tmad, monkeypatch):
    """A forked worker process connects its own client."""
    monkeypatch.setenv("TMAD_SOCKET", tmad.path)
    loader = torch.utils.data.DataLoader(ByOperator(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader))[:, 0, 0], torch.arange(8.0))


class ByOperator(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        out = torch.empty(3, 2)
        ops.transform(torch.full((2, 3), float(i)), out, permute=[1, 0])
        return out


# ---- Operators that return tensors -----------------------------------------------------------------------------
def test_functional_results():
    x = torch.randn(6, 5, 7)
    assert torch.equal(ops.transposed(x, [2, 0, 1]), x.permute(2, 0, 1))
    assert torch.equal(ops.transposed(x, [-1, 0, 1]), x.permute(2, 0, 1))
    assert torch.equal(ops.padded(x, [1, 2, 0, 0, -1, 3]), torch.nn.functional.pad(x, [-1, 3, 0, 0, 1, 2]))
    assert torch.equal(ops.padded(x, [0, 0, 0, 0, 2, 2], "reflect"), torch.nn.functional.pad(x, [2, 2], "reflect"))
    assert torch.equal(ops.converted(x, torch.bfloat16), x.to(torch.bfloat16))
    assert torch.equal(ops.converted(x, torch.float64, "ieee", [1, 0, 2]), x.permute(1, 0, 2).double())
    index = torch.tensor([4, 0, 4])
    assert torch.equal(ops.gathered(x, index, 1), x.index_select(1, index))
    data, scale = ops.quantized(x.reshape(6, 35), [2, 5], torch.float16)
    assert data.shape == (6, 35) and scale.shape == (3, 7)
    assert torch.allclose(data.float() * scale.repeat_interleave(2, 0).repeat_interleave(5, 1), x.reshape(6, 35), rtol=1e-3)


@pytest.mark.parametrize("make", [
    lambda x: ops.transposed(x, [2, 0, 1]),
    lambda x: ops.padded(x, [1, 2, 0, 0, -1, 3]),
    lambda x: ops.converted(x, torch.float32, "saturate", [1, 0, 2]).double(),
    lambda x: ops.gathered(x, torch.tensor([2, 0, 2]), 1),
], ids=["transposed", "padded", "converted", "gathered"])
def test_gradients(make):
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    expected = {"eps": 1e-2, "atol": 1e-3} if "converted" in os.environ.get("PYTEST_CURRENT_TEST", "") else {}
    assert torch.autograd.gradcheck(make, (x,), **expected)


def test_a_border_without_a_gradient():
    x = torch.randn(4, 4, requires_grad=True)
    with pytest.raises(NotImplementedError, match="mode: a border by 'edge' has no gradient here"):
        ops.padded(x, [1, 1, 1, 1], "edge").sum().backward()


@pytest.mark.parametrize("args", [
    (ops.transposed, torch.randn(3, 4), [1, 0]),
    (ops.padded, torch.randn(3, 4), [1, 1, 0, -2]),
    (ops.converted, torch.randn(3, 4), torch.float16),
    (ops.gathered, torch.randn(3, 4), torch.tensor([1, 1])),
    (ops.quantized, torch.randn(4, 4), [2, 2], torch.float16),
], ids=lambda args: args[0].__name__)
def test_functional_operators_by_their_rules(args):
    op, *rest = args
    torch.library.opcheck(op.default, tuple(rest))


def test_functional_operators_compiled():
    def step(x, index):
        y = ops.transposed(ops.padded(x, [0, 1, 0, 0]), [1, 0])
        return ops.gathered(ops.converted(y, torch.bfloat16), index)

    x, index = torch.randn(5, 6), torch.tensor([3, 1])
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, index), step(x, index))
