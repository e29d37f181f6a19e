# SPDX-License-Identifier: Apache-2.0
"""Timelines: numbers in shared memory that only grow, by which requests, threads and CUDA streams wait for each
other."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from . import _core


class Point(NamedTuple):
    """A value of a timeline, which is reached when the timeline has this value or a larger one."""

    timeline: Timeline
    value: int

    def parts(self) -> tuple[_core.Region, int, int]:
        """Returns the point in the form of the core's calls: region, offset in bytes, and value."""
        return self.timeline._region, 0, self.value


class Timeline:
    """A 64-bit number that starts at 0 and only grows. `point(v)` is what calls take as wait= and signal=."""

    def __init__(self, core: _core.Client) -> None:
        self._core = core
        self._region = core.create(64, None, True)  # unsealed, because the driver pins it for streams
        self._word = memoryview(self._region)[:8].cast("Q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        """Does nothing: the memory is freed with the last request that uses it."""

    def __repr__(self) -> str:
        return f"<tmaclient.Timeline at {self.value}>"

    @property
    def value(self) -> int:
        """The current value."""
        return self._word[0]

    def point(self, value: int) -> Point:
        """Returns the point at which the timeline has this value."""
        return Point(self, value)

    def signal(self, value: int, *, stream: Any = None) -> None:
        """Sets the value: now or, with a stream, when the stream has finished the work that was queued in it before.
        The stream is one of torch's or CuPy's, or the handle of a CUDA stream as an integer. The value must be larger
        than the one before."""
        if stream is None:
            _core.signal_point(self._region, 0, value)
        else:
            self._core.stream_point(self._region, 0, value, stream_handle(stream), False)

    def wait(self, value: int, timeout: float | None = None, *, stream: Any = None) -> bool:
        """Waits until the timeline has a value or a larger one. Without a stream, the thread waits, for at most timeout
        seconds, and the call returns whether the value was reached. With a stream, the work that is queued in it from
        now on waits, and the call returns True at once."""
        if stream is not None:
            if timeout is not None:
                raise ValueError("timeout: a stream waits without a limit")
            self._core.stream_point(self._region, 0, value, stream_handle(stream), True)
            return True
        return _core.wait_point(self._region, 0, value, -1 if timeout is None else max(0, round(timeout * 1000)))


def stream_handle(stream: Any) -> int:
    """Returns the handle of the CUDA stream that an object stands for."""
    for name in ("cuda_stream", "ptr", "handle"):  # attributes of the streams of torch, CuPy and cuda.core
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    return int(stream)
