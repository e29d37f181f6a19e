# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package: one class for each status of the service and its library."""

from __future__ import annotations

import enum

from . import _core


class Status(enum.IntEnum):
    """The statuses of libtmaclient with which a request can fail; see tmaclient(3)."""

    INVALID_ARGUMENT = _core.STATUSES["INVALID_ARGUMENT"]
    OUT_OF_RANGE = _core.STATUSES["OUT_OF_RANGE"]
    OVERLAP = _core.STATUSES["OVERLAP"]
    NOT_FOUND = _core.STATUSES["NOT_FOUND"]
    ALREADY_EXISTS = _core.STATUSES["ALREADY_EXISTS"]
    UNSUPPORTED = _core.STATUSES["UNSUPPORTED"]
    PERMISSION = _core.STATUSES["PERMISSION"]
    QUOTA = _core.STATUSES["QUOTA"]
    BUSY = _core.STATUSES["BUSY"]
    TIMEOUT = _core.STATUSES["TIMEOUT"]
    CANCELED = _core.STATUSES["CANCELED"]
    DEVICE_LOST = _core.STATUSES["DEVICE_LOST"]
    DEVICE = _core.STATUSES["DEVICE"]
    DISCONNECTED = _core.STATUSES["DISCONNECTED"]
    PROTOCOL = _core.STATUSES["PROTOCOL"]
    NO_MEMORY = _core.STATUSES["NO_MEMORY"]
    INTERNAL = _core.STATUSES["INTERNAL"]
    NO_REPLY = _core.STATUSES["NO_REPLY"]


_CLASSES: dict[int, type[Error]] = {}


class Error(Exception):
    """A failure of tmad or its library, or an operation that they refused. `status` is the kind of failure."""

    status: Status

    def __init_subclass__(cls, status: Status | None = None) -> None:
        """Registers the class for its status."""
        if status is not None:
            cls.status = status
            _CLASSES[status] = cls

    def __init__(self, message: str = "", status: Status | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgumentError(Error, ValueError, status=Status.INVALID_ARGUMENT):
    """An argument breaks a rule; repeating the call fails in the same way."""


class OutOfRangeError(Error, IndexError, status=Status.OUT_OF_RANGE):
    """A tensor, an index or a point of a timeline lies outside of its memory; or an exact cast has changed values."""


class OverlapError(Error, ValueError, status=Status.OVERLAP):
    """The destination overlaps itself or its source."""


class NotFoundError(Error, LookupError, status=Status.NOT_FOUND):
    """There is no such region, plan, request or connection, or it no longer exists."""


class AlreadyExistsError(Error, status=Status.ALREADY_EXISTS):
    """The client is already connected, or an agent has other metadata under the name of a peer."""


class UnsupportedError(Error, status=Status.UNSUPPORTED):
    """The service, its engine or the machine's CUDA driver cannot do this."""


class PermissionDeniedError(Error, PermissionError, status=Status.PERMISSION):
    """The socket's mode, the service's user or a region's flags forbid this."""


class QuotaError(Error, status=Status.QUOTA):
    """A limit of the service would be exceeded; the message names it."""


class BusyError(Error, status=Status.BUSY):
    """The object is in use, a queue is full, or the service refuses for now: retry when other requests have ended."""


class WaitTimeoutError(Error, TimeoutError, status=Status.TIMEOUT):
    """A timeline did not reach a point, or the request had not begun, before its deadline; nothing was moved."""


class CanceledError(Error, status=Status.CANCELED):
    """The request was canceled before it started, or a transfer of a nixl.Stage was canceled before it ended."""


class DeviceLostError(Error, status=Status.DEVICE_LOST):
    """The device failed and is being reopened; the next call reconnects."""


class DeviceError(Error, status=Status.DEVICE):
    """The device failed, or memory that was shared with it did."""


class DisconnectedError(Error, ConnectionError, status=Status.DISCONNECTED):
    """There is no service at the socket, or it went away; the next call reconnects."""


class ProtocolError(Error, status=Status.PROTOCOL):
    """The peer sent something that tmad never sends."""


class NoMemoryError(Error, MemoryError, status=Status.NO_MEMORY):
    """This process, the service or its device is out of memory."""


class InternalError(Error, status=Status.INTERNAL):
    """The service has a bug, or a system call has failed unexpectedly."""


class NoReplyError(Error, TimeoutError, status=Status.NO_REPLY):
    """There was no reply within the client's timeout; the outcome is unknown."""


class VersionError(UnsupportedError):
    """The service is of another major version than this package."""


for _kind in (Error, VersionError, *_CLASSES.values()):
    _kind.__module__ = "tmaclient"  # the module that programs import the class from


def class_of(status: int) -> type[Error]:
    """Returns the exception class of a status."""
    return _CLASSES.get(status, Error)


def make(status: int, message: str) -> Error:
    """Returns an exception of a status, with the library's message."""
    return class_of(status)(message)
