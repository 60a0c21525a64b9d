"""The files of a commit in a folder of their own, with the version of the release written in.

Every part of a release is built from this tree, so that wheel, chart and image say one version.
The chart is written anew there by its own generator, for its defaults name the image.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import Frozen
from kube_rdma_tools.release import archives
from kube_rdma_tools.release.identity import ReleaseIdentity

PRESETS = "src/kube_rdma/install/rules/presets.yaml"
CHART = "charts/kube-rdma"


class Stamp(Frozen):
    """A line that a release changes in a source file: a pattern, and its replacement.

    The pattern has to match exactly once, so that a source file that has changed is noticed.
    """

    file: str
    pattern: str
    text: str

    def apply(self, text: str) -> str:
        """Return the file's text with the pattern replaced; raise Broken unless it matches once."""
        stamped, count = re.subn(self.pattern, lambda _: self.text, text)
        if count != 1:
            raise Broken(f"{self.file} has {count} places for `{self.text}`, not one")
        return stamped


def stamps(identity: ReleaseIdentity) -> tuple[Stamp, ...]:
    """Return all changes that a release makes to the files of its commit."""
    version = identity.version
    chart = f"{CHART}/Chart.yaml"
    return (
        Stamp(
            "src/kube_rdma/__init__.py",
            r'(?m)^__version__ = ".*"$',
            f'__version__ = "{version.python}"',
        ),
        Stamp(PRESETS, r"(?m)^    repository: .*$", f'    repository: "{identity.image}"'),
        Stamp(PRESETS, r"(?m)^    tag: dev$", f'    tag: "{version.semantic}"'),
        Stamp(chart, r"(?m)^version: .*$", f"version: {version.semantic}"),
        Stamp(chart, r"(?m)^appVersion: .*$", f'appVersion: "{version.semantic}"'),
    )


class SourceTree(Frozen):
    """An exported source tree, whose own programs build the parts of a release."""

    root: Path
    epoch: int

    def run(self, *words: str | Path) -> None:
        """Run a Python module with the tree's own packages; raise Unavailable if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.root,
            env={**os.environ, **self.environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            called = " ".join(map(str, words))
            raise Unavailable(f"`python -m {called}` failed in {self.root}:\n{done.stdout}")

    def environment(self) -> Mapping[str, str]:
        """Return variables by which a build uses this tree's sources and the commit's time."""
        return {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SOURCE_DATE_EPOCH": str(self.epoch),
        }


def export(checkout: Path, folder: Path, identity: ReleaseIdentity) -> SourceTree:
    """Write the committed files into an empty folder, stamped, and return the tree."""
    done = subprocess.run(
        ["git", "-C", checkout, "archive", "--format=tar", identity.commit],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"git archive failed: {done.stderr.decode(errors='replace').strip()}")
    archives.unpack(done.stdout, folder)
    for stamp in stamps(identity):
        path = folder / stamp.file
        path.write_text(stamp.apply(path.read_text()))
    tree = SourceTree(folder, identity.epoch)
    tree.run("kube_rdma_tools.chart", CHART, "config")
    return tree
