# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch, which torch.compile keeps in its graphs:

    import tmaclient.torch

    torch.ops.tma.transform(x, out, permute=[0, 3, 1, 2], pad=[0, 0, 0, 0, 1, 1, 1, 1], pad_mode="edge")
    torch.ops.tma.gather(pool, index, out)
    torch.ops.tma.scatter(pool, index, blocks)

Each writes into the tensor that it is given. They use one client of the process, which `use` sets, or which is
connected at the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from ._client import Client, connect

_lock = threading.Lock()
_client: Client | None = None


def use(client: Client | None) -> None:
    """Sets the client of the operators. None: the next call connects to $TMAD_SOCKET or the usual paths."""
    global _client
    with _lock:
        _client = client


def client() -> Client:
    """The client of the operators."""
    global _client
    with _lock:
        if _client is None or _client.closed:
            _client = connect()
        return _client


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
) -> None:
    """out = pad(src.permute(permute)). pad has two numbers for each dimension of that, before and after it."""
    client().transform(
        src.detach(), permute=permute, pad=_pairs(pad, src.dim()), mode=pad_mode, value=_number(value, src), out=out
    )


@torch.library.custom_op("tma::gather", mutates_args=("out",))
def gather(
    src: torch.Tensor, index: torch.Tensor, out: torch.Tensor, dim: int = 0, permute: Sequence[int] | None = None
) -> None:
    """out = src.index_select(dim, index).permute(permute). On a device, -1 and what is out of range is skipped."""
    client().gather(src.detach(), index, axis=dim, permute=permute, out=out)


@torch.library.custom_op("tma::scatter", mutates_args=("out",))
def scatter(
    out: torch.Tensor, index: torch.Tensor, src: torch.Tensor, dim: int = 0, permute: Sequence[int] | None = None
) -> None:
    """out.index_copy_(dim, index, src.permute(permute)). No index may appear twice."""
    client().scatter(out, index, src.detach(), axis=dim, permute=permute)


@transform.register_fake
def _(
    src: torch.Tensor,
    out: torch.Tensor,
    permute: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    pad_mode: str = "constant",
    value: float = 0.0,
) -> None:
    rank = src.dim()
    torch._check(out.dtype == src.dtype, lambda: f"out: {out.dtype}; src is {src.dtype}")
    torch._check(out.dim() == rank, lambda: f"out: {out.dim()} dimensions; src has {rank}")
    pairs = _pairs(pad, rank) or [(0, 0)] * rank
    for d, (before, after) in enumerate(pairs):
        n = src.shape[permute[d] if permute else d] + before + after
        torch._check(out.shape[d] == n, lambda: "out: its shape is not that of the result")  # noqa: B023


@gather.register_fake
def _(
    src: torch.Tensor, index: torch.Tensor, out: torch.Tensor, dim: int = 0, permute: Sequence[int] | None = None
) -> None:
    _check_blocks(out, src, index, dim if not permute else list(permute).index(dim % src.dim()))


@scatter.register_fake
def _(
    out: torch.Tensor, index: torch.Tensor, src: torch.Tensor, dim: int = 0, permute: Sequence[int] | None = None
) -> None:
    _check_blocks(src, out, index, dim if not permute else permute[dim % src.dim()])


def _check_blocks(listed: torch.Tensor, selected: torch.Tensor, index: torch.Tensor, dim: int) -> None:
    torch._check(index.dim() == 1, lambda: f"index: {index.dim()} dimensions; it has to have one")
    torch._check(listed.dtype == selected.dtype, lambda: f"{listed.dtype} and {selected.dtype} differ")
    torch._check(listed.shape[dim] == index.shape[0], lambda: "index: not an entry for each block")


def _number(value: float, src: torch.Tensor) -> Any:
    """Padding of integers is by an integer."""
    return value if src.dtype.is_floating_point or src.dtype.is_complex else int(value)


__all__ = ["client", "gather", "scatter", "transform", "use"]
