"""Objects that pages show, as users copy them."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.documents.pages import ROOT, blocks


def on_page(page: str, kind: str) -> dict[str, Any]:
    """The first object of this kind in the blocks of YAML of a page."""
    return next(one for one in _objects(page) if one.get("kind") == kind)


def _objects(page: str) -> Iterator[dict[str, Any]]:
    for block in blocks(page, (ROOT / page).read_text(encoding="utf-8")):
        if block.language == "yaml":
            yield from yaml.safe_load_all(block.text)
