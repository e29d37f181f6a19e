# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch that torch.compile keeps in its graphs:

    import tmaclient.torch

    torch.ops.tma.transform(x, out, permute=[0, 3, 1, 2], pad=[0, 0, 0, 0, 1, 1, 1, 1], pad_mode="edge")
    torch.ops.tma.gather(pool, index, out)
    torch.ops.tma.scatter(pool, index, blocks)
    torch.ops.tma.gather_scatter(pool, other_pool, pairs)
    torch.ops.tma.gather_layers([k0, v0, k1, v1], index, stacked)
    torch.ops.tma.scatter_layers([k0, v0, k1, v1], index, stacked)
    torch.ops.tma.transform(weights, fp8, cast="saturate", scale=factors)
    torch.ops.tma.quantize(weights, fp8, scale, [128, 128])
    torch.ops.tma.reshard(new_shards, old_shards, new_starts, old_starts)

    y = torch.ops.tma.transposed(x, [0, 3, 1, 2])
    y = torch.ops.tma.padded(x, [0, 0, 1, 1])
    y = torch.ops.tma.converted(x, torch.bfloat16)
    y = torch.ops.tma.gathered(pool, index)
    y, scale = torch.ops.tma.quantized(weights, [128, 128])

The operators of the first group write into the tensors that they are given. Those of the second group return new ones,
in C order, and have gradients, except quantized. Tensors on one CUDA device are moved in the current stream by this
process itself, so that torch.compile(mode="reduce-overhead") and other CUDA graphs can capture the operators. All
operators of a process use one client: the one that use() sets, or else one that connects at the first call.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from typing import cast as as_type

import torch
from torch import Tensor

from ._client import Client, connect
from ._conversion import CASTS, Cast, Keywords
from ._moves import Mode, parse_axes, parse_axis
from ._reshard import Slice
from ._scales import check_dtype, parse_block

_Axes = Sequence[int] | None


class _Choice:
    """The client of the operators, and the path where the next client connects. No lock guards them: other code, such
    as a signal handler, may run in the same thread while a client connects, and may call an operator. If two threads
    connect at once, either client will do."""

    def __init__(self, client: Client | None, path: str | None) -> None:
        self.client, self.path = client, path


_choice = _Choice(None, None)


def use(client: Client | None) -> None:
    """Sets the client of the operators. None: the next call connects to $TMAD_SOCKET or the usual paths."""
    global _choice
    _choice = _Choice(client, client.path if client is not None else None)


def client() -> Client:
    """Returns the client of the operators, after connecting if there is none. A forked child process connects its own
    client, to the same service."""
    choice = _choice
    chosen = choice.client
    if chosen is None or chosen.closed:
        choice.client = chosen = connect(choice.path)
        choice.path = chosen.path
    return chosen


def _forget() -> None:
    """Forgets the client in a forked child process, which needs its own, and keeps the path."""
    global _choice
    _choice = _Choice(None, _choice.path)


os.register_at_fork(after_in_child=_forget)


# ---- Operators that write into tensors --------------------------------------------------------------------------
class _Listed(NamedTuple):
    """The last arguments of operators that take a list of blocks. PyTorch omits trailing arguments that have their
    default values."""

    dim: int = 0
    permute: _Axes = None
    cast: str | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None

    def keywords(self) -> Any:
        """Returns the arguments as keywords of a method of Client."""
        return {"axis": self.dim, "permute": self.permute, **_casting(*self[2:])}


def _listed(first: str) -> Any:
    """Returns a decorator that registers a function as an operator with the arguments `first` and those of _Listed."""
    rest = "SymInt dim=0, SymInt[]? permute=None, str? cast=None, Tensor? scale=None, Tensor? bias=None"

    def register(function: Callable[..., None]) -> Any:
        name = f"tma::{function.__name__}"
        return torch.library.custom_op(name, function, mutates_args=("out",), schema=f"({first}, {rest}) -> ()")

    return register


