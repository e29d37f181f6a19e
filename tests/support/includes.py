# SPDX-License-Identifier: Apache-2.0
"""This checks which folder includes which. A room's files include their own room and those that it lists, and nothing else; no
more than MOST_UNITS units include each other in a circle. Run by itself it names each line and each circle that breaks
this, and fails."""
import os
import re
import sys

SUFFIXES = (".c", ".h", ".def", ".cu", ".cuh", ".hh", ".S")

# The most units (a .c file with its header) that may include each other in a circle.
MOST_UNITS = 5

# A room is a folder with all below it that is no room of its own. Beside itself it may include these rooms and files.
PURE = ("kernels/transform", "kernels/nest", "proto")
BELOW_ENGINES = ("kernels", "kernels/queue", "kernels/host", *PURE)
BELOW_DAEMON = ("kernels/elsewhere.h", "kernels/engine.h", "kernels/explanation.h", "kernels/plan_key.h", "kernels/thread.h", "kernels/transform",
                "proto")
CUDA_PLAN = ("kernels/cuda/strategy", *BELOW_ENGINES)
TMACTL = ("client/tmactl", "client/tmactl/terminal", "proto/arithmetic.h", "proto/clock.h")
ROOMS = {
    "proto": (),
    "kernels/transform": ("proto",),
    "kernels/nest": ("kernels/transform", "proto"),
    "kernels": ("kernels/cpu/plan", "kernels/cuda/strategy", *PURE),
    "kernels/queue": ("kernels", "proto/clock.h"),
    "kernels/host": ("kernels", *PURE),
    "kernels/process": BELOW_ENGINES,
    "kernels/cpu/isa": ("kernels/transform", "proto"),
    "kernels/cpu/plan": ("kernels", "kernels/cpu/move", "kernels/cpu/tile", *PURE),
    "kernels/cpu/move": ("kernels", "kernels/cpu/isa", "kernels/cpu/plan", "kernels/cpu/tile", *PURE),
    "kernels/cpu/tile": ("kernels", "kernels/cpu/isa", "kernels/cpu/plan", "kernels/cpu/move", *PURE),
    "kernels/cpu/run": ("kernels/cpu/isa", "kernels/cpu/plan", "kernels/cpu/move", *BELOW_ENGINES),
    "kernels/cpu": ("kernels/cpu/plan", "kernels/cpu/run", *BELOW_ENGINES),
    "kernels/cuda/strategy": ("kernels", "kernels/cuda/launch/launch.h", "kernels/cuda/device/args.h", *PURE),
    "kernels/cuda/device": ("kernels/cuda/strategy", "kernels/transform", "kernels/nest", "proto/dtype.def"),
    "kernels/cuda/driver": ("kernels/cuda/launch", *CUDA_PLAN),
    "kernels/cuda/memory": ("kernels/cuda/driver", *CUDA_PLAN),
    "kernels/cuda/launch": ("kernels/cuda/driver", "kernels/cuda/memory", "kernels/cuda/device/args.h", *CUDA_PLAN),
    "kernels/cuda/stage": ("kernels/cuda", "kernels/cuda/driver", "kernels/cuda/memory", "kernels/cuda/launch", *CUDA_PLAN),
    "kernels/cuda/sched": ("kernels/cuda", "kernels/cuda/driver", "kernels/cuda/memory", "kernels/cuda/stage", *CUDA_PLAN),
    "kernels/cuda": ("kernels/cuda/driver", "kernels/cuda/memory", "kernels/cuda/launch", "kernels/cuda/stage",
                     "kernels/cuda/sched", *CUDA_PLAN),
    "daemon/loop": ("proto",),
    "daemon/config": ("daemon/loop", "proto"),
    "daemon/memory": ("daemon/loop", "daemon/config", "kernels/process/process.h", *BELOW_DAEMON),
    "daemon/jobs": ("daemon/loop", "daemon/config", "daemon/memory", *BELOW_DAEMON),
    "daemon/api": ("daemon/loop", "daemon/config", "daemon/memory", "daemon/jobs", *BELOW_DAEMON),
    "daemon/net": ("daemon/loop", "daemon/config", "daemon/memory", "daemon/jobs", "daemon/api/dispatch.h", *BELOW_DAEMON),
    "daemon/observe": ("daemon/loop", "daemon/config", "daemon/memory", *BELOW_DAEMON),
    "daemon": ("daemon/loop", "daemon/config", "daemon/memory", "daemon/jobs", "daemon/net", "daemon/observe",
               "kernels/host/scout.h", "kernels/process/process.h", *BELOW_DAEMON),
    "client": ("client/local/door.h", "proto"),
    "client/local": ("kernels/elsewhere.h", "kernels/engine.h", "kernels/explanation.h", "kernels/thread.h", "kernels/transform", "proto"),
    "client/python": ("client/client.h", "client/tmaclient.h", "client/tmactl/explain/picture.h", "proto/overlap.h"),
    "client/tmactl/terminal": ("client/tmaclient.h", "proto/arithmetic.h", "proto/clock.h"),
    "client/tmactl/completion": TMACTL,
    "client/tmactl/npy": TMACTL,
    "client/tmactl/copy": ("client/tmactl/npy", "client/tmactl/cast", *TMACTL),
    "client/tmactl/cast": ("client/tmactl/npy", "client/tmactl/copy", *TMACTL),
    "client/tmactl/explain": ("client/tmaclient.h", "client/tmactl/cast", *TMACTL),
    "client/tmactl/bench": TMACTL,
    "client/tmactl/top": ("client/tmaclient.h", *TMACTL),
    "client/tmactl": ("client/tmaclient.h", "client/tmactl/bench", "client/tmactl/cast", "client/tmactl/completion",
                      "client/tmactl/copy", "client/tmactl/explain", "client/tmactl/npy", "client/tmactl/terminal",
                      "client/tmactl/top", "proto/arithmetic.h", "proto/clock.h", "proto/program.h"),
}
# Tests provide this file where they compile the one that includes it.
OUTSIDE = {("kernels/cuda/device/tma.cuh", "tma_model.hh")}

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def room_of(path):
    """Returns the innermost room that a file lies in."""
    folder = os.path.dirname(path)
    while folder and folder not in ROOMS:
        folder = os.path.dirname(folder)
    return folder


