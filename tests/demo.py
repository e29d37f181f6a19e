# SPDX-License-Identifier: Apache-2.0
"""The demo: a real tmad permutes and pads a real tensor file, and NumPy checks every bit of it."""
import json
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from tmad import SOURCE, TMACTL, Tmad, tmactl

SHAPE = (64, 56, 56, 256)
PERMUTE, PAD = "0,3,1,2", "0:0,0:0,1:1,1:1"


def line(label, text):
    print(f"{label:<8} {text}", flush=True)


def copy(tmad, directory, dst, *args):
    """Returns what `tmactl copy` reports of activations.npy to dst."""
    done = tmactl("copy", "--json", "activations.npy", dst, *args, socket_path=tmad.path, cwd=directory)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def rate(done):
    return f"{done['bytes'] / done['ns']:.1f} GB/s"


def main():
    build = os.path.relpath(os.path.dirname(TMACTL), SOURCE)
    next_socket = "/tmp/tmad.sock"
    with tempfile.TemporaryDirectory(prefix="tmad-demo-") as directory, Tmad() as tmad:
        info = json.loads(tmactl("info", "--json", socket_path=tmad.path).stdout)
        line("engine", f"{info['engine']} ({info['device']})")
        line("tmad", f"{info['version']}, ready on {tmad.path}")

        array = np.random.default_rng().standard_normal(SHAPE, dtype=np.float32)
        np.save(os.path.join(directory, "activations.npy"), array)
        line("copy", f"activations.npy {array.dtype} {list(SHAPE)} --permute {PERMUTE} --pad {PAD}")
        plain = copy(tmad, directory, "same.npy")
        done = copy(tmad, directory, "out.npy", "--permute", PERMUTE, "--pad", PAD)
        line("", f"-> out.npy {done['dst_shape']}  {done['path']}  {rate(done)}, files and all {done['seconds']:.2f} s"
                 f"  (unchanged: {plain['path']}  {rate(plain)}, {plain['seconds']:.2f} s)")

        expected = np.pad(array.transpose(0, 3, 1, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
        result = np.load(os.path.join(directory, "out.npy"))
        if result.shape != expected.shape or not np.array_equal(result.view(np.uint32), expected.view(np.uint32)):
            sys.exit("check    out.npy is NOT what NumPy makes of it: this is a bug, please report it")
        line("check", "equal to NumPy's transpose and np.pad, bit for bit")
    line("next", f"{build}/tmad --engine cpu --socket {next_socket} &")
    line("", f'{build}/tmactl --socket {next_socket} info; README.md, "A first session"')


if __name__ == "__main__":
    main()
