"""All parts of the lab, in the order that suits two cores: one lane compiles, one installs.

The front door of this folder: `build` gives the runtime everything it boots from. A second call
finds everything in the store and takes no time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from kube_rdma_lab.build import (
    go,
    image_disk,
    images,
    initrd,
    kernel,
    oci,
    product,
    qemu,
    resolution,
    root,
    wheels,
)
from kube_rdma_lab.build.shell import need_root
from kube_rdma_lab.build.store import Report, Store, default_root, silent


@dataclass(frozen=True, slots=True)
class Parts:
    """What a lab boots from; nothing in it ever changes.

    `bin` holds the binaries of the control plane and the nodes, with the CNI plugins in `cni/`;
    `initrd` takes a further archive per node at its end; `root_disk` is read-only; `image_disk`
    is a containerd data root, the backing file of each node's own disk.
    """

    bin: Path
    qemu: qemu.Qemu
    kernel: Path
    kernel_release: str
    initrd: Path
    root_disk: Path
    image_disk: Path

    def to_json(self) -> str:
        """Return the parts as text, for the supervisor's command line."""
        return json.dumps({**asdict(self), "qemu": self.qemu.tree}, default=str)

    @classmethod
    def from_json(cls, text: str) -> Parts:
        """Return what `to_json` was given."""
        fields = json.loads(text)
        release = fields.pop("kernel_release")
        tree = Path(fields.pop("qemu"))
        paths = {name: Path(path) for name, path in fields.items()}
        return cls(qemu=qemu.Qemu(tree), kernel_release=release, **paths)

    @contextlib.contextmanager
    def held(self) -> Iterator[Parts]:
        """Keep all parts from being pruned while the scope is open; a running lab does."""
        store = open_store()
        paths = (self.bin, self.qemu.tree, self.kernel, self.initrd, self.root_disk,
                 self.image_disk)  # fmt: skip
        with contextlib.ExitStack() as stack:
            for path in paths:
                if path.is_relative_to(store.root):
                    stack.enter_context(store.hold(path))
            yield self


def open_store(report: Report = silent) -> Store:
    """Return the store of this machine's user."""
    return Store(default_root(), report)


def build(report: Report = silent, *, bin_dir: Path | None = None, update: bool = False) -> Parts:
    """Return the parts, building what is missing and removing old versions afterwards.

    `bin_dir` gives ready-made binaries instead of building them; `update` asks Debian for newer
    packages. Raises Refused for what the user must change and Unavailable when a program of the
    build fails; both name the log. An interruption ends all programs of the build.
    """
    need_root()
    wheels.find_uv()  # asked now, not after minutes of other work
    if bin_dir is not None:
        go.ready_made(bin_dir)
    # The store closes first: it ends what the other lane still runs, or we would wait for that.
    with ThreadPoolExecutor(1, "compile") as lane, open_store(report) as store:
        compiling = lane.submit(_binaries, store, bin_dir)
        made = _installed(store, update=update)
        binaries, identity = compiling.result()
        root_disk = root.build_disk(store, made.base, made.kernel, binaries, identity)
        filled = image_disk.build(store, made.images, binaries, identity)
        store.prune()
        return Parts(
            bin=binaries,
            qemu=made.qemu,
            kernel=made.kernel.vmlinuz,
            kernel_release=made.kernel.release,
            initrd=made.initrd,
            root_disk=root_disk,
            image_disk=filled,
        )


@dataclass(frozen=True, slots=True)
class _Installed:
    """What needs no compiler."""

    qemu: qemu.Qemu
    kernel: kernel.Kernel
    base: Path
    initrd: Path
    images: tuple[oci.Written, ...]


def _installed(store: Store, *, update: bool) -> _Installed:
    stamp = resolution.stamp(update=update)
    resolved = resolution.current_kernel(store, update=update)
    chosen = kernel.build(store, resolved, resolution.archive())
    base = root.build_base(store, stamp)
    written = (
        images.build_pause(store, base),
        images.build_verbs(store, base),
        product.build(store, stamp),
    )
    ramdisk = initrd.build(store, base, chosen)
    return _Installed(qemu.build(store, stamp), chosen, base, ramdisk, written)


def _binaries(store: Store, bin_dir: Path | None) -> tuple[Path, str]:
    """Return the folder of all binaries and a text that tells it from every other."""
    if bin_dir is not None:
        folder = go.ready_made(bin_dir)
        state = [(name, (folder / name).stat()) for name in go.BINARIES]
        text = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in state)
        return folder, hashlib.sha256(text.encode()).hexdigest()
    folder = go.gather(store, {name: go.build_module(store, name) for name in go.NAMES})
    return folder, folder.name
