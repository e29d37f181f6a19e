"""The demo: a real tmad permutes and pads a real tensor file, and NumPy checks every bit of it."""
import json
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from tmad import TMACTL, Tmad, tmactl

SHAPE = (64, 56, 56, 256)
PERMUTE, PAD = "0,3,1,2", "0:0,0:0,1:1,1:1"


def line(label, text):
    print(f"{label:<8} {text}", flush=True)


def main():
    if "XDG_RUNTIME_DIR" in os.environ:
        next_socket = "$XDG_RUNTIME_DIR/tmad/tmad.sock"
    else:
        next_socket = "/tmp/tmad.sock"
    build = os.path.relpath(os.path.dirname(TMACTL), os.environ.get("DEMO_FROM") or os.getcwd())

    with tempfile.TemporaryDirectory(prefix="tmad-demo-") as directory, Tmad() as tmad:
        info = json.loads(tmactl("info", "--json", socket_path=tmad.path).stdout)
        line("engine", f"{info['engine']} ({info['device']})")
        line("tmad", f"{info['version']}, ready on {tmad.path}")

        array = np.random.default_rng().standard_normal(SHAPE, dtype=np.float32)
        np.save(os.path.join(directory, "activations.npy"), array)
        line("copy", f"activations.npy {array.dtype} {list(SHAPE)} --permute {PERMUTE} --pad {PAD}")
        copy = tmactl("copy", "activations.npy", "out.npy", "--permute", PERMUTE, "--pad", PAD,
                      socket_path=tmad.path, cwd=directory)
        if copy.returncode != 0:
            sys.exit(copy.stderr)
        line("", copy.stdout.rstrip())

        expected = np.pad(array.transpose(0, 3, 1, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
        result = np.load(os.path.join(directory, "out.npy"))
        if result.shape != expected.shape or not np.array_equal(result.view(np.uint32), expected.view(np.uint32)):
            sys.exit("check    out.npy is NOT what NumPy makes of it: this is a bug, please report it")
        line("check", f"{list(result.shape)}, equal to NumPy's np.pad and transpose, bit for bit")
    line("next", f"{build}/tmad --engine cpu --socket {next_socket} &")
    line("", f'{build}/tmactl --help; README.md, "A first session"')


if __name__ == "__main__":
    main()