@torch.library.custom_op("tma::transform", mutates_args=("out",))
def transform(
    src: Tensor,
    out: Tensor,
    permute: _Axes = None,
    pad: _Axes = None,
    pad_mode: str = "constant",
    value: float = 0.0,
    cast: str | None = None,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
) -> None:
    """Computes out = pad(src.permute(permute)). pad has two numbers for each dimension of the permuted tensor: the
    widths before and after it. pad_mode is one of np.pad's modes; "constant" pads with value.

    With cast, which is "saturate", "exact" or "ieee", out may be of another type, and is
    pad(cast(src.permute(permute) * scale + bias)).
    """
    client().transform(
        src.detach(),
        permute=permute,
        pad=_pairs(pad, src.dim()),
        mode=as_type(Mode, pad_mode),
        value=_number(value, out),
        out=out,
        **_casting(cast, scale, bias),
    )


@torch.library.custom_op("tma::quantize", mutates_args=("out", "scale_out", "inverse_out"))
def quantize(
    src: Tensor,
    out: Tensor,
    scale_out: Tensor,
    block: _Axes,
    permute: _Axes = None,
    power_of_two: bool = False,
    least: float = 0.0,
    inverse_out: Tensor | None = None,
) -> None:
    """Casts src.permute(permute) to out's type, with one scale for each block. The scales are written into scale_out,
    and their inverses into inverse_out; see Client.quantize."""
    client().quantize(
        src.detach(),
        block,
        permute=permute,
        power_of_two=power_of_two,
        least=least,
        out=out,
        scale_out=scale_out,
        inverse_out=inverse_out,
    )


def _quantize_in_place(keyset: Any, *args: Any) -> None:
    """Increments the version counters of the tensors that quantize writes, as autograd requires, and calls quantize.
    This replaces the function that PyTorch 2.11 registers, which raises IndexError if an optional tensor that the
    operator writes, here inverse_out, is omitted."""
    for written in (*args[1:3], *args[7:8]):
        if written is not None:
            torch.autograd.graph.increment_version(written)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        torch.ops.tma.quantize.default.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args)


_library = torch.library.Library("tma", "FRAGMENT")
with warnings.catch_warnings():  # PyTorch warns of every override
    warnings.simplefilter("ignore", UserWarning)
    _library.impl("quantize", _quantize_in_place, "ADInplaceOrView", with_keyset=True, allow_override=True)


@_listed("Tensor src, Tensor index, Tensor(a2!) out")
def gather(src: Tensor, index: Tensor, out: Tensor, *listed: Any) -> None:
    """Computes out = src.index_select(dim, index).permute(permute). If index is on a device, entries that are -1 or out
    of range are skipped. cast, scale and bias are those of transform."""
    client().gather(src.detach(), index, out=out, **_Listed(*listed).keywords())


@_listed("Tensor(a0!) out, Tensor index, Tensor src")
def scatter(out: Tensor, index: Tensor, src: Tensor, *listed: Any) -> None:
    """Does out.index_copy_(dim, index, src.permute(permute)). No block of out may be named twice. cast, scale and bias
    are those of transform."""
    client().scatter(out, index, src.detach(), **_Listed(*listed).keywords())


@_listed("Tensor(a0!) out, Tensor src, Tensor pairs")
def gather_scatter(out: Tensor, src: Tensor, pairs: Tensor, *listed: Any) -> None:
    """Does out.index_copy_(dim, pairs[:, 1], src.permute(permute).index_select(dim, pairs[:, 0])). No block of out may
    be named twice. If pairs is on a device, entries with a number that is -1 or out of range are skipped. out and src
    may be the same tensor if pairs is on the host, as for Client.gather_scatter. cast, scale and bias are those of
    transform."""
    client().gather_scatter(out, src.detach(), pairs, **_Listed(*listed).keywords())


@_listed("Tensor[] src, Tensor index, Tensor(a2!) out")
def gather_layers(src: Sequence[Tensor], index: Tensor, out: Tensor, *listed: Any) -> None:
    """Gathers src[i] into out[i] for each i, as Client.gather does with layers. The tensors of src must have the same
    shape, type and strides."""
    layers = [t.detach() for t in src]
    client().gather(layers, index, out=out, **_Listed(*listed).keywords())


