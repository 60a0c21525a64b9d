"""Kubernetes, etcd, containerd, CoreDNS and the CNI plugins, built from Go modules.

One `go build` per module of modules/ makes all of its tools. The versions come from the go.mod
files alone, the stamps inside the binaries too. Nothing is downloaded but Go modules, whose
digests stand in go.sum. A module whose tool is itself (coredns) brings its own main.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build.shell import Shell, ask
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE, cache_root
from kube_rdma_lab.release import Release

MODULES = PACKAGE / "modules"
# What each module gives. Short ones first: what is wrong with the machine shows before the six
# minutes of Kubernetes. A folder of ready-made binaries must hold all of them.
BINARIES = {
    "cni": ("cni/bridge", "cni/loopback", "cni/host-local", "cni/portmap"),
    "etcd": ("etcd", "etcdutl"),
    "coredns": ("coredns",),
    "containerd": ("containerd", "ctr", "containerd-shim-runc-v2"),
    "kubernetes": (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        *("kubelet", "kube-proxy"),
    ),
}
ALL = tuple(binary for binaries in BINARIES.values() for binary in binaries)
CONTAINERD = ("github.com/containerd/containerd/v2", "github.com/containerd/containerd")
# The linker leaves tables for debuggers out (linker_flags), so no package needs any, which is a
# tenth to a quarter of a compilation. What it links is the same, so no part's key knows of this.
NO_DEBUGGING = "-gcflags=all=-dwarf=false"
RENAMED = {"etcd": {"server": "etcd"}}  # go names a binary after its folder


@dataclass(frozen=True, slots=True)
class GoMod:
    """The parts of go.mod that the lab uses (go.dev/ref/mod): version, tools, requirements."""

    go: tuple[int, ...]
    tools: tuple[str, ...]
    versions: dict[str, str]


def parse_go_mod(text: str) -> GoMod:
    """Parse a go.mod file; raise Refused if it names no Go version."""
    plain = re.sub(r"//.*", "", text)
    go = re.search(r"^go\s+(\S+)", plain, re.MULTILINE)
    if go is None:
        raise Refused("go.mod names no Go version", remedy="Add a line such as `go 1.26.0`")
    versions = dict(re.findall(r"^\s*(?:require\s+)?(\S+)\s+(v\d\S*)\s*$", plain, re.MULTILINE))
    return GoMod(version_of(go[1]), tuple(_directives(plain, "tool")), versions)


def _directives(text: str, word: str) -> list[str]:
    blocks = re.findall(rf"^{word}\s*\(([^)]*)\)", text, re.MULTILINE)
    single = re.findall(rf"^{word}\s+([^\s(]+)\s*$", text, re.MULTILINE)
    return [*single, *(entry for block in blocks for entry in block.split())]


def version_of(text: str) -> tuple[int, ...]:
    """Return a version's numbers from a text such as go1.26.8, v1.36.3 or 1.26; else ()."""
    match = re.search(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def linker_flags(name: str, versions: dict[str, str]) -> str:
    """Return the linker's flags of a module: no symbol tables, and the version stamps.

    Without the stamps Kubernetes calls itself v0.0.0-master.
    """
    flags = ["-s", "-w"]
    if name == "kubernetes":
        version = versions["k8s.io/kubernetes"]
        major, minor, *_ = version_of(version)
        stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor,
                  "gitTreeState": "clean", "gitCommit": version}  # fmt: skip
        flags += [f"-X k8s.io/component-base/version.{k}={v}" for k, v in stamps.items()]
    elif name == "containerd":
        # Until 2.0 its path had no major version.
        module = next(path for path in CONTAINERD if path in versions)
        flags.append(f"-X {module}/version.Version={versions[module]}")
    return " ".join(flags)


def find_go(wanted: tuple[int, ...]) -> Path:
    """Return a Go compiler of at least the wanted version: PATH's, else the wheel's in .venv.

    Raise Refused if neither is new enough.
    """
    on_path = shutil.which("go")
    wheel = Path(sysconfig.get_path("platlib")) / "go/bin/go"
    for candidate in (Path(on_path) if on_path else None, wheel):
        if candidate and candidate.exists() and _go_version(candidate) >= wanted:
            return candidate
    text = ".".join(map(str, wanted))
    raise Refused(
        f"no Go compiler of version {text} or newer is on PATH or in the virtual environment",
        remedy="Run tools/bootstrap, which installs one, or give ready-made binaries with --bin",
    )


