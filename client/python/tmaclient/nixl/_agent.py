# SPDX-License-Identifier: Apache-2.0
"""Wraps the calls that a stage makes to a NIXL agent, and translates NIXL's exceptions.

Agent is not thread-safe: every caller must hold the lock of the stage that owns the Agent.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from .._errors import AlreadyExistsError, InvalidArgumentError, UnsupportedError
from ._messages import PREFIX

_MOST_DESCRIPTORS = 1024  # maximum number of transfer descriptors that an Agent caches


class Gone(Exception):
    """The peer's end of the connection is closed, or there never was a connection."""


def make_agent(name: str, port: int | None) -> Any:
    """Returns a new NIXL agent that uses UCX. It has no progress thread of its own, which would poll all the time: the
    steps of the stage poll it. It listens for the metadata of peers at port; None: it does not listen."""
    api = _api()
    listening = {} if port is None else {"enable_listen_thread": True, "listen_port": port}
    config = api.nixl_agent_config(enable_prog_thread=False, **listening)
    return api.nixl_agent(name, config)


def _api() -> Any:
    """Returns the module nixl._api. ImportError names the package if it cannot be imported."""
    try:
        return importlib.import_module("nixl._api")
    except ImportError as e:
        raise ImportError(f"tmaclient.nixl needs the package nixl, which cannot be imported here: {e}") from e


