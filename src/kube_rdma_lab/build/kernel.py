"""The node's kernel: which one, fetched from Debian, with the modules that modules.txt names.

Soft-RoCE inside network namespaces exists from Linux 7.1 on, so the kernel comes from backports. It
is the one that `linux-image-amd64` depends on: a set of packages released together, unlike the
newest name in the archive. It is looked up once and kept until the user asks for an update, or the
store has lost it.
"""

from __future__ import annotations

import lzma
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.build import debian
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store

SUITE = "trixie-backports"
META_PACKAGE = "linux-image-amd64"
OLDEST = (7, 1)  # rxe links in network namespaces
MODULES_LIST = Path(__file__).with_name("modules.txt")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A kernel in the archive: its release (`uname -r`) and the packages it consists of."""

    release: str
    version: str
    packages: Mapping[str, str]  # name to SHA-256 of its file

    @property
    def digest(self) -> str:
        """Return the archive's digest of the package that has the bootable image."""
        return next(self.packages[name] for name in self.packages if "binary" in name)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on disk: `folder` has vmlinuz and the modules of `release` (`uname -r`)."""

    folder: Path
    release: str

    @property
    def vmlinuz(self) -> Path:
        """Return the path of the kernel's bootable image."""
        return self.folder / "vmlinuz"

    @property
    def modules(self) -> Path:
        """Return the folder of the kernel's modules, which is named after the release."""
        return self.folder / "lib/modules" / self.release


def resolve(archive: debian.Archive, shell: Shell) -> Resolved:
    """Ask the archive for the current kernel; raise Refused if it is too old for the lab.

    Raise Unavailable if the archive does not answer or has no kernel image.
    """
    archive.refresh(shell)
    meta = archive.show(META_PACKAGE)
    image = next((name for name in meta.depends if name.startswith("linux-image-")), None)
    if image is None:
        raise Unavailable(f"{META_PACKAGE} {meta.version} of {SUITE} depends on no kernel image")
    release = image.removeprefix("linux-image-")
    if numbers(release) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise Refused(
            f"the newest kernel of {SUITE} is {release}, Soft-RoCE in pods needs {wanted}",
            remedy="Use a mirror that carries the current backports",
        )
    parts = [archive.show(f"linux-{part}-{release}") for part in ("binary", "modules", "base")]
    return Resolved(release, meta.version, {part.name: part.sha256 for part in parts})


def numbers(release: str) -> tuple[int, ...]:
    """Return the leading numbers of a kernel release: 7.2.12+deb13-amd64 is (7, 2, 12)."""
    match = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, match[0].split("."))) if match else ()


def inputs_of(resolved: Resolved) -> dict[str, str]:
    """Return the inputs that decide the content of a kernel's folder."""
    modules = "\n".join(parse_list(MODULES_LIST.read_text()))
    return {"modules": modules, "release": resolved.release, **resolved.packages}


def build(store: Store, resolved: Resolved, archive: debian.Archive) -> Kernel:
    """Return the files of the resolved kernel from the store, built if missing.

    To build it, `archive` must still be as fresh as when the kernel was resolved.
    """

    def make(folder: Path, shell: Shell) -> None:
        downloads = folder / "downloads"
        downloads.mkdir()
        packages = [archive.show(name) for name in resolved.packages]
        files = archive.download(packages, downloads, shell)
        debian.unpack_packages(files, folder / "all", shell)
        shutil.rmtree(downloads)
        _select(folder, resolved.release, parse_list(MODULES_LIST.read_text()), shell)
        shutil.rmtree(folder / "all")

    note = f"{resolved.release} ({resolved.version}, sha256 {resolved.digest[:12]}…)"
    path = store.get("kernel", inputs_of(resolved), make, note)
    return Kernel(path, resolved.release)


def parse_list(text: str) -> tuple[str, ...]:
    """Parse a list of kernel modules; raise Refused for an entry without a reason."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        entry, _, reason = line.partition("#")
        if not entry.strip():
            continue
        if not reason.strip() or len(entry.split()) != 1:
            raise Refused(
                f"`{line.strip()}` is not one module with a reason",
                remedy="Write `NAME  # why the lab needs it`",
                where=f"{MODULES_LIST.name}, line {number}",
            )
        entries.append(entry.strip())
    return tuple(entries)


def module_name(path: str) -> str:
    """Return the kernel's name of a module file: its dashes are underscores."""
    return re.sub(r"\.ko(\.(xz|zst|gz))?$", "", Path(path).name).replace("-", "_")


def closure(
    wanted: Iterable[str], dependencies: Mapping[str, tuple[str, ...]], builtin: Iterable[str]
) -> list[str]:
    """Return the module files for the entries of a list, each after what it depends on.

    `dependencies` is modules.dep: file to the files it needs, nearest first. An entry is a module,
    or with a slash at its end a folder below kernel/. Modules that are built into the kernel need
    no file. Raise Refused for the first entry that does not exist at all.
    """
    by_name = {module_name(path): path for path in dependencies}
    inside = {module_name(path) for path in builtin}
    chosen: dict[str, None] = {}
    for entry in wanted:
        if entry.endswith("/"):
            paths = [path for path in dependencies if path.startswith(f"kernel/{entry}")]
        else:
            module = by_name.get(module_name(entry))
            paths = [module] if module else []
            if not module and module_name(entry) in inside:
                continue
        if not paths:
            raise Refused(
                f"this kernel has no module {entry}",
                remedy="Take the line out or write the name that this kernel uses",
                where=MODULES_LIST.name,
            )
        for path in paths:
            chosen.update(dict.fromkeys([*reversed(dependencies[path]), path]))
    return list(chosen)


def read_dependencies(modules: Path) -> dict[str, tuple[str, ...]]:
    """Parse the modules.dep of a module folder (modules.dep(5))."""
    lines = (modules / "modules.dep").read_text().splitlines()
    return {
        file: tuple(needs.split()) for file, _, needs in (line.partition(":") for line in lines)
    }


def read_builtin(modules: Path) -> list[str]:
    """Return the file paths, as in modules.builtin, of modules that are built into the kernel."""
    return (modules / "modules.builtin").read_text().split()


def _select(folder: Path, release: str, wanted: tuple[str, ...], shell: Shell) -> None:
    everything = folder / "all/usr/lib/modules" / release
    (folder / "all/lib").symlink_to("usr/lib")  # where depmod looks
    shell.run(["depmod", "-b", folder / "all", release])
    target = folder / "lib/modules" / release
    target.mkdir(parents=True)
    for file in closure(wanted, read_dependencies(everything), read_builtin(everything)):
        _unpack_module(everything / file, target / file)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order", "config"):
        shutil.copyfile(everything / name, target / name)
    shutil.move(everything / "vmlinuz", folder / "vmlinuz")
    shell.run(["depmod", "-b", folder, release])


def _unpack_module(source: Path, target: Path) -> None:
    # An emulated machine takes long to decompress, and the root disk has the room.
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".xz":
        target.with_suffix("").write_bytes(lzma.decompress(source.read_bytes()))
    else:
        shutil.copyfile(source, target)
