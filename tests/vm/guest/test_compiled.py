"""Sources travel compiled: an emulated machine takes long for what the host does in a second."""

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

LOADED = "# code object from "


def loaded(*modules):
    """The files that a new Python takes the code of these modules and of all others from."""
    command = [sys.executable, "-v", "-c", f"import {', '.join(modules)}"]
    said = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr
    return [line.removeprefix(LOADED).strip("'") for line in said.splitlines() if LOADED in line]


@pytest.mark.parametrize("module", ["kube_rdma.cli.main", "pytest", "asyncio"])
def test_python_loads_what_was_compiled(module):
    """The product's package as well as the packages and the library on the disk."""
    files = loaded(module)
    assert importlib.util.cache_from_source(importlib.util.find_spec(module).origin) in files
    assert not [file for file in files if not file.endswith(".pyc")]


def test_what_was_not_compiled_is_noticed(tmp_path, monkeypatch):
    """Such as this module, new here."""
    (tmp_path / "planted.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert str(tmp_path / "planted.py") in loaded("planted")
