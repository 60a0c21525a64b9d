"""Pages of the site: files of a checkout, and the place of each there.

The first step: names alone, relative to the checkout. Only README.md changes its name, for a folder
of the site opens with index.html.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

START = "README.md"
SHELVES = "docs/README.md"
_PAGES = (
    START,
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/results/README.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/reference/*.md",
    "examples/README.md",
    "examples/*/README.md",
)
_PICTURES = ("docs/*.svg",)


def pages(checkout: Path) -> tuple[str, ...]:
    """Return the names of the checkout's pages for the site, in order."""
    return _names(checkout, _PAGES)


def pictures(checkout: Path) -> tuple[str, ...]:
    """Return the names of the pictures that the site's pages show."""
    return _names(checkout, _PICTURES)


def _names(checkout: Path, patterns: tuple[str, ...]) -> tuple[str, ...]:
    paths = {path for pattern in patterns for path in checkout.glob(pattern)}
    return tuple(sorted(path.relative_to(checkout).as_posix() for path in paths))


def place(name: str) -> str:
    """Return a checkout file's path in the site's source, where README.md becomes index.md."""
    path = PurePosixPath(name)
    return str(path.with_name("index.md") if path.name == "README.md" else path)


def file_at(place_in_site: str) -> str:
    """Return the checkout's file for a page's path in the site's source: the inverse of `place`."""
    path = PurePosixPath(place_in_site)
    return str(path.with_name("README.md") if path.name == "index.md" else path)


def parent(name: str) -> str:
    """Return the parent of a page that is on no shelf: the README.md of its folder.

    The parent of a README.md is that of the folder above.
    """
    folder = PurePosixPath(name).parent
    if PurePosixPath(name).name == "README.md":
        folder = folder.parent
    return START if str(folder) == "." else f"{folder}/README.md"
