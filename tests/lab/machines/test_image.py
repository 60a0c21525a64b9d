"""The product's image: all that the agent needs, and for Python compiled files alone.

Its root is read-only, so no compiled file could be kept.
"""

import json
import os
import struct
import subprocess
import tarfile

import pytest

from kube_rdma_lab.build import product, resolution
from kube_rdma_lab.build.parts import open_store

LOADED = "# code object from "
# Everything that the example's agent imports, as its first seconds do.
AGENT = "kube_rdma.agent.compose, kube_rdma.attach.node_networks"
# What e_machine of an ELF file says (elf.h), by `uname -m`.
ELF = {"x86_64": 62, "aarch64": 183}
SLOW = {"linux/arm64"}  # another Debian tree, another compilation
PLATFORMS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in product.PLATFORMS
]


@pytest.fixture(scope="module")
def unpacked(machine, tmp_path_factory):
    """The layers of the image for a platform, one on the other."""
    roots = {}

    def unpack(name):
        if name not in roots:
            roots[name] = folder = tmp_path_factory.mktemp("image")
            with open_store() as store:
                unpack_image(store, resolution.stamp(update=False), name, folder)
        return roots[name]

    return unpack


def unpack_image(store, stamp, name, folder):
    """Put the layers of the image for a platform into a folder."""
    written = product.build(store, stamp, product.PLATFORMS[name])
    with tarfile.open(written.path) as whole:
        (image,) = json.load(whole.extractfile("manifest.json"))
        for layer in image["Layers"]:
            with tarfile.open(fileobj=whole.extractfile(layer)) as packed:
                packed.extractall(folder)  # noqa: S202 - made here


def machine_of(path):
    """What processor an ELF file is for."""
    head = path.read_bytes()[:20]
    assert head[:4] == b"\x7fELF", path
    return struct.unpack_from("<H", head, 18)[0]


@pytest.mark.parametrize("name", PLATFORMS)
def test_an_image_has_all_that_the_agent_needs(unpacked, name):
    """The command, a Python for it, each compiled module, and the shim, all for one processor."""
    root, machine = unpacked(name), product.PLATFORMS[name].machine
    command = root / "usr/local/bin/kube-rdma"
    assert os.access(command, os.X_OK)
    interpreter = command.read_text().splitlines()[0].removeprefix("#!").split()[0]
    python = root / interpreter.lstrip("/")
    shim = root / product.SITE / product.SHIM_PLACE.format(machine=machine)
    modules = list((root / product.SITE).rglob("*.so"))
    assert modules
    assert os.access(root / "bin/sh", os.X_OK)
    assert {machine_of(path) for path in (python, shim, *modules)} == {ELF[machine]}
    assert [path.name for path in shim.parents[1].iterdir()] == [machine]


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_file_of_python_is_compiled(unpacked, name):
    root = unpacked(name)
    folders = (root / product.SITE, root / f"usr/lib/python{product.PYTHON}")
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    assert not [
        path
        for path in sources
        if not (path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").exists()
    ]


def test_python_loads_what_was_compiled(unpacked):
    """Debian's library, the dependencies and the package."""
    root = unpacked("linux/amd64")
    command = ["chroot", root, f"/usr/bin/python{product.PYTHON}", "-I", "-v", "-c"]
    said = subprocess.run(
        [*command, f"import {AGENT}"], stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    files = [line.removeprefix(LOADED).strip("'") for line in said.splitlines() if LOADED in line]
    assert not [file for file in files if not file.endswith(".pyc")]
    for package in ("asyncio", "msgspec", "kube_client", "kube_rdma"):
        assert [file for file in files if f"/{package}/__pycache__/" in file], package
