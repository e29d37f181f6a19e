# SPDX-License-Identifier: Apache-2.0
"""Agents, and a network that delivers their messages and writes late and in any order. A write arrives some bytes at a
time, and its notification after the last of them. As with NIXL, agents notice that a peer has ended when they write to
it or notify it; its earlier writes may still arrive until they remove it."""
import collections
import contextlib
import ctypes
import os
import random
import threading
import time
from typing import NamedTuple

from ._bindings import nixlInvalidParamError, nixlNotAllowedError, nixlNotFoundError, nixlRemoteDisconnectError

ETCD_PATIENCE_S = 5.0  # how long an agent waits for metadata that etcd does not have


class nixl_agent_config:  # noqa: N801
    def __init__(self, **options):
        self.options = options


class Metadata(NamedTuple):
    name: str
    number: int
    registered: tuple  # tuples of address, size, kind of memory and device


class Write:
    def __init__(self, source, target, pairs, message):
        self.source, self.target, self.pairs, self.message = source, target, pairs, message
        self.is_posted = self.is_done = self.is_failed = False
        self.moved = 0

    def release(self):
        pass


class Network:
    """The messages and writes on their way. seed: seed of random order and delays. haste: probability of progress."""

    def __init__(self, seed=0, haste=0.5):
        self.random, self.haste = random.Random(seed), haste
        self.agents, self.metadata = {}, {}  # agents by number, and metadata by a key that stands for it
        self.etcd = {}  # metadata that agents have sent to etcd, by the names of the agents
        self.messages, self.writes = [], []
        self.failures = collections.deque()  # failures to start of the next writes: "ERR" or an exception's text
        self.lock = threading.RLock()

    def step(self):
        """Lets a random part of the messages and writes arrive."""
        for write in self.random.sample(self.writes, len(self.writes)):
            if self.random.random() < self.haste:
                self._move(write)
        for entry in self.random.sample(self.messages, len(self.messages)):
            if self.random.random() < self.haste:
                self.messages.remove(entry)
                source, target, message = entry
                if target.is_running:
                    target.arrived.append((source, message))
        for agent in self.agents.values():
            if agent.is_running:
                agent.serve_etcd()

    def _move(self, write):
        source, target = write.source, write.target
        if not target.is_running or target.remote.get(source.name) != source.number:
            write.is_failed = True
            self.writes.remove(write)
            return
        to, size = write.pairs[1]
        n = min(size - write.moved, self.random.randint(1, max(1, size)))
        ctypes.memmove(to + write.moved, write.pairs[0] + write.moved, n)
        write.moved += n
        if write.moved < size:
            return
        self.writes.remove(write)
        write.is_done = True
        if source.is_running:
            self.messages.append((source, target, write.message))


network = Network()


