"""The version of a checkout: the tag of its commit, or the next version and a count of commits.

The first step of a release. src/kube_rdma/__init__.py names the version that the tree is to become;
a tag has to agree. Python writes versions by PEP 440, Helm, krew and tags by Semantic Versioning.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from packaging.version import Version

from kube_base.errors import Broken, Refused
from kube_base.frozen import Frozen
from kube_rdma_lab.build.shell import ask

SOURCE = "src/kube_rdma/__init__.py"
FIGURES = "bench/results", "chaos/runs.jsonl"
WRITTEN = re.compile(r'(?m)^__version__ = "(.*)"$')


class ReleaseVersion(Frozen):
    """A version in Python's form and in the semantic form of images and tags."""

    python: str  # 0.1.0, 0.2.0rc1, 0.1.0.dev12

    @property
    def semantic(self) -> str:
        """Return the version as Helm, krew and tags write it: 0.1.0, 0.2.0-rc.1, 0.1.0-dev.12."""
        version = Version(self.python)
        base = ".".join(map(str, version.release))
        parts = [f"{version.pre[0]}.{version.pre[1]}"] if version.pre else []
        if version.dev is not None:
            parts.append(f"dev.{version.dev}")
        return "-".join((base, ".".join(parts))) if parts else base

    @property
    def is_final(self) -> bool:
        """Decide whether the version is a release, and no development state between two tags."""
        return Version(self.python).dev is None


def of_checkout(root: Path) -> ReleaseVersion:
    """Return the version of the checked-out commit; raise Refused if tag and source disagree."""
    written = written_version((root / SOURCE).read_text())
    tags = ask(["git", "-C", root, "tag", "--list", "v[0-9]*", "--merged", "HEAD"]).split()
    if not tags:
        commits = ask(["git", "-C", root, "rev-list", "--count", "HEAD"])
        return decide(written, "", int(commits))
    described = ask(["git", "-C", root, "describe", "--tags", "--long", "--match", "v[0-9]*"])
    tag, commits, _ = described.strip().rsplit("-", 2)
    return decide(written, tag, int(commits))


def written_version(text: str) -> str:
    """Return the version that the source file's text assigns; raise Broken if it assigns none."""
    match = WRITTEN.search(text)
    if match is None:
        raise Broken(f"{SOURCE} names no version")
    return match[1]


def commit_of(root: Path, changed: str) -> str:
    """Return the short name of the commit that is checked out, for figures; "unknown" without one.

    `changed` stands behind it where files differ from it; files of figures do not count, for a
    measurement itself appends to them.
    """

    def git(*words: str) -> str:
        argv = ("git", "-C", str(root), *words)
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("describe", "--always", "--exclude=*")
    if not commit:
        return "unknown"
    others = (f":(exclude,top){file}" for file in FIGURES)
    return commit + (changed if git("status", "--porcelain", "-uno", "--", ":/", *others) else "")


def decide(written: str, tag: str, commits: int) -> ReleaseVersion:
    """Return a commit's version; `commits` counts those after the last tag, or all without one.

    `written` is the version in the source. A tagged commit has it; other commits are development
    versions of it. Raise Refused if the tag is another version, or an earlier tag has it or a later
    one.
    """
    development = ReleaseVersion(f"{written}.dev{commits}")
    if not tag:
        return development
    final = ReleaseVersion(written)
    if commits == 0:
        if tag != f"v{final.semantic}":
            raise Refused(
                f"the tag {tag} is not the version {written}",
                remedy=f"Name the tag v{final.semantic}, or write the version of the tag there",
                where=SOURCE,
            )
        return final
    if Version(tag.removeprefix("v")) >= Version(written):
        raise Refused(
            f"the version is {written}, and the tag {tag} has it already",
            remedy="Write the version that comes next",
            where=SOURCE,
        )
    return development
