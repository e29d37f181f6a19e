# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch, which torch.compile keeps in its graphs:

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

Those of the first group write into the tensors that they are given. Those of the second return new ones, in C order,
and have gradients, but for quantized. Tensors of one CUDA device are moved in the current stream, by this process
itself, so that torch.compile(mode="reduce-overhead") and other CUDA graphs hold the operators. They use one client of
the process, which `use` sets, or which is connected at the first call.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any
from typing import cast as cast_type

import torch

from ._client import Client, connect
from ._conversion import CASTS, Cast, Keywords
from ._moves import Mode, check_permutation, parse_axes, parse_axis
from ._reshard import Slice
from ._scales import check_dtype, parse_block


class _Choice:
    """A client of the operators, and the path where the next one connects. No lock guards it: anybody's code may run
    while a client connects, and may call an operator. Of two threads that connect at once, either client serves."""

    def __init__(self, client: Client | None, path: str | None) -> None:
        self.client, self.path = client, path


_choice = _Choice(None, None)


def use(client: Client | None) -> None:
    """Sets the client of the operators. None: the next call connects to $TMAD_SOCKET or the usual paths."""
    global _choice
    _choice = _Choice(client, client.path if client is not None else None)


def client() -> Client:
    """The client of the operators. A child process that was forked connects by itself, to the same service."""
    choice = _choice
    chosen = choice.client
    if chosen is None or chosen.closed:
        choice.client = chosen = connect(choice.path)
        choice.path = chosen.path
    return chosen


def _forget() -> None:
    """In a child, which needs a client of its own."""
    global _choice
    _choice = _Choice(None, _choice.path)


os.register_at_fork(after_in_child=_forget)


def _pairs(pad: Sequence[int] | None, rank: int) -> list[tuple[int, int]] | None:
    if not pad:
        return None
    if len(pad) != 2 * rank:
        raise ValueError(f"pad: {len(pad)} numbers for a tensor of {rank} dimensions; two for each, in their order")
    return list(zip(pad[::2], pad[1::2], strict=True))


@torch.library.custom_op("tma::transform", mutates_args=("out",))
def transform(
    src: torch.Tensor,
    out: torch.Tensor,
    permute: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    pad_mode: str = "constant",
    value: float = 0.0,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """out = pad(src.permute(permute)). pad has two numbers for each dimension of that, before and after it.

    With cast, "saturate", "exact" or "ieee", out may be of another type: it is
    pad(cast(src.permute(permute) * scale + bias)).
    """
    client().transform(
        src.detach(),
        permute=permute,
        pad=_pairs(pad, src.dim()),
        mode=cast_type(Mode, pad_mode),
        value=_number(value, out),
        out=out,
        **_casting(cast, scale, bias),
    )


@torch.library.custom_op("tma::quantize", mutates_args=("out", "scale_out", "inverse_out"))
def quantize(
    src: torch.Tensor,
    out: torch.Tensor,
    scale_out: torch.Tensor,
    block: Sequence[int] | None,
    permute: Sequence[int] | None = None,
    power_of_two: bool = False,
    least: float = 0.0,
    inverse_out: torch.Tensor | None = None,
) -> None:
    """out = src.permute(permute) cast to out's type by a scale for each block, which is written into scale_out, and its
    inverse into inverse_out; see Client.quantize."""
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
    """Counts writes of quantize, as autograd wants it. What PyTorch 2.11 registers for that raises IndexError where a
    tensor that an operator writes, inverse_out here, may be left out, and is."""
    for written in (*args[1:3], *args[7:8]):
        if written is not None:
            torch.autograd.graph.increment_version(written)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        torch.ops.tma.quantize.default.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args)


_library = torch.library.Library("tma", "FRAGMENT")
with warnings.catch_warnings():  # which PyTorch gives for every override
    warnings.simplefilter("ignore", UserWarning)
    _library.impl("quantize", _quantize_in_place, "ADInplaceOrView", with_keyset=True, allow_override=True)


