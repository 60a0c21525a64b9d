"""The values of the Helm chart as people read them: its values.yaml and its README.md.

Sentences come from the models of install/documents/installation. Defaults come from
install/rules/presets: general ones, and others of presets and distributions.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import yaml

from kube_base.frozen import replace
from kube_rdma.install.rules.presets import DEFAULTS, DISTRIBUTIONS, PRESETS
from kube_rdma.model.install import UNSAID, ChartValue, Json
from kube_rdma_tools.page_tables import markdown_row
from kube_rdma_tools.yaml_constants import WIDTH, assigned

_VALUES = """\
# Written by tools/chart from src/kube_rdma; do not edit.
#
# All values, each with its default. Write into a file of your own what differs from it. Helm merges
# objects field by field with those of the preset, and replaces lists. What is null here the preset
# or the distribution decides; "Left out" says how.
"""
_README = """\
<!-- Written by tools/chart from src/kube_rdma; do not edit. -->
# The Helm chart kube-rdma

It installs kube-rdma on a cluster: agents, controller, custom resource definitions and what these
need. [docs/install.md](../../docs/install.md) says how.

## Values
Write into a file of your own what differs from the defaults. Helm merges objects field by field
with those of the preset, and replaces lists. A value that is null is left out. `kube-rdma render`
takes the same values and does the same.

| Value | Default | What it is |
|---|---|---|
"""


def left_out(value: ChartValue) -> str:
    """Return a sentence with the default that applies if the value is left out; "" without one."""
    return f"Left out: {_defaults(value)}." if _is_said(value) else ""


def readme(values: Sequence[ChartValue]) -> str:
    """Return the chart's README.md, which has a table of all values."""
    return _README + "".join(f"{_row(value)}\n" for value in values)


def values_file(values: Sequence[ChartValue]) -> str:
    """Return values.yaml: each value that is required or has a default, but no fields of lists.

    A required value is null, and so is one that a preset or distribution decides.
    """
    return _VALUES + "".join(f"{line}\n" for value in values for line in _lines(value))


def _is_said(value: ChartValue) -> bool:
    return value.default is not UNSAID and not value.in_list


def _row(value: ChartValue) -> str:
    default = "required" if value.required else ""
    if value.default not in (UNSAID, None) and not value.whole:
        default = _defaults(value, "`")
    sentence = re.sub(r"\bdocs/([\w-]+\.md)", r"[docs/\1](../../docs/\1)", value.sentence)
    return markdown_row((f"`{value.path}`", default, sentence))


def _lines(value: ChartValue) -> Iterator[str]:
    if value.in_list or not (value.required or value.whole or _is_said(value)):
        return
    *above, name = value.path.split(".")
    blanks = "  " * len(above)
    if not above:
        yield ""
    sentence = f"{value.sentence} {left_out(value)}" if value.others else value.sentence
    yield from textwrap.wrap(
        sentence,
        WIDTH,
        initial_indent=f"{blanks}# ",
        subsequent_indent=f"{blanks}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if value.whole:
        yield f"{blanks}{name}:"
    elif value.required or value.others:
        yield f"{blanks}{name}: null"
    else:
        yield from (f"{blanks}{line}" for line in _assigned(name, value.default))


def _assigned(name: str, value: Any) -> list[str]:
    """Return YAML lines that assign a value to a name; innermost lists and objects take a line."""
    if not value or not isinstance(value, list | dict):
        return list(assigned(f"{name}:", value, 0))
    return yaml.safe_dump({name: value}, sort_keys=False, default_flow_style=None).splitlines()


def _defaults(value: ChartValue, mark: str = "") -> str:
    """Return the defaults as ``false; true with preset vke or ib``; `mark` quotes each value."""
    parts = [_shown(value.default, mark)]
    order = sorted(value.others, key=lambda each: _shown(each[1]))  # stable: by their order else
    groups = [list(group) for _, group in groupby(order, key=lambda each: _shown(each[1]))]
    groups.sort(key=lambda group: value.others.index(group[0]))
    parts += [f"{_shown(group[0][1], mark)} with {_listed(group)}" for group in groups]
    return "; ".join(parts)


def _listed(group: Sequence[tuple[str, Any]]) -> str:
    """Join presets and distributions as ``preset vke, nvidia or ib``, each kind named once."""
    kinds = [
        (kind, [name.partition(" ")[2] for name, _ in each])
        for kind, each in groupby(group, key=lambda each: each[0].partition(" ")[0])
    ]
    return " or ".join(f"{kind} {_either(names)}" for kind, names in kinds)


def _either(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _shown(value: Any, mark: str = "") -> str:
    if isinstance(value, str) and "\n" in value:
        return "a text of its own"
    text = value if isinstance(value, str) and value else json.dumps(value)
    return f"{mark}{text}{mark}"


# The defaults of a value: the general one, and others of presets and distributions.


def completed(value: ChartValue) -> ChartValue:
    """Return the value with its defaults filled in, unless it belongs to a list's entries."""
    if value.in_list:
        return value
    default = UNSAID if value.whole else _at(DEFAULTS, value.path)
    return replace(
        value,
        default=default,
        others=(*_others("preset", PRESETS, value), *_others("distribution", DISTRIBUTIONS, value)),
    )


def _others(
    kind: str, layers: Mapping[str, Json], value: ChartValue
) -> tuple[tuple[str, Any], ...]:
    if value.whole:
        return ()
    defaults = ((f"{kind} {name}", _at(layer, value.path)) for name, layer in layers.items())
    return tuple((name, default) for name, default in defaults if default is not UNSAID)


def _at(layer: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(layer, Mapping) or name not in layer:
            return UNSAID
        layer = layer[name]
    return layer
