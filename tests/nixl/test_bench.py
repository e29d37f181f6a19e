# SPDX-License-Identifier: Apache-2.0
"""The benchmark of transfers between hosts, at a small size: its rows are there, and every byte arrives, over a link that
is slow and loses packets too. Its figures decide nothing."""
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from hosts import HERE
from tmad import scaled

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nixl") is None, reason="nixl is not installed: pip install nixl")


@pytest.mark.parametrize("options", ["--link veth --rate 1000000000", "--link tun --delay 1 --loss 0.005", "--link none"])
def test_rows(hosts, options):
    hosts("tun")  # or the reason why not
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), "--gib", "0.01", "--repeat", "1", "--json",
                           *options.split()], capture_output=True, encoding="utf-8", timeout=scaled(300), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["bytes"] == 10 << 20
    assert [row["slice_bytes"] for row in result["rows"]] == [4096] * 4 + [65536] * 4 + [0] * 4
    assert set(result["ratios"]) == {"4 KiB", "64 KiB", "contiguous"}
    for row in result["rows"]:
        assert 0 < row["rate"] < row["moved_rate"], row
        if "--rate" in options:  # of payload, after what the queue of the link has taken at once
            assert row["rate"] < 2e9 / 8, row


@pytest.mark.parametrize(("options", "words"), [
    ("--delay 1", "only a tun link"),
    ("--link none --rate 1000", "they are a link's, and --link none has none"),
    ("--devices 0", "--devices 0: two, each host or the number of a GPU"),
    ("--ways any", "--ways any: they are NIXL without"),
])
def test_options_that_do_not_fit(hosts, options, words):
    hosts("tun")
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), *options.split()], capture_output=True,
                          encoding="utf-8", timeout=scaled(60), check=False)
    assert done.returncode != 0 and words in done.stderr, done.stderr