def _go_version(go: Path) -> tuple[int, ...]:
    return version_of(ask([go, "env", "GOVERSION"], env=_environment()))


def _environment() -> dict[str, str]:
    """Return the variables to set for Go commands; the user's own settings for downloads stay."""
    caches = cache_root() / "go"
    return {
        "GOMODCACHE": str(caches / "mod"),
        "GOCACHE": str(caches / "build"),
        # Not empty: an empty value would let the user's own flags in. Without it every commit of
        # this repository would give other binaries.
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOROOT": "",  # each compiler finds its own
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


def build_module(
    store: Store, name: str, modules: Path = MODULES, release: Release = Release.NEWEST
) -> Path:
    """Build the tools of module `name` unless the store has them; return the binaries' folder.

    `modules` is the folder of all modules. A release may have another module for the name. Raise
    Refused without a Go compiler, Unavailable if it fails.
    """
    module = modules / release.differences.modules.get(name, name)
    text = (module / "go.mod").read_text()
    parsed = parse_go_mod(text)
    flags = linker_flags(name, parsed.versions)
    go = find_go(parsed.go)

    def make(folder: Path, shell: Shell) -> None:
        options = ("-mod=readonly", "-trimpath", NO_DEBUGGING, "-ldflags", flags, "-o", folder)
        shell.run([go, "build", *options, "tool"], env=_environment(), cwd=module)
        for old, new in RENAMED.get(name, {}).items():
            (folder / old).rename(folder / new)

    inputs = {
        **{path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in module.iterdir()},
        "flags": flags,
        "go": ".".join(map(str, _go_version(go))),
    }
    return store.get(module.name, inputs, make, _main_version(parsed))


def module_files(name: str, path: str, modules: Path = MODULES) -> Path:
    """Download a Go module that one of `modules` requires, and return the folder of its files.

    It serves for files other than programs, such as CRDs. They lie in Go's module cache and must
    not be changed. Raise Refused without a Go compiler, Unavailable if the download fails.
    """
    go = find_go(parse_go_mod((modules / name / "go.mod").read_text()).go)
    download = ("mod", "download", "-json", path)
    module = json.loads(ask([str(go), "-C", str(modules / name), *download], env=_environment()))
    return Path(module["Dir"])


def _main_version(parsed: GoMod) -> str:
    """Return the version of the module with the main tool, to show to people.

    The main tool is go.mod's first. If it is our own, the version is that of the first module that
    go.mod requires.
    """
    tool = parsed.tools[0]
    first = next(iter(parsed.versions.values()), "")
    return next((v for name, v in parsed.versions.items() if tool.startswith(name)), first)


@dataclass(frozen=True, slots=True)
class GoBinaries:
    """A folder with all Go binaries, and for each a text that tells its build from others."""

    folder: Path
    builds: Mapping[str, str]

    def inputs(self, *names: str) -> dict[str, str]:
        """Return what the binaries `names` add to the key of an artifact that has or runs them."""
        return {f"binary {name}": self.builds[name] for name in names}


def build_all(store: Store, release: Release = Release.NEWEST) -> GoBinaries:
    """Return a folder with the binaries of all modules, built if missing, as hard links."""
    modules = {name: build_module(store, name, release=release) for name in BINARIES}

    def make(folder: Path, _: Shell) -> None:
        (folder / "cni").mkdir()
        for name, binaries in BINARIES.items():
            for binary in binaries:
                os.link(modules[name] / Path(binary).name, folder / binary)

    inputs = {name: f"{path.name} {BINARIES[name]}" for name, path in modules.items()}
    folder = store.get(release.shelf("bin"), inputs, make)
    return GoBinaries(
        folder, {each: modules[name].name for name in BINARIES for each in BINARIES[name]}
    )


def ready_made(folder: Path) -> GoBinaries:
    """Return the binaries in the user's folder, identified by size and date.

    Raise Refused if one is missing.
    """
    missing = [name for name in ALL if not os.access(folder / name, os.X_OK)]
    if missing:
        raise Refused(
            f"it lacks {', '.join(missing)}",
            remedy="Add them, or leave the option out to have them built",
            where=str(folder),
        )
    states = {name: (folder / name).stat() for name in ALL}
    builds = {name: f"{state.st_size} {state.st_mtime_ns}" for name, state in states.items()}
    return GoBinaries(folder.absolute(), builds)
