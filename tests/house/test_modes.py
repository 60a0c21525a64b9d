"""What a mode means stands in the table of pools/rules/modes: no other rule names a mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tree import texts

# The table itself, and the rule that chooses a mode to try.
ALLOWED = ("src/kube_rdma/pools/rules/modes.py", "src/kube_rdma_selftest/choice.py")


def named_modes(name: str, text: str) -> Iterator[str]:
    """One sentence for each mode that a rule names."""
    for match in re.finditer(r"(?<!\w)Mode\.[A-Z_]+", text):
        yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"


def test_rules_read_the_table() -> None:
    """A sixth mode is a sixth row, and breaks no rule silently."""
    rules = [(n, t) for n, t in texts("src/kube_rdma") if "/rules/" in n and n not in ALLOWED]
    assert rules
    assert not [sentence for name, text in rules for sentence in named_modes(name, text)]


def test_a_planted_mode_is_found() -> None:
    """With its line; the namespace mode of RDMA is another thing."""
    text = "a = NamespaceMode.EXCLUSIVE\n_OWN = (Mode.EXCLUSIVE,)\n"
    assert list(named_modes("x.py", text)) == ["x.py:2: Mode.EXCLUSIVE"]
