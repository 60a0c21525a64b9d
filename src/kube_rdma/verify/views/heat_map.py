"""Figures of all pairs as a map: for a terminal in letters, for a page as SVG.

Rows are clients, columns servers. Where each two have measured one way only, their figure stands in
both places. What is dark (in a page: what is blue) is as good as the best; what failed has a cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kube_base.natural import natural
from kube_rdma.model.verify.bandwidth import RatedPair, Rating

_SHADES = "·░▒▓█"  # from nothing to the best
_FAILED, _SELF, _NOBODY = "✗", " ", " "
_FEW = 9  # pods whose figures fit beside each other
_CELL, _FONT, _LETTER = 44, 12, 7.2  # pixels; a letter is that wide at most
# From worst to best: dark red, orange, light, blue. Told apart by people who see no red or green.
_COLOURS = ("#8c2d04", "#e6842a", "#f6e8c3", "#67a9cf", "#2166ac")
_GREY = "#bbbbbb"


def pods_of(rated: Sequence[RatedPair]) -> list[str]:
    """The titles in the order of a map's rows: w-2 before w-10."""
    return sorted({end for p in rated for end in (p.outcome.client, p.outcome.server)}, key=natural)


def rails_of(rated: Sequence[RatedPair]) -> list[int]:
    """The rails that were measured."""
    return sorted({pair.outcome.rail for pair in rated})


def heat_map_text(rated: Sequence[RatedPair], *, latency: bool) -> list[str]:
    """A line for each client: figures while these fit, else shades."""
    pods, cells = pods_of(rated), _cells(rated)
    best = _best(rated, latency=latency)
    numbers = [str(number) for number in range(1, len(pods) + 1)]
    few = len(pods) <= _FEW
    width = max(7 if few else 2, len(numbers[-1]) + 1)
    name = max(map(len, pods)) + len(numbers[-1]) + 1
    lines = ["".join((" " * name, *(number.rjust(width) for number in numbers)))]
    for number, client in zip(numbers, pods, strict=True):
        head = f"{number.rjust(len(numbers[-1]))} {client}".ljust(name)
        entries = (_entry(cells.get((client, s)), best, few=few, latency=latency) for s in pods)
        lines.append("".join((head, *(entry.rjust(width) for entry in entries))).rstrip())
    return lines


def heat_map_svg(rated: Sequence[RatedPair], title: str, *, latency: bool) -> str:
    """The same as a picture of its own; a cell's tooltip has its devices and what is wrong."""
    pods, cells = pods_of(rated), _cells(rated)
    best = _best(rated, latency=latency)
    margin = round(_LETTER * max(map(len, pods), default=0)) + 50
    side = margin + _CELL * len(pods)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{side + 20}" height="{side + 40}">',
        f'<g font-family="sans-serif" font-size="{_FONT}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="24" font-size="16">{escape(title)}</text>',
    ]
    for place, pod in enumerate(pods):
        middle = margin + _CELL * place + _CELL // 2
        label = escape(pod)
        parts.append(f'<text x="{margin - 8}" y="{middle + 4}" text-anchor="end">{label}</text>')
        turned = f'transform="rotate(-60 {middle} {margin - 8})"'
        parts.append(f'<text x="{middle}" y="{margin - 8}" {turned}>{label}</text>')
    for row, client in enumerate(pods):
        for column, server in enumerate(pods):
            pair = cells.get((client, server))
            if pair is not None:
                parts += _picture(
                    pair, (margin + _CELL * row, margin + _CELL * column), best, latency=latency
                )
    return "\n".join((*parts, "</g></svg>\n"))


def _cells(rated: Sequence[RatedPair]) -> Mapping[tuple[str, str], RatedPair]:
    """The worst rail of each two; the other direction too where nobody has measured that."""
    ways: dict[tuple[str, str], RatedPair] = {}
    for pair in sorted(rated, key=lambda p: list(Rating).index(p.rating)):
        ways[pair.outcome.client, pair.outcome.server] = pair
    return {(server, client): pair for (client, server), pair in ways.items()} | ways


def pair_figure(pair: RatedPair, *, latency: bool) -> float | None:
    """What stands for a pair, in the unit of its run; None where it failed."""
    row = pair.outcome.standing(latency=latency)
    return None if row is None else row.figure


def _best(rated: Sequence[RatedPair], *, latency: bool) -> float:
    figures = [f for p in rated if (f := pair_figure(p, latency=latency)) is not None]
    return (min if latency else max)(figures, default=0.0)


def goodness(figure: float, best: float, *, latency: bool) -> float:
    """From 0 to 1, beside the best."""
    if latency:
        return best / figure if figure > 0 else 1.0
    return figure / best if best > 0 else 1.0


def _entry(pair: RatedPair | None, best: float, *, few: bool, latency: bool) -> str:
    if pair is None:
        return _NOBODY
    figure = pair_figure(pair, latency=latency)
    if figure is None:
        return _FAILED
    if few:
        return f"{'!' if pair.rating is Rating.SLOW else ''}{figure:.4g}"
    share = goodness(figure, best, latency=latency)
    return _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)] * 2


def _picture(
    pair: RatedPair, place: tuple[int, int], best: float, *, latency: bool
) -> Iterator[str]:
    y, x = place
    figure = pair_figure(pair, latency=latency)
    if figure is None:
        colour, label, ink = _GREY, _FAILED, "black"
    else:
        share = goodness(figure, best, latency=latency)
        step = min(int(share * len(_COLOURS)), len(_COLOURS) - 1)
        colour, label = _COLOURS[step], f"{figure:.3g}"
        ink = "black" if step in (1, 2, 3) else "white"
    edge = ' stroke="black" stroke-width="2"' if pair.rating is not Rating.WELL else ""
    tip = f"{pair.outcome.client} → {pair.outcome.server}: {pair.why or label}"
    yield (
        f'<g><title>{escape(tip)}</title><rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" '
        f'height="{_CELL - 2}" fill="{colour}"{edge}/>'
    )
    centre = f'x="{x + _CELL // 2}" y="{y + _CELL // 2 + 4}"'
    yield f'<text {centre} text-anchor="middle" fill="{ink}">{label}</text></g>'
