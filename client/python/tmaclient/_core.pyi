# SPDX-License-Identifier: Apache-2.0
"""The extension module, libtmaclient for Python (src/*.c). Sizes and strides are in elements, unless a name says bytes.
Functions and classes without a docstring here have a complete one in the extension."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypedDict, final

from typing_extensions import Unpack

_Point = tuple[Region, int, int]  # region, offset in bytes, value

DTYPES: Final[dict[str, int]]  # names of the element types, and the size of an element of each in bytes
STATUSES: Final[dict[str, int]]
MAX_RANK: Final[int]
VERSION: Final[str]
VERSION_MAJOR: Final[int]
HAS_CUDA: Final[bool]  # True if this process can launch moves into CUDA streams by itself

class _Order(TypedDict, total=False):
    """The keyword arguments of calls that run a request."""

    wait: _Point | None
    signal: _Point | None
    wait_ms: int
    priority: int
    multiprocessors: int
    host_threads: int
    deadline_ms: int

@final
class Tensor:
    """A view of memory: its address, element type, shape and strides. It keeps the object that owns the memory
    alive."""

    def __new__(cls, object: Any, dtype: str | None = None, stream: int | None = None) -> Self: ...
    @staticmethod
    def exchanged(array: object, /) -> Tensor | None:
        """Returns a view of an array, by DLPack's table of C functions. None: the array's type has no such table, or
        the array means more than its elements, such as one that requires grad."""
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
        """Returns a view of a part, which begins `offset` elements after this tensor's first element."""
    def viewed(self, dtype: str, shape: Sequence[int], /) -> Tensor: ...
    def copy_from(self, source: Tensor, /) -> None: ...
    def copy_blocks(self, source: Tensor, axis: int, index: Tensor, start: int, is_scatter: bool, /) -> None:
        """Copies blocks of source, along an axis, to blocks of this tensor. is_scatter: block i of source is copied to
        the block of this tensor that entry start + i of the index names. Otherwise, the block of source that this entry
        names is copied to block i of this tensor."""
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
    """Memory that is shared with the service until the region is released."""

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
        """Returns a request that moves src, permuted, converted if there is a cast, and padded, into dst and into
        further destinations. scale and bias are Tensors or numbers. amax: block, tensors that the scales and the
        inverses are written into, power_of_two and least."""
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
        """Returns a request that moves the blocks that an index selects. An index of two dimensions, with scatter
        false, has pairs of a block of src and one of dst. Limits are numbers of blocks, steps are in bytes. A side has
        at most 1024 layers. They are given as a tuple, whose first tensor is all_dst or all_src, or as a number: the
        distance in bytes from one layer to the next within all_dst or all_src. At least one of the two sides lists its
        layers."""
    def again(self, index: Tensor, bytes: Tensor, layers: tuple[Tensor, ...], /) -> Request:
        """Returns a request of the same form for another list of as many entries. layers replace those of the side that
        the index selects, and are as many and laid out in the same way. bytes replaces the other side: contiguous bytes
        with the layout that the other side has in memory."""
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
        """Returns a request that runs a plan, with the tensors for scale and bias, and those that computed scales are
        written into, if the plan has them."""
    @staticmethod
    def items(requests: Iterable[Request], /) -> Request: ...
    @staticmethod
    def reshard(
        tensors: Sequence[Tensor], starts: Sequence[Sequence[int]], n_destinations: int, shape: Sequence[int] | None, /
    ) -> Request: ...