class Agent:
    """A NIXL agent and the memory of a stage, which is registered with it until close().

    nixl     the nixl_agent
    memory   NIXL's name of the kind of memory: "DRAM" or "VRAM"
    device   ordinal of the CUDA device for "VRAM"; 0 for "DRAM"
    """

    def __init__(self, agent: Any, address: int, size: int, memory: str, device: int) -> None:
        api = _api()
        self._bindings = importlib.import_module(api.nixl_agent.__module__.rpartition(".")[0] + "._bindings")
        self._unknown = self._bindings.nixlNotFoundError
        self._refused = (self._unknown, self._bindings.nixlInvalidParamError)
        self.nixl, self.memory, self.device = agent, memory, device
        self._descriptors: dict[tuple[int, int, int, str], Any] = {}
        try:
            self._registered = agent.register_memory([(address, size, device, "")], memory)
        except Exception as e:
            raise UnsupportedError(f"memory: NIXL cannot register {size} bytes of {memory}: {e}") from e

    def close(self) -> None:
        """Deregisters the memory: peers cannot write into it from now on."""
        self.nixl.deregister_memory(self._registered)

    # ---- Peers -------------------------------------------------------------------------------------------

    def knows(self, peer: str) -> bool:
        """Returns whether the agent has the peer's metadata."""
        return bool(self.nixl.check_remote_metadata(peer))

    def add(self, metadata: bytes) -> str:
        """Adds the metadata of a peer and returns the peer's name. AlreadyExistsError: the agent has other metadata of
        that name. InvalidArgumentError: NIXL cannot use the metadata."""
        try:
            name: bytes | str = self.nixl.add_remote_agent(metadata)
        except self._bindings.nixlNotAllowedError as e:
            raise AlreadyExistsError(f"metadata: there is other metadata of that peer; forget it first ({e})") from None
        except Exception as e:
            raise InvalidArgumentError(f"metadata: NIXL does not take it ({e})") from None
        return name.decode() if isinstance(name, bytes) else name

    def fetch(self, peer: str, ip: str, port: int) -> None:
        """Sends this agent's metadata to a peer and asks for the peer's, through etcd if ip is empty. Sending comes
        first: NIXL waits for metadata that etcd does not have yet, and sends nothing while it waits."""
        try:
            self.nixl.send_local_metadata(ip, port)
            self.nixl.fetch_remote_metadata(peer, ip, port)
        except Exception as e:
            where = f"{ip} port {port}" if ip else "etcd (NIXL_ETCD_ENDPOINTS)"
            raise UnsupportedError(f"peer: NIXL cannot ask {where} for the metadata of {peer!r}: {e}") from None

    def reaches(self, peer: str, address: int, size: int, memory: str, device: int) -> bool:
        """Returns whether the metadata that the agent has of the peer covers this memory of the peer's."""
        try:
            descriptors = self.nixl.get_xfer_descs([(address, size, device)], memory)
            return bool(self.nixl.check_remote_metadata(peer, descriptors))
        except Exception:  # NIXL raises if it does not know the memory
            return False

    def remove(self, peer: str) -> None:
        """Removes a peer's metadata and closes the connection to it: nothing that it sends arrives any more."""
        with contextlib.suppress(self._unknown):
            self.nixl.remove_remote_agent(peer)

    # ---- Messages ----------------------------------------------------------------------------------------

    def notify(self, peer: str, message: bytes) -> None:
        """Sends a message to a peer. Raises Gone if NIXL cannot send it."""
        try:
            self.nixl.send_notif(peer, message)
        except Exception as e:
            raise Gone(str(e)) from None

    def notifications(self) -> list[tuple[str, bytes]]:
        """Removes the messages of other stages from the agent's notifications, and returns each with the name of its
        sender. Notifications without tmad's prefix belong to other users of the agent, and are left there."""
        result: list[tuple[str, bytes]] = []
        for peer, arrived in self.nixl.update_notifs().items():
            if not arrived:
                continue
            ours = [raw for raw in arrived if raw.startswith(PREFIX)]
            arrived[:] = [raw for raw in arrived if not raw.startswith(PREFIX)]
            result += [(peer, raw) for raw in ours]
        return result

    # ---- Writes ------------------------------------------------------------------------------------------

    def write(self, peer: str, place: tuple[int, str, int], address: int, size: int, message: bytes) -> Write:
        """Starts a write of size bytes, which are at address in this stage's memory, to a place in a peer's memory, and
        returns the write. place: address, kind of memory and device at the peer. The peer gets the message when the
        data is there. Raises Gone if the peer cannot be reached, and InvalidArgumentError if NIXL does not know that
        memory of the peer's."""
        remote_address, memory, device = place
        try:
            local = self._descriptor(address, size, self.device, self.memory)
            remote = self._descriptor(remote_address, size, device, memory)
            handle = self.nixl.initialize_xfer("WRITE", local, remote, peer, message)
        except self._refused as e:
            if not self.knows(peer):
                raise Gone(str(e)) from None
            raise InvalidArgumentError(
                f"NIXL refuses a write of {size} bytes to {remote_address:#x} of {peer!r} ({e}): the metadata that "
                "this agent has of it may be old; forget() the peer and connect() again"
            ) from None
        except Exception as e:
            raise Gone(str(e)) from None
        return Write(self.nixl, handle)

    def _descriptor(self, address: int, size: int, device: int, memory: str) -> Any:
        """Returns NIXL's descriptor of some memory. Descriptors are cached, because slots are used repeatedly."""
        key = (address, size, device, memory)
        made = self._descriptors.get(key)
        if made is None:
            if len(self._descriptors) >= _MOST_DESCRIPTORS:
                self._descriptors.clear()
            made = self._descriptors[key] = self.nixl.get_xfer_descs([(address, size, device)], memory)
        return made


class Write:
    """A write to a peer, which the constructor starts. A write that fails, even while it is being started, may still be
    under way."""

    def __init__(self, nixl: Any, handle: Any) -> None:
        self._nixl, self._handle, self._state, self._failure = nixl, handle, "", "the write failed"
        self._ask(nixl.transfer)

    def _ask(self, call: Callable[[Any], str]) -> None:
        try:
            self._state = call(self._handle)
        except Exception as e:
            self._state, self._failure = "ERR", str(e)

    def is_done(self) -> bool:
        """Returns whether the write has ended. Raises Gone if it has failed."""
        if self._state == "PROC":
            self._ask(self._nixl.check_xfer_state)
        if self._state == "ERR":
            raise Gone(self._failure)
        return self._state == "DONE"

    def release(self) -> None:
        """Releases NIXL's handle. The write must have ended, or its peer must be gone: NIXL cannot cancel a write."""
        with contextlib.suppress(Exception):  # NIXL then keeps the handle
            self._handle.release()
