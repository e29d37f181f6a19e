# SPDX-License-Identifier: Apache-2.0
"""A stage: slots in memory that is registered with a NIXL agent, and the transfers that pass through them.

A lock guards the whole stage. A step moves everything that can move without waiting; it runs in the stage's thread, or
in progress() for a stage without one. Callers are told of results while the lock is not held, because their callbacks
may call anything.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import secrets
import threading
import time
import weakref
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from .. import _core
from .._arrays import adapt
from .._client import Client
from .._core import Tensor
from .._errors import CanceledError, Error, InternalError, NoReplyError, NotFoundError, Status, class_of
from .._jobs import MoveKeywords, Options
from ._agent import Agent, make_agent
from ._exchange import MOST_TEXT, Exchange, Transfer
from ._messages import MOST_TAG, Message, MessageError, decode
from ._receiving import Receivers, Receiving
from ._sending import Senders, Sending
from ._sides import Destination, Source
from ._slots import Slots

SLOT_BYTES = 4 << 20
_ALIGNMENT = 4096  # alignment of slots in memory that the stage makes, in bytes
_GREET_S, _FETCH_S = 0.05, 0.5  # interval of hello messages, and of requests for metadata, in connect()
_SWEEP_S, _SWEEP_PART = 0.05, 0.05  # shortest pause between sweeps, and the largest part of the time for them
_PING_S, _IDLE_PING_S = 0.5, 2.0  # interval of pings to peers with transfers, and of pings to all peers
# When nothing moves, the stage's thread naps for _NAP_PART of the time since something moved last. A nap takes at least
# _SHORTEST_NAP_S, and at most one of the other three: with work under way, with transfers that wait for their peers,
# and without transfers.
_SHORTEST_NAP_S, _NAP_S, _LONG_NAP_S, _IDLE_NAP_S = 20e-6, 100e-6, 1e-3, 0.02
_NAP_PART = 0.125
_TIMER_SLACK_NS = 1000  # timer slack of the thread; the default of 50 us would lengthen naps by as much
_CLOSE_S, _FLUSH_S = 5.0, 0.05  # how long close() waits for writes under way, and after the last message sent

_log = logging.getLogger("tmaclient.nixl")
_stages: weakref.WeakSet[Stage] = weakref.WeakSet()
_kept: list[Any] = []  # owners of memory of closed stages that peers may still write to; never freed


class _Telling:
    """A context manager that is entered before the stage's lock is taken, and tells callers of the results once the
    lock is released. It is not a generator that takes the lock, too: if a signal handler raised an exception, its
    traceback would keep the generator alive, and the lock would stay held."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._exchange.tell_results()


