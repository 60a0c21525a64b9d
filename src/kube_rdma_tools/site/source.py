"""The source of the site: copies of the pages in a folder, which Sphinx reads."""

from __future__ import annotations

from pathlib import Path

from kube_rdma_tools.site.links import Surroundings, rewritten
from kube_rdma_tools.site.pages import SHELVES, pages, pictures, place
from kube_rdma_tools.site.shelves import metadata, navigation, shelves


def write(checkout: Path, folder: Path, address: str) -> None:
    """Write the Sphinx source of a checkout's site; links to other files lead below `address`."""
    names = pages(checkout)
    shown = pictures(checkout)
    around = Surroundings({*names, *shown}, lambda name: (checkout / name).exists(), address)
    all_shelves = shelves((checkout / SHELVES).read_text(encoding="utf-8"), names)
    for name in names:
        text = rewritten(name, (checkout / name).read_text(encoding="utf-8"), around)
        whole = metadata(name) + text + navigation(name, all_shelves, names)
        _write(folder / place(name), whole)
    for name in shown:
        _write(folder / place(name), (checkout / name).read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
