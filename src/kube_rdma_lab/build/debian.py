"""Folders of Debian, such as the node's root, and single packages for the kernels.

All of it comes through mmdebstrap and a private apt state, so the machine's own package lists,
cache and configuration stay as they are.
"""

from __future__ import annotations

import re
import shutil
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Broken
from kube_rdma_lab.build import sources
from kube_rdma_lab.build.shell import Shell, ask, need, need_root

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What no program of the lab reads; copyright files stay, the images are given to people.
UNREAD = ("usr/share/man", "usr/share/info", "usr/share/locale",
          "usr/share/lintian", "usr/share/bug", "usr/share/gnome", "usr/share/zoneinfo",
          "var/cache", "var/lib/apt/lists", "var/log", "usr/lib/x86_64-linux-gnu/gconv",
          "usr/lib/udev/hwdb.d", "usr/share/bash-completion")  # fmt: skip
# Written by mmdebstrap from the machine's configuration: no address or proxy of the builder's
# machine may reach an image.
TRACES = ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/hostname",
          "etc/resolv.conf", "etc/machine-id", "var/lib/dpkg/status-old")  # fmt: skip


@dataclass(frozen=True, slots=True)
class DebianTree:
    """The recipe of a Debian tree: suite, mmdebstrap's variant, and packages to add.

    `architecture` is Debian's name of one other than this machine's. Its programs cannot run here,
    so the variant is `extract`, which only unpacks.
    """

    suite: str
    variant: str
    packages: tuple[str, ...]
    architecture: str = ""

    def inputs(self) -> dict[str, str]:
        """Return the inputs that decide the tree's content, apart from the archive's state."""
        foreign = {"architecture": self.architecture} if self.architecture else {}
        return foreign | {
            "suite": self.suite,
            "variant": self.variant,
            "packages": " ".join(self.packages),
            "removed": " ".join((*UNREAD, *TRACES)),
        }


def unpack(tree: DebianTree, target: Path, shell: Shell) -> tuple[Package, ...]:
    """Make the tree in `target`, which must be empty or not exist, and return its packages.

    Raise Refused without root, a mirror or mmdebstrap; Unavailable if mmdebstrap fails. Raise
    Broken as `installed` does.
    """
    need_root()
    mirrors = sources.mirrors()
    foreign = (f"--architectures={tree.architecture}",) if tree.architecture else ()
    shell.run([
        "mmdebstrap",
        "--mode=root",
        *foreign,
        f"--variant={tree.variant}",
        f"--include={','.join(tree.packages)}",
        '--skip=cleanup/apt',  # what is in the tree is read from it, then it goes with UNREAD
        '--dpkgopt=force-unsafe-io',  # nothing to lose: what fails is made anew
            '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={option.rstrip(';')}" for option in sources.fetch_options()),
        tree.suite,
        target,
        *mirrors.lines(tree.suite),
    ])  # fmt: skip
    packages = installed(target)
    strip(target)
    return packages


def installed(tree: Path) -> tuple[Package, ...]:
    """Return a tree's packages, sorted by name, from the lists of apt that `strip` removes.

    dpkg knows the packages that were installed. Files of those that were only unpacked lie in apt's
    cache, called by name, version and architecture, with `%3a` for a colon. apt has compared each
    file's digest with the index, which Debian signs. Raise Broken if the index lacks a package.
    """
    wanted = set(_configured(tree / "var/lib/dpkg/status"))
    for file in (tree / "var/cache/apt/archives").glob("*.deb"):
        name, version, _ = urllib.parse.unquote(file.name).split("_")
        wanted.add((name, version))
    names = {name for name, _ in wanted}
    described: dict[tuple[str, str], Package] = {}
    for index in sorted((tree / "var/lib/apt/lists").glob("*_Packages")):
        for text in index.read_text().split("\n\n"):
            name = text.partition("\n")[0].removeprefix("Package: ")
            if name in names:
                package = _package(name, text)
                described[name, package.version] = package
    if missing := sorted(wanted - described.keys()):
        raise Broken(f"Debian's index does not have {missing[0][0]} {missing[0][1]}")
    return tuple(described[key] for key in sorted(wanted))


