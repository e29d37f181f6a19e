# SPDX-License-Identifier: Apache-2.0
"""Copies, transposes, pads and casts tensors at memory speed, in this process or by tmad, a service.

    import numpy as np, tmaclient as tma

    y = tma.transpose(x, (0, 3, 1, 2))
    c = tma.connect()
    y = c.transform(x, permute=(0, 3, 1, 2), pad=((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")

The functions of the module move arrays in this process. A client of the service also reaches memory that processes
share, and moves between GPUs.

`x` is a NumPy array, an array of PyTorch, CuPy or JAX, or a buffer, and so is `y`. `python -m tmaclient` gives a short
tour. tmaclient.aio has the client for asyncio, and tmaclient.torch has operators for torch.compile.
"""

from typing import TYPE_CHECKING, Any

from ._batch import Batch
from ._client import Client, connect, local
from ._core import VERSION as __version__
from ._core import Region, Tensor
from ._errors import (
    AlreadyExistsError,
    BusyError,
    CanceledError,
    DeviceError,
    DeviceLostError,
    DisconnectedError,
    Error,
    InternalError,
    InvalidArgumentError,
    NoMemoryError,
    NoReplyError,
    NotFoundError,
    OutOfRangeError,
    OverlapError,
    PermissionDeniedError,
    ProtocolError,
    QuotaError,
    Status,
    UnsupportedError,
    VersionError,
    WaitTimeoutError,
)
from ._local import copy, explain, gather, gather_scatter, multicast, pad, quantize, scatter, transform, transpose
from ._plan import Plan, PreparedPlan
from ._reshard import Slice, shards
from ._scales import Amax
from ._timeline import Point, Timeline

if TYPE_CHECKING:
    from . import aio as aio


def __getattr__(name: str) -> Any:
    """Imports tmaclient.aio at its first use, so that programs that do not use asyncio do not import it."""
    if name == "aio":
        import importlib

        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AlreadyExistsError", "Amax", "Batch", "BusyError", "CanceledError", "Client", "DeviceError", "DeviceLostError",
    "DisconnectedError", "Error", "InternalError", "InvalidArgumentError", "NoMemoryError", "NoReplyError",
    "NotFoundError", "OutOfRangeError", "OverlapError", "PermissionDeniedError", "Plan", "Point", "PreparedPlan",
    "ProtocolError", "QuotaError", "Region", "Slice", "Status", "Tensor", "Timeline", "UnsupportedError",
    "VersionError", "WaitTimeoutError", "__version__", "aio", "connect", "copy", "explain", "gather", "gather_scatter",
    "local", "multicast", "pad", "quantize", "scatter", "shards", "transform", "transpose",
]  # fmt: skip
