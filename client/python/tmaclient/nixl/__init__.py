# SPDX-License-Identifier: Apache-2.0
"""Moves blocks of tensors between hosts: tmad gathers, permutes and converts them, and NIXL carries the bytes.

    import tmaclient as tma, tmaclient.nixl

    with tma.connect() as client, tma.nixl.Stage(client, "prefill-0") as stage:
        stage.connect("decode-3", "10.0.0.7", 5555)
        sent = stage.send("decode-3", request_id, [layer[:, :, 4:8] for layer in cache], blocks)
        sent.result()

A Stage owns memory that is divided into slots and registered with a NIXL agent once. `send` gathers the blocks that a
list selects into slots of its own stage and writes each slot into a slot of the peer's stage; the peer's `receive`
scatters the data from there into arrays of its own layout. Each side names its arrays, its blocks and its order of
dimensions; the data on the wire is contiguous. A transfer uses several slots in turn, so that gathering, writing and
scattering overlap, and the number of slots bounds the memory that is needed, however long the lists are.

This subpackage needs the package nixl.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("nixl") is None:
    raise ImportError("tmaclient.nixl needs the package nixl, which is not installed: pip install nixl")

from ._division import shared_parts
from ._exchange import Transfer
from ._stage import Stage

__all__ = ["Stage", "Transfer", "shared_parts"]
