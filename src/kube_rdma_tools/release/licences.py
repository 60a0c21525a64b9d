"""The licences of all that images, wheel and plugins have from others, in one archive.

Debian's copyright files name common licences by their path, so those texts are in it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kube_rdma_tools.release.archives import ArchivedFile
from kube_rdma_tools.release.contents import ImageComponent

OURS = ("LICENSE", "shim/licences/musl.txt", "shim/licences/zig.txt")
COMMON = "usr/share/common-licenses"


def licence_files(
    tree: Path, images: Mapping[str, tuple[Path, Sequence[ImageComponent]]]
) -> dict[str, ArchivedFile]:
    """Return the files of the licences' archive by path.

    `images` has the folder and the components of each unpacked image, by architecture.
    """
    files = {f"kube-rdma/{name}": ArchivedFile((tree / name).read_bytes()) for name in OURS}
    for architecture, (root, listed) in images.items():
        top = f"image-linux-{architecture}"
        files |= {f"{top}/{name}": file for name, file in of_components(listed).items()}
        files |= {f"{top}/{name}": file for name, file in common_licences(root).items()}
    return files


def of_components(listed: Iterable[ImageComponent]) -> dict[str, ArchivedFile]:
    """Return the components' licence files by their path in the archive."""
    return {
        f"{one.kind}/{one.name}/{name}": ArchivedFile(text)
        for one in listed
        for name, text in one.texts.items()
    }


def common_licences(root: Path) -> dict[str, ArchivedFile]:
    """Return Debian's common licence texts, which its copyright files may refer to."""
    return {
        f"deb/common-licenses/{path.name}": ArchivedFile(path.read_bytes())
        for path in sorted((root / COMMON).iterdir())
        if path.is_file()
    }
