"""The commit of a version: CHANGELOG.md names it, and its own tools build the release.

Before `version`, which reads the tag that is set here. A commit cannot name itself, so a later one
does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build.shell import ask

CHANGELOG = "CHANGELOG.md"
_SECTION = re.compile(r"(?m)^## \[([^\]]+)\] - \d{4}-\d\d-\d\d\n(?:\nCommit: `([0-9a-f]{40})`\n)?")


def commits(changelog: str) -> dict[str, str]:
    """Return the commit of each version in a changelog, in its order; "" if none is given."""
    return {version: commit or "" for version, commit in _SECTION.findall(changelog)}


def clone(checkout: Path, version: str, folder: Path) -> None:
    """Clone the commit of a version into an empty folder, with its tag.

    Raise Refused if the changelog names no commit for it, or another one than its tag.
    """
    known = commits((checkout / CHANGELOG).read_text(encoding="utf-8"))
    if not (commit := known.get(version)):
        named = ", ".join(each for each in known if known[each]) or "none"
        raise Refused(
            f"no commit is named for version {version!r}; versions with one: {named}",
            remedy="Write its commit below its heading, as docs/release.md says",
            where=CHANGELOG,
        )
    git = ("git", "-C", folder)
    ask(["git", "clone", "--quiet", "--no-checkout", checkout, folder])
    tag = f"v{version}"
    tagged = ask([*git, "for-each-ref", "--format=%(*objectname)%(objectname)", f"refs/tags/{tag}"])
    if tagged and not tagged.startswith(commit):
        raise Refused(
            f"the tag {tag} is another commit than {commit[:12]}",
            remedy="Write the commit of the tag there",
            where=CHANGELOG,
        )
    ask([*git, "checkout", "--quiet", "--detach", commit])
    if not tagged:
        ask([*git, "tag", tag])


def build(tree: Path, options: Sequence[str | Path]) -> int:
    """Run the release tool of a clone with these options; return its exit code."""
    argv = [sys.executable, "-m", "kube_rdma_tools.release", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return subprocess.run(argv, cwd=tree, env=environment, check=False).returncode