@_listed("Tensor(a0!)[] out, Tensor index, Tensor src")
def scatter_layers(out: Sequence[Tensor], index: Tensor, src: Tensor, *listed: Any) -> None:
    """Scatters src[i] into out[i] for each i, as Client.scatter does with layers. The tensors of out must have the same
    shape, type and strides."""
    client().scatter(list(out), index, src.detach(), **_Listed(*listed).keywords())


@torch.library.custom_op("tma::reshard", mutates_args=("destinations",))
def reshard(
    destinations: Sequence[Tensor],
    sources: Sequence[Tensor],
    destination_starts: Sequence[int],
    source_starts: Sequence[int],
) -> None:
    """Assembles the destinations from the sources; all of them are slices of one tensor; see Client.reshard.
    destination_starts and source_starts say where in that tensor each slice begins: they list, slice after slice, the
    index of its first element, one number for each dimension."""
    client().reshard(
        _slices("destination_starts", destinations, destination_starts),
        _slices("source_starts", [t.detach() for t in sources], source_starts),
    )


@transform.register_fake
def _(src: Tensor, out: Tensor, permute: _Axes = None, pad: _Axes = None, *rest: Any) -> None:
    # rest begins with pad_mode and value; the arguments of the conversion follow.
    shape, conversion = [src.shape[d] for d in _axes(permute, src.dim())], rest[2:]
    widths = _pairs(pad, src.dim()) or [(0, 0)] * src.dim()
    padded = [n + before + after for n, (before, after) in zip(shape, widths, strict=True)]
    _check_like("out", out, padded, out.dtype if conversion and conversion[0] is not None else src.dtype)
    _check_operands(shape, *conversion)


@quantize.register_fake
def _(
    src: Tensor,
    out: Tensor,
    scale_out: Tensor,
    block: _Axes,
    permute: _Axes = None,
    power_of_two: bool = False,
    least: float = 0.0,
    inverse_out: Tensor | None = None,
) -> None:
    shape = [src.shape[d] for d in _axes(permute, src.dim())]
    _check_like("out", out, shape, out.dtype)
    counts = _block_counts(shape, block)
    for name, scale in (("scale_out", scale_out), ("inverse_out", inverse_out)):
        if scale is not None:
            check_dtype(str(scale.dtype).removeprefix("torch."), name, power_of_two)
            _check_like(name, scale, counts, scale.dtype)


@gather.register_fake
def _fake_gather(src: Tensor, index: Tensor, out: Tensor, *listed: Any) -> None:
    dim, permute, *conversion = _Listed(*listed)
    axes, blocks = _axes(permute, src.dim()), _blocks(src, index, dim)
    _check_like("out", out, [blocks[d] for d in axes], src.dtype if conversion[0] is None else out.dtype)
    axis = parse_axis(dim, src.dim(), "dim")
    _check_operands([1 if d == axis else blocks[d] for d in axes], *conversion)


@scatter.register_fake
def _fake_scatter(out: Tensor, index: Tensor, src: Tensor, *listed: Any) -> None:
    _check_scattered(out, src, _blocks(out, index, _Listed(*listed).dim), *listed)


@gather_scatter.register_fake
def _(out: Tensor, src: Tensor, pairs: Tensor, *listed: Any) -> None:
    dim, permute, *_ = _Listed(*listed)
    torch._check(pairs.dim() == 2, lambda: f"pairs: {pairs.dim()} dimensions; it has an entry for each block")
    torch._check(pairs.shape[1] == 2, lambda: f"pairs: {list(pairs.shape)}; each is of two numbers")
    torch._check(_is_integer(pairs), lambda: f"pairs: {pairs.dtype}; it has to be of integers")
    axes, axis = _axes(permute, out.dim()), parse_axis(dim, out.dim(), "dim")
    torch._check(src.dim() == out.dim(), lambda: f"src: {src.dim()} dimensions; it has to have {out.dim()}")
    blocks: list[Any] = list(out.shape)
    blocks[axis] = src.shape[axes[axis]]
    _check_scattered(out, src, blocks, *listed)


