# SPDX-License-Identifier: Apache-2.0
"""python -m tmaclient: a tour of the package on one screen, with a running tmad or in this process."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import tmaclient as tma


def say(call: str, what: str) -> None:
    """Prints a line of the tour: a call and its result."""
    print(f"{call:<47}  {what}")


def best(call: Callable[[], Any]) -> float:
    """Returns the time of the fastest of five calls, in seconds."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def rate(nbytes: int, seconds: float) -> str:
    """Returns the text for a move of nbytes that took so many seconds: its time, and its rate, for which bytes are
    counted twice, as read and as written."""
    return f"{seconds * 1e3:.1f} ms, {2 * nbytes / seconds / 1e9:.1f} GB/s"


def show_service(c: tma.Client) -> None:
    """Prints where the service is, and which engine and device it uses."""
    info = c.info()
    device = info.get("device") or {}
    name = device.get("name") if isinstance(device, dict) else device
    where = "in this process" if c.path == "local:" else f"at {c.path}"
    say("c = tma.connect()", f"tmad {info['version']} {where}")
    say("c.info()", f"engine {info['engine']}" + (f" on {name}" if name else ""))


def tour_with_numpy(c: tma.Client) -> None:
    import numpy as np

    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    y = c.transpose(x, (2, 0, 1))
    say("y = c.transpose(x, (2, 0, 1))", f"{x.shape} -> {y.shape}{same(np.array_equal(y, np.transpose(x, (2, 0, 1))))}")
    y = c.pad(x, 1, "reflect")
    say('y = c.pad(x, 1, "reflect")', f"{x.shape} -> {y.shape}{same(np.array_equal(y, np.pad(x, 1, 'reflect')))}")
    y = c.gather(x, [2, 0], axis=1)
    say("y = c.gather(x, [2, 0], axis=1)", f"{x.shape} -> {y.shape}{same(np.array_equal(y, x[:, [2, 0]]))}")

    large = np.zeros((16, 112, 112, 64), "float32")
    large += np.arange(64, dtype="float32")
    axes = (0, 3, 1, 2)
    result = np.empty((16, 64, 112, 112), "float32")
    print(f"\nx of {large.shape}, {large.nbytes / 1e6:.0f} MB, to NCHW:")
    say("np.copyto(out, x.transpose(axes))", rate(large.nbytes, best(lambda: np.copyto(result, large.transpose(axes)))))
    say("c.transpose(x, axes, out)", rate(large.nbytes, best(lambda: c.transpose(large, axes, result))))
    shared, out = c.empty(large.shape), c.empty(result.shape)
    shared[...] = large
    plan = c.plan(shared, permute=axes, out=out)
    seconds = best(lambda: plan(shared, out))
    say("x, out = c.empty(...), c.empty(...)             # shared with tmad: no copies", "")
    say(
        "plan = c.plan(x, permute=axes); plan(x, out)",
        f"{rate(large.nbytes, seconds)}{same(np.array_equal(out, result))}",
    )
    if sys.stdout.isatty() and importlib.util.find_spec("tqdm"):
        c.transpose(large, axes, result, progress=True)
    print(f"\nc.explain(x, permute={axes})")
    show_plan(plan.explain())


def tour_with_buffers(c: tma.Client) -> None:
    print("NumPy is not installed: x and y are buffers. pip install numpy")
    x = memoryview(bytes(range(12))).cast("B", (3, 4))
    y = c.transpose(x)
    expected = [[4 * j + i for j in range(3)] for i in range(4)]
    say("y = c.transpose(x)", f"{x.shape} -> {y.shape}{same(y.tolist() == expected)}")
    say('c.pad(b"abc", 2, "reflect").tobytes()', repr(c.pad(b"abc", 2, "reflect").tobytes()))
    say("c.gather(x, [2, 0]).tolist()", str(c.gather(x, [2, 0]).tolist()))
    shared, out = c.empty((2048, 2048)), c.empty((2048, 2048))
    plan = c.plan(shared, permute=(1, 0), out=out)
    say("x, out = c.empty(...), c.empty(...)             # shared with tmad: no copies", "")
    say("plan = c.plan(x, permute=(1, 0)); plan(x, out)", rate(shared.nbytes, best(lambda: plan(shared, out))))
    print("\nc.explain(x, permute=(1, 0))")
    show_plan(plan.explain())


def same(is_same: bool) -> str:
    """Returns the text for a result that is correct. Ends the tour if it is not."""
    if not is_same:
        sys.exit("tmaclient: this result is not NumPy's; please report it")
    return ", as it has to be" if "numpy" not in sys.modules else ", equal to NumPy's"


def show_plan(plan: tma.Plan) -> None:
    """Prints the first lines of a plan."""
    lines = repr(plan).splitlines()
    print("\n".join(f"  {line[:110]}" for line in lines[:6]))
    if len(lines) > 6:
        print(f"  ... {len(lines) - 6} more")


def is_possible(path: str) -> bool:
    """Returns whether this user may make a socket at path."""
    return path.startswith("@") or os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tmaclient", description="A short tour of tmaclient.")
    parser.add_argument("--socket", metavar="PATH", help="tmad's socket; without it, $TMAD_SOCKET or the usual paths")
    parser.add_argument("--version", action="version", version=f"tmaclient {tma.__version__}")
    path = parser.parse_args().socket
    try:
        client = tma.connect(path, reconnect=-1)
    except tma.Error as e:
        print(f"tmaclient: {e}", file=sys.stderr)
        if isinstance(e, tma.DisconnectedError):
            asked = path or os.environ["TMAD_SOCKET"]  # one is set: without both, connect() would not have failed
            own = asked if is_possible(asked) else f"/tmp/tmad-{os.getuid()}.sock"
            print(f"start it: systemctl start tmad.socket, or: tmad --engine=cpu --socket {own}", file=sys.stderr)
            if own != asked:
                print(f"and then: python -m tmaclient --socket {own}", file=sys.stderr)
        return 1
    with client as c:
        show_service(c)
        if importlib.util.find_spec("numpy") is not None:
            tour_with_numpy(c)
        else:
            tour_with_buffers(c)
    print(
        "\nnext: help(tmaclient.Client), tmaclient.aio for asyncio, tmaclient.torch for torch.compile;"
        "\n      client/python/README.md and client/python/examples/ in tmad's source"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