def _configured(status: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package in dpkg's status file."""
    for text in status.read_text().split("\n\n") if status.exists() else ():
        if text.strip():
            fields = _fields(text)
            yield fields["Package"], fields["Version"]


def _fields(text: str) -> dict[str, str]:
    """Return the single-line fields of an entry of a Debian package index."""
    lines = (line for line in text.splitlines() if ": " in line and line[0] != " ")
    return dict(line.split(": ", 1) for line in lines)


def _package(name: str, text: str) -> Package:
    """Return the Package that an entry of a package index describes."""
    fields = _fields(text)
    depends = [part.split()[0] for part in fields.get("Depends", "").split(",") if part.strip()]
    architecture = fields.get("Architecture", "")
    return Package(name, fields["Version"], fields["SHA256"], tuple(depends), architecture)


def merge_usr(tree: Path) -> None:
    """Make /bin and its like links into /usr in an unpacked tree, as bookworm has them.

    mmdebstrap's variant `extract` leaves them as folders.
    """
    for folder in sorted(tree.iterdir()):
        if folder.is_symlink() or not re.fullmatch(r"bin|sbin|lib(32|64|x32)?", folder.name):
            continue
        target = tree / "usr" / folder.name
        shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(folder)
        folder.symlink_to(f"usr/{folder.name}")


def strip(tree: Path) -> None:
    """Remove from a tree the files that nothing reads and traces of the builder's machine."""
    for document in (tree / "usr/share/doc").glob("*/*"):
        if document.name != "copyright":
            _remove(document)
    for folder in UNREAD:
        for path in tree.glob(f"{folder.replace('x86_64', '*')}/*"):  # of any architecture
            _remove(path)
    for file in TRACES:
        _remove(tree / file)
    for cached in tree.rglob("__pycache__"):
        shutil.rmtree(cached)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Package:
    """One binary package of a Debian archive, as its index describes it."""

    name: str
    version: str
    sha256: str
    depends: tuple[str, ...]
    architecture: str = ""  # `all` where every machine has the same


class Archive:
    """An apt of its own for one suite, with its lists and cache in the folder `state`."""

    def __init__(self, suite: str, state: Path) -> None:
        self._state = state.absolute()
        self._suite = suite

    def refresh(self, shell: Shell) -> None:
        """Fetch the suite's package index anew and check its signature."""
        for folder in ("lists/partial", "cache/archives/partial"):
            (self._state / folder).mkdir(parents=True, exist_ok=True)
        (self._state / "status").touch()
        line = f"deb [signed-by={KEYRING}] {sources.mirrors().main} {self._suite} main\n"
        (self._state / "sources.list").write_text(line)
        (self._state / "apt.conf").write_text(self._configuration())
        shell.run(["apt-get", "update", "--error-on=any"], env=self._env())

    def show(self, name: str) -> Package:
        """Return a package's newest version in this suite; raise Unavailable if there is none."""
        text = ask(["apt-cache", "show", "--no-all-versions", name], env=self._env())
        return _package(name, text)

    def download(self, packages: Sequence[Package], target: Path, shell: Shell) -> list[Path]:
        """Download packages into `target` (apt checks their digests) and return the files."""
        names = [f"{package.name}={package.version}" for package in packages]
        shell.run(["apt-get", "download", *names], env=self._env(), cwd=target)
        return sorted(target.glob("*.deb"))

    def _env(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self._state / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def _configuration(self) -> str:
        state = self._state
        return "\n".join((
            f'Dir::State::Lists "{state}/lists";',
            f'Dir::State::status "{state}/status";',
            f'Dir::Cache "{state}/cache";',
            f'Dir::Etc::SourceList "{state}/sources.list";',
            'Dir::Etc::SourceParts "/dev/null";',
            'Dir::Etc::Main "/dev/null";',
            'Dir::Etc::Parts "/dev/null";',
            'Dir::Etc::PreferencesParts "/dev/null";',
            'Dir::Etc::Preferences "/dev/null";',
            'APT::Sandbox::User "root";',  # its usual user may not enter the cache folder
            'Acquire::Languages "none";',
            *sources.fetch_options(),
            "",
        ))  # fmt: skip


def unpack_packages(files: Sequence[Path], target: Path, shell: Shell) -> None:
    """Unpack package files into `target` without running their scripts."""
    need("dpkg-deb")
    for file in files:
        shell.run(["dpkg-deb", "-x", file, target])
