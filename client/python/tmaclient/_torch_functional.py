# SPDX-License-Identifier: Apache-2.0
"""Operators that return new tensors, with gradients where the operation has one. tmaclient.torch loads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import cast as cast_type

import torch

from ._conversion import Cast
from ._moves import Mode
from ._scales import check_dtype
from .torch import _axes, _block_counts, _blocks, _number, _pairs, client


# ---- Permutations -----------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::transposed", mutates_args=())
def transposed(src: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """src.permute(axes), in C order."""
    result: torch.Tensor = client().transpose(src.detach(), tuple(axes))
    return result


@transposed.register_fake
def _(src: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    return src.new_empty([src.shape[d] for d in _axes(axes, src.dim())])


def _keep_axes(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, axes = inputs
    order = _axes(axes, src.dim())
    ctx.back = [order.index(d) for d in range(len(order))]


def _transpose_back(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return torch.ops.tma.transposed(grad, ctx.back), None


transposed.register_autograd(_transpose_back, setup_context=_keep_axes)


# ---- Borders ----------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::padded", mutates_args=())
def padded(src: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> torch.Tensor:
    """src with borders, in C order. pad has two numbers for each dimension, before and after it; a negative one crops.
    mode is one of np.pad's, as for Client.pad. Only "constant" has a gradient."""
    pairs = _pairs(pad, src.dim())
    result: torch.Tensor = client().pad(src.detach(), pairs or 0, cast_type(Mode, mode), _number(value, src))
    return result


@padded.register_fake
def _(src: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> torch.Tensor:
    pairs = _pairs(pad, src.dim()) or [(0, 0)] * src.dim()
    return src.new_empty([n + before + after for n, (before, after) in zip(src.shape, pairs, strict=True)])


def _keep_pads(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, pad, mode, _ = inputs
    ctx.back, ctx.mode = [-n for n in pad], mode


def _pad_back(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    if ctx.mode != "constant" and any(n < 0 for n in ctx.back):
        raise NotImplementedError(
            f"mode: a border by {ctx.mode!r} has no gradient here; torch.nn.functional.pad has one"
        )
    return torch.ops.tma.padded(grad, ctx.back), None, None, None


padded.register_autograd(_pad_back, setup_context=_keep_pads)


# ---- Types ------------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::converted", mutates_args=())
def converted(
    src: torch.Tensor, dtype: torch.dtype, cast: str = "saturate", permute: Sequence[int] | None = None
) -> torch.Tensor:
    """src.permute(permute) as another type, in C order. cast is as for Client. The gradient is converted back."""
    result: torch.Tensor = client().transform(src.detach(), permute=permute, dtype=dtype, cast=cast_type(Cast, cast))
    return result


@converted.register_fake
def _(
    src: torch.Tensor, dtype: torch.dtype, cast: str = "saturate", permute: Sequence[int] | None = None
) -> torch.Tensor:
    return src.new_empty([src.shape[d] for d in _axes(permute, src.dim())], dtype=dtype)


def _keep_type(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, _, _, permute = inputs
    order = _axes(permute, src.dim())
    ctx.dtype, ctx.back = src.dtype, [order.index(d) for d in range(len(order))]


def _convert_back(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return torch.ops.tma.converted(grad, ctx.dtype, "ieee", ctx.back), None, None, None


converted.register_autograd(_convert_back, setup_context=_keep_type)


# ---- Lists ------------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::gathered", mutates_args=())
def gathered(src: torch.Tensor, index: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Returns src.index_select(dim, index). Entries of an index on a device must be in range, from 0 on: others leave
    their rows undefined."""
    result: torch.Tensor = client().gather(src.detach(), index, axis=dim)
    return result


@gathered.register_fake
def _(src: torch.Tensor, index: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return src.new_empty(_blocks(src, index, dim))


def _keep_index(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, index, dim = inputs
    ctx.save_for_backward(index)
    ctx.shape, ctx.dim = src.shape, dim


def _scatter_back(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (index,) = ctx.saved_tensors
    entries = index.to(grad.device, torch.int64)
    entries = torch.where(entries < 0, entries + ctx.shape[ctx.dim], entries)
    return grad.new_zeros(ctx.shape).index_add(ctx.dim, entries, grad), None, None


gathered.register_autograd(_scatter_back, setup_context=_keep_index)


# ---- Scales -----------------------------------------------------------------------------------------------------
@torch.library.custom_op("tma::quantized", mutates_args=())
def quantized(
    src: torch.Tensor,
    block: Sequence[int] | None,
    dtype: torch.dtype = torch.float8_e4m3fn,
    power_of_two: bool = False,
    least: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """src as a small floating type, and the float32 scale of each block; see Client.quantize. It has no gradient."""
    data, scale = client().quantize(src.detach(), block, dtype=dtype, power_of_two=power_of_two, least=least)
    return data, scale


@quantized.register_fake
def _(
    src: torch.Tensor,
    block: Sequence[int] | None,
    dtype: torch.dtype = torch.float8_e4m3fn,
    power_of_two: bool = False,
    least: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_dtype("float32", "scale", power_of_two)
    scales = src.new_empty(_block_counts(list(src.shape), block), dtype=torch.float32)
    return src.new_empty(src.shape, dtype=dtype), scales
