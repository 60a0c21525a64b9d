"""Driver images of the lab for NicClusterPolicies: real containers that load real modules.

    ofed-driver           loads the RDMA modules of the lab's kernel, makes a Soft-RoCE link on each
                          card and shares its headers
    nv-peer-mem-driver    loads nv_peer_mem, which is rdmavt under that name: it uses ib_core, as
                          the true one does, and does nothing

Only labs whose machines load no RDMA modules at boot have them (topology.py). Both are the node's
Debian with a layer on top: what each runs lies in driver_images/.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
from pathlib import Path

from kube_rdma_lab.build import kernel, oci
from kube_rdma_lab.build.images import get_image, get_layer
from kube_rdma_lab.build.product import digest
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

FILES = PACKAGE / "driver_images"
REPOSITORY = "localhost/lab"
VERSIONS = ("1", "2")  # of equal content, so that tests can upgrade
OFED, PEER = "ofed-driver", "nv-peer-mem-driver"
CONFIG = oci.ContainerConfig(entrypoint=("driver",))
# What the first one loads, and what the second one's module is made of.
LOADED = ("mlx5_core", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe")
STAND_IN, STANDS_FOR = "rdmavt", "nv_peer_mem"
PEER_PLACE = f"usr/src/ofa_kernel/default/{STANDS_FOR}.ko"

_SIGNED = b"~Module signature appended~\n"  # MODULE_SIG_STRING, include/linux/module_signature.h
_SIGNATURE = struct.Struct(">BBBBB3xI")  # struct module_signature; its last field is the length
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_THIS_MODULE = b".gnu.linkonce.this_module"


def build(store: Store, node_base: Path, chosen: kernel.Kernel) -> tuple[oci.Written, ...]:
    """Return both driver images in all versions for this kernel, tagged as the operator expects."""
    inputs = {"tree": node_base.parent.name}
    debian = get_layer(store, "verbs", inputs, lambda *_: node_base, root_owned=False)
    system = f"amd64-debian{_release(node_base)}"
    of_kernel = f"{system}-kver{re.sub(r'[^-A-Za-z0-9_.]', '_', chosen.release)}"
    layers = {
        OFED: (of_kernel, _layer(store, OFED, chosen)),
        PEER: (system, _layer(store, PEER, None)),
    }
    return tuple(
        get_image(store, f"{REPOSITORY}/{name}-{version}:{tag}", (debian, layer), CONFIG)
        for name, (tag, layer) in layers.items()
        for version in VERSIONS
    )


def _release(node_base: Path) -> str:
    """Return VERSION_ID of the node's Debian (os-release(5)), "" where it has none."""
    text = (node_base / "etc/os-release").read_text()
    match = re.search(r'^VERSION_ID="?([^"\n]*)', text, re.MULTILINE)
    return match[1] if match else ""


def _layer(store: Store, name: str, chosen: kernel.Kernel | None) -> oci.Layer:
    """Return the layer of the driver `name`: its programs, and modules of the kernel `chosen`."""
    folder = FILES / name

    def content(stage: Path, shell: Shell) -> Path:
        shutil.copytree(folder, stage, dirs_exist_ok=True)
        if chosen:
            _add_modules(stage, chosen, shell)
        return stage

    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    inputs = {
        "files": digest(files),
        "kernel": chosen.folder.name if chosen else "",
        "recipe of the content": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
    }
    return get_layer(store, name, inputs, content, root_owned=True)


def _add_modules(stage: Path, chosen: kernel.Kernel, shell: Shell) -> None:
    target = stage / "usr/lib/modules" / chosen.release
    dependencies = kernel.read_dependencies(chosen.modules)
    builtin = kernel.read_builtin(chosen.modules)
    for file in kernel.closure(LOADED, dependencies, builtin):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(chosen.modules / file, target / file)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copyfile(chosen.modules / name, target / name)
    lib = stage / "lib"
    lib.symlink_to("usr/lib")  # where depmod looks; in the image it is the Debian's
    shell.run(["depmod", "-b", stage, chosen.release])
    lib.unlink()
    (file,) = (path for path in dependencies if kernel.module_name(path) == STAND_IN)
    peer = renamed((chosen.modules / file).read_bytes(), STAND_IN, STANDS_FOR)
    (stage / PEER_PLACE).write_bytes(peer)


def renamed(module: bytes, old: str, new: str) -> bytes:
    """Return a kernel module under another name, without its signature, which would not fit it.

    The kernel takes the name from `struct module` in the section .gnu.linkonce.this_module, where
    zeros are behind it. Raises ValueError without that section, the old name or enough room.
    """
    data = bytearray(_unsigned(module))
    start, size = _section(data, _THIS_MODULE)
    was, becomes = old.encode() + b"\0", new.encode() + b"\0"
    room = max(len(was), len(becomes))
    place = data.find(was.ljust(room, b"\0"), start, start + size)
    if place < 0:
        raise ValueError(f"the module is not called {old}, or has no room for {new}")
    data[place : place + room] = becomes.ljust(room, b"\0")
    return bytes(data)


def _unsigned(module: bytes) -> bytes:
    if not module.endswith(_SIGNED):
        return module
    end = len(module) - len(_SIGNED)
    *_, signer, key, length = _SIGNATURE.unpack_from(module, end - _SIGNATURE.size)
    return module[: end - _SIGNATURE.size - signer - key - length]


def _section(data: bytearray, wanted: bytes) -> tuple[int, int]:
    """Return offset and size of a section of an ELF file; raise ValueError without it."""
    header = _HEADER.unpack_from(data)
    table, entry, count, names = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, table + entry * number) for number in range(count)]
    start = sections[names][4]
    for section in sections:
        name = start + section[0]
        if data[name : data.index(b"\0", name)] == wanted:
            return section[4], section[5]
    raise ValueError(f"the module has no section {wanted.decode()}")
