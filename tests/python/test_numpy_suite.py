# SPDX-License-Identifier: Apache-2.0
"""Runs NumPy's own tests of pad, take, transpose and similar functions with the client in their place: see
numpy_in_place.py.

The tests are those of the installed NumPy, if it is installed with its tests."""
import importlib.util
import json
import os
import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import NATIVE, TSAN

HERE = os.path.dirname(os.path.abspath(__file__))

# This test checks the signature of a function, and finds that of the replacement.
ABOUT_FUNCTIONS = "not signature"

# These are the modules by name, what each needs, which tests are run, and the least number of calls of each kind.
MODULES = {
    "pad": ("lib.tests.test_arraypad", "", ABOUT_FUNCTIONS, {"pad": 120, "transpose": 50, "take": 10, "astype": 500}),
    "item_selection": ("core.tests.test_item_selection", "", ABOUT_FUNCTIONS, {"take": 3}),
    "indexing": ("core.tests.test_indexing", "", ABOUT_FUNCTIONS, {"take": 1500, "transpose": 100, "copy": 900}),
    "shape_base": ("lib.tests.test_shape_base", "", f"{ABOUT_FUNCTIONS} and not max_int32", {"swapaxes": 60, "transpose": 15}),
    "numeric": ("core.tests.test_numeric", "hypothesis", ABOUT_FUNCTIONS, {"transpose": 80, "swapaxes": 9, "astype": 400}),
    "multiarray": ("core.tests.test_multiarray", "",
                   f"{ABOUT_FUNCTIONS} and (take or transpose or swapaxes or contiguous or astype or newaxis or Methods)",
                   {"swapaxes": 60, "transpose": 5, "take": 8, "copy": 1000}),
}


def find(module):
    """Finds the file of a module of NumPy's tests. NumPy 2 has renamed core."""
    for name in (f"numpy.{module}", f"numpy._{module}"):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        if spec is not None:
            return spec.origin
    pytest.skip(f"NumPy {np.__version__} is installed without numpy.{module}")
    return None


def run(tmad, tmp_path, in_place, tests, select=None):
    """Runs the tests, and returns the result that the plugin has written and the output of pytest."""
    result = tmp_path / f"result-{in_place}"
    paths = [HERE, os.path.dirname(os.path.dirname(os.path.abspath(tma.__file__)))]
    env = dict(os.environ, TMAD_SOCKET=tmad.path, IN_PLACE=in_place, IN_PLACE_RESULT=str(result),
               PYTHONPATH=os.pathsep.join(paths))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "numpy_in_place", "--noconftest", "-p", "no:cacheprovider",
               "-W", "ignore", "--tb=short", "--rootdir", os.path.dirname(tests[0].partition("::")[0]), *tests]
    done = subprocess.run(command + (["-k", select] if select else []), env=env, cwd=tmp_path, capture_output=True,
                          text=True, check=False)
    assert done.returncode in (0, 1) and result.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_in_place(tmad, tmp_path, name):
    module, needs, select, least = MODULES[name]
    if TSAN or (not NATIVE and name not in ("pad", "item_selection")):
        pytest.skip("it takes long, and what it looks at are values")
    if needs:
        pytest.importorskip(needs)
    file = find(module)
    seen, said = run(tmad, tmp_path, "1", [file], select)
    print(f"{module} of NumPy {np.__version__}: {said.splitlines()[-1]}")
    print(f"compared and equal: {seen['compared']}; not applicable: {seen['absent']}")
    assert not seen["unequal"], "\n".join(seen["unequal"][:20])
    assert all(seen["compared"].get(call, 0) >= n for call, n in least.items()), f"{seen['compared']}, not {least}"
    if seen["failed"]:  # the tests may fail without the client, too
        folder = os.path.dirname(file)
        alone, _ = run(tmad, tmp_path, "0", [os.path.join(folder, test) for test in seen["failed"]])
        assert set(seen["failed"]) <= set(alone["failed"]), said[-4000:]
