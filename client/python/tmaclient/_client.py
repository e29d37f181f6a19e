# SPDX-License-Identifier: Apache-2.0
"""The blocking client: NumPy's operations on arrays of any kind, which tmad or this process runs."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Sequence
from typing import Any, Self, Unpack

from . import _core
from ._arrays import NUMPY, adapt, dtype_name, mapping_of, numpy_dtype
from ._batch import Batch
from ._blocking import Runner
from ._conversion import Casting, Keywords
from ._errors import DisconnectedError, InvalidArgumentError, UnsupportedError, VersionError
from ._jobs import MoveKeywords, Options, milliseconds
from ._moves import Mode
from ._plan import Plan, PreparedPlan
from ._scales import is_exponents
from ._timeline import Timeline


class Client(Runner):
    """A connection to tmad; see `connect`. Any thread may use it; calls of several threads take turns.

    Arrays are NumPy's, objects with `__dlpack__` or `__cuda_array_interface__` (PyTorch, CuPy, JAX), or buffers;
    results are of the same kind as `src`, or are `out`. Arrays made by `empty` and `zeros`, or registered, are moved
    where they are; others are staged in chunks. Tensors on a CUDA device are moved in the caller's current stream,
    after the work that is queued there and before later work, and the call does not wait. Moves between tensors on one
    device are launched by this process itself, whichever client is called: that takes no longer than any kernel
    launch, and CUDA graphs can capture it. direct=False leaves these moves to the service, and so does cast="exact".

    out, where a call takes it, is an array to write into: of the result's shape and type, writable, with any
    strides along which no two elements share bytes (OverlapError). Extents, widths and indexes count elements.

    A call raises TypeError, ValueError or IndexError for an argument that is wrong by itself, and otherwise a class
    of tmaclient.Error: the service refuses the request (InvalidArgumentError, OverlapError if out and src share
    elements, QuotaError, NoMemoryError), is not there (DisconnectedError), or does not answer (NoReplyError). Nothing
    is moved before arguments are checked; a call that fails later leaves out undefined.

    Every method that moves something also takes these keywords. The first five convert: the result is
    cast(permute(src) * scale + bias), padded after that. Every type can be converted to every other, except the complex
    ones.

        dtype             type of the result: a name, or a type of NumPy's or torch's; None: src's, or with cast out's
        cast              "saturate": the nearest finite value; "exact": OutOfRangeError if the type lacks the value of
                          any element, and the error says of how many; "ieee": as astype does, so that infinities
                          stay, and integers keep their low bits. With dtype, the default is "saturate"
        scale, bias       numbers, lists of numbers, or arrays of float32 or float64 that broadcast against the permuted
                          src. The calculation is in float32, or in float64 if either type is float64 or an integer
                          type of 32 or 64 bits
        amax              an Amax, instead of scale and bias: scales are computed for blocks of the result during the
                          move, and written into arrays. Not for gather, scatter and gather_scatter. quantize makes an
                          Amax from its arguments
        wait, signal      points of timelines: the move starts when the first is reached, and reaches the second at
                          its end
        wait_timeout      seconds that the wait may take (WaitTimeoutError)
        priority          when the move starts, compared with those of the user's other connections: "urgent", before
                          them; "background", when they have nothing to start; or "normal"
        multiprocessors   maximum number of the device's multiprocessors that the move occupies; 0: as many as the
                          service allows
        host_threads      maximum number of the service's threads that move bytes of the move at once; 0: as many as the
                          service allows
        deadline          seconds within which the move has to begin; otherwise nothing is moved (WaitTimeoutError). Not
                          for moves in a CUDA stream, nor for those that take several requests, as moves of ordinary
                          arrays do
        progress          True shows a progress bar (needs tqdm); or an object with update(bytes) and close(). Only
                          staged arrays have progress
        synchronous       True: the call waits for the end of the move even on a CUDA device
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        reconnect: float = 5.0,
        server_uid: int | None = None,
        staging: int = 64 << 20,
        local: bool = True,
        direct: bool = True,
    ) -> None:
        core = make_core(
            path,
            -1 if timeout is None else milliseconds(timeout, "timeout"),
            -1 if reconnect < 0 else milliseconds(reconnect, "reconnect"),
            server_uid,
            local,
        )
        super().__init__(core, staging, direct)

    def _local(self) -> Client:
        return local()

    def close(self) -> None:
        """Closes the connection when all requests under way have ended. Arrays that the client made remain valid; calls
        of the client raise ValueError from now on. Closing again does nothing."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._core.closed:
            return "<tmaclient.Client, closed>"
        return f"<tmaclient.Client of {self._core.path}>"

    def plan(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: Mode = "constant",
        value: Any = 0,
        out: Any = None,
        **casting: Unpack[Keywords],
    ) -> PreparedPlan:
        """Checks a transform once. plan(src, out) then runs it for arrays of the same shape, strides and type as those
        given here, and raises ValueError for others; without out, the result is in C order. Only the layouts of src and
        out matter here, not their contents. The plan keeps scale and bias; if they are arrays, a run may have others of
        the same layout: plan(src, out, scale=other). The plan also keeps the arrays of amax, into which every run
        writes; a run may have others: plan(src, out, amax=other), of which only scale and inverse may differ."""
        return PreparedPlan._make(
            self, self._core, self._plan_move(src, permute, pad, mode, value, out, Casting(**casting))
        )

    def batch(self, **options: Unpack[MoveKeywords]) -> Batch:
        """Collects moves and runs them together when the with block ends. No move may read or write what another
        writes.

        with c.batch() as b:
            b.copy(x, out=y)
            z = b.transpose(w)       # is filled at the end of the block
        """
        return Batch(self, Options.of(options).check_no_casting("each move of a batch has its own"))

    # ---- Memory ----------------------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32", *, device: int | str | None = None) -> Any:
        """Returns a NumPy array in memory that is shared with the service, so that it is moved without staging. The
        array is zeroed and in C order, and its memory is freed with the last array that uses it. Arrays of less than 1
        MiB share regions; a larger one keeps a descriptor open. dtype is a name, or a type of NumPy's or torch's. If
        NumPy is not installed, or lacks the type, the result is a Tensor. device: if the service has several, the one
        that will move the array, by its UUID or its position in info()["devices"]; other devices map it when they first
        need it. QuotaError: a limit of the user's memory is reached. NoMemoryError: there is not enough memory.
        NotFoundError: the service has no such device."""
        where = device if device is None or isinstance(device, str) else str(operator.index(device))
        extents = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(operator.index(n) for n in shape)
        if is_exponents(dtype):
            return NUMPY.exponents(self._make_shared(extents, "uint8", where))
        name = dtype_name(dtype)
        try:
            numpy_dtype(name)
        except (ImportError, TypeError):
            return self._make_tensor(extents, name, where)
        return self._make_shared(extents, name, where)

    zeros = empty

    def register(self, array: Any, *, readonly: bool = False) -> _core.Region:
        """Shares an array's memory with the service, without a copy, until the returned region is released. The array
        must be in device memory, or in host memory that maps a file in memory, such as that of
        multiprocessing.shared_memory or a np.memmap in /dev/shm. Other host memory belongs to this process alone and
        cannot be shared (UnsupportedError): make the array with empty() instead. From users that it does not trust, a
        service with a GPU takes only memfds that it can seal (UnsupportedError, too). Keep the region for as long as
        the array is to be moved without staging. Until its release the memory stays mapped, if Python knows its owner:
        close() of its mmap, or of its SharedMemory, raises BufferError. If other memory is mapped at the same address
        nevertheless, that memory is staged. readonly: the service may only read the memory, and a request that writes
        it raises PermissionDeniedError."""
        t = adapt(array, "array").tensor
        try:
            return self._core.register(t, readonly or t.readonly, mapping_of(array) if t.is_host else None)
        except (InvalidArgumentError, UnsupportedError) as e:
            if not t.is_host or str(e).startswith("fd: "):  # for a file, the service's error already says what to do
                raise
            raise type(e)(
                f"array: the memory at {t.data:#x} cannot be shared as it is; make the array with empty() or zeros(), "
                f"or of shared memory that is mapped from a file in memory ({e})"
            ) from None

    # ---- Order -----------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """Returns a new timeline: a number in shared memory that only grows, which requests, threads and CUDA streams
        wait for and signal."""
        return Timeline(self._core)

    # ---- What the service says -------------------------------------------------------------------------

    def explain(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: Mode = "constant",
        value: Any = 0,
        out: Any = None,
        engine: str | None = None,
        **casting: Unpack[Keywords],
    ) -> Plan:
        """Returns how the service would run a transform, without running it. engine: "cpu" or "cuda", whether or not
        the service uses it; None: the one that it uses. Sizes and strides are in bytes, and times in nanoseconds, as in
        the output of tmactl explain."""
        return Plan(self._core, self._plan_move(src, permute, pad, mode, value, out, Casting(**casting)), engine)

    def ping(self) -> None:
        """Waits for an answer of the service. DisconnectedError or NoReplyError: it does not answer."""
        self._core.ping()

    def info(self) -> dict[str, Any]:
        """Returns the engine, devices, limits, methods and element types of the service."""
        return self._core.info()

    def stats(self) -> dict[str, Any]:
        """Returns the counters of the whole service."""
        return self._core.stats()

    def regions(self) -> list[dict[str, Any]]:
        """Returns the regions of this connection."""
        return self._core.regions()

    def last_result(self) -> dict[str, Any]:
        """Returns what the last request did: kernel family ("path"), bytes and nanoseconds, and for a gather or a
        scatter the number of entries that were moved. For a move that this process has launched into a stream, only
        path and bytes are known."""
        return self._last_core.last_result()

    @property
    def path(self) -> str:
        """The path of the service's socket."""
        return self._core.path

    @property
    def closed(self) -> bool:
        """True if the client is closed."""
        return self._core.closed


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    timeout: float | None = None,
    reconnect: float = 5.0,
    server_uid: int | None = None,
    staging: int = 64 << 20,
    local: bool = True,
    direct: bool = True,
) -> Client:
    """Connects to tmad. path is that of its socket; None selects $TMAD_SOCKET, /run/tmad/tmad.sock or
    $XDG_RUNTIME_DIR/tmad/tmad.sock. "@NAME" is the abstract socket NAME, which has no file, and "local:" is this
    process itself.

    If neither path nor $TMAD_SOCKET names a service, and none is found, the client is one of "local:", as its repr
    says. local=False raises DisconnectedError instead.

    timeout limits each call, in seconds (NoReplyError); None: there is no limit. reconnect is the number of seconds
    for which a call tries to reach a service that went away; negative: not at all. server_uid is one more user, besides
    root and this process's, that the service may run as. staging is the number of bytes of staging memory through which
    a call moves arrays that are not shared. With direct=False, the service also moves tensors that are on one CUDA
    device (see Client).
    """
    return Client(
        path, timeout=timeout, reconnect=reconnect, server_uid=server_uid, staging=staging, local=local, direct=direct
    )


