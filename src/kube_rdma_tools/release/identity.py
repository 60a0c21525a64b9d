"""Name, addresses and time of a release: one value for all writers.

The time of the commit stands for that of the build, so two builds of a commit are equal
(reproducible-builds.org, SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma_lab.build import product
from kube_rdma_lab.build.shell import ask
from kube_rdma_tools.release.version import ReleaseVersion, of_checkout


class ReleaseIdentity(Frozen):
    """The identity of a release: its version and commit, and the addresses of its files."""

    version: ReleaseVersion
    commit: str
    epoch: int  # seconds since 1970 of the commit
    image: str  # registry and repository, without a tag; "": whoever installs names it
    downloads: str  # the address of the folder where the files will lie, up to its last slash

    @property
    def reference(self) -> str:
        """Return the full name that the image has in its archive."""
        return f"{self.image or product.IMAGE}:{self.version.semantic}"

    @property
    def time(self) -> dt.datetime:
        """Return the time of the commit, in UTC."""
        return dt.datetime.fromtimestamp(self.epoch, dt.UTC)


def of_checkout_as(root: Path, image: str, downloads: str) -> ReleaseIdentity:
    """Return the release identity of the checked-out commit.

    Raise Refused for changes that are not committed, a version that does not fit the tag, and a
    final version that CHANGELOG.md lacks.
    """
    if changed := ask(["git", "-C", root, "status", "--porcelain", "--untracked-files=no"]):
        raise Refused(
            f"{len(changed.splitlines())} changed files are not committed",
            remedy="Commit them, or take them back: a release is made of a commit",
            where=str(root),
        )
    version = of_checkout(root)
    if version.is_final:
        check_changelog((root / "CHANGELOG.md").read_text(), version)
    commit, epoch = ask(["git", "-C", root, "log", "-1", "--format=%H %ct"]).split()
    folder = downloads and f"{downloads.rstrip('/')}/"
    return ReleaseIdentity(version, commit, int(epoch), image, folder)


def check_changelog(text: str, version: ReleaseVersion) -> None:
    """Raise Refused unless the changelog has a section with a date for the version."""
    heading = f"## [{version.semantic}] - 20"
    if not any(line.startswith(heading) for line in text.splitlines()):
        raise Refused(
            f"there is no section for {version.semantic}",
            remedy=f'Write a heading like "{heading}26-11-26" above what is new in it',
            where="CHANGELOG.md",
        )
