"""Contents of an image: its files in a folder, and the components that they came as.

The image's own files say it: the list of Debian's packages (kube_rdma_lab/build/product.py) and the
metadata of Python's. sbom.py and licences.py write it down, plugin.py takes a part of the files.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path

from kube_base.errors import Broken
from kube_base.frozen import Frozen
from kube_rdma_lab.build import product
from kube_rdma_tools.release import archives
from kube_rdma_tools.release.layouts import read_member

DEBIAN = "12"  # bookworm, which product.TREE names
LICENCE_FIELD = re.compile(r"(?m)^License: *(\S.*?) *$")  # of a machine-readable copyright file


class ImageComponent(Frozen):
    """A third party's component in an image, with its licences and their texts.

    `kind` is the type of a package URL: deb or pypi. `licences` are names, as the component
    writes them. `sha256` is the digest of the file that it came as, where one file is known.
    """

    kind: str
    name: str
    version: str
    licences: tuple[str, ...]
    texts: Mapping[str, bytes]
    sha256: str = ""
    architecture: str = ""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an image's layers into a folder, upper ones over lower ones."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        (image,) = json.loads(read_member(tar, "manifest.json"))
        for name in image["Layers"]:
            archives.unpack(read_member(tar, name), folder)


def components(root: Path, compiler: str) -> tuple[ImageComponent, ...]:
    """Return third parties' components of an unpacked image.

    `compiler` is the version of ziglang, which compiled the shim. Raises Broken if a component has
    no licence text, for it could not be distributed.
    """
    listed = (*_debian(root), *_python(root), _shim(root, compiler))
    for component in listed:
        if not component.texts:
            raise Broken(f"{component.name} {component.version} has no text of its licence")
    return listed


def _debian(root: Path) -> Iterator[ImageComponent]:
    for line in (root / product.PACKAGE_LIST).read_text().splitlines():
        sha256, name, version, architecture = line.split(" ")
        path = root / "usr/share/doc" / name / "copyright"
        texts = {"copyright": path.read_bytes()} if path.is_file() else {}
        written = texts.get("copyright", b"").decode(errors="replace")
        # Some copyright files are prose; then the file itself is all that can be named.
        licences = tuple(sorted(set(LICENCE_FIELD.findall(written)))) or (
            f"see doc/{name}/copyright",
        )
        yield ImageComponent("deb", name, version, licences, texts, sha256, architecture)


def _python(root: Path) -> Iterator[ImageComponent]:
    listed = distributions(path=[str(root / product.SITE)])
    for distribution in sorted(listed, key=lambda one: one.name.lower()):
        licences = _licences(distribution.metadata)
        texts = dict(_licence_files(distribution))
        yield ImageComponent("pypi", distribution.name, distribution.version, licences, texts)


def _licences(metadata: PackageMetadata) -> tuple[str, ...]:
    """Return a Python package's licence: an expression (PEP 639), else from older fields."""
    fields: dict[str, list[str]] = {
        name: metadata.get_all(name) or []
        for name in ("License-Expression", "Classifier", "License")
    }
    classifiers = [one for one in fields["Classifier"] if one.startswith("License ::")]
    written = [one for one in fields["License"] if "\n" not in one]
    names = [one.rpartition(" :: ")[2] for one in classifiers]
    return tuple(fields["License-Expression"] or names or written)


def _licence_files(distribution: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in sorted(distribution.files or (), key=str):
        folder, *rest = file.parts
        wanted = re.match(r"(?i)(licen[sc]e|copying|notice|authors)", file.name)
        if folder.endswith(".dist-info") and rest and (wanted or rest[0] == "licenses"):
            name = "/".join(rest).removeprefix("licenses/")
            yield name, Path(str(distribution.locate_file(file))).read_bytes()


def _shim(root: Path, compiler: str) -> ImageComponent:
    names = ("musl.txt", "zig.txt")
    texts = {name: (root / product.DOCUMENTS / name).read_bytes() for name in names}
    return ImageComponent("pypi", "ziglang", compiler, ("MIT",), texts)