def resolve(root, path, name):
    """Returns the file that an include names, as the compiler looks for it: beside the includer, then from the root.
    None if there is none."""
    for base in (os.path.dirname(path), ""):
        target = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, target)):
            return target
    return None


def judge(root, path, name):
    """Returns what is wrong with an include, or None."""
    if (path, name) in OUTSIDE:
        return None
    target = resolve(root, path, name)
    if target is None:
        return f'no file "{name}" beside it or in the tree'
    room, other = room_of(path), room_of(target)
    if room == other or other in ROOMS[room] or target in ROOMS[room]:
        return None
    return f"{room} -> {other or '.'}: {target}"


def sources(root):
    for top in sorted({room.split("/")[0] for room in ROOMS}):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def includes_of(root, path):
    """Yields number, name and target (or None) of each include line of a file."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            include = INCLUDE.match(line)
            if include:
                yield number, include.group(1), resolve(root, path, include.group(1))


def circles(root):
    """Returns the sets of units that include each other, directly or not, by Tarjan's algorithm without recursion."""
    unit = lambda path: os.path.splitext(path)[0]
    graph = {}
    for path in sources(root):
        targets = graph.setdefault(unit(path), set())
        targets.update(unit(target) for _, _, target in includes_of(root, path) if target)
    order, low, open_units, found = {}, {}, [], []
    for start in graph:
        walk = [] if start in order else [(start, iter(sorted(graph[start])))]
        while walk:
            at, rest = walk[-1]
            if at not in order:
                order[at] = low[at] = len(order)
                open_units.append(at)
            to = next((to for to in rest if to in graph), None)
            if to is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[at])
                if low[at] == order[at]:
                    circle = open_units[open_units.index(at):]
                    del open_units[-len(circle):]
                    found.append(sorted(circle))
            elif to not in order:
                walk.append((to, iter(sorted(graph[to]))))
            elif to in open_units:
                low[at] = min(low[at], order[to])
    return [circle for circle in found if len(circle) > 1]


def wrong_arrows(root):
    """Returns a line with file, line number and arrow for each include that is not allowed."""
    found = []
    for path in sources(root):
        for number, name, _ in includes_of(root, path):
            wrong = judge(root, path, name)
            if wrong:
                found.append(f"{path}:{number}: {wrong}")
    return found


def check(root):
    """Returns a line for each include that is not allowed, and for each circle that is too large."""
    return wrong_arrows(root) + [
        f"{len(circle)} units include each other, at most {MOST_UNITS} may: {' '.join(circle)}"
        for circle in circles(root) if len(circle) > MOST_UNITS]


if __name__ == "__main__":
    problems = check(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)
