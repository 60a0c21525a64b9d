"""Names of DaemonSets: those of the Network Operator where the API server takes them.

A kernel or an architecture may have characters that no name has (x86_64). Such a name is written
in small letters with dashes, and gets a hash when another one would be the same then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256

_LEGAL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MOST = 253  # characters of a DNS subdomain (RFC 1123, as apimachinery checks it)
_MOST_OF_LABEL = 63  # characters of a label's value
_HASH = 8


def legal_names(wanted: Iterable[str]) -> Mapping[str, str]:
    """The name that each wanted one gets; different ones get different names, in any order."""
    names = {name: _spelled(name) for name in set(wanted)}
    counts = Counter(names.values())
    return {
        name: spelled if name == spelled or counts[spelled] == 1 else _hashed(name, spelled)
        for name, spelled in names.items()
    }


def label_value(name: str) -> str:
    """A legal name as a label's value, which is shorter; different names stay different."""
    return name if len(name) <= _MOST_OF_LABEL else _hashed(name, name, _MOST_OF_LABEL)


def _spelled(name: str) -> str:
    """The name itself if it is legal, else the nearest that is."""
    if len(name) <= _MOST and _LEGAL.fullmatch(name):
        return name
    parts = re.sub(r"[^-.a-z0-9]", "-", name.lower()).split(".")
    spelled = ".".join(part.strip("-") for part in parts if part.strip("-"))
    return spelled if len(spelled) <= _MOST else _hashed(name, spelled)


def _hashed(name: str, spelled: str, most: int = _MOST) -> str:
    digest = sha256(name.encode()).hexdigest()[:_HASH]
    return f"{spelled[: most - _HASH - 1].rstrip('-.')}-{digest}"
