"""What a mode means stands in the table of rules/pools/modes: no other rule names a mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tree import texts

# The table itself, and the rule that chooses a mode to try.
ALLOWED = ("src/kube_rdma/rules/pools/modes.py", "src/kube_rdma_selftest/choice.py")


def named_modes(name: str, text: str) -> Iterator[str]:
    """One sentence for each mode that a rule names."""
    for match in re.finditer(r"(?<!\w)Mode\.[A-Z_]+", text):
        yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"


def test_rules_read_the_table() -> None:
    """A sixth mode is a sixth row, and breaks no rule silently."""
    rules = [(name, text) for name, text in texts("src/kube_rdma/rules") if name not in ALLOWED]
    assert not [sentence for name, text in rules for sentence in named_modes(name, text)]


def test_a_planted_mode_is_found() -> None:
    """With its line; the namespace mode of RDMA is another thing."""
    text = "a = NamespaceMode.EXCLUSIVE\n_OWN = (Mode.EXCLUSIVE,)\n"
    assert list(named_modes("x.py", text)) == ["x.py:2: Mode.EXCLUSIVE"]
