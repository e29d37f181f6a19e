# SPDX-License-Identifier: Apache-2.0
"""Runs the tour and the examples as programs: each checks its own results and exits with status 0."""
import fcntl
import importlib.util
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

import tmaclient as tma
from tmad import SOURCE, scaled

EXAMPLES = os.path.join(SOURCE, "client/python/examples")
needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="NumPy is not installed")


def python(*arguments, status=0, **options):
    """Runs a Python program, and returns its standard output and its standard error."""
    done = subprocess.run([sys.executable, "-W", "error", *arguments], capture_output=True, encoding="utf-8",
                          timeout=scaled(120), stdin=subprocess.DEVNULL, check=False, **options)
    assert done.returncode == status, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def without(*modules):
    """Returns code that makes imports of these modules fail in the code after it."""
    return "import sys; " + "".join(f"sys.modules[{name!r}] = None; " for name in modules)


def example(tmad, name, *arguments, hidden=()):
    path = os.path.join(EXAMPLES, name)
    code = without(*hidden) + f"import runpy; sys.argv[0] = {path!r}; runpy.run_path({path!r}, run_name='__main__')"
    command = ["-c", code] if hidden else [path]
    out, errors = python(*command, "--socket", tmad.path, *arguments)
    assert errors == "", errors
    return out


# ---- The tour ------------------------------------------------------------------------------------------------
@needs_numpy
def test_tour(tmad):
    out, errors = python("-m", "tmaclient", "--socket", tmad.path)
    assert errors == "" and out.count("equal to NumPy's") == 4, out
    assert "engine " in out and "Plan of engine" in out and "GB/s" in out and "\x1b" not in out
    lines = out.replace(tmad.path, "/run/tmad.sock").splitlines()
    assert len(lines) <= 26 and max(map(len, lines)) <= 120


def test_tour_without_numpy(tmad):
    code = without("numpy") + "import runpy; runpy.run_module('tmaclient', run_name='__main__')"
    out, errors = python("-c", code, "--socket", tmad.path)
    assert errors == "" and "NumPy is not installed" in out and "Plan of engine" in out and "cbabcba" in out, out


def test_tour_by_environment(tmad):
    assert tmad.path in python("-m", "tmaclient", env=dict(os.environ, TMAD_SOCKET=tmad.path))[0]


@needs_numpy
def test_tour_on_a_terminal(tmad):
    """On a terminal the tour shows a progress bar, if tqdm is installed."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen([sys.executable, "-m", "tmaclient", "--socket", tmad.path], stdin=subprocess.DEVNULL,
                               stdout=other, stderr=other)
    os.close(other)
    out = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other side of the terminal is closed
            break
        if not data:
            break
        out += data
    os.close(main)
    assert process.wait(scaled(60)) == 0, out
    assert (b"100%" in out) == (importlib.util.find_spec("tqdm") is not None), out


def test_tour_without_tmad(tmp_path):
    path = str(tmp_path / "none")
    out, errors = python("-m", "tmaclient", "--socket", path, status=1)
    assert out == "" and path in errors and f"tmad --engine=cpu --socket {path}" in errors and "Traceback" not in errors


def test_options():
    assert python("-m", "tmaclient", "--version")[0] == f"tmaclient {tma.__version__}\n"
    assert "--socket" in python("-m", "tmaclient", "--help")[0]
    python("-m", "tmaclient", "--sockets", status=2)


# ---- The README's example ------------------------------------------------------------------------------------
@needs_numpy
def test_readme():
    """The example in README.md prints what the text below it says."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        code, told = re.search(r"<!-- example.py -->\n```python\n(.*?)```\n<!-- end of example -->\n\nIt prints `(.*?)`",
                               file.read(), re.DOTALL).groups()
    env = {name: value for name, value in os.environ.items() if name != "TMAD_SOCKET"}
    assert python("-c", code, env=env) == (told + "\n", "")


# ---- Examples ------------------------------------------------------------------------------------------------
@needs_numpy
def test_numpy_transpose(tmad):
    out = example(tmad, "numpy_transpose.py")
    assert out.count("GB/s") == 4 and "all equal to NumPy's" in out


@needs_numpy
@pytest.mark.parametrize("hidden", [(), ("torch",)])
def test_data_loader(tmad, hidden):
    if not hidden and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    out = example(tmad, "data_loader.py", "--batches", "9", hidden=hidden)
    by = "threads" if hidden else r"torch \S+"
    assert re.fullmatch(rf"288 frames as NCHW batches by {by}: \d+ images/s, equal to NumPy's\n", out), out


@needs_numpy
def test_kv_blocks(tmad):
    before = set(os.listdir("/dev/shm"))
    assert "every byte is right" in example(tmad, "kv_blocks.py")
    assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("psm_")}


@needs_numpy
def test_server(tmad):
    assert example(tmad, "server.py", "--self-test") == "500 arrays of 50 clients came back transposed\n"


BETWEEN_HOSTS = ("prefill_decode.py", "weights.py")  # tests/nixl/test_examples.py runs them


def test_all_are_run():
    with open(__file__, encoding="utf-8") as own:
        text = own.read()
    assert [name for name in os.listdir(EXAMPLES) if name.endswith(".py") and f'"{name}"' not in text] == []