def _check_scattered(out: Tensor, src: Tensor, blocks: list[Any], *listed: Any) -> None:
    """Raises an error if the permuted source does not have the shape `blocks`, or the types or operands do not
    match."""
    dim, permute, *conversion = _Listed(*listed)
    axes, axis = _axes(permute, out.dim()), parse_axis(dim, out.dim(), "dim")
    dtype = out.dtype if conversion[0] is None else src.dtype
    _check_like("src", src, [blocks[axes.index(d)] for d in range(out.dim())], dtype)
    _check_operands([1 if d == axis else n for d, n in enumerate(blocks)], *conversion)


@gather_layers.register_fake
def _(src: Sequence[Tensor], index: Tensor, out: Tensor, *listed: Any) -> None:
    _check_layers("src", src, "out", out)
    _fake_gather(src[0], index, out[0], *listed)


@scatter_layers.register_fake
def _(out: Sequence[Tensor], index: Tensor, src: Tensor, *listed: Any) -> None:
    _check_layers("out", out, "src", src)
    _fake_scatter(out[0], index, src[0], *listed)


@reshard.register_fake
def _(
    destinations: Sequence[Tensor],
    sources: Sequence[Tensor],
    destination_starts: Sequence[int],
    source_starts: Sequence[int],
) -> None:
    slices = _slices("destination_starts", destinations, destination_starts)
    slices += _slices("source_starts", sources, source_starts)
    for t, _ in slices:
        of, first = (t.dtype, t.dim()), (slices[0].array.dtype, slices[0].array.dim())
        torch._check(
            of == first, lambda of=of, first=first: f"slices of {of} and {first}; all are of one type and rank"
        )


