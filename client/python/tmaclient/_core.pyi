# SPDX-License-Identifier: Apache-2.0
"""The extension, libtmaclient for Python: src/*.c. Sizes and strides are in elements, unless a name says bytes.
What has no docstring here has one in the extension, which says all that there is to say."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypedDict, final

from typing_extensions import Unpack

_Point = tuple[Region, int, int]  # region, offset in bytes, value

DTYPES: Final[dict[str, int]]  # names of the element types, and their bytes
STATUSES: Final[dict[str, int]]
MAX_RANK: Final[int]
VERSION: Final[str]
VERSION_MAJOR: Final[int]
HAS_CUDA: Final[bool]  # whether this process can launch moves into CUDA streams by itself

class _Order(TypedDict, total=False):
    """Keywords of calls that run a request."""

    wait: _Point | None
    signal: _Point | None
    wait_ms: int
    priority: int
    multiprocessors: int
    host_threads: int
    deadline_ms: int

@final
class Tensor:
    """A view of memory: where it is, its element type, shape and strides. It keeps what it is a view of."""

    def __new__(cls, object: Any, dtype: str | None = None, stream: int | None = None) -> Self: ...
    @staticmethod
    def exchanged(array: object, /) -> Tensor | None:
        """A view of an array by DLPack's table of C functions. None: its type has none, or the array is more than its
        elements, as one that requires grad is."""
    @staticmethod
    def at(
        address: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        device: tuple[int, int],
        owner: object,
        /,
    ) -> Tensor: ...
    shape: Final[tuple[int, ...]]
    strides: Final[tuple[int, ...]]
    dtype: Final[str]
    itemsize: Final[int]
    ndim: Final[int]
    size: Final[int]
    nbytes: Final[int]
    data: Final[int]
    extent: Final[tuple[int, int]]
    readonly: Final[bool]
    is_host: Final[bool]
    device: Final[tuple[int, int]]
    stream: Final[int | None]
    def part(self, offset: int, shape: Sequence[int], strides: Sequence[int], /) -> Tensor:
        """A view of a part, which begins at element offset."""
    def viewed(self, dtype: str, shape: Sequence[int], /) -> Tensor: ...
    def copy_from(self, source: Tensor, /) -> None: ...
    def copy_blocks(self, source: Tensor, axis: int, index: Tensor, start: int, is_scatter: bool, /) -> None:
        """Copies the blocks that an index selects, from its entry `start` on."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Region:
    """Memory that the service shares, until it is released."""

    size: Final[int]
    address: Final[int]
    @property
    def kind(self) -> str:
        """Kind of memory, such as "memfd"; "released" after release()."""
    def tensor(self, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int], /) -> Tensor: ...
    def release(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Request:
    @staticmethod
    def transform(
        dst: Tensor,
        src: Tensor,
        permute: tuple[int, ...] | None,
        before: tuple[int, ...] | None,
        after: tuple[int, ...] | None,
        mode: str,
        value: Any,
        cast: str | None = None,
        scale: Any = None,
        bias: Any = None,
        amax: tuple[Sequence[int], Tensor | None, Tensor | None, bool, float] | None = None,
        further: tuple[Tensor, ...] | None = None,
        /,
    ) -> Request:
        """Moves src, permuted, converted if there is a cast, and padded, into dst, and into further destinations.
        scale and bias are Tensors or numbers. amax: block, where scales and inverses are written, power_of_two and
        least."""
    @staticmethod
    def blocks(
        scatter: bool,
        dst: Tensor,
        src: Tensor,
        permute: tuple[int, ...] | None,
        all_dst: Tensor,
        all_src: Tensor,
        index: Tensor,
        is_index_shared: bool,
        dst_limit: int,
        src_limit: int,
        dst_step: int,
        src_step: int,
        cast: str | None = None,
        scale: Any = None,
        bias: Any = None,
        dst_layers: int | tuple[Tensor, ...] | None = None,
        src_layers: int | tuple[Tensor, ...] | None = None,
        /,
    ) -> Request:
        """Moves the blocks that an index selects, or, if it has two dimensions and scatter is false, pairs of a block
        of src and one of dst. Limits are numbers of blocks, steps are in bytes. Layers of a side, 1024 at most, are
        each by itself, the first of them all_dst or all_src; or, of one side, in that tensor, so many bytes apart."""
    def again(self, index: Tensor, bytes: Tensor, layers: tuple[Tensor, ...], /) -> Request:
        """The same blocks by another list of as many entries, between these layers, as many and laid out as those of
        the side that the index selects, and contiguous bytes, as the other side lies in memory."""
    @staticmethod
    def run_plan(
        plan: Plan,
        dst: Tensor,
        src: Tensor,
        scale: Tensor | None = None,
        bias: Tensor | None = None,
        amax_scale: Tensor | None = None,
        amax_inverse: Tensor | None = None,
        /,
    ) -> Request:
        """Runs a plan; with the tensors that it converts by, and those of scales that it computes, if it does."""
    @staticmethod
    def items(requests: Iterable[Request], /) -> Request: ...
    @staticmethod
    def reshard(
        tensors: Sequence[Tensor], starts: Sequence[Sequence[int]], n_destinations: int, shape: Sequence[int] | None, /
    ) -> Request: ...

@final
class Ticket:
    """The ticket of a request. A request without a token is forgotten with its ticket."""

    def __index__(self) -> int: ...

class Plan:
    def __new__(cls, client: Client, request: Request, /) -> Self: ...
    dst: Final[Tensor]
    src: Final[Tensor]
    released: Final[bool]
    def release(self) -> None: ...
    def __call__(self, src: Any, out: Any = None, **options: Any) -> Any: ...

@final
class Client:
    def __new__(
        cls, path: str | None = None, timeout_ms: int = -1, reconnect_ms: int = 5000, server_uid: int | None = None
    ) -> Self: ...
    path: Final[str]
    reconnects: Final[int]
    is_local: Final[bool]
    closed: Final[bool]
    has_deferred: Final[bool]
    def defer_releases(self) -> None:
        """From now on destructors do not wait: the wake descriptor says that there is something to release."""
    def release_deferred(self) -> None: ...
    def close(self) -> None: ...
    def ping(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def regions(self) -> list[dict[str, Any]]: ...
    def set_timeout(self, ms: int, /) -> None: ...
    def set_reconnect(self, ms: int, /) -> None: ...
    def last_result(self) -> dict[str, Any]: ...
    def create(self, size: int, device: str | None = None, is_shared: bool = False, /) -> Region:
        """A region of zeroed host memory; size in bytes; mapped for that device first. is_shared: a driver may pin it,
        or other processes write to it, so that it is not sealed."""
    def allocate(self, size: int, device: str | None = None, zeroed: bool = True, /) -> Region:
        """The same for an array: small ones share regions. What is not zeroed has any contents."""
    def register(self, tensor: Tensor, readonly: bool, mapping: Any = None, /) -> Region:
        """A region of a tensor's memory. mapping: the mmap that has it, which the region keeps open."""
    def is_shared(self, tensor: Tensor, /) -> bool: ...
    def run(self, request: Request, stream: int | tuple[int, int] = ..., /, **order: Unpack[_Order]) -> None:
        """Runs a request and waits for its end; with a stream, without a service, once all that is on the stream has
        ended, in its context."""
    def submit(self, request: Request, token: object, /, **order: Unpack[_Order]) -> Ticket:
        """Starts a request and returns its ticket; completed() returns its end, or wait() if the token is None."""
    def wait(self, ticket: Ticket | int, /) -> None: ...
    def settle(self, request: Request, /) -> None:
        """Waits until a submitted request is not under way, however it ends."""
    def forget(self, ticket: Ticket | int, /) -> None: ...
    def cancel(self, ticket: Ticket | int, /) -> bool: ...
    def completed(self) -> list[tuple[Any, int, str | None]]:
        """Reads what has arrived: (token, status, message) of each that ended."""
    def poll_fds(self) -> tuple[int, bool, int]: ...
    def enqueue(
        self, request: Request, stream: int | tuple[int, int], token: object = None, /, **order: Unpack[_Order]
    ) -> None:
        """Starts a request between what a CUDA stream has and will get: a handle, of the thread's context, or with the
        ordinal of its device."""
    def permuted(self, src: Any, axes: Sequence[int] | None, out: Any, is_reversed: bool, takes_host: bool, /) -> Any:
        """Permutes an array into out, or into a new one, and returns the result; on a CUDA device, that is in the
        caller's current stream. Without axes they are reversed, or stay as they are. None, and nothing has been moved:
        the arrays' type has not DLPack's table of C functions, or the move is none that a client without a service
        does, or it is on the host without takes_host."""
    def synchronize(self, stream: int | tuple[int, int] | None = None, /) -> None:
        """Waits for all that was enqueued on streams."""
    def stream_point(
        self, region: Region, offset: int, value: int, stream: int | tuple[int, int], is_wait: bool, /
    ) -> None: ...
    def explain(self, request: Request, engine: str | None, /) -> dict[str, Any]: ...
    def picture(self, request: Request, engine: str | None, /) -> str: ...

def encode_number(dtype: str, value: Any, /) -> bytes: ...
def parse_dtype(name: str, /) -> str | None: ...
def check_apart(written: list[tuple[str, Tensor]], read: list[tuple[str, Tensor]], /) -> None:
    """Refuses what is written where it shares bytes, with itself or with another tensor; each with its name."""

def check_index(index: Tensor, src_limit: int, dst_limit: int, /) -> Tensor:
    """A checked copy, as int64, of numbers of so many blocks of src or of dst, where the other limit is -1, or of pairs
    of both; negative ones count from the end. No two may be the same block of dst."""

def check_pool(pairs: Tensor, /) -> None:
    """Refuses pairs, such as check_index returns, of which one reads a block that one writes."""

def layout(dtype: str, shape: Sequence[int], strides: Sequence[int], /) -> Tensor: ...
def signal_point(region: Region, offset: int, value: int, /) -> None: ...
def device_of(address: int, /) -> int: ...
def has_exchange(array: Any, /) -> bool:
    """Whether the array's type itself has DLPack's table of C functions, as torch.Tensor has it."""

def exchange_stream(array: Any, device: int, /) -> int | None:
    """The CUDA stream in which the caller works on a device, by that table: 0 is the default stream. None: the array's
    type has no table."""

def set_timer_slack(ns: int, /) -> None: ...
def transposed(array: Any, axes: Sequence[int] | None, /) -> Any:
    """np.transpose as a new array, moved by this thread in this process. None: the array is no plain one of NumPy's, or
    the axes are no permutation."""

def wait_point(region: Region, offset: int, value: int, timeout_ms: int, /) -> bool:
    """Waits for a point; returns whether it was reached. -1: no limit."""
