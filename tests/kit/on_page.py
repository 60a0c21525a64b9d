"""Objects that pages show, as users copy them."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.documents.pages import ROOT, blocks


def on_page(page: str, kind: str, name: str = "") -> dict[str, Any]:
    """The first object of this kind, and of this name, in the blocks of YAML of a page."""
    found = (one for one in _objects(page) if one.get("kind") == kind)
    return next(one for one in found if name in ("", one["metadata"]["name"]))


def _objects(page: str) -> Iterator[dict[str, Any]]:
    for block in blocks(page, (ROOT / page).read_text(encoding="utf-8")):
        if block.language == "yaml":
            yield from yaml.safe_load_all(block.text)