class Stage:
    """Slots of memory that are registered with a NIXL agent, and the transfers that pass through them. A transfer is
    divided into pieces, each of which fits into a slot.

    client         a tmaclient.Client, preferably one that only the stage uses: a stage's requests to tmad run in one
                   order with those that the caller makes by the same client. The arrays of transfers are made by
                   client.empty() or registered by client.register(); device memory needs neither
    agent          a nixl_agent, or a name, by which peers address the agent that the stage then makes
    port           where the agent that the stage makes listens for the metadata of peers; None: it does not listen
    send_slots     maximum number of pieces gathered or written at once; 0 for a stage that only receives
    receive_slots  maximum number of pieces written by peers or scattered at once; 0 for a stage that only sends
    slot_bytes     size of a slot; a block has to fit into a slot
    memory         contiguous bytes for all slots, such as torch.empty(n, dtype=torch.uint8, device="cuda"); None: host
                   memory that the stage makes. It is (send_slots + receive_slots) * slot_bytes long
    timeout        a transfer that does not advance for as many seconds fails (NoReplyError)
    thread         True: the stage has a thread, which is the only one to use the agent between two calls. False:
                   transfers advance only in progress(), which the caller has to call often

    Any thread may use a stage. It has to be closed at the end. Peers learn only the addresses of its slots, but not
    every transport keeps them from writing elsewhere: see the guide for what the network has to keep out.
    """

    def __init__(
        self,
        client: Client,
        agent: Any,
        *,
        port: int | None = None,
        send_slots: int = 8,
        receive_slots: int = 8,
        slot_bytes: int = SLOT_BYTES,
        memory: Any = None,
        timeout: float = 30.0,
        thread: bool = True,
    ) -> None:
        for name, n, least in (
            ("send_slots", send_slots, 0),
            ("receive_slots", receive_slots, 0),
            ("slot_bytes", slot_bytes, 1),
        ):
            if not isinstance(n, int) or n < least:
                raise ValueError(f"{name}: {n!r}; it is an integer of {least} or more")
        if send_slots + receive_slots == 0:
            raise ValueError("send_slots, receive_slots: both are 0; a stage has slots for one of them")
        if isinstance(agent, str):
            agent = make_agent(agent, port)
        elif port is not None:
            raise TypeError("port: it is for an agent that the stage makes")
        self._client, self._timeout = client, _seconds(timeout)
        step = -(-slot_bytes // _ALIGNMENT) * _ALIGNMENT if memory is None else slot_bytes
        self._owner, tensor = _memory(client, memory, (send_slots + receive_slots) * step)
        device = 0 if tensor.is_host else _core.device_of(tensor.data)
        kind = "DRAM" if tensor.is_host else "VRAM"
        self._agent = Agent(agent, tensor.data, tensor.nbytes, kind, device)
        self._place = {"address": tensor.data, "bytes": tensor.nbytes, "memory": kind, "device": device}
        self._exchange = Exchange(client._core, self._agent, secrets.randbits(63))
        self._senders = Senders(self._exchange, Slots(tensor, 0, send_slots, step))
        self._receivers = Receivers(self._exchange, Slots(tensor, send_slots * step, receive_slots, step))
        self._sweep_at = self._pinged = self._pinged_all = 0.0
        self._moved_at = time.monotonic()  # when something moved last, or a transfer was begun
        self._peers: set[str] = set()  # peers that the stage has to do with, all of which are pinged
        self._greeted: dict[str, tuple[int, int, str, int]] = {}  # location of the slots of each peer that has answered
        self._broken: Exception | None = None  # exception that a step has failed with; after that nothing moves
        self._is_closed = self._is_forked = self._is_stopped = False
        self._lock = threading.RLock()
        self._telling = _Telling(self._exchange)
        self._wake = threading.Condition(self._lock)
        _stages.add(self)
        self._thread: threading.Thread | None = None
        if thread:
            self._thread = threading.Thread(target=self._run, name="tmaclient-nixl", daemon=True)
            self._thread.start()

    @property
    def agent(self) -> Any:
        """The NIXL agent."""
        return self._agent.nixl

    @property
    def name(self) -> str:
        """The name of the stage's agent, by which peers address it."""
        return str(self._agent.nixl.name)

    def __repr__(self) -> str:
        return f"<tmaclient.nixl.Stage {self.name!r}{', closed' if self._is_closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the transfers under way (CanceledError), and deregisters the memory. Waits until tmad is done with the
        arrays, and up to 5 s for writes that have begun: memory that a peer may still write to after that is kept until
        the process ends. Closing again does nothing, nor does closing in a forked child process."""
        with self._telling, self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._fail_all(CanceledError("the stage was closed"))
            self._wake.notify_all()
        try:
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            end = time.monotonic() + _CLOSE_S
            while not self._is_finished(time.monotonic() > end):
                if not self._try_step():
                    time.sleep(_LONG_NAP_S)
        finally:
            with self._telling, self._lock:
                if self._receivers.slots.n_free < self._receivers.slots.n:
                    _kept.append(self._owner)
                self._agent.close()

    def _is_finished(self, is_late: bool) -> bool:
        """Returns whether close() need not wait any longer. is_late: whether close() has waited long enough for writes
        that have begun."""
        if self._broken is not None:
            return True
        if is_late:
            return not self._exchange.is_running
        is_idle = not (self._senders or self._receivers or self._receivers.slots.n_left)
        return is_idle and time.monotonic() - self._exchange.told_at > _FLUSH_S

    # ---- Peers -------------------------------------------------------------------------------------------

    def connect(self, peer: str, ip: str = "", port: int = 0, timeout: float = 30.0) -> None:
        """Exchanges metadata with a peer by NIXL's own means, unless the agent already has the peer's metadata, and
        waits until a stage of the peer answers; the peer may start later. The peer's agent must listen at ip and port.
        Without ip, both sides must call this: they exchange metadata through etcd, whose address is in the environment
        variable NIXL_ETCD_ENDPOINTS. NoReplyError: the peer has not answered within timeout seconds. UnsupportedError:
        this agent cannot ask for metadata at that address."""
        limit = _seconds(timeout)
        started = time.monotonic()
        asked = greeted = started - max(_FETCH_S, _GREET_S)
        with self._telling, self._lock:
            self._greeted.pop(peer, None)
            if self._agent.knows(peer):
                asked = started  # no need to fetch at once: the metadata may be complete already
        while (now := time.monotonic()) - started < limit:
            with self._telling, self._lock:
                self._check_open()
                is_known = self._agent.knows(peer)
                if is_known and peer in self._greeted and self._agent.reaches(peer, *self._greeted[peer]):
                    self._peers.add(peer)
                    return
                if is_known and now - greeted >= _GREET_S:
                    greeted = now
                    self._exchange.tell(peer, "hello", answers=0, **self._place)
                    self._drop_lost()
                if now - asked >= _FETCH_S:
                    asked = now
                    self._agent.fetch(peer, ip, port)
                if self._thread is None:
                    self._step()
            time.sleep(_LONG_NAP_S)
        where = f"{ip} port {port}" if ip else "etcd"
        raise NoReplyError(f"peer: no answer from {peer!r}, which {where} was asked for, within {limit:g} s")

    def metadata(self) -> bytes:
        """Returns the agent's metadata, which a peer's add() takes, for callers that transport it by themselves."""
        with self._lock:
            self._check_open()
            return bytes(self._agent.nixl.get_agent_metadata())

    def add(self, metadata: bytes) -> str:
        """Adds the metadata of a peer, and returns its name. AlreadyExistsError: the agent has other metadata under
        that name, perhaps of a process that has ended; forget() the peer first."""
        with self._lock:
            self._check_open()
            peer = self._agent.add(metadata)
            self._peers.add(peer)
            return peer

    def forget(self, peer: str) -> None:
        """Closes the connection to a peer, such as one that hangs. Its transfers fail (DisconnectedError) once tmad has
        ended their requests, and slots that the peer might have written to are free a moment later. The peer's metadata
        is removed; connect() gets it again."""
        with self._telling, self._lock:
            self._check_open()
            self._exchange.lost.setdefault(peer, "it was forgotten")
            self._drop_lost()

    # ---- Transfers ---------------------------------------------------------------------------------------

    def send(
        self,
        peer: str,
        tag: str,
        layers: Any,
        blocks: Any = None,
        *,
        axis: int = 0,
        permute: Any = None,
        timeout: float | None = None,
        **options: Unpack[MoveKeywords],
    ) -> Transfer:
        """Sends blocks to the peer's receive of the same tag, and returns a future.

        layers     an array, or a list of arrays of one shape, type and strides, such as the keys and the values of each
                   layer; pass slices of them to send only some of the heads
        blocks     list of indexes along axis, the same for each array; None: all of them
        permute    order of the dimensions of a whole array on the wire, as in Client.gather
        timeout    replaces the stage's
        options    dtype, cast, scale and bias convert on the way to the wire; priority, multiprocessors and
                   host_threads apply to the requests to tmad

        The arrays must not change before the transfer is done. Sends of one tag to one peer are matched with its
        receives in order. NotFoundError: the agent has no metadata of the peer.
        """
        with self._telling, self._lock:
            transfer = self._transfer("send", peer, tag, timeout)
            source = Source(self._client, layers, blocks, axis, permute, checked := _checked(options))
            if source.nbytes and self._senders.slots.n == 0:
                raise ValueError("the stage was made with send_slots=0")
            if source.nbytes and source.block_bytes > self._senders.slots.slot_bytes:
                raise ValueError(
                    f"layers: a block has {source.block_bytes} bytes on the wire; the stage's slots have "
                    f"{self._senders.slots.slot_bytes} (slot_bytes)"
                )
            self._senders.start(transfer, source, checked.order())
            self._begun()
            return transfer

    def receive(
        self,
        peer: str,
        tag: str,
        layers: Any,
        blocks: Any = None,
        *,
        axis: int = 0,
        permute: Any = None,
        timeout: float | None = None,
        **options: Unpack[MoveKeywords],
    ) -> Transfer:
        """Receives the blocks that the peer sends by the same tag, and returns a future. The arguments are those of
        send, and say where the blocks go. permute puts the dimensions of the wire into the order of the arrays, as in
        Client.scatter; cast="saturate", "exact" or "ieee" converts from the type of the wire. The numbers of layers and
        of blocks, and the shape of a block on the wire, have to be the same as the sender's, or both sides fail
        (InvalidArgumentError). If the transfer fails, some blocks may have been written."""
        with self._telling, self._lock:
            transfer = self._transfer("receive", peer, tag, timeout)
            destination = Destination(self._client, layers, blocks, axis, permute, checked := _checked(options))
            self._receivers.start(transfer, destination, checked.order())
            self._begun()
            return transfer

    def _transfer(self, verb: str, peer: str, tag: str, timeout: float | None) -> Transfer:
        self._check_open()
        if not isinstance(tag, str) or len(tag) > MOST_TAG:
            raise ValueError(f"tag: {tag!r}; it is a string of {MOST_TAG} characters at most")
        if not self._agent.knows(peer):
            raise NotFoundError(f"peer: the agent has no metadata of {peer!r}; connect to it first")
        self._peers.add(peer)
        transfer = Transfer(verb, peer, tag, self._timeout if timeout is None else _seconds(timeout))
        transfer.add_done_callback(self._on_done)
        return transfer

    def _begun(self) -> None:
        """Makes the thread's naps short again, and wakes it."""
        self._moved_at = time.monotonic()
        self._wake.notify_all()

    def _on_done(self, transfer: Future[int]) -> None:
        if transfer.cancelled():
            self._sweep_at = 0.0  # the next step sweeps, which ends the transfer

    def _check_open(self) -> None:
        if self._is_forked:
            raise ValueError("the stage belongs to the process that made it, which this one was forked from")
        if self._is_closed:
            raise ValueError("the stage is closed")
        if self._broken is not None:
            raise InternalError(f"the stage has failed: {self._broken!r}")

    def stats(self) -> dict[str, Any]:
        """Returns the stage's counters: the transfers under way, the slots that are free, the slots that are "left" to
        peers which may still write to them, the offers that no receive has matched, and the bytes sent and received
        so far."""
        with self._lock:
            return {
                "sends": len(self._senders),
                "receives": len(self._receivers),
                "offers": self._receivers.n_offers,
                "send_slots": _slots_stats(self._senders.slots),
                "receive_slots": _slots_stats(self._receivers.slots),
                "bytes_sent": self._senders.bytes,
                "bytes_received": self._receivers.bytes,
            }

    # ---- Progress ----------------------------------------------------------------------------------------

    def progress(self) -> bool:
        """Advances some of the transfers that can advance, without waiting. Returns whether anything moved; if so, more
        may be able to. It is for a stage without a thread."""
        with self._telling, self._lock:
            self._check_open()
            return self._step()

    def _run(self) -> None:
        _core.set_timer_slack(_TIMER_SLACK_NS)
        while self._broken is None:
            with self._lock:
                if self._is_closed or self._is_stopped:
                    return
                has_moved = self._try_step()
            self._tell_results()
            if has_moved:
                self._moved_at = time.monotonic()
                time.sleep(0)  # gives callers a chance to take the lock
                continue
            with self._lock:
                nap = max((time.monotonic() - self._moved_at) * _NAP_PART, _SHORTEST_NAP_S)
                nap = min(nap, self._longest_nap())
                if nap > _NAP_S and not self._is_closed:
                    self._wake.wait(nap)
                    continue
            time.sleep(nap)

    def _stop(self) -> None:
        """Stops the thread because the interpreter is about to end. Waits at most 5 s for the thread."""
        self._is_stopped = True
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _tell_results(self) -> None:
        """Tells callers of results, in the stage's thread. An exception that a callback raises is logged, and the other
        callbacks are called all the same."""
        while True:
            try:
                self._exchange.tell_results()
                return
            except BaseException:
                _log.exception("a callback of a transfer has failed")

    def _try_step(self) -> bool:
        try:
            return self._step()
        except Exception as e:
            with self._lock:
                self._break(e)
            return False

    def _break(self, error: Exception) -> None:
        """Marks the stage as failed, and ends all transfers with an error, because nothing moves any more."""
        self._broken = error
        for one in (*self._senders, *self._receivers):
            self._exchange.end(one.transfer, InternalError(f"the stage has failed: {error!r}"))

    def _longest_nap(self) -> float:
        if self._exchange.is_running or self._senders.is_sending or self._receivers.is_receiving:
            return _NAP_S
        return _LONG_NAP_S if self._senders or self._receivers else _IDLE_NAP_S

    def _step(self) -> bool:
        with self._lock:
            now = time.monotonic()
            n = 0
            for peer, raw in self._agent.notifications():
                try:
                    n += self._take(peer, raw)
                except Exception as e:  # a bad message harms only the transfers of the peer that sent it
                    _log.exception("a message of %r cannot be taken", peer)
                    self._exchange.lost.setdefault(peer, f"a message of its cannot be taken: {e!r}")
            moved = [self._exchange.step(now), self._senders.step(), self._receivers.step(now)]
            self._drop_lost()
            if now > self._sweep_at:
                self._sweep_at, start = math.inf, time.monotonic()
                self._sweep(now)
                end = time.monotonic()
                self._sweep_at = min(self._sweep_at, end + max(_SWEEP_S, (end - start) / _SWEEP_PART))
            return n > 0 or any(moved)

    def _take(self, peer: str, raw: bytes) -> bool:
        """Handles a message. Returns whether it concerns a transfer."""
        try:
            message = decode(raw)
        except MessageError:
            return False  # the sender does not speak this protocol, so it cannot be answered either
        if message.get("to", 0) not in (0, self._exchange.number):
            return False
        kind = message["kind"]
        if kind == "offer":
            is_known = self._agent.knows(peer)
            if is_known:
                self._peers.add(peer)
            self._receivers.on_offer(peer, message, is_known)
        elif kind == "grant":
            self._senders.on_grant(peer, message)
        elif kind == "data":
            self._receivers.on_data(peer, message)
        elif kind == "done":
            self._senders.on_done(peer, message)
        elif kind == "failed" and message["by"] == "receiver":
            self._senders.on_failed(peer, message, _error_of(peer, message))
        elif kind == "failed":
            self._receivers.on_failed(peer, message, _error_of(peer, message))
        elif kind == "closed":
            self._receivers.on_closed(peer, message)
        elif kind == "hello":
            self._greet(peer, message)
        return kind not in ("hello", "ping")

    def _greet(self, peer: str, message: Message) -> None:
        if not self._agent.knows(peer):
            return
        self._peers.add(peer)
        if message["answers"]:
            self._greeted[peer] = (message["address"], message["bytes"], message["memory"], message["device"])
        else:
            self._exchange.tell(peer, "hello", answers=1, **self._place)

    def _drop_lost(self) -> None:
        """Closes the connections to the peers in exchange.lost, so that nothing of theirs arrives after that, and fails
        their transfers."""
        lost = self._exchange.lost
        while lost:
            peer, why = next(iter(lost.items()))
            with contextlib.suppress(Exception):  # the connection may be partly closed already
                self._agent.remove(peer)
            self._senders.lose(peer, why)
            self._receivers.lose(peer, why)
            self._peers.discard(peer)
            self._greeted.pop(peer, None)
            del lost[peer]

    def _sweep(self, now: float) -> None:
        """Does what becomes due with time: fails transfers that were canceled or have timed out, and pings peers."""
        peers = set()
        transfers: list[tuple[Senders | Receivers, Sending | Receiving]] = [
            *((self._senders, s) for s in self._senders),
            *((self._receivers, r) for r in self._receivers),
        ]
        for all_, one in transfers:
            error = one.transfer._overdue(now) if one.error is None else None
            peers.add(one.peer)
            if error is not None:
                all_.fail(one, error)  # type: ignore[arg-type]
        if now - self._pinged > _PING_S:
            self._pinged = now
            if now - self._pinged_all > _IDLE_PING_S:
                self._pinged_all = now
                peers |= self._peers
            for peer in peers:
                self._exchange.tell(peer, "ping")

    def _fail_all(self, error: Exception) -> None:
        for sending in self._senders:
            self._senders.fail(sending, error)
        for receiving in self._receivers:
            self._receivers.fail(receiving, error)


def _seconds(timeout: float) -> float:
    try:
        seconds = float(timeout)
    except OverflowError:
        seconds = math.inf
    except (TypeError, ValueError):
        seconds = math.nan
    if isinstance(timeout, str) or not seconds > 0:
        raise ValueError(f"timeout: {timeout!r}; it is a number of seconds above 0")
    return seconds


def _checked(options: MoveKeywords) -> Options:
    for name in ("wait", "signal", "wait_timeout", "deadline", "progress", "synchronous", "amax"):
        if options.get(name):
            raise TypeError(f"{name}: a transfer is many requests, and does not take it")
    return Options(**options)


def _memory(client: Client, memory: Any, size: int) -> tuple[Any, Tensor]:
    """Returns the object that keeps the memory of the slots alive and shared with tmad, and a tensor of the memory's
    bytes. memory None: makes the memory, on the host."""
    if memory is None:
        owner = client._core.create(size, None, True)  # unsealed, because a network card may pin it
        return owner, owner.tensor(0, "uint8", (size,), (1,))
    tensor = adapt(memory, "memory").tensor
    if tensor.itemsize != 1 or tensor.ndim != 1 or tensor.strides != (1,) or tensor.nbytes != size:
        raise ValueError(
            f"memory: {tensor.dtype} {list(tensor.shape)}, strides {list(tensor.strides)}; it is {size} contiguous "
            "bytes, (send_slots + receive_slots) * slot_bytes"
        )
    if tensor.readonly:
        raise ValueError("memory: the array is read-only")
    if tensor.is_host and client._is_reached(tensor):
        return memory, tensor
    return (memory, client.register(memory)), tensor


def _slots_stats(slots: Slots) -> dict[str, int]:
    return {"total": slots.n, "free": slots.n_free, "left": slots.n_left, "bytes": slots.slot_bytes}


def _error_of(peer: str, message: Message) -> Error:
    """Returns the error in a peer's `failed` message. A status that is unknown here becomes INTERNAL."""
    statuses = [int(s) for s in Status]
    status = message["status"] if message["status"] in statuses else int(Status.INTERNAL)
    return class_of(status)(f"{peer}: {message['message'][:MOST_TEXT]}")


def _leave_to_parent() -> None:
    """Closes the stages of a forked child process without touching NIXL. The child has neither the stage's thread nor
    the threads that may have held its lock, and it shares the parent's connections."""
    for stage in _stages:
        stage._lock = threading.RLock()
        stage._wake = threading.Condition(stage._lock)
        stage._thread = None
        stage._is_closed = stage._is_forked = True


os.register_at_fork(after_in_child=_leave_to_parent)


@atexit.register
def _stop_all() -> None:
    """Stops the threads of all stages: a thread that is in NIXL when the interpreter ends would abort the process."""
    for stage in list(_stages):
        stage._stop()