@final
class Ticket:
    """The ticket of a request. A request that was submitted without a token is forgotten when its ticket is freed."""

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
        """Makes destructors defer releases from now on, so that they do not wait. The wake descriptor becomes readable
        when there is something to release."""
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
        """Returns a region of zeroed host memory of size bytes, which is mapped for the given device first. is_shared:
        a driver may pin the memory, or other processes may write to it, so it is not sealed."""
    def allocate(self, size: int, device: str | None = None, zeroed: bool = True, /) -> Region:
        """Returns a region for an array of size bytes; small arrays share regions. Without zeroed, the contents are
        undefined."""
    def register(self, tensor: Tensor, readonly: bool, mapping: Any = None, /) -> Region:
        """Returns a region of a tensor's memory. mapping: the mmap object that the memory belongs to, which the region
        keeps open."""
    def is_shared(self, tensor: Tensor, /) -> bool: ...
    def run(self, request: Request, stream: int | tuple[int, int] = ..., /, **order: Unpack[_Order]) -> None:
        """Runs a request and waits for its end. stream is only for a client without a service: the request runs in the
        context of the stream, when all work that is queued in it has ended."""
    def submit(self, request: Request, token: object, /, **order: Unpack[_Order]) -> Ticket:
        """Starts a request and returns its ticket. completed() reports its end with the token; if the token is None,
        wait() does."""
    def wait(self, ticket: Ticket | int, /) -> None: ...
    def settle(self, request: Request, /) -> None:
        """Waits until a submitted request is not under way any more, and ignores its outcome."""
    def forget(self, ticket: Ticket | int, /) -> None: ...
    def cancel(self, ticket: Ticket | int, /) -> bool: ...
    def completed(self) -> list[tuple[Any, int, str | None]]:
        """Reads the replies that have arrived, and returns (token, status, message) of each request that has ended.
        Status 0 is success; then there is no message."""
    def poll_fds(self) -> tuple[int, bool, int]: ...
    def enqueue(
        self, request: Request, stream: int | tuple[int, int], token: object = None, /, **order: Unpack[_Order]
    ) -> None:
        """Starts a request in a CUDA stream: after the work that is queued in it, and before later work. stream: a
        handle, in the thread's current context, or a handle and the ordinal of its device."""
    def permuted(self, src: Any, axes: Sequence[int] | None, out: Any, is_reversed: bool, takes_host: bool, /) -> Any:
        """Permutes an array into out, or into a new one, and returns the result. On a CUDA device, the move is in the
        caller's current stream. axes None: the axes are reversed if is_reversed, and otherwise stay as they are.
        Returns None without moving anything if the arrays' type does not have DLPack's table of C functions, if a
        client without a service cannot do the move, or if the arrays are on the host and takes_host is false."""
    def synchronize(self, stream: int | tuple[int, int] | None = None, /) -> None:
        """Waits for all requests that were enqueued in streams, and raises the first error. stream: a client without a
        service waits for this stream alone; any other client ignores it."""
    def stream_point(
        self, region: Region, offset: int, value: int, stream: int | tuple[int, int], is_wait: bool, /
    ) -> None: ...
    def explain(self, request: Request, engine: str | None, /) -> dict[str, Any]: ...
    def picture(self, request: Request, engine: str | None, /) -> str: ...

def encode_number(dtype: str, value: Any, /) -> bytes: ...
def parse_dtype(name: str, /) -> str | None: ...
def check_apart(written: list[tuple[str, Tensor]], read: list[tuple[str, Tensor]], /) -> None:
    """Raises OverlapError if a tensor that is written shares bytes with itself or with another tensor. Each tensor has
    a name for the error."""

def check_index(index: Tensor, src_limit: int, dst_limit: int, /) -> Tensor:
    """Returns a checked copy of an index as int64. Limits are the numbers of blocks of each side. If one of them is -1,
    the index has numbers of the other side; otherwise it has pairs of both. Negative numbers count from the end. No two
    entries may name the same block of dst."""

def check_pool(pairs: Tensor, /) -> None:
    """Raises OverlapError if pairs, in the form that check_index returns, read a block that they also write."""

def layout(dtype: str, shape: Sequence[int], strides: Sequence[int], /) -> Tensor: ...
def signal_point(region: Region, offset: int, value: int, /) -> None: ...
def device_of(address: int, /) -> int: ...
def has_exchange(array: Any, /) -> bool:
    """Returns whether the array's type itself has DLPack's table of C functions, as torch.Tensor does."""

def exchange_stream(array: Any, device: int, /) -> int | None:
    """Returns the CUDA stream in which the caller works on a device, by DLPack's table of C functions; 0 is the default
    stream. None: the array's type has no such table."""

def set_timer_slack(ns: int, /) -> None: ...
def transposed(array: Any, axes: Sequence[int] | None, /) -> Any:
    """Returns np.transpose(array, axes) as a new array, which this thread moves in this process. None: the array is not
    a plain NumPy array, or the axes are not a permutation."""

def wait_point(region: Region, offset: int, value: int, timeout_ms: int, /) -> bool:
    """Waits for a point, and returns whether it was reached. timeout_ms -1: there is no limit."""
