# SPDX-License-Identifier: Apache-2.0
"""Which folder includes which: a room's files include their own room and those that it lists, and nothing else. Run by
itself it names each line that breaks this and fails."""
import os
import re
import sys

SUFFIXES = (".c", ".h", ".def", ".cu", ".cuh", ".hh", ".S")

# A room is a folder with all below it that is no room of its own. Beside itself it may include these rooms and files.
PURE = ("kernels/transform", "kernels/nest", "proto")
BELOW_ENGINES = ("kernels", "kernels/queue", "kernels/host", *PURE)
ROOMS = {
    "proto": (),
    "kernels/transform": ("proto",),
    "kernels/nest": ("kernels/transform", "proto"),
    "kernels/cpu/plan": ("kernels", "kernels/cpu", *PURE),
    "kernels/cuda/strategy": ("kernels", "kernels/cuda", "kernels/cuda/device/args.h", *PURE),
    "kernels": ("kernels/cpu/plan", "kernels/cuda/strategy", *PURE),
    "kernels/queue": ("kernels",),
    "kernels/host": ("kernels", *PURE),
    "kernels/process": BELOW_ENGINES,
    "kernels/cpu": ("kernels/cpu/plan", *BELOW_ENGINES),
    "kernels/cuda": ("kernels/cuda/strategy", "kernels/cuda/device/args.h", *BELOW_ENGINES),
    "kernels/cuda/device": ("kernels/cuda/strategy", "kernels/transform", "kernels/nest", "proto/dtype.def"),
    "daemon": ("kernels/elsewhere.h", "kernels/engine.h", "kernels/explanation.h", "kernels/plan_key.h", "kernels/thread.h", "kernels/transform",
               "kernels/host/scout.h", "kernels/process/process.h", "proto"),
    "client": ("client/local/door.h", "proto"),
    "client/local": ("kernels/elsewhere.h", "kernels/engine.h", "kernels/explanation.h", "kernels/transform", "proto"),
    "client/python": ("client/client.h", "client/tmaclient.h", "client/tmactl/explain/picture.h", "proto/overlap.h"),
    "client/tmactl": ("client/tmaclient.h", "proto/arithmetic.h", "proto/clock.h", "proto/nearest.h",
                      "proto/own_socket.h", "proto/standard_fds.h"),
}
# Of a file that tests bring where it is compiled.
OUTSIDE = {("kernels/cuda/device/tma.cuh", "tma_model.hh")}

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def room_of(path):
    """The innermost room that a file lies in."""
    folder = os.path.dirname(path)
    while folder and folder not in ROOMS:
        folder = os.path.dirname(folder)
    return folder


def resolve(root, path, name):
    """The file that an include names, as the compiler looks for it: beside the includer, then from the root. Or None."""
    for base in (os.path.dirname(path), ""):
        target = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, target)):
            return target
    return None


def judge(root, path, name):
    """What is wrong with an include, or None."""
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


def check(root):
    """A line for each include that points the wrong way: file, line, arrow."""
    found = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                include = INCLUDE.match(line)
                wrong = include and judge(root, path, include.group(1))
                if wrong:
                    found.append(f"{path}:{number}: {wrong}")
    return found


if __name__ == "__main__":
    wrong = check(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)
