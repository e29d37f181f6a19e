# SPDX-License-Identifier: Apache-2.0
"""Carries packets between two TUN devices: each after a delay, none faster than a rate, and some not at all.

    tun_link.py FD FD

A line of JSON on standard input changes settings, and is answered with how many packets have been sent and lost each
way; the end of the input ends it. Packets wait in a queue with the times at which they are due, so a delay costs no
rate. One random number is drawn for each packet when there is a loss: a seed decides which are lost.
"""
import collections
import ctypes
import json
import os
import random
import select
import sys
import time

PACKET_BYTES = 1 << 16
BATCH = 64  # packets from one device before the other's turn
_PR_SET_TIMERSLACK = 29


class Direction:
    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.sent = self.lost = 0
        self._queue = collections.deque()  # (when it is due, packet)
        self._free_at = 0.0  # when the last one has left, at the rate

    def change(self, rate=0, delay_ms=0.0, loss=0.0, seed=1, connected=True):
        self._seconds_a_byte = 8 / rate if rate else 0.0
        self._delay, self._loss, self._connected = delay_ms / 1e3, loss, connected
        if seed is not None:
            self._random = random.Random(seed)
        if not connected:
            self.lost += len(self._queue)
            self._queue.clear()

    def take(self):
        """Reads the packets that the device has."""
        for _ in range(BATCH):
            try:
                packet = os.read(self.source, PACKET_BYTES)
            except BlockingIOError:
                return
            self.sent += 1
            if not self._connected or (self._loss and self._random.random() < self._loss):
                self.lost += 1
                continue
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + len(packet) * self._seconds_a_byte
            due = self._free_at + self._delay
            if due <= now and not self._queue:
                self._write(packet)
            else:
                self._queue.append((due, packet))

    def give(self):
        """Writes the packets that are due. Returns when the next one is."""
        queue, now = self._queue, time.monotonic()
        while queue:
            if queue[0][0] > now:
                now = time.monotonic()
                if queue[0][0] > now:
                    return queue[0][0]
            self._write(queue.popleft()[1])
        return None

    def _write(self, packet):
        try:
            os.write(self.sink, packet)
        except OSError:  # the device is down
            self.lost += 1


def main():
    a, b = map(int, sys.argv[1:])
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), 0, 0, 0)
    directions = Direction(a, b), Direction(b, a)
    by_source = {d.source: d for d in directions}
    settings = {}
    while True:
        dues = [due for d in directions if (due := d.give()) is not None]
        timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
        for fd in select.select([a, b, 0], [], [], timeout)[0]:
            if fd != 0:
                by_source[fd].take()
                continue
            line = sys.stdin.readline()
            if not line:
                return
            change = json.loads(line)
            settings.update(change)
            for i, d in enumerate(directions):
                d.change(**{**settings, "seed": change["seed"] + i if "seed" in change else None})
            print(json.dumps([(d.sent, d.lost) for d in directions]), flush=True)


if __name__ == "__main__":
    main()
