# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package: one class for each status of the service and its library."""

from __future__ import annotations

import enum

from . import _core


class Status(enum.IntEnum):
    """How a request ended, as libtmaclient has it. See tmaclient(3)."""

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


class Error(Exception):
    """What tmad or its library refused, or what failed. `status` says which kind of failure it is."""

    status: Status

    def __init__(self, message: str = "", status: Status | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgumentError(Error, ValueError):
    """An argument breaks a rule; repeating the call fails in the same way."""

    status = Status.INVALID_ARGUMENT


class OutOfRangeError(Error, IndexError):
    """A tensor, an index or a point of a timeline lies outside of its memory; or an exact cast has changed values."""

    status = Status.OUT_OF_RANGE


class OverlapError(Error, ValueError):
    """The destination overlaps itself or its source."""

    status = Status.OVERLAP


class NotFoundError(Error, LookupError):
    """There is no such region, plan, request or connection, or it no longer exists."""

    status = Status.NOT_FOUND


class AlreadyExistsError(Error):
    """The client is already connected."""

    status = Status.ALREADY_EXISTS


class UnsupportedError(Error):
    """This service, its engine or this machine's CUDA driver cannot do it."""

    status = Status.UNSUPPORTED


class PermissionDeniedError(Error, PermissionError):
    """The socket's mode, the service's user or a region's flags forbid it."""

    status = Status.PERMISSION


class QuotaError(Error):
    """A limit of the service would be exceeded; the message names it."""

    status = Status.QUOTA


class BusyError(Error):
    """In use, full or refused for now: let something finish, then retry."""

    status = Status.BUSY


class WaitTimeoutError(Error, TimeoutError):
    """A timeline did not reach a point, or the request had not begun, before its deadline; nothing was moved."""

    status = Status.TIMEOUT


class CanceledError(Error):
    """Canceled before it started."""

    status = Status.CANCELED


class DeviceLostError(Error):
    """The device failed and is being reopened; the next call reconnects."""

    status = Status.DEVICE_LOST


class DeviceError(Error):
    """The device failed, or memory that was shared with it did."""

    status = Status.DEVICE


class DisconnectedError(Error, ConnectionError):
    """There is no service at the socket, or it went away; the next call reconnects."""

    status = Status.DISCONNECTED


class ProtocolError(Error):
    """The peer sent something that tmad never sends."""

    status = Status.PROTOCOL


class NoMemoryError(Error, MemoryError):
    """This process, the service or its device is out of memory."""

    status = Status.NO_MEMORY


class InternalError(Error):
    """A bug in the service, or a system call that failed unexpectedly."""

    status = Status.INTERNAL


class NoReplyError(Error, TimeoutError):
    """No reply within the client's timeout: the outcome is unknown."""

    status = Status.NO_REPLY


class VersionError(UnsupportedError):
    """The service is of another major version than this package."""


_CLASSES: dict[int, type[Error]] = {int(kind.status): kind for kind in Error.__subclasses__()}

for _kind in (Error, VersionError, *_CLASSES.values()):
    _kind.__module__ = "tmaclient"  # where programs find it


def class_of(status: int) -> type[Error]:
    """The exception class of a status."""
    return _CLASSES.get(status, Error)


def make(status: int, message: str) -> Error:
    """An exception of a status, with the library's message."""
    return class_of(status)(message)
