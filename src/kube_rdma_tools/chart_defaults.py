"""What a value of an installation is when it is left out: everybody's default, and who has another.

For the files of the Helm chart that people read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_base.frozen import replace
from kube_rdma.install.rules.presets import DEFAULTS, DISTRIBUTIONS, PRESETS
from kube_rdma.model.install import UNSAID, ChartValue, Json


def completed(value: ChartValue) -> ChartValue:
    """The value with its defaults; values in a list's entries and `global` have none here."""
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
