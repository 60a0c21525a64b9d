"""The image of kube-rdma itself: Debian with Python, the locked dependencies, kube-rdma on top.

`make image` and the lab build it here, so what the lab proves is what people get. The sources
are the packages beside this one. The image for Arm is built on this machine too, which cannot run
its programs: the Python of the amd64 image compiles its Python files.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_rdma import __version__
from kube_rdma_lab.build import debian, oci, wheels
from kube_rdma_lab.build.images import get_image, get_layer
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

IMAGE = "localhost/kube-rdma"
REFERENCE = f"{IMAGE}:dev"
MEASURING = ("perftest", "ibverbs-providers")  # for a preflight, and for verify's own pods
TREE = debian.DebianTree("bookworm", "essential", ("python3", *MEASURING))
PYTHON = "3.11"  # of the tree's suite; wheels and bytecode are made for it
WHEELS = wheels.Target(PYTHON, "x86_64-manylinux_2_28")
ARM_TREE = debian.DebianTree("bookworm", "extract", ("python3", "?essential", *MEASURING), "arm64")
DOCUMENTS = "usr/share/doc/kube-rdma"
# The packages of the tree, a line each: digest of the file, name, version, architecture.
PACKAGE_LIST = f"{DOCUMENTS}/debian-packages.txt"
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
RECIPE = "3"

# What the image has of the sources, by folder beside this package.
PACKAGES = (
    *("kube_base", "kube_client", "kube_rdma"),
    *("kube_rdma_selftest", "kube_rdma_whereabouts"),
)
# In a wheel the compiled shim lies in the package already; in a checkout it is compiled here.
SHIM_SOURCE = PACKAGE.parents[1] / "shim"
SHIM_PLACE = "kube_rdma/adapters/cni/conf/shim/{machine}/kube-rdma"
# The licence of kube-rdma, and those of what is compiled into the shim; a wheel has them elsewhere.
LICENCES = tuple(
    PACKAGE.parents[1] / name
    for name in ("LICENSE", "shim/licences/musl.txt", "shim/licences/zig.txt")
)
# In a wheel the lock lies in the package, in a checkout where the other locks are.
LOCKS = (PACKAGE / "runtime.txt", PACKAGE.parents[1] / "locks/runtime.txt")
# Isolated: neither the container's environment nor its working folder changes what is imported.
ENTRY = f"""\
#!/usr/bin/python{PYTHON} -I
import sys

from kube_rdma.cli.main import main

sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Platform:
    """A processor architecture: its names for the kernel and for images, Debian tree and wheels."""

    machine: str
    architecture: str
    tree: debian.DebianTree
    wheels: wheels.Target


AMD64 = Platform("x86_64", "amd64", TREE, WHEELS)
ARM64 = Platform("aarch64", "arm64", ARM_TREE, wheels.Target(PYTHON, "aarch64-manylinux_2_28"))
PLATFORMS = {f"linux/{one.architecture}": one for one in (AMD64, ARM64)}


