"""Merges the default values of an installation with those of a preset and a distribution.

All defaults stand in presets.yaml beside this file. Later layers win: DEFAULTS, a preset, a
distribution, then the values of whoever installs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pkgutil import get_data
from typing import Any

import yaml

from kube_rdma.install.rules.release import NAMES, SINCE, with_release, with_version
from kube_rdma.model.admission import USUAL
from kube_rdma.model.install import Json, Values

RESOURCES = "resources"
_TABLES: Json = yaml.load(get_data(__package__, "presets.yaml") or b"", yaml.CSafeLoader)
DEFAULTS: Json = _TABLES["defaults"]
PRESETS: Mapping[str, Json] = _TABLES["presets"]
DISTRIBUTIONS: Mapping[str, Json] = _TABLES["distributions"]
DEFAULTS["admission"]["pods"] |= {
    "shareResources": ",".join(USUAL.shares),
    "mgpuResources": ",".join(USUAL.mgpu),
    "gpuResources": ",".join(USUAL.gpus),
    "vepfsDrivers": ",".join(USUAL.vepfs_drivers),
    "shmSize": USUAL.shm_size,
}
# Networks by rail: each of the first for cards of its rail, the last for a card of any.
_RAIL_POOLS = {str(rail): f"rail-{rail}" for rail in range(8)}
DEFAULTS["platform"] |= {
    "rails": [
        *({"name": pool, "pools": json.dumps({rail: pool})} for rail, pool in _RAIL_POOLS.items()),
        {"name": "rails", "pools": json.dumps(_RAIL_POOLS)},
    ],
    **dict.fromkeys(SINCE, True),
    **dict.fromkeys(NAMES, ""),
}
DEFAULT_PRESET: str = DEFAULTS["preset"]


def namespaces() -> tuple[str, ...]:
    """Return the namespaces into which presets install, that of the default preset first."""
    layers = [PRESETS[DEFAULT_PRESET], *PRESETS.values(), DEFAULTS]
    return tuple(dict.fromkeys(one["namespace"]["name"] for one in layers if "namespace" in one))


def merged(given: Values) -> Json:
    """Return all values of an installation: `given` over the defaults of preset and distribution.

    Objects are merged field by field, everything else is replaced. If `given` names no preset, that
    of DEFAULTS counts. Raise KeyError for an unknown preset or distribution.
    """
    given = written(given)
    layers = (
        PRESETS[given.get("preset", DEFAULT_PRESET)],
        DISTRIBUTIONS[given.get("distribution", "kubernetes")],
    )
    values: Any = DEFAULTS
    for layer in (*layers, given):
        values = over(values, layer)
    return with_release(with_version(_without_nulls(values)))


def written(given: Values) -> Json:
    """Return the values without nulls, which count as left out.

    Below `resources`, which are objects of Kubernetes, a null removes a part of the default.
    """
    return {
        key: written(value) if isinstance(value, Mapping) and key != RESOURCES else value
        for key, value in given.items()
        if value is not None
    }


def _without_nulls(values: Values) -> Json:
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def over(below: Any, above: Any) -> Any:
    """Return `above` merged over `below`, as Helm merges values.

    Objects are merged field by field; any other value of `above` replaces that of `below`.
    """
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    kept = {key: value for key, value in below.items() if key not in above}
    return kept | {
        key: over(below[key], value) if key in below else value for key, value in above.items()
    }
