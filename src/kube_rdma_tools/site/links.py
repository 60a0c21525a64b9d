"""Links of a page, as they have to be in the site.

A link to a page stays a relative link. A link to a file that the site does not have, such as a
source file, gets that file's address (option --files). Without this option it becomes plain text.
A link to a file that does not exist stays as it is, and Sphinx refuses it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection

from kube_base.frozen import Frozen
from kube_rdma_tools.site.pages import place

_FENCED = re.compile(r"(?ms)(^ *(`{3,})[^`\n]*\n.*?^ *\2 *$)")
_LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


class Surroundings(Frozen):
    """The files that a page can link to, in the site and in the checkout."""

    in_site: Collection[str]  # pages and pictures, by their names in the checkout
    exists: Callable[[str], bool]  # whether the checkout has a file or folder of this name
    address: str  # where files are that the site does not have; "": nowhere


def resolved(page: str, target: str) -> str:
    """Return the file of the checkout that a relative link of a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def rewritten(page: str, text: str, around: Surroundings) -> str:
    """Return the text of a page with its links adapted to the site; code blocks stay."""

    def link(match: re.Match[str]) -> str:
        text, target, heading = match[1], match[2], match[3] or ""
        address = _target(page, target, around)
        return f"[{text}]({address}{heading})" if address else text

    # Of three parts that the split makes, one is prose, the next a block, the last its fence.
    parts = _FENCED.split(text)
    return "".join(
        _LINK.sub(link, part) if number % 3 == 0 else part
        for number, part in enumerate(parts)
        if number % 3 != 2
    )


def _target(page: str, target: str, around: Surroundings) -> str:
    if ":" in target:  # an address, with its scheme
        return target
    file = resolved(page, target)
    for name in (file, f"{file}/README.md"):
        if name in around.in_site:
            return posixpath.relpath(place(name), posixpath.dirname(place(page)) or ".")
    if around.exists(file):
        return around.address and f"{around.address.rstrip('/')}/{file}"
    return target
