# SPDX-License-Identifier: Apache-2.0
"""What the operators for PyTorch take: their arguments as Client takes them, and checks of tensors without memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._conversion import CASTS, Keywords
from ._moves import parse_axes, parse_axis
from ._reshard import Slice
from ._scales import parse_block


def pairs(pad: Sequence[int] | None, rank: int) -> list[tuple[int, int]] | None:
    if not pad:
        return None
    if len(pad) != 2 * rank:
        raise ValueError(f"pad: {len(pad)} numbers for a tensor of {rank} dimensions; two for each, in their order")
    return list(zip(pad[::2], pad[1::2], strict=True))


def slices(name: str, tensors: Sequence[torch.Tensor], starts: Sequence[int]) -> list[Slice]:
    """Each tensor with its part of the starts."""
    numbers = sum(t.dim() for t in tensors)
    if len(starts) != numbers:
        raise ValueError(f"{name}: {len(starts)} numbers for tensors of {numbers} dimensions together")
    at = iter(starts)
    return [Slice(t, tuple(next(at) for _ in range(t.dim()))) for t in tensors]


def axes(permute: Sequence[int] | None, rank: int) -> list[int]:
    """A permutation, with axes from 0 on."""
    return list(range(rank) if permute is None else parse_axes(permute, rank, "permute") or ())


def block_counts(shape: Sequence[Any], block: Sequence[int] | None) -> list[Any]:
    """How many blocks there are along each dimension. Extents may be symbols."""
    if block is None:
        block = [-1] * len(shape)
    parse_block(block, [1] * len(shape))  # is one
    whole = [1] * (len(shape) - len(block)) + list(block)
    return [(n > 0) * 1 if b == -1 else (n + b - 1) // b for n, b in zip(shape, whole, strict=True)]


def blocks(selected: torch.Tensor, index: torch.Tensor, dim: int) -> list[Any]:
    """The shape of the blocks that an index selects. Extents may be symbols."""
    torch._check(index.dim() == 1, lambda: f"index: {index.dim()} dimensions; it has to have one")
    torch._check(is_integer(index), lambda: f"index: {index.dtype}; it has to be of integers")
    shape: list[Any] = list(selected.shape)
    shape[parse_axis(dim, selected.dim(), "dim")] = index.shape[0]
    return shape


def is_integer(index: torch.Tensor) -> bool:
    return not (index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool)


def check_layers(name: str, layers: Sequence[torch.Tensor], other: str, stacked: torch.Tensor) -> None:
    """Refuses layers that differ, and a tensor that has not as many in front."""
    torch._check(len(layers) > 0, lambda: f"{name}: it is empty; there is at least one layer")
    for i, t in enumerate(layers):
        check_like(f"{name}[{i}]", t, layers[0].shape, layers[0].dtype)
    torch._check(stacked.dim() > 0, lambda: f"{other}: 0 dimensions; it has to have the layers in front")
    n = len(layers)
    torch._check(stacked.shape[0] == n, lambda: f"{other}: {list(stacked.shape)}; it has to have {n} layers in front")


def check_like(name: str, tensor: torch.Tensor, shape: Sequence[Any], dtype: torch.dtype) -> None:
    """Refuses a tensor of another type or shape."""
    torch._check(tensor.dtype == dtype, lambda: f"{name}: {tensor.dtype}; it has to be {dtype}")
    torch._check(tensor.dim() == len(shape), lambda: f"{name}: {tensor.dim()} dimensions; it has to have {len(shape)}")
    for extent, expected in zip(tensor.shape, shape, strict=True):
        torch._check(extent == expected, lambda: f"{name}: {list(tensor.shape)}; it has to be {list(shape)}")


def check_operands(shape: Sequence[Any], cast: str | None = None, scale: Any = None, bias: Any = None) -> None:
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


def casting(cast: Any, scale: torch.Tensor | None, bias: torch.Tensor | None) -> Keywords:
    return {
        "cast": cast,
        "scale": scale.detach() if scale is not None else None,
        "bias": bias.detach() if bias is not None else None,
    }


def number(value: float, out: torch.Tensor) -> Any:
    """Padding of integers is by an integer; any other number is refused where it is encoded."""
    is_real = out.dtype.is_floating_point or out.dtype.is_complex
    return value if is_real or value != value // 1 else int(value)
