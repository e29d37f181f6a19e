# SPDX-License-Identifier: Apache-2.0
"""The messages between stages. Each is a NIXL notification that consists of a prefix and a JSON object.

A transfer begins with the sender's `offer`. A receiver that expects the transfer answers with `grant` messages, which
lend slots to the sender, one slot for each piece. The sender writes pieces into these slots, and the notification that
NIXL delivers with each write is its `data` message. When the piece in a slot has been scattered, the slot is granted
again. When all pieces have been scattered, the receiver sends `done`.

Either side may fail. A sender that sends `failed` has no write under way any more. A receiver that sends `failed` lends
the slots to nobody else until the sender has answered `failed`, or `closed` if it knows no such transfer. `ping` has no
content; if it cannot be sent, the peer is gone.

A `hello` whose member `answers` is 0 is answered by another `hello` with `answers` 1; then both sides have each other's
metadata. A `hello` carries the location of its sender's slots, so that the peer can tell whether the metadata that it
has covers them: metadata that was sent before the memory was registered does not.

Every message carries `from`, the number of the stage that sends it. All but offer, ping and hello carry `to`, the
number of the stage that the message is for, or 0 if the sender does not know it yet. By these numbers, messages from or
to an earlier stage whose agent had the same name are recognized and ignored. `id` is the sender's number of the
transfer.
"""

from __future__ import annotations

import json
from typing import Any

PREFIX = b"tmad/1 "
MOST_BYTES = 1 << 18  # limit of a received message, in bytes
MOST_TAG = 256  # limit of a tag, in characters
MOST_DIMENSIONS = 32  # maximum number of dimensions in an offer's shape
_MOST_TYPE = 32  # limit of the name of an element type, in characters

# This maps each kind of message to the members that it has beside kind and from, and to their types.
_MEMBERS: dict[str, dict[str, type]] = {
    "offer": {
        "id": int, "tag": str, "dtype": str, "shape": list, "layers": int, "blocks": int, "slot_bytes": int,
    },
    "grant": {"to": int, "id": int, "slots": list, "slot_bytes": int, "memory": str, "device": int},
    "data": {"to": int, "id": int, "piece": int, "slot": int, "loan": int},
    "done": {"to": int, "id": int},
    "failed": {"to": int, "id": int, "by": str, "status": int, "message": str},
    "closed": {"to": int, "id": int},
    "ping": {},
    "hello": {"answers": int, "address": int, "bytes": int, "memory": str, "device": int},
}  # fmt: skip
_KNOWN = {kind: {"from": int, **members} for kind, members in _MEMBERS.items()}

Message = dict[str, Any]


class MessageError(Exception):
    """Raised for a notification that has the prefix but is not a valid message."""


def encode(kind: str, sender: int, **members: Any) -> bytes:
    """Returns a message as the bytes of a notification. sender: number of the stage that sends it."""
    return PREFIX + json.dumps({"kind": kind, "from": sender, **members}, separators=(",", ":")).encode()


def decode(raw: bytes) -> Message:
    """Returns the message in a notification, reduced to its kind and the members of that kind. MessageError: it is not
    a valid message."""
    if len(raw) > MOST_BYTES:
        raise MessageError(f"a message of {len(raw)} bytes; the limit is {MOST_BYTES}")
    try:
        message = json.loads(raw[len(PREFIX) :])
    except (ValueError, RecursionError):
        raise MessageError("it is no JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise MessageError("it has no kind")
    known = _KNOWN.get(message["kind"])
    if known is None:
        raise MessageError(f"kind {message['kind'][:32]!r} is unknown")
    for name, of in known.items():
        value = message.get(name)
        if (
            not isinstance(value, of)
            or isinstance(value, bool)
            or (isinstance(value, int) and not -(1 << 31) <= value < 1 << 64)
        ):
            raise MessageError(f"{message['kind']}: its {name} is missing, or of another type")
    if message["kind"] == "offer":  # offers may be kept for a long time, so their size is limited
        if len(message["tag"]) > MOST_TAG or len(message["dtype"]) > _MOST_TYPE:
            raise MessageError("offer: its tag or its dtype is too long")
        if len(message["shape"]) > MOST_DIMENSIONS or not is_list_of_counts(message["shape"]):
            raise MessageError("offer: its shape is none")
    return {"kind": message["kind"], **{name: message[name] for name in known}}


def is_list_of_counts(value: list[Any], n: int | None = None) -> bool:
    """Returns whether all entries are integers from 0 to 2^63 - 1, and whether there are n of them; None allows any
    number of entries."""
    are = all(isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 1 << 63 for x in value)
    return are and (n is None or len(value) == n)
