"""`kubectl rdma` for krew: an archive that runs on any Linux, and the manifest that names it.

krew wants a program without anything around it, and kube-rdma is Python. So the archive is the part
of the image that the command needs. It is the packages and Debian's Python with the libraries that
it loads, started by their own loader. krew unpacks regular files alone (internal/download) and
links to the program, which finds its folder through that link. The program that kubectl calls for
shell completion lies beside it. krew links to a single program, so docs/command-line.md says how to
link to the second one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from kube_rdma_lab.build import product
from kube_rdma_tools.release.archives import ArchivedFile
from kube_rdma_tools.release.contents import ImageComponent
from kube_rdma_tools.release.identity import ReleaseIdentity
from kube_rdma_tools.release.licences import common_licences, of_components

NAME = "rdma"
PROGRAM = "kubectl-rdma"
COMPLETION = "kubectl_complete-rdma"  # kubernetes/kubectl pkg/cmd/plugin/plugin_completion.go
PYTHON = f"python{product.PYTHON}"
# Debian's folder of libraries and the loader's name, by the architecture's name in image platforms.
LOADERS = {
    "amd64": ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
    "arm64": ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
}
SCRIPT = """\
#!/bin/sh
# {program}: starts the Python in this folder with the libraries in this folder.
here=$(dirname "$(readlink -f "$0")")
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -r "$file" ]; then export SSL_CERT_FILE="${{SSL_CERT_FILE:-$file}}"; fi
done
exec "$here/lib/{loader}" --library-path "$here/lib" \\
    "$here/python/bin/{python}" -I "$here/{program}.py" "$@"
"""
LIBRARY = re.compile(rb"(?<=\0)[\w.+-]+\.so[\w.]*(?=\0)")  # as text in a program
DESCRIPTION = (
    "Shows which pod has which RDMA card, why a pod waits for one, what is wrong on a node, and "
    "how fast pods reach each other. `kubectl rdma --help` lists the commands."
)
ENTRY = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "site"))
sys.argv[0] = "kubectl-rdma"

from kube_rdma.cli.{module} import {function}

sys.exit({function}())
"""
ENTRIES = {PROGRAM: ("main", "main"), COMPLETION: ("completion", "of_kubectl")}


def plugin_files(
    root: Path, architecture: str, listed: Sequence[ImageComponent]
) -> dict[str, ArchivedFile]:
    """Return the files of the kubectl plugin's archive, from an unpacked image."""
    folder, loader = LOADERS[architecture]
    files = {
        **dict(_started(loader)),
        f"python/bin/{PYTHON}": ArchivedFile((root / f"usr/bin/{PYTHON}").read_bytes(), runs=True),
        **dict(_below(root / f"usr/lib/{PYTHON}", f"python/lib/{PYTHON}")),
        **dict(_below(root / product.SITE, "site")),
    }
    libraries = {
        path.name: path
        for top in (root / "usr/lib" / folder, root / "lib" / folder)
        for path in sorted(top.glob("*.so*"))
        if path.is_file()
    }
    programs = [f.data for name, f in files.items() if f.runs or ".so" in name]
    for name in (*needed(programs, libraries), loader):
        files[f"lib/{name}"] = ArchivedFile(libraries[name].read_bytes(), runs=name == loader)
    texts = {**of_components(listed), **common_licences(root)}
    return files | {f"licences/{name}": file for name, file in texts.items()}


def _started(loader: str) -> Iterator[tuple[str, ArchivedFile]]:
    """Yield the plugin's start scripts for people and kubectl, and their Python entry files."""
    for name, (module, function) in ENTRIES.items():
        script = SCRIPT.format(loader=loader, python=PYTHON, program=name)
        yield name, ArchivedFile(script.encode(), runs=True)
        entry = ENTRY.format(module=module, function=function)
        yield f"{name}.py", ArchivedFile(entry.encode())


def needed(programs: Iterable[bytes], libraries: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the names of libraries that programs load, and of libraries that these load in turn.

    A program has the names of its libraries as text (ELF, DT_NEEDED in .dynstr). A name that stands
    there for another reason brings a file too many, which does no harm.
    """
    taken: set[str] = set()
    unread = list(programs)
    while unread:
        named = {name.decode() for name in LIBRARY.findall(unread.pop())}
        fresh = (named & libraries.keys()) - taken
        taken |= fresh
        unread += [libraries[name].read_bytes() for name in fresh]
    return tuple(sorted(taken))


def _below(folder: Path, top: str) -> Iterator[tuple[str, ArchivedFile]]:
    """Yield every file below a folder; relative links become files, absolute ones are left out."""
    for path in sorted(folder.rglob("*")):
        absolute = path.is_symlink() and path.readlink().is_absolute()
        if path.is_file() and not absolute:  # Debian has links to /etc
            yield f"{top}/{path.relative_to(folder)}", ArchivedFile(path.read_bytes())


def manifest(identity: ReleaseIdentity, digests: Mapping[str, tuple[str, str]]) -> str:
    """Return krew's manifest; `digests` are file and SHA-256 of each architecture's archive."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": f"{identity.downloads}{name}",
            "sha256": sha256,
            "bin": PROGRAM,
        }
        for architecture, (name, sha256) in digests.items()
    ]
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{identity.version.semantic}",
            "shortDescription": "See and check RDMA cards of pods and nodes",
            "description": DESCRIPTION,
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False, width=100)
