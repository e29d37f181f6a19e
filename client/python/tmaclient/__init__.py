# SPDX-License-Identifier: Apache-2.0
"""Copies, transposes and pads tensors by tmad, a service that does so at memory speed.

    import numpy as np, tmaclient as tma

    c = tma.connect()
    y = c.transform(x, permute=(0, 3, 1, 2), pad=((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")

`x` is a NumPy array, an array of PyTorch, CuPy or JAX, or a buffer, and so is `y`. `python -m tmaclient` gives a short
tour; tmaclient.aio has the same for asyncio, and tmaclient.torch operators for torch.compile.
"""

from ._batch import Batch
from ._client import Client, connect
from ._core import VERSION as __version__
from ._core import Region, Tensor
from ._errors import *  # noqa: F403
from ._errors import __all__ as _error_names
from ._plan import Plan, PreparedPlan
from ._timeline import Point, Timeline

__all__ = [
    "Batch",
    "Client",
    "Plan",
    "Point",
    "PreparedPlan",
    "Region",
    "Tensor",
    "Timeline",
    "__version__",
    "connect",
    *(name for name in _error_names if name not in ("class_of", "make")),
]
