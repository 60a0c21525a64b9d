"""The page docs/modes.md, written from the table of modes so that it cannot tell something else."""

# ruff: noqa: D102  what the fields of a row mean is said in pools/rules/modes, once

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from kube_rdma.model.pools import Attach, Bind, Mode, Preference


class ModesRow(Protocol):
    """One row of pools/rules/modes on the page."""

    @property
    def takes(self) -> str: ...
    @property
    def bind(self) -> Bind: ...
    @property
    def shares(self) -> int: ...
    @property
    def most(self) -> int | None: ...
    @property
    def attach(self) -> Attach: ...
    @property
    def networked(self) -> Attach: ...
    @property
    def prefer(self) -> Preference: ...
    @property
    def owns(self) -> bool: ...
    @property
    def moves(self) -> str: ...
    @property
    def isolation(self) -> str: ...
    @property
    def refuses(self) -> str: ...
    @property
    def meaning(self) -> str: ...


_OPENING = """\
# Modes

What a container gets when it asks for a share, mode by mode. Written from the table in
[pools/rules/modes.py](../src/kube_rdma/pools/rules/modes.py); a configuration
([config.md](config.md)) can change the shares, `bind`, `attach` and `prefer` of a pool.

In every mode a container opens the files `uverbs` of its cards, and `rdma_cm`; a pool can name
[others](config.md#device-files).

![Which mode? Questions that lead to each mode](modes.svg)
"""


def modes_page(rows: Mapping[Mode, ModesRow]) -> str:
    """The whole page."""
    return "\n".join([_OPENING, *_overview(rows), *(_section(*pair) for pair in rows.items())])


def _overview(rows: Mapping[Mode, ModesRow]) -> Iterator[str]:
    yield "| mode | what a share is | shares | attach | prefer |"
    yield "|---|---|---|---|---|"
    for mode, row in rows.items():
        yield (
            f"| [`{mode}`](#{mode}) | {row.meaning} | {_shares(row)} | {_attach(row)} "
            f"| {_prefer(row)} |"
        )
    yield ""


def _section(mode: Mode, row: ModesRow) -> str:
    most = "as many as the kubelet accepts" if row.most is None else f"at most {row.most}"
    second = "belongs to no second pool" if row.owns else "may belong to a second pool too"
    return f"""\
## {mode}

{row.meaning[0].upper()}{row.meaning[1:]}.

- **Takes**: {row.takes}. A card {second}.
- **Shares**: {_shares(row)} by default; {most} in a configuration.
- **Goes into the pod**: {row.moves}.
- **Isolation**: {row.isolation}.
- **Refuses**: {row.refuses}.
"""


def _shares(row: ModesRow) -> str:
    return f"{row.shares} per {'pool' if row.bind is Bind.POOL else 'card'}"


def _attach(row: ModesRow) -> str:
    if row.networked is row.attach:
        return f"`{row.attach}`"
    return f"`{row.attach}`; `{row.networked}` where pods get networks from kube-rdma"


def _prefer(row: ModesRow) -> str:
    return "–" if row.bind is Bind.POOL else f"`{row.prefer}`"
