# SPDX-License-Identifier: Apache-2.0
"""What a stage uses of a NIXL agent, and what NIXL's exceptions mean."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from .._errors import AlreadyExistsError, InvalidArgumentError, UnsupportedError
from ._messages import PREFIX

_MOST_DESCRIPTORS = 1024  # that are kept


class Gone(Exception):
    """The peer's end of the connection is closed, or there never was one."""


def make_agent(name: str, port: int | None) -> Any:
    """An agent of NIXL's with UCX, without the thread that would poll all the time: whoever moves a stage polls. port:
    where it listens for the metadata of peers; None: it does not."""
    api = _api()
    listening = {} if port is None else {"enable_listen_thread": True, "listen_port": port}
    config = api.nixl_agent_config(enable_prog_thread=False, **listening)
    return api.nixl_agent(name, config)


def _api() -> Any:
    """NIXL's Python interface."""
    try:
        return importlib.import_module("nixl._api")
    except ImportError as e:
        raise ImportError(f"tmaclient.nixl needs the package nixl, which cannot be imported here: {e}") from e


class Agent:
    """An agent with the memory that a stage has registered."""

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
        """Peers cannot write into the memory from now on."""
        self.nixl.deregister_memory(self._registered)

    # ---- Peers -------------------------------------------------------------------------------------------

    def knows(self, peer: str) -> bool:
        """Whether the peer's metadata is there."""
        return bool(self.nixl.check_remote_metadata(peer))

    def add(self, metadata: bytes) -> str:
        """Adds the metadata of a peer; its name."""
        try:
            name: bytes | str = self.nixl.add_remote_agent(metadata)
        except self._bindings.nixlNotAllowedError as e:
            raise AlreadyExistsError(f"metadata: there is other metadata of that peer; forget it first ({e})") from None
        except Exception as e:
            raise InvalidArgumentError(f"metadata: NIXL does not take it ({e})") from None
        return name.decode() if isinstance(name, bytes) else name

    def fetch(self, peer: str, ip: str, port: int) -> None:
        """Sends a peer this agent's metadata, and asks for the peer's; without an ip by etcd. In this order: NIXL waits
        for what etcd does not have yet, and sends nothing meanwhile."""
        try:
            self.nixl.send_local_metadata(ip, port)
            self.nixl.fetch_remote_metadata(peer, ip, port)
        except Exception as e:
            where = f"{ip} port {port}" if ip else "etcd (NIXL_ETCD_ENDPOINTS)"
            raise UnsupportedError(f"peer: NIXL cannot ask {where} for the metadata of {peer!r}: {e}") from None

    def reaches(self, peer: str, address: int, size: int, memory: str, device: int) -> bool:
        """Whether the peer's metadata has this memory."""
        try:
            descriptors = self.nixl.get_xfer_descs([(address, size, device)], memory)
            return bool(self.nixl.check_remote_metadata(peer, descriptors))
        except Exception:  # it is not NIXL's
            return False

    def remove(self, peer: str) -> None:
        """Closes the connection to a peer: nothing that it sends arrives any more."""
        with contextlib.suppress(self._unknown):
            self.nixl.remove_remote_agent(peer)

    # ---- Messages ----------------------------------------------------------------------------------------

    def notify(self, peer: str, message: bytes) -> None:
        """Sends a message; Gone."""
        try:
            self.nixl.send_notif(peer, message)
        except Exception as e:
            raise Gone(str(e)) from None

    def notifications(self) -> list[tuple[str, bytes]]:
        """The messages that have arrived; those of others remain with the agent."""
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
        """Starts to write into an address of a peer's memory, with the message to come after it; Gone."""
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
        """NIXL's, of some bytes: those of slots come again and again."""
        key = (address, size, device, memory)
        made = self._descriptors.get(key)
        if made is None:
            if len(self._descriptors) >= _MOST_DESCRIPTORS:
                self._descriptors.clear()
            made = self._descriptors[key] = self.nixl.get_xfer_descs([(address, size, device)], memory)
        return made


class Write:
    """A write, started when this is made. One that fails to start may be under way all the same, as any that fails."""

    def __init__(self, nixl: Any, handle: Any) -> None:
        self._nixl, self._handle, self._state, self._failure = nixl, handle, "", "the write failed"
        self._ask(nixl.transfer)

    def _ask(self, call: Callable[[Any], str]) -> None:
        try:
            self._state = call(self._handle)
        except Exception as e:
            self._state, self._failure = "ERR", str(e)

    def is_done(self) -> bool:
        """Whether it has ended; Gone."""
        if self._state == "PROC":
            self._ask(self._nixl.check_xfer_state)
        if self._state == "ERR":
            raise Gone(self._failure)
        return self._state == "DONE"

    def release(self) -> None:
        """Forgets it, once it has ended or its peer is gone: NIXL cannot take a write back."""
        with contextlib.suppress(Exception):  # it is kept by NIXL, then
            self._handle.release()
