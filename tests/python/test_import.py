# SPDX-License-Identifier: Apache-2.0
"""Tests that the package can be imported, is complete, and has the version of the rest of tmad."""
import ast
import graphlib
import os
import re
import subprocess
import sys

import tmaclient

SOURCE = os.environ.get("TEST_SRCDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PACKAGE = os.path.dirname(tmaclient.__file__)


def test_version():
    with open(os.path.join(SOURCE, "configure.ac"), encoding="utf-8") as file:
        assert tmaclient.__version__ == re.search(r"^AC_INIT\(\[tmad\], \[(.*)\]\)", file.read(), re.M).group(1)


def test_names():
    assert [name for name in tmaclient.__all__ if not hasattr(tmaclient, name)] == []
    assert len(set(tmaclient.__all__)) == len(tmaclient.__all__)


def test_files():
    """Each file of the package is installed, types included."""
    names = {name for name in os.listdir(os.path.join(SOURCE, "client/python/tmaclient"))
             if name.endswith((".py", ".pyi")) or name == "py.typed"}
    assert names - set(os.listdir(PACKAGE)) == set()


def test_files_are_tests():
    """make check runs each file of this folder that has tests."""
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(SOURCE, "tests/python/Makemodule.am"), encoding="utf-8") as file:
        listed = set(re.findall(r"tests/python/(test_\w+\.py)", file.read()))
    assert {name for name in os.listdir(folder) if name.startswith("test_") and name.endswith(".py")} == listed


def test_no_cycle():
    """No module imports itself by way of others, not even when it is type-checked."""
    imports = {}
    for folder, _, files in os.walk(PACKAGE):
        for name in (name for name in files if name.endswith(".py")):
            path = os.path.relpath(os.path.join(folder, name), PACKAGE)[:-3].split(os.sep)
            package, module = path[:-1], ".".join(path).removesuffix("__init__").rstrip(".")
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                nodes = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.ImportFrom) and node.level]
            imports[module] = {".".join([*package[:len(package) + 1 - node.level], *filter(None, [node.module]),
                                         *([] if node.module else [alias.name])]) for node in nodes for alias in node.names}
    assert {"_moves", "_verbs"} <= imports["_blocking"] and "_sides" not in imports
    graphlib.TopologicalSorter(imports).prepare()


def test_imports_no_library():
    """No array library is loaded before the caller does."""
    code = "import sys, tmaclient; print({'numpy', 'torch', 'cupy', 'jax', 'ml_dtypes', 'tqdm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    assert done.stdout == "set()\n"
