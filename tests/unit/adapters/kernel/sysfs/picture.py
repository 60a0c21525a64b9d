"""Where the machines lie, and the tables that each one's SOURCE.md promises."""

from __future__ import annotations

from pathlib import Path

from kube_rdma_tools.machines.tables import HEADING, picture

__all__ = ["TREES", "picture", "promised"]

TREES = Path(__file__).parents[4] / "data/trees"


def promised(tree):
    """The part of a tree's SOURCE.md that says what the survey must show."""
    return (tree / "SOURCE.md").read_text().partition(HEADING)[2].strip("\n") + "\n"