_own = threading.local()  # client: this thread's client of "local:"; pid: the process that made it


def local() -> Client:
    """Returns this thread's client of "local:". The first call makes it, and so does the first one after it was closed
    or the process forked. It moves arrays of the host where they are, on the CPU and without a service, and tensors
    on a CUDA device in the caller's current stream. Operations that need a service, such as timelines and memory of
    other processes, raise UnsupportedError."""
    client: Client | None = getattr(_own, "client", None)
    if client is None or client.closed or _own.pid != os.getpid():
        _own.pid = os.getpid()
        client = _own.client = Client("local:")
    return client


def make_core(
    path: str | os.PathLike[str] | None, timeout_ms: int, reconnect_ms: int, server_uid: int | None, local: bool
) -> _core.Client:
    """Returns a connection to the service at path, or the "local:" one of this process, by the rules of `connect`."""
    named = os.fspath(path) if path is not None else None
    try:
        core = _core.Client(named, timeout_ms, reconnect_ms, server_uid)
    except DisconnectedError:
        if not local or named is not None or os.environ.get("TMAD_SOCKET"):
            raise
        core = _core.Client("local:", timeout_ms, reconnect_ms, server_uid)
    check_version(core)
    return core


def check_version(core: _core.Client) -> None:
    """Closes the connection and raises VersionError if the service is of another major version."""
    version = str(core.info().get("version", "?"))
    if version.partition(".")[0] != str(_core.VERSION_MAJOR):
        path = core.path
        core.close()
        raise VersionError(
            f"tmad at {path} is version {version}; tmaclient {_core.VERSION} works with version "
            f"{_core.VERSION_MAJOR}.x: install the same major version of both"
        )
