# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests between hosts."""
import contextlib
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hosts import Hosts, unavailable


@pytest.fixture(scope="session")
def _reason():
    return unavailable()


@pytest.fixture
def hosts(_reason):
    """Makes Hosts that exist until the test ends."""
    if _reason:
        pytest.skip(_reason)
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Hosts(*arguments, **options))


@pytest.fixture(scope="session")
def seed():
    value = int(os.environ.get("TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"TEST_SEED={value}")
    return value
