"""The cards of all nodes as a grid: a row for each node, a place for each card.

reports/rules/card_grid makes it of a ClusterFacts, reports/views/card_grid_svg draws it.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen


class CardState(StrEnum):
    """How a card is, as far as its node tells; in the order of a legend."""

    WELL = "can be given to pods"
    PORT_DOWN = "can be given, a port carries no data"
    ILL = "cannot be given"
    GONE = "gone"
    UNSEEN = "not known: no agent reports it now"


class GridCard(Frozen):
    """A card at its place; `why` is the first reason that it is not well."""

    name: str
    state: CardState
    why: str = ""


class GridRow(Frozen):
    """A node with its cards by PCI address, which is how rails are numbered without a policy.

    `why` is what is wrong with the node's agent or report, "" where they are well.
    """

    node: str
    cards: tuple[GridCard, ...]
    why: str = ""
