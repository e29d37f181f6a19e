# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the Python package: services, and clients of them."""
import contextlib
import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

import tmaclient as tma
from nixl_hosts import FAKE, Hosts
from tmad import Tmad


@pytest.fixture(scope="module")
def tmad():
    with Tmad(engine=os.environ.get("TEST_ENGINE") or "cpu") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def shared_client(tmad):
    """A client for the whole module, for tests that do not change its state."""
    with tma.connect(tmad.path, direct=False) as client:
        yield client


@pytest.fixture
def c(tmad):
    with tma.connect(tmad.path, direct=False) as client:
        yield client


@pytest.fixture(scope="module")
def clients(tmad):
    """Clients with staging memory from 64 MiB, which is enough for any array of the tests, down to 512 bytes."""
    opened = [tma.connect(tmad.path, staging=n, direct=False) for n in (64 << 20, 64 << 10, 4 << 10, 512)]
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def own(request):
    """A tmad for one test, with the options of the parameter. The test may stop it, kill it and start it again."""
    daemon = Tmad(*getattr(request, "param", ()), engine="cpu")
    try:
        yield daemon
    finally:
        if daemon.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.pid, 18)  # 18 is SIGCONT
        daemon.stop()


@pytest.fixture(scope="module")
def lose():
    """The name of a file. When a test writes the number of a device to it, the module's tmad on devices loses that
    device."""
    with tempfile.TemporaryDirectory() as directory:
        yield os.path.join(directory, "lose")


@pytest.fixture(scope="module")
def gpus(lose):
    """A tmad for the module, on two devices of the stand-in driver, which this process uses, too."""
    import softgpu

    softgpu.driver()
    with Tmad(engine="cuda", env={"SOFTGPU_DEVICES": "2", "SOFTGPU_LOSE": lose}) as daemon:
        yield daemon


@pytest.fixture
def devices(gpus):
    import softgpu

    made = [softgpu.Device(i) for i in range(2)]
    yield made
    for device in made:
        device.free()
    softgpu.enter()


@pytest.fixture(scope="module")
def fake_nixl():
    """Puts the stand-in for NIXL in place of the package nixl, whether or not that is installed."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "nixl"}
    sys.path.insert(0, FAKE)
    import tmaclient.nixl  # noqa: F401

    yield
    sys.path.remove(FAKE)
    for name in [n for n in sys.modules if n.split(".")[0] == "nixl" or n.startswith("tmaclient.nixl")]:
        del sys.modules[name]
    del tma.nixl
    sys.modules.update(before)


@pytest.fixture
def network(fake_nixl, seed):
    from nixl import _api

    _api.network = _api.Network(seed)
    return _api.network


@pytest.fixture
def hosts(network, tmad):
    with tma.connect(tmad.path, direct=False) as client:
        all_ = Hosts(client)
        yield all_
        all_.close()


@pytest.fixture(scope="session")
def seed():
    value = int(os.environ.get("TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"TEST_SEED={value}")
    return value
