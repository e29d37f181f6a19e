# SPDX-License-Identifier: Apache-2.0
"""What stages tell each other: notifications of NIXL, each a prefix and a map in JSON.

A transfer begins with the sender's `offer`. The receiver that expects it answers with `grant`s of slots, one for each
piece that may come; the sender writes pieces into them, and the notification of each write is its `data`. A slot that
was scattered is granted again, until all pieces are there and the receiver says `done`.

Either side may fail. A sender that says `failed` has no write under way any more. A receiver that says `failed` lends
the slots to nobody else before the sender has said so, or `closed` if it knows no such transfer. `ping` says nothing:
that it cannot be sent says that the peer is gone.

A `hello` that answers none (0) is answered by another one: then both have each other's metadata. It says where the
slots of its sender are, which metadata that was sent too early lacks.

All carry `from`, the number of the stage that sends it, and all but an offer, a ping and a hello carry `to`, that of
the stage that it is for, or 0 if the sender does not know it yet: what an earlier process of the same name sent, or is
sent, is nobody's. `id` is the sender's number of the transfer.
"""

from __future__ import annotations

import json
from typing import Any

PREFIX = b"tmad/1 "
MOST_BYTES = 1 << 18  # of a message that is read
MOST_TAG = 256  # characters
MOST_DIMENSIONS = 32
_MOST_TYPE = 32  # characters

# The members of each kind, beside kind and from, and their types.
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
    """A notification with the prefix that is no message."""


def encode(kind: str, sender: int, **members: Any) -> bytes:
    """A message as it is sent."""
    return PREFIX + json.dumps({"kind": kind, "from": sender, **members}, separators=(",", ":")).encode()


def decode(raw: bytes) -> Message:
    """The message that a notification is, with the members of its kind."""
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
    if message["kind"] == "offer":  # it is kept, perhaps for long
        if len(message["tag"]) > MOST_TAG or len(message["dtype"]) > _MOST_TYPE:
            raise MessageError("offer: its tag or its dtype is too long")
        if len(message["shape"]) > MOST_DIMENSIONS or not is_list_of_counts(message["shape"]):
            raise MessageError("offer: its shape is none")
    return {"kind": message["kind"], **{name: message[name] for name in known}}


def is_list_of_counts(value: list[Any], n: int | None = None) -> bool:
    """Whether these are numbers from 0 on, below 2^63, n of them."""
    are = all(isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 1 << 63 for x in value)
    return are and (n is None or len(value) == n)
