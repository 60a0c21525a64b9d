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
    """Return the names of all pages, in order."""
    return _names(checkout, _PAGES)


def pictures(checkout: Path) -> tuple[str, ...]:
    """Return the names of the pictures that pages show."""
    return _names(checkout, _PICTURES)


def _names(checkout: Path, patterns: tuple[str, ...]) -> tuple[str, ...]:
    paths = {path for pattern in patterns for path in checkout.glob(pattern)}
    return tuple(sorted(path.relative_to(checkout).as_posix() for path in paths))


def place(name: str) -> str:
    """Return where a file of the checkout lies in the source of the site."""
    path = PurePosixPath(name)
    return str(path.with_name("index.md") if path.name == "README.md" else path)


def file_at(place_in_site: str) -> str:
    """Return the file of the checkout that lies there: what `place` was given."""
    path = PurePosixPath(place_in_site)
    return str(path.with_name("README.md") if path.name == "index.md" else path)


def parent(name: str) -> str:
    """Return the page below which a page stands that is on no shelf: the next README.md above."""
    folder = PurePosixPath(name).parent
    if PurePosixPath(name).name == "README.md":
        folder = folder.parent
    return START if str(folder) == "." else f"{folder}/README.md"
