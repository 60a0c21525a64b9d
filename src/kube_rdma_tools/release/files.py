"""All files of a release, in the order in which one is made from another.

The last step before __main__: everything is made in a scratch folder, copied beside the target, and
takes its name when it is complete. So a release is whole, or not there.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from kube_base.errors import Broken, Refused
from kube_base.frozen import Frozen
from kube_rdma_lab.build.product import Platform
from kube_rdma_tools.release import (
    archives,
    chart,
    checksums,
    contents,
    layouts,
    licences,
    olm,
    plugin,
    python_packages,
    sbom,
    source_tree,
)
from kube_rdma_tools.release.contents import ImageComponent
from kube_rdma_tools.release.identity import ReleaseIdentity
from kube_rdma_tools.release.source_tree import SourceTree


class BuiltImage(Frozen):
    """A built image of one architecture: its archive, its unpacked files and its components."""

    architecture: str
    archive: Path
    root: Path
    listed: tuple[ImageComponent, ...]


def write_release(
    checkout: Path, target: Path, identity: ReleaseIdentity, platforms: Sequence[Platform]
) -> dict[str, str]:
    """Build a release into a new folder; return its files' digests.

    Raise Refused if the folder exists.
    """
    if target.exists():
        raise Refused(
            "there is a release already",
            remedy="Remove the folder, or give another one",
            where=str(target),
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kube-rdma-release-") as scratch:
        work = Path(scratch)
        fresh = work / "files"
        for folder in (fresh, work / "tree"):
            folder.mkdir()
        tree = source_tree.export(checkout, work / "tree", identity)
        chart.write_chart(tree.root / source_tree.CHART, fresh, identity)
        write_bundle(tree.root, fresh, identity)
        python_packages.write_packages(tree, fresh)
        images = [write_image(tree, fresh, work, identity, kind) for kind in platforms]
        if len(images) > 1:
            joined = fresh / f"kube-rdma-image-{identity.version.semantic}.tar"
            layouts.write_joined(joined, identity.reference, [image.archive for image in images])
        write_lists(tree, fresh, identity, images)
        write_plugins(fresh, identity, images)
        digests = checksums.write_checksums(fresh)
        beside = target.with_name(f".{target.name}.new")
        shutil.rmtree(beside, ignore_errors=True)  # of a run that was ended
        shutil.copytree(fresh, beside)
        beside.rename(target)
    return digests


def write_bundle(root: Path, fresh: Path, identity: ReleaseIdentity) -> None:
    """Write the OLM bundle, if the release names its image, which users cannot set there."""
    if not identity.image:
        return
    chart, policy = (
        yaml.safe_load((root / name).read_text())
        for name in (f"{source_tree.CHART}/Chart.yaml", olm.EXAMPLE)
    )
    target = fresh / f"kube-rdma-olm-{identity.version.semantic}.tar.gz"
    files = olm.bundle_files(identity.image, chart, policy)
    archives.write_tar_gz(target, files, identity.epoch)


def write_image(
    tree: SourceTree, fresh: Path, work: Path, identity: ReleaseIdentity, platform: Platform
) -> BuiltImage:
    """Build the image of a platform from the tree, unpack it and list its components."""
    architecture = platform.architecture
    archive = fresh / f"kube-rdma-image-{identity.version.semantic}-linux-{architecture}.tar"
    tree.run(
        "kube_rdma_lab.build",
        "image",
        archive,
        "--platform",
        f"linux/{architecture}",
        "--reference",
        identity.reference,
    )
    root = work / architecture
    contents.unpack(archive, root)
    compiler = re.search(r"(?m)^ziglang==(\S+)", (tree.root / "locks/dev.txt").read_text())
    if compiler is None:
        raise Broken("locks/dev.txt does not have ziglang, which compiles the shim")
    return BuiltImage(architecture, archive, root, contents.components(root, compiler[1]))


def write_lists(
    tree: SourceTree, fresh: Path, identity: ReleaseIdentity, images: Sequence[BuiltImage]
) -> None:
    """Write a component list (SBOM) of each image, and an archive of all licence texts."""
    version = identity.version.semantic
    for image in images:
        text = sbom.sbom(
            identity, image.architecture, layouts.manifest_digest(image.archive), image.listed
        )
        name = f"kube-rdma-image-{version}-linux-{image.architecture}.cdx.json"
        (fresh / name).write_text(text)
    files = licences.licence_files(
        tree.root, {image.architecture: (image.root, image.listed) for image in images}
    )
    archives.write_tar_gz(fresh / f"kube-rdma-{version}-licences.tar.gz", files, identity.epoch)


def write_plugins(fresh: Path, identity: ReleaseIdentity, images: Sequence[BuiltImage]) -> None:
    """Write the kubectl plugin's archive for each architecture, and krew's manifest."""
    digests = {}
    for image in images:
        name = f"{plugin.PROGRAM}-{identity.version.semantic}-linux-{image.architecture}.tar.gz"
        files = plugin.plugin_files(image.root, image.architecture, image.listed)
        archives.write_tar_gz(fresh / name, files, identity.epoch)
        digests[image.architecture] = (name, checksums.sha256(fresh / name))
    (fresh / f"{plugin.NAME}.yaml").write_text(plugin.manifest(identity, digests))