# ---- Permutations -----------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::transposed", mutates_args=())
def transposed(src: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns src.permute(axes), in C order."""
    return client().transpose(src.detach(), tuple(axes))


@transposed.register_fake
def _(src: Tensor, axes: Sequence[int]) -> Tensor:
    return src.new_empty([src.shape[d] for d in _axes(axes, src.dim())])


def _keep_axes(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    src, axes = inputs
    order = _axes(axes, src.dim())
    ctx.back = [order.index(d) for d in range(len(order))]


def _transpose_back(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.tma.transposed(grad, ctx.back), None


transposed.register_autograd(_transpose_back, setup_context=_keep_axes)


# ---- Borders ----------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::padded", mutates_args=())
def padded(src: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Returns src with borders, in C order. pad has two numbers for each dimension, the widths before and after it; a
    negative width crops. mode is one of np.pad's, as for Client.pad. Only "constant" has a gradient."""
    widths = _pairs(pad, src.dim())
    return client().pad(src.detach(), widths or 0, as_type(Mode, mode), _number(value, src))


@padded.register_fake
def _(src: Tensor, pad: Sequence[int], *_: Any) -> Tensor:
    widths = _pairs(pad, src.dim()) or [(0, 0)] * src.dim()
    return src.new_empty([n + before + after for n, (before, after) in zip(src.shape, widths, strict=True)])


def _keep_pads(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, pad, mode, _ = inputs
    ctx.back, ctx.mode = [-n for n in pad], mode


def _pad_back(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    if ctx.mode != "constant" and any(n < 0 for n in ctx.back):
        raise NotImplementedError(
            f"mode: a border by {ctx.mode!r} has no gradient here; torch.nn.functional.pad has one"
        )
    return torch.ops.tma.padded(grad, ctx.back), None, None, None


padded.register_autograd(_pad_back, setup_context=_keep_pads)


# ---- Types ------------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::converted", mutates_args=())
def converted(src: Tensor, dtype: torch.dtype, cast: str = "saturate", permute: _Axes = None) -> Tensor:
    """Returns src.permute(permute) as another type, in C order. cast is as for Client. The gradient is converted back
    to src's type."""
    return client().transform(src.detach(), permute=permute, dtype=dtype, cast=as_type(Cast, cast))


@converted.register_fake
def _(src: Tensor, dtype: torch.dtype, cast: str = "", permute: _Axes = None) -> Tensor:
    return src.new_empty([src.shape[d] for d in _axes(permute, src.dim())], dtype=dtype)


def _keep_type(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    src, _, _, permute = inputs
    order = _axes(permute, src.dim())
    ctx.dtype, ctx.back = src.dtype, [order.index(d) for d in range(len(order))]


def _convert_back(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.tma.converted(grad, ctx.dtype, "ieee", ctx.back), None, None, None


converted.register_autograd(_convert_back, setup_context=_keep_type)


# ---- Lists ------------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::gathered", mutates_args=())
def gathered(src: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """Returns src.index_select(dim, index). If index is on a device, its entries must be in range and not negative:
    blocks of the result for other entries are undefined."""
    return client().gather(src.detach(), index, axis=dim)


@gathered.register_fake
def _(src: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    return src.new_empty(_blocks(src, index, dim))


def _keep_index(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    src, index, dim = inputs
    ctx.save_for_backward(index)
    ctx.shape, ctx.dim = src.shape, dim


def _scatter_back(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (index,) = ctx.saved_tensors
    entries = index.to(grad.device, torch.int64)
    entries = torch.where(entries < 0, entries + ctx.shape[ctx.dim], entries)
    return grad.new_zeros(ctx.shape).index_add(ctx.dim, entries, grad), None, None


gathered.register_autograd(_scatter_back, setup_context=_keep_index)


# ---- Scales -----------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::quantized", mutates_args=())
def quantized(
    src: Tensor, block: _Axes, dtype: torch.dtype = torch.float8_e4m3fn, power_of_two: bool = False, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Returns src cast to a small floating-point type, and the float32 scale of each block; see Client.quantize. There
    is no gradient."""
    data, scale = client().quantize(src.detach(), block, dtype=dtype, power_of_two=power_of_two, least=least)
    return data, scale


@quantized.register_fake
def _(
    src: Tensor, block: _Axes, dtype: torch.dtype = torch.float8_e4m3fn, power_of_two: bool = False, *_: Any
) -> tuple[Tensor, Tensor]:
    check_dtype("float32", "scale", power_of_two)
    scales = src.new_empty(_block_counts(list(src.shape), block), dtype=torch.float32)
    return src.new_empty(src.shape, dtype=dtype), scales


# ---- Shapes and arguments ---------------------------------------------------------------------------------------
def _pairs(pad: _Axes, rank: int) -> list[tuple[int, int]] | None:
    if not pad:
        return None
    if len(pad) != 2 * rank:
        raise ValueError(f"pad: {len(pad)} numbers for a tensor of {rank} dimensions; two for each, in their order")
    return list(zip(pad[::2], pad[1::2], strict=True))


def _slices(name: str, tensors: Sequence[Tensor], starts: Sequence[int]) -> list[Slice]:
    """Returns a Slice for each tensor, with its part of the starts."""
    numbers = sum(t.dim() for t in tensors)
    if len(starts) != numbers:
        raise ValueError(f"{name}: {len(starts)} numbers for tensors of {numbers} dimensions together")
    at = iter(starts)
    return [Slice(t, tuple(next(at) for _ in range(t.dim()))) for t in tensors]


def _axes(permute: _Axes, rank: int) -> list[int]:
    """Returns a permutation with axes numbered from 0: the identity if permute is None."""
    return list(range(rank) if permute is None else parse_axes(permute, rank, "permute") or ())


def _block_counts(shape: Sequence[Any], block: _Axes) -> list[Any]:
    """Returns the number of blocks along each dimension. Extents may be symbolic."""
    if block is None:
        block = [-1] * len(shape)
    parse_block(block, [1] * len(shape))  # only checks the argument
    whole = [1] * (len(shape) - len(block)) + list(block)
    return [(n > 0) * 1 if b == -1 else (n + b - 1) // b for n, b in zip(shape, whole, strict=True)]


def _blocks(selected: Tensor, index: Tensor, dim: int) -> list[Any]:
    """Returns the shape of the blocks that an index selects. Extents may be symbolic."""
    torch._check(index.dim() == 1, lambda: f"index: {index.dim()} dimensions; it has to have one")
    torch._check(_is_integer(index), lambda: f"index: {index.dtype}; it has to be of integers")
    shape: list[Any] = list(selected.shape)
    shape[parse_axis(dim, selected.dim(), "dim")] = index.shape[0]
    return shape


def _is_integer(index: Tensor) -> bool:
    return not (index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool)


def _check_layers(name: str, layers: Sequence[Tensor], other: str, stacked: Tensor) -> None:
    """Raises an error if layers differ in shape or type, or if the first extent of stacked is not the number of layers.
    name, other: names of the arguments, for errors."""
    torch._check(len(layers) > 0, lambda: f"{name}: it is empty; there is at least one layer")
    for i, t in enumerate(layers):
        _check_like(f"{name}[{i}]", t, layers[0].shape, layers[0].dtype)
    torch._check(stacked.dim() > 0, lambda: f"{other}: 0 dimensions; it has to have the layers in front")
    n = len(layers)
    torch._check(stacked.shape[0] == n, lambda: f"{other}: {list(stacked.shape)}; it has to have {n} layers in front")


def _check_like(name: str, tensor: Tensor, shape: Sequence[Any], dtype: torch.dtype) -> None:
    """Raises an error if a tensor does not have this shape and type."""
    torch._check(tensor.dtype == dtype, lambda: f"{name}: {tensor.dtype}; it has to be {dtype}")
    torch._check(tensor.dim() == len(shape), lambda: f"{name}: {tensor.dim()} dimensions; it has to have {len(shape)}")
    for extent, expected in zip(tensor.shape, shape, strict=True):
        torch._check(extent == expected, lambda: f"{name}: {list(tensor.shape)}; it has to be {list(shape)}")


def _check_operands(shape: Sequence[Any], cast: str | None = None, scale: Any = None, bias: Any = None) -> None:
    """Raises an error for an unknown cast, and for operands whose type is unsuitable or that do not broadcast against
    shape."""
    torch._check(cast is None or cast in CASTS, lambda: f"cast: {cast!r}; it is one of {', '.join(CASTS)}")
    for name, operand in (("scale", scale), ("bias", bias)):
        if operand is None:
            continue
        is_real = operand.dtype in (torch.float32, torch.float64) or operand.dim() == 0
        torch._check(is_real, lambda name=name, t=operand: f"{name}: {t.dtype}; it has to be float32 or float64")
        fits = operand.dim() <= len(shape) and all(
            n == 1 or n == extent for n, extent in zip(reversed(operand.shape), reversed(shape), strict=False)
        )
        torch._check(
            fits, lambda name=name, t=operand: f"{name}: {list(t.shape)}; it does not broadcast against {list(shape)}"
        )


def _casting(cast: Any, scale: Tensor | None, bias: Tensor | None) -> Keywords:
    return {
        "cast": cast,
        "scale": scale.detach() if scale is not None else None,
        "bias": bias.detach() if bias is not None else None,
    }


def _number(value: float, out: Tensor) -> Any:
    """Returns the value to pad with, as an int if out is of an integer type and the value is integral. Other values for
    integer types are refused when they are encoded."""
    is_real = out.dtype.is_floating_point or out.dtype.is_complex
    return value if is_real or value != value // 1 else int(value)


__all__ = [
    "client", "converted", "gather", "gather_layers", "gather_scatter", "gathered", "padded", "quantize", "quantized",
    "reshard", "scatter", "scatter_layers", "transform", "transposed", "use",
]  # fmt: skip
