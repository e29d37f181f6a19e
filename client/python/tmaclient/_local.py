# SPDX-License-Identifier: Apache-2.0
"""The functions of the package, which move arrays in this process, without a service, by each thread's client of
"local:"."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from . import _core
from ._client import Client, local
from ._jobs import MoveKeywords

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _function(method: Callable[Concatenate[Client, _Arguments], _Result]) -> Callable[_Arguments, _Result]:
    """Returns a function that calls a method of Client on this thread's client of "local:"."""

    @functools.wraps(method)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return method(local(), *args, **kwargs)

    return call


copy = _function(Client.copy)
pad = _function(Client.pad)
transform = _function(Client.transform)
multicast = _function(Client.multicast)
quantize = _function(Client.quantize)
gather = _function(Client.gather)
scatter = _function(Client.scatter)
gather_scatter = _function(Client.gather_scatter)
explain = _function(Client.explain)


if TYPE_CHECKING:
    transpose = _function(Client.transpose)  # this has the overloads for type checkers
else:

    def transpose(src: Any, axes: Sequence[int] | None = None, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        """Transposes as Client.transpose does, in this process. A plain NumPy array, without out and options, is moved
        without making a Tensor or a Request."""
        if axes is not None and hasattr(axes, "__iter__"):
            axes = tuple(axes)
        if out is None and not options:
            made = _core.transposed(src, axes)
            if made is not None:
                return made
        return local().transpose(src, axes, out, **options)