def build(
    store: Store, stamp: str, platform: Platform = AMD64, reference: str = REFERENCE
) -> oci.Written:
    """Build kube-rdma's image from the current sources; `stamp` is the day of Debian's packages."""
    python = _base(store, stamp)
    base = python if platform is AMD64 else _foreign_base(store, stamp, platform, python)
    layers = (
        get_layer(store, "base", {"tree": base.parent.name}, lambda *_: base, root_owned=False),
        _dependencies(store, python, platform),
        _package(store, python, platform),
    )
    labels = {
        "org.opencontainers.image.title": "kube-rdma",
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = oci.ContainerConfig(
        entrypoint=("kube-rdma",),
        cmd=("agent",),
        labels=labels,
        architecture=platform.architecture,
    )
    return get_image(store, reference, layers, config)


def _base(store: Store, stamp: str) -> Path:
    def make(folder: Path, shell: Shell) -> None:
        tree = folder / "tree"
        _list_packages(debian.unpack(TREE, tree, shell), tree)
        compile_python(tree, tree, f"usr/lib/python{PYTHON}", shell)

    inputs = {**TREE.inputs(), "stamp": stamp, "recipe": RECIPE}
    return store.get("product-base", inputs, make) / "tree"


def _foreign_base(store: Store, stamp: str, platform: Platform, python: Path) -> Path:
    """Return the base tree of another architecture; `python` is the tree that compiles its Python.

    None of its packages is configured: the links into /usr that this would have made are made here.
    """

    def make(folder: Path, shell: Shell) -> None:
        tree = folder / "tree"
        _list_packages(debian.unpack(platform.tree, tree, shell), tree)
        debian.merge_usr(tree)
        compile_python(python, tree, f"usr/lib/python{PYTHON}", shell)

    inputs = {**platform.tree.inputs(), "stamp": stamp, "recipe": RECIPE}
    return store.get("product-base", inputs, make) / "tree"


def _list_packages(packages: Sequence[debian.Package], tree: Path) -> None:
    lines = (f"{one.sha256} {one.name} {one.version} {one.architecture}\n" for one in packages)
    target = tree / PACKAGE_LIST
    target.parent.mkdir(parents=True)
    target.write_text("".join(lines))


def _dependencies(store: Store, base: Path, platform: Platform) -> oci.Layer:
    lock = next((path for path in LOCKS if path.is_file()), LOCKS[-1])

    def content(stage: Path, shell: Shell) -> Path:
        wheels.install_locked(lock, stage / SITE, platform.wheels, shell)
        compile_python(base, stage, SITE, shell)
        return stage

    inputs = {
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest(),
        "platform": platform.wheels.platform,
        "tree": base.parent.name,
        "recipe of the content": RECIPE,
    }
    return get_layer(store, "dependencies", inputs, content, root_owned=True)


def _package(store: Store, base: Path, platform: Platform) -> oci.Layer:
    files = {**source_files(), **shim_files(store, platform.machine)}
    licences = {path.name: path.read_bytes() for path in LICENCES if path.is_file()}

    def content(stage: Path, shell: Shell) -> Path:
        write(files, stage / SITE)
        write(licences, stage / DOCUMENTS)
        command = stage / "usr/local/bin/kube-rdma"
        command.parent.mkdir(parents=True)
        command.write_text(ENTRY)
        command.chmod(0o755)
        compile_python(base, stage, SITE, shell)
        return stage

    inputs = {
        "sources": digest(files),
        "licences": digest(licences),
        "entry": ENTRY,
        "tree": base.parent.name,
        "recipe of the content": RECIPE,
    }
    return get_layer(store, "package", inputs, content, root_owned=True)


def shim_files(store: Store, machine: str) -> dict[str, bytes]:
    """Return the compiled shim by its path in site-packages; empty in a wheel, which has it."""
    sources = sorted(SHIM_SOURCE.glob("*.[ch]")) + sorted(SHIM_SOURCE.glob("build.py"))
    if not sources:
        return {}

    def make(folder: Path, shell: Shell) -> None:
        shell.run([sys.executable, SHIM_SOURCE / "build.py", machine, folder / "kube-rdma"])

    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    built = store.get("shim", {"sources": digest, "machine": machine}, make) / "kube-rdma"
    return {SHIM_PLACE.format(machine=machine): built.read_bytes()}


def source_files(*packages: str) -> dict[str, bytes]:
    """Return the files of Python packages, by default the image's, by path in site-packages."""
    return {
        str(path.relative_to(PACKAGE.parent)): path.read_bytes()
        for package in packages or PACKAGES
        for path in sorted((PACKAGE.parent / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a folder, by their paths relative to it."""
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def digest(files: Mapping[str, bytes]) -> str:
    """Return a SHA-256 of these files and their paths."""
    whole = hashlib.sha256()
    for name, data in files.items():
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def compile_python(base: Path, stage: Path, where: str, shell: Shell) -> None:
    """Compile the Python files of `stage` below `where` with the interpreter of the tree `base`.

    Containers have a read-only root and the bare machine keeps no bytecode, so what is not compiled
    here is compiled at every start. The bytecode is unchecked: the files never change where they
    go, and their times are all zero. `base` may be a root, or packages that were only unpacked. -B
    keeps the compiler's own imports from writing bytecode with times.
    """
    libraries = [base / f"{top}lib/x86_64-linux-gnu" for top in ("", "usr/")]
    shell.run(
        [
            libraries[0] / "ld-linux-x86-64.so.2",
            *("--library-path", ":".join(map(str, libraries))),
            *(base / f"usr/bin/python{PYTHON}", "-B", "-m", "compileall", "-q"),
            *("--invalidation-mode", "unchecked-hash", "-s", stage, "-p", "/", stage / where),
        ],
        env={"PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0", "PYTHONPATH": ""},
    )
