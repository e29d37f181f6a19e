# SPDX-License-Identifier: Apache-2.0
"""Stages of several hosts in one process, over the stand-in for NIXL in fake_nixl/."""
import os
import time

import tmaclient as tma

FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_nixl")


class Hosts:
    """Stages that have each other's metadata. Without threads, the test advances them by step()."""

    def __init__(self, client, **options):
        self.client, self.options = client, {"slot_bytes": 64 << 10, "thread": False, "timeout": 20.0, **options}
        self.stages = {}

    def start(self, name, **options):
        """Starts a stage, perhaps in place of one that has ended, and exchanges metadata with all others."""
        others = [stage for stage in self.stages.values() if stage.agent.is_running]
        stage = self.start_unknown(name, **options)
        for other in others:
            other.forget(name)
            assert other.add(stage.metadata()) == name
            stage.add(other.metadata())
        return stage

    def start_unknown(self, name, **options):
        """Starts a stage that has no metadata of others yet."""
        from nixl._api import nixl_agent

        self.stages[name] = tma.nixl.Stage(self.client, nixl_agent(name), **{**self.options, **options})
        return self.stages[name]

    def step(self):
        return sum(stage.progress() for stage in self.stages.values() if stage.agent.is_running) > 0

    def until(self, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, [s.stats() for s in self.stages.values()]
            if not self.step():
                time.sleep(0.0002)

    def wait(self, *transfers):
        self.until(lambda: all(t.done() for t in transfers))

    def settle(self):
        """Steps until all slots are free and no send is under way."""
        self.until(lambda: all(_is_free(s) for s in self.stages.values() if s.agent.is_running))

    def close(self):
        for stage in self.stages.values():
            if stage.agent.is_running:
                stage.close()


def _is_free(stage):
    stats = stage.stats()
    return all(stats[k]["free"] == stats[k]["total"] for k in ("send_slots", "receive_slots")) and not stats["sends"]


def filled(client, rng, shape, dtype):
    array = client.empty(shape, dtype)
    array.view("u1")[...] = rng.integers(0, 256, array.view("u1").shape, "u1")
    return array
