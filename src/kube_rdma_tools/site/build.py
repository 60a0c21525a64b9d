"""Sphinx at work: from a checkout to the finished folder of one version.

Sphinx lives in a virtual environment of its own, so neither the product nor its tests import its
packages. Every warning of Sphinx is a failure: most are links to a missing page or heading.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kube_base.errors import Broken, Refused
from kube_rdma_tools.site import source
from kube_rdma_tools.site.pages import file_at

CONFIGURATION = Path(__file__).parent / "sphinx"
PYTHON = "build/docs/bin/python"  # tools/bootstrap makes it from locks/docs.txt
_WARNING = re.compile(r": (WARNING|ERROR|CRITICAL): ")
_PLACE = re.compile(r"(.*?\.md)(?=:)")


def site(checkout: Path, target: Path, address: str) -> None:
    """Build the site of a checkout into a folder that it replaces; links to files use `address`.

    Raise Refused for faults of pages or without Sphinx's packages; raise Broken if Sphinx itself
    fails.
    """
    python = checkout / PYTHON
    if not python.exists():
        raise Refused(
            "the packages that build the site are not installed",
            remedy="Run `make docs`, or `tools/bootstrap docs`, which install them",
            where=PYTHON,
        )
    with tempfile.TemporaryDirectory() as scratch:
        pages, made = Path(scratch, "source"), Path(scratch, "site")
        source.write(checkout, pages, address)
        faults = tuple(_run(python, pages, made))
        if faults:
            listed = "\n".join(f"  {fault}" for fault in faults)
            raise Refused(
                f"the site was not built, for its pages have faults: {len(faults)}",
                remedy=f"Change what is named here, then run it again:\n{listed}",
            )
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(
            made, target, ignore=shutil.ignore_patterns(".buildinfo", "objects.inv", "_sources")
        )


def count(target: Path) -> int:
    """Return the number of pages of a built site, its search page included."""
    return sum(1 for _ in target.rglob("*.html"))


def _run(python: Path, pages: Path, made: Path) -> Iterator[str]:
    """Run Sphinx and yield its warnings about pages; raise Broken if it fails without one."""
    done = subprocess.run(
        [
            *(python, "-m", "sphinx", "--builder", "html", "--quiet", "--no-color"),
            *("--fail-on-warning", "--conf-dir", CONFIGURATION),
            *("--doctree-dir", made.parent / "doctrees", pages, made),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if not _WARNING.search(done.stderr):
            raise Broken(f"Sphinx failed:\n{done.stderr}")
        yield from complaints(done.stderr, pages)


def complaints(text: str, pages: Path) -> Iterator[str]:
    """Yield Sphinx's warnings, with file names as the checkout has them."""
    for line in text.splitlines():
        if line.strip():
            relative = line.removeprefix(f"{pages}/")
            yield _PLACE.sub(lambda match: file_at(match[1]), relative, count=1)
