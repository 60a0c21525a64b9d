"""The image starts Python from compiled files alone: its root is read-only, none could be kept."""

import json
import subprocess
import tarfile

import pytest

from kube_rdma_lab.build import product, resolution
from kube_rdma_lab.build.parts import open_store

LOADED = "# code object from "
# Everything that the example's agent imports, as its first seconds do.
AGENT = "kube_rdma.programs.agent.compose, kube_rdma.programs.agent.pod_networks.service"


@pytest.fixture(scope="module")
def root(machine, tmp_path_factory):
    """The image's layers, one on the other."""
    folder = tmp_path_factory.mktemp("image")
    with open_store() as store:
        written = product.build(store, resolution.stamp(update=False))
        with tarfile.open(written.path) as whole:
            (image,) = json.load(whole.extractfile("manifest.json"))
            for layer in image["Layers"]:
                with tarfile.open(fileobj=whole.extractfile(layer)) as packed:
                    packed.extractall(folder)  # noqa: S202 - made here
    return folder


def test_python_loads_what_was_compiled(root):
    """Debian's library, the dependencies and the package."""
    command = ["chroot", root, f"/usr/bin/python{product.PYTHON}", "-I", "-v", "-c"]
    said = subprocess.run(
        [*command, f"import {AGENT}"], stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    files = [line.removeprefix(LOADED).strip("'") for line in said.splitlines() if LOADED in line]
    assert not [file for file in files if not file.endswith(".pyc")]
    for package in ("asyncio", "msgspec", "kube_rdma"):
        assert [file for file in files if f"/{package}/__pycache__/" in file], package
