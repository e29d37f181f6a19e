# SPDX-License-Identifier: Apache-2.0
"""Which parts go where, when the two sides divide something among other numbers of ranks."""

from __future__ import annotations

from collections.abc import Iterator


def shared_parts(extent: int, senders: int, receivers: int) -> Iterator[tuple[int, int, slice, slice]]:
    """The transfers between two sizes of tensor parallelism that divide an extent, such as the heads of a cache or the
    rows of a matrix: rank of the sender, rank of the receiver, and the part that they share, in the array of each.

    Each side has extent / ranks of it in each rank, in their order; or, with more ranks than there are heads, one head
    in ranks / extent ranks that follow each other, as vLLM and SGLang have it. Each receiver gets all of its own once,
    and ranks that have the same share the work.
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
            group = first // each_sends  # of ranks that have the same
            here = group * each_sends
            last = min(here + each_sends, there + each_receives)
            sender = group * copies + receiver % copies
            yield sender, receiver, slice(first - here, last - here), slice(first - there, last - there)
            first = last
