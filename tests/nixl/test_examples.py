# SPDX-License-Identifier: Apache-2.0
"""The Python client's examples between hosts, over a link that is late and loses packets: each checks its own bytes."""
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("numpy")
pytest.importorskip("nixl", reason="nixl is not installed: pip install nixl")

from hosts import HERE
from tmad import scaled, share

EXAMPLES = os.path.join(HERE, "..", "..", "client", "python", "examples")


def run(pair, example, roles, arguments):
    """Both sides of an example; what the second one prints."""
    processes = []
    for (host, other, port, other_port), role, own in zip(
        ((pair.a, pair.b, 5701, 5702), (pair.b, pair.a, 5702, 5701)), roles, arguments, strict=True
    ):
        command = [sys.executable, os.path.join(EXAMPLES, example), role, "--listen", str(port), "--peer",
                   f"{other.address}:{other_port}", "--socket", host.tmad("--threads", "1").path, *map(str, own)]
        processes.append(host.start(command, env={"NIXL_LOG_LEVEL": "FATAL"}, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, encoding="utf-8"))
    outputs = [process.communicate(timeout=scaled(120)) for process in processes]
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, out + err
        assert "every byte is right" in out
    print(outputs[1][0].strip().splitlines()[-1])
    return outputs[1][0]


@pytest.mark.parametrize(("from_", "to"), [(2, 4), (8, 1), (1, 8), (4, 2)])
def test_prefill_decode(hosts, from_, to):
    """32 layers of blocks of 16 tokens; 8 requests of up to 8 blocks, at full length."""
    pair = hosts("tun", delay_ms=1, loss=0.005, seed=from_)
    requests = max(2, share(8))
    out = run(pair, "prefill_decode.py", ("prefill", "decode"), (
        ["--ranks", from_, "--peer-ranks", to, "--requests", requests],
        ["--ranks", to, "--peer-ranks", from_, "--requests", requests],
    ))
    (sent, lost), _ = pair.link.counts()
    assert float(re.search(r"([\d.]+) MB", out)[1]) > 4 * requests and lost > 0 and sent > 100


@pytest.mark.parametrize(("from_", "to"), [(4, 2), (1, 4)])
def test_weights(hosts, from_, to):
    pytest.importorskip("ml_dtypes")
    steps = max(1, share(3))
    out = run(hosts("tun", delay_ms=1, loss=0.005, seed=to), "weights.py", ("trainer", "servers"), (
        ["--shards", from_, "--peer-shards", to, "--steps", steps], ["--shards", to, "--peer-shards", from_, "--steps", steps],
    ))
    assert f"{steps} steps, {steps * 12.6:.1f}" in out