class nixl_agent:  # noqa: N801
    def __init__(self, name, config=None):
        self.name, self.network = name, network
        self.options = config.options if config is not None else {}
        self.number = len(network.agents) + 1
        network.agents[self.number] = self
        self.registered, self.arrived, self.notifs = [], [], {}
        self.remote, self.regions = {}, {}  # numbers and memory of the agents whose metadata this one has, by name
        self.is_running = True
        self.has_etcd = bool(os.environ.get("NIXL_ETCD_ENDPOINTS"))
        self.etcd_requests = collections.deque()  # requests to etcd: a name, and metadata to send, or None to fetch it
        self.etcd_since = None  # when the first request began to wait; None: it does not wait

    def end(self):
        """Ends the agent as if its process were killed."""
        self.is_running = False

    # ---- Memory and metadata

    def register_memory(self, regions, mem_type):
        mine = [(address, size, mem_type, device) for address, size, device, _ in regions]
        self.registered += mine
        return mine

    def deregister_memory(self, regions):
        for region in regions:
            self.registered.remove(region)

    def get_agent_metadata(self):
        with self.network.lock:
            key = str(len(self.network.metadata)).encode()
            self.network.metadata[key] = Metadata(self.name, self.number, tuple(self.registered))
            return key

    def add_remote_agent(self, key):
        metadata = self.network.metadata[key]
        if self.remote.get(metadata.name, metadata.number) != metadata.number:
            raise nixlNotAllowedError(metadata.name)
        self.remote[metadata.name] = metadata.number
        self.regions[metadata.name] = metadata.registered
        return metadata.name.encode()

    def fetch_remote_metadata(self, name, ip, port):
        """Gets metadata of a peer. Agents listen at the port of their number, at any ip; without ip, etcd is asked."""
        if ip:
            self._learn(self.network.agents.get(port))
        else:
            self._ask_etcd(name, None)

    def send_local_metadata(self, ip, port):
        if not ip:
            self._ask_etcd(self.name, self.get_agent_metadata())
            return
        agent = self.network.agents.get(port)
        if agent is not None and agent.is_running:
            agent._learn(self)

    def _ask_etcd(self, name, metadata):
        if not self.has_etcd:
            raise nixlInvalidParamError("NIXL_ERR_INVALID_PARAM")
        self.etcd_requests.append((name, metadata))

    def serve_etcd(self):
        """Serves the requests to etcd in order. A request for metadata that etcd does not have yet holds up the
        others."""
        while self.etcd_requests:
            name, metadata = self.etcd_requests[0]
            if metadata is not None:
                self.network.etcd[name] = metadata
            elif name in self.network.etcd:
                with contextlib.suppress(nixlNotAllowedError):
                    self.add_remote_agent(self.network.etcd[name])
            else:
                self.etcd_since = self.etcd_since or time.monotonic()
                if time.monotonic() - self.etcd_since < ETCD_PATIENCE_S:
                    return
            self.etcd_since = None
            self.etcd_requests.popleft()

    def _learn(self, agent):
        if agent is not None and agent.is_running and self.remote.get(agent.name, agent.number) == agent.number:
            self.add_remote_agent(agent.get_agent_metadata())

    def remove_remote_agent(self, name):
        if self.remote.pop(name, None) is None:
            raise nixlNotFoundError(name)

    def check_remote_metadata(self, name, descriptors=()):
        return name in self.remote and all(
            any(a <= address and address + size <= a + n and where == rest for a, n, *where in self.regions[name])
            for address, size, *rest in descriptors
        )

    # ---- Messages and writes

    def _find(self, name):
        if name not in self.remote:
            raise nixlNotFoundError(name)
        agent = self.network.agents[self.remote[name]]
        if not agent.is_running and self.network.random.random() < self.network.haste:
            raise nixlRemoteDisconnectError(name)
        return agent

    def send_notif(self, name, message):
        with self.network.lock:
            self.network.messages.append((self, self._find(name), message))

    def update_notifs(self):
        with self.network.lock:
            self.network.step()
            for source, message in self.arrived:
                self.notifs.setdefault(source.name, []).append(message)
            self.arrived.clear()
        return self.notifs

    def get_xfer_descs(self, descriptors, mem_type):
        return [(address, size, mem_type, device) for address, size, device in descriptors]

    def initialize_xfer(self, operation, local, remote, name, message):
        agent = self._find(name)
        (from_, size, *here), (to, _, *there) = local[0], remote[0]
        for registered, address, on in ((self.registered, from_, here), (agent.registered, to, there)):
            if not any(a <= address and address + size <= a + n and on == d for a, n, *d in registered):
                raise nixlInvalidParamError(hex(address)) if agent.is_running else nixlRemoteDisconnectError(name)
        return Write(self, agent, (from_, (to, size)), message)

    def transfer(self, write):
        """Starts a write. Some writes have ended when this returns."""
        write.is_posted = True
        with self.network.lock:
            failure = self.network.failures.popleft() if self.network.failures else None
            if failure == "ERR":
                return failure
            if failure:
                raise nixlRemoteDisconnectError(failure)
            self.network.writes.append(write)
            if self.network.random.random() < 0.1:
                while write in self.network.writes:
                    self.network._move(write)
            return "DONE" if write.is_done else "PROC"

    def check_xfer_state(self, write):
        with self.network.lock:
            if write.is_done:
                return "DONE"
            if write.is_failed or not write.target.is_running:
                raise nixlRemoteDisconnectError(write.target.name)
            return "PROC"
