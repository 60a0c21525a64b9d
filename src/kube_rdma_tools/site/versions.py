"""The versions of a site: a folder for each tag, and `dev` for commits between two tags.

    FOLDER/0.2.0/…  FOLDER/0.1.0/…  FOLDER/dev/…
    FOLDER/versions.js   their names, newest first, for the selector of every page
    FOLDER/index.html    leads to the newest final release, or to dev before there is one

Whoever builds a version leaves the other ones alone. So a site grows by `make docs` at each tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

from kube_rdma_tools.release.version import ReleaseVersion

DEVELOPMENT = "dev"
_NAME = re.compile(r"\d+\.\d+\.\d+(-[a-z]+\.\d+)?")


def folder_name(version: ReleaseVersion) -> str:
    """Return the site folder of a version: its own, or one for all development versions."""
    return version.semantic if version.is_final else DEVELOPMENT


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are versions: releases, newest first, then dev."""
    present = set(names)
    releases = [name for name in present if _NAME.fullmatch(name)]
    newest_first = sorted(releases, key=Version, reverse=True)
    return (*newest_first, *({DEVELOPMENT} & present))


def start(versions: tuple[str, ...]) -> str:
    """Return the version to show first: the newest final release, else dev, else the newest."""
    return next((name for name in versions if "-" not in name), versions[0])


def write_index(folder: Path) -> None:
    """Write the version list and the start page that all versions in a folder share."""
    versions = ordered(path.name for path in folder.iterdir() if path.is_dir())
    target = f"{start(versions)}/index.html"
    (folder / "versions.js").write_text(f"window.siteVersions = {json.dumps(versions)};\n")
    (folder / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>kube-rdma</title>\n'
        f'<meta http-equiv="refresh" content="0; url={target}">\n'
        f'<p><a href="{target}">kube-rdma {start(versions)}</a></p>\n</html>\n'
    )