@torch.library.custom_op("tma::gather", mutates_args=("out",))
def gather(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """out = src.index_select(dim, index).permute(permute). On a device, -1 and what is out of range is skipped. cast,
    scale and bias are as for transform."""
    client().gather(src.detach(), index, axis=dim, permute=permute, out=out, **_casting(cast, scale, bias))


@torch.library.custom_op("tma::scatter", mutates_args=("out",))
def scatter(
    out: torch.Tensor,
    index: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """out.index_copy_(dim, index, src.permute(permute)). No index may appear twice. cast, scale and bias are as for
    transform."""
    client().scatter(out, index, src.detach(), axis=dim, permute=permute, **_casting(cast, scale, bias))


@torch.library.custom_op("tma::gather_scatter", mutates_args=("out",))
def gather_scatter(
    out: torch.Tensor,
    src: torch.Tensor,
    pairs: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """out.index_copy_(dim, pairs[:, 1], src.permute(permute).index_select(dim, pairs[:, 0])). No entry of out may be
    there twice. On a device, pairs with a -1 or out of range are skipped. out and src may be the same, with pairs on
    the host, as for Client.gather_scatter. cast, scale and bias are as for transform."""
    client().gather_scatter(out, src.detach(), pairs, axis=dim, permute=permute, **_casting(cast, scale, bias))


@torch.library.custom_op("tma::gather_layers", mutates_args=("out",))
def gather_layers(
    src: Sequence[torch.Tensor],
    index: torch.Tensor,
    out: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """out[i] is what gather makes of src[i]: of tensors of one shape, type and strides, in one request."""
    layers = [t.detach() for t in src]
    client().gather(layers, index, axis=dim, permute=permute, out=out, **_casting(cast, scale, bias))


@torch.library.custom_op("tma::scatter_layers", mutates_args=("out",))
def scatter_layers(
    out: Sequence[torch.Tensor],
    index: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """What scatter does with out[i] and src[i], for each i, in one request."""
    client().scatter(list(out), index, src.detach(), axis=dim, permute=permute, **_casting(cast, scale, bias))


@torch.library.custom_op("tma::reshard", mutates_args=("destinations",))
def reshard(
    destinations: Sequence[torch.Tensor],
    sources: Sequence[torch.Tensor],
    destination_starts: Sequence[int],
    source_starts: Sequence[int],
) -> None:
    """Puts the destinations together from the sources, which are slices of one tensor; see Client.reshard. The starts
    are the indices in it of the first element of each slice, those of one slice after the other."""
    client().reshard(
        _slices("destination_starts", destinations, destination_starts),
        _slices("source_starts", [t.detach() for t in sources], source_starts),
    )


@transform.register_fake
def _(
    src: torch.Tensor,
    out: torch.Tensor,
    permute: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    pad_mode: str = "constant",
    value: float = 0.0,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    axes = _axes(permute, src.dim())
    pairs = _pairs(pad, src.dim()) or [(0, 0)] * src.dim()
    shape = [src.shape[d] + before + after for d, (before, after) in zip(axes, pairs, strict=True)]
    _check_like("out", out, shape, src.dtype if cast is None else out.dtype)
    _check_operands([src.shape[d] for d in axes], cast, scale, bias)


@quantize.register_fake
def _(
    src: torch.Tensor,
    out: torch.Tensor,
    scale_out: torch.Tensor,
    block: Sequence[int] | None,
    permute: Sequence[int] | None = None,
    power_of_two: bool = False,
    least: float = 0.0,
    inverse_out: torch.Tensor | None = None,
) -> None:
    shape = [src.shape[d] for d in _axes(permute, src.dim())]
    _check_like("out", out, shape, out.dtype)
    counts = _block_counts(shape, block)
    for name, scale in (("scale_out", scale_out), ("inverse_out", inverse_out)):
        if scale is not None:
            check_dtype(str(scale.dtype).removeprefix("torch."), name, power_of_two)
            _check_like(name, scale, counts, scale.dtype)


@gather.register_fake
def _fake_gather(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    axes = _axes(permute, src.dim())
    blocks = _blocks(src, index, dim)
    _check_like("out", out, [blocks[d] for d in axes], src.dtype if cast is None else out.dtype)
    axis = parse_axis(dim, src.dim(), "dim")
    _check_operands([1 if d == axis else blocks[d] for d in axes], cast, scale, bias)


@scatter.register_fake
def _fake_scatter(
    out: torch.Tensor,
    index: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    axes = _axes(permute, out.dim())
    blocks = _blocks(out, index, dim)
    dtype = out.dtype if cast is None else src.dtype
    _check_like("src", src, [blocks[axes.index(d)] for d in range(out.dim())], dtype)
    axis = parse_axis(dim, out.dim(), "dim")
    _check_operands([1 if d == axis else n for d, n in enumerate(blocks)], cast, scale, bias)


@gather_scatter.register_fake
def _(
    out: torch.Tensor,
    src: torch.Tensor,
    pairs: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    torch._check(pairs.dim() == 2, lambda: f"pairs: {pairs.dim()} dimensions; it has an entry for each block")
    torch._check(pairs.shape[1] == 2, lambda: f"pairs: {list(pairs.shape)}; each is of two numbers")
    torch._check(_is_integer(pairs), lambda: f"pairs: {pairs.dtype}; it has to be of integers")
    axes = _axes(permute, out.dim())
    axis = parse_axis(dim, out.dim(), "dim")
    torch._check(src.dim() == out.dim(), lambda: f"src: {src.dim()} dimensions; it has to have {out.dim()}")
    blocks: list[Any] = list(out.shape)
    blocks[axis] = src.shape[axes[axis]]
    dtype = out.dtype if cast is None else src.dtype
    _check_like("src", src, [blocks[axes.index(d)] for d in range(out.dim())], dtype)
    _check_operands([1 if d == axis else n for d, n in enumerate(blocks)], cast, scale, bias)


@gather_layers.register_fake
def _(
    src: Sequence[torch.Tensor],
    index: torch.Tensor,
    out: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    _check_layers("src", src, "out", out)
    _fake_gather(src[0], index, out[0], dim, permute, cast, scale, bias)


@scatter_layers.register_fake
def _(
    out: Sequence[torch.Tensor],
    index: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    permute: Sequence[int] | None = None,
    cast: str | None = None,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    _check_layers("out", out, "src", src)
    _fake_scatter(out[0], index, src[0], dim, permute, cast, scale, bias)


@reshard.register_fake
def _(
    destinations: Sequence[torch.Tensor],
    sources: Sequence[torch.Tensor],
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


def _slices(name: str, tensors: Sequence[torch.Tensor], starts: Sequence[int]) -> list[Slice]:
    """Each tensor with its part of the starts."""
    numbers = sum(t.dim() for t in tensors)
    if len(starts) != numbers:
        raise ValueError(f"{name}: {len(starts)} numbers for tensors of {numbers} dimensions together")
    at = iter(starts)
    return [Slice(t, tuple(next(at) for _ in range(t.dim()))) for t in tensors]


def _axes(permute: Sequence[int] | None, rank: int) -> list[int]:
    """A permutation, with axes from 0 on."""
    axes = parse_axes(permute, rank, "permute")
    check_permutation(axes, "permute")
    return list(range(rank)) if axes is None else list(axes)


def _block_counts(shape: Sequence[Any], block: Sequence[int] | None) -> list[Any]:
    """How many blocks there are along each dimension. Extents may be symbols."""
    if block is None:
        block = [-1] * len(shape)
    parse_block(block, [1] * len(shape))  # is one
    whole = [1] * (len(shape) - len(block)) + list(block)
    return [(n > 0) * 1 if b == -1 else (n + b - 1) // b for n, b in zip(shape, whole, strict=True)]


def _blocks(selected: torch.Tensor, index: torch.Tensor, dim: int) -> list[Any]:
    """The shape of the blocks that an index selects. Extents may be symbols."""
    torch._check(index.dim() == 1, lambda: f"index: {index.dim()} dimensions; it has to have one")
    torch._check(_is_integer(index), lambda: f"index: {index.dtype}; it has to be of integers")
    shape: list[Any] = list(selected.shape)
    shape[parse_axis(dim, selected.dim(), "dim")] = index.shape[0]
    return shape


def _is_integer(index: torch.Tensor) -> bool:
    return not (index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool)


def _check_layers(name: str, layers: Sequence[torch.Tensor], other: str, stacked: torch.Tensor) -> None:
    """Refuses layers that differ, and a tensor that has not as many in front."""
    torch._check(len(layers) > 0, lambda: f"{name}: it is empty; there is at least one layer")
    for i, t in enumerate(layers):
        _check_like(f"{name}[{i}]", t, layers[0].shape, layers[0].dtype)
    torch._check(stacked.dim() > 0, lambda: f"{other}: 0 dimensions; it has to have the layers in front")
    n = len(layers)
    torch._check(stacked.shape[0] == n, lambda: f"{other}: {list(stacked.shape)}; it has to have {n} layers in front")


def _check_like(name: str, tensor: torch.Tensor, shape: Sequence[Any], dtype: torch.dtype) -> None:
    """Refuses a tensor of another type or shape."""
    torch._check(tensor.dtype == dtype, lambda: f"{name}: {tensor.dtype}; it has to be {dtype}")
    torch._check(tensor.dim() == len(shape), lambda: f"{name}: {tensor.dim()} dimensions; it has to have {len(shape)}")
    for extent, expected in zip(tensor.shape, shape, strict=True):
        torch._check(extent == expected, lambda: f"{name}: {list(tensor.shape)}; it has to be {list(shape)}")


def _check_operands(
    shape: Sequence[Any], cast: str | None, scale: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    """Refuses a cast, and operands of another type, or that do not broadcast."""
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


def _casting(cast: str | None, scale: torch.Tensor | None, bias: torch.Tensor | None) -> Keywords:
    return {
        "cast": cast_type("Cast | None", cast),
        "scale": scale.detach() if scale is not None else None,
        "bias": bias.detach() if bias is not None else None,
    }


def _number(value: float, out: torch.Tensor) -> Any:
    """Padding of integers is by an integer; any other number is refused where it is encoded."""
    is_real = out.dtype.is_floating_point or out.dtype.is_complex
    return value if is_real or value != value // 1 else int(value)


# This import is last because the module uses what is defined above.
from ._torch_functional import converted, gathered, padded, quantized, transposed  # noqa: E402

__all__ = [
    "client", "converted", "gather", "gather_layers", "gather_scatter", "gathered", "padded", "quantize", "quantized",
    "reshard", "scatter", "scatter_layers", "transform", "transposed", "use",
]  # fmt: skip
