# SPDX-License-Identifier: Apache-2.0
"""Tests the type annotations of the package: mypy, from the PATH or the build's tools, checks a program."""
import os
import re
import shutil
import subprocess

import pytest
import tmaclient

TOOLS = os.path.join(os.environ.get("TEST_BUILDDIR", ""), "python-tools", "bin")
MYPY = shutil.which("mypy") or shutil.which("mypy", path=TOOLS)

TORCH = """
class Tensor:
    def __dlpack__(self, *, stream: int | None = ...) -> object: ...
"""

PROGRAM = """
import numpy as np, tmaclient as tma, tmaclient.aio
from torch import Tensor

async def main(a: tma.aio.AsyncClient, c: tma.Client, x: np.ndarray, t: Tensor, own: tma.Tensor, b: bytes) -> None:
    reveal_type(c.transpose(x))                                     # ndarray
    reveal_type(c.transpose(t, (1, 0)))                             # Tensor
    reveal_type(c.transpose(own))                                   # Tensor
    reveal_type(c.transpose(b))                                     # Any
    reveal_type(c.transpose(t, out=x))                              # object
    reveal_type(c.copy(x, dtype="bfloat16", cast="ieee"))           # ndarray
    reveal_type(c.pad(t, 1, "edge"))                                # Tensor
    reveal_type(c.transform(x, permute=(1, 0), priority="urgent"))  # ndarray
    reveal_type(c.gather(t, [0], axis=1))                           # Tensor
    reveal_type(tma.transpose(x))                                   # ndarray
    reveal_type(tma.transpose(t))                                   # Tensor
    reveal_type(tma.pad(x, 1, mode="wrap"))                         # ndarray
    reveal_type(await a.transpose(x))                               # ndarray
    reveal_type(await a.gather(t, [0]))                             # Tensor
    reveal_type(await (await a.plan(x))(x))                         # Any
    reveal_type(await a.info())                                     # dict
    with c.batch() as batch:
        reveal_type(batch.transpose(x))                             # ndarray
    c.scatter(x, [0], x, axis=1)
    await a.scatter(x, [0], x)
    c.transpose(x, priority="urgnet")                               # error
    tma.transpose(x, priority="urgnet")                             # error
    await a.transpose(x, priority="urgnet")                         # error
    c.copy(x, cast="saturat")                                       # error
    c.pad(x, 1, "edges")                                            # error
    c.transform(x, mode="edges")                                    # error
    c.gather(x)                                                     # error
"""


@pytest.mark.skipif(not MYPY, reason="mypy is not installed")
def test_types(tmp_path):
    pytest.importorskip("numpy")
    (tmp_path / "torch.pyi").write_text(TORCH)
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join((str(tmp_path), os.path.dirname(os.path.dirname(tmaclient.__file__))))
    done = subprocess.run(
        [MYPY, "--strict", "--follow-imports=silent", "--no-error-summary", "--disable-error-code=type-arg",
         "--cache-dir", str(tmp_path / "cache"), "program.py"],
        cwd=tmp_path, env=dict(os.environ, MYPYPATH=path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8")
    said = {}
    for line, kind, words in re.findall(r"^program\.py:(\d+): (note|error): (.*)$", done.stdout, re.M):
        revealed = re.match(r'Revealed type is "(.*)"', words)
        if kind == "error":
            said[int(line)] = "error"
        elif revealed:
            said.setdefault(int(line), revealed[1].partition("[")[0].rpartition(".")[2])
    wanted = {i: line.rpartition("# ")[2] for i, line in enumerate(PROGRAM.split("\n"), 1) if "# " in line}
    assert said == wanted, done.stdout
