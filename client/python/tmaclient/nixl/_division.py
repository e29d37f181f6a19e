# SPDX-License-Identifier: Apache-2.0
"""Computes which part goes from which rank to which, when the two sides divide an extent among different numbers of
ranks."""

from __future__ import annotations

from collections.abc import Iterator


def shared_parts(extent: int, senders: int, receivers: int) -> Iterator[tuple[int, int, slice, slice]]:
    """Yields the transfers between two sizes of tensor parallelism that divide an extent, such as the heads of a cache
    or the rows of a matrix: rank of the sender, rank of the receiver, and the part that they share, as a slice of the
    sender's array and a slice of the receiver's.

    With at most as many ranks as there are heads, each rank of a side has extent / ranks consecutive heads, in the
    order of ranks. With more ranks, each head is replicated in ranks / extent consecutive ranks, as in vLLM and SGLang.
    Each receiver gets every head of its own exactly once, and senders that have the same heads share the work.
    """
    for name, ranks in (("senders", senders), ("receivers", receivers)):
        if extent < 1 or ranks < 1 or (extent % ranks and ranks % extent):
            raise ValueError(f"{name}: {ranks} ranks do not divide {extent}, nor are they a multiple of it")
    each_sends, each_receives = max(1, extent // senders), max(1, extent // receivers)
    copies = max(1, senders // extent)
    for receiver in range(receivers):
        there = receiver * extent // receivers
        first = there
        while first < there + each_receives:
            group = first // each_sends  # number of a group of senders that have the same part
            here = group * each_sends
            last = min(here + each_sends, there + each_receives)
            sender = group * copies + receiver % copies
            yield sender, receiver, slice(first - here, last - here), slice(first - there, last - there)
            first = last
