"""The wheel and the source archive, as hatchling builds them from the tree of a release.

Both carry the time of the commit (SOURCE_DATE_EPOCH), and the wheel the shim for each machine.
"""

from __future__ import annotations

from pathlib import Path

from kube_rdma_tools.release.source_tree import SourceTree


def write_packages(tree: SourceTree, target: Path) -> None:
    """Build kube-rdma's wheel and source archive into a folder."""
    tree.run("hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", target)
