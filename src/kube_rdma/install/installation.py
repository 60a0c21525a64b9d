"""Makes the objects of an installation from its values.

values files, --set ─► checked (documents) ─► merged, filled (rules) ─┬─► `kube-rdma render`
                                                                      └─► apply: `kube-rdma install`

A blueprint is a manifest with holes for values; kube_rdma_tools/chart makes the Helm chart of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.cli.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.install.documents import assignments, installation
from kube_rdma.install.rules import notes as install_notes
from kube_rdma.install.rules.parts import FILES, filled, parts
from kube_rdma.install.rules.presets import DEFAULT_PRESET, merged, over, written
from kube_rdma.install.rules.release import (
    FULL_NAME,
    POLICIES,
    RELEASE,
    VALUE,
    image_values,
    lacking,
    others,
    owned,
    tolerated,
    with_helm,
)
from kube_rdma.lib.schema import definition
from kube_rdma.lib.text import document, reader
from kube_rdma.lib.text.document import Document
from kube_rdma.model.install import Blueprint, ChartRelease, Json, Values
from kube_rdma.model.reports import ChosenNodes
from kube_rdma.pools.config import parse_config

CONFIG = "agent.config"
_HERE = Path(__file__)
_DASHBOARDS = ("fleet", "node", "pod", "fabric")


def object_file(name: str) -> str:
    """Return the text of a file in objects/; `name` is without the ending."""
    return (_HERE.parent / f"rules/objects/{name}.yaml").read_text(encoding="utf-8")


@cache
def described(name: str) -> tuple[Blueprint, ...]:
    """Return the blueprints of a file in objects/, in its order."""
    return installation.read(object_file(name))


def dashboards() -> Mapping[str, Json]:
    """Return Grafana's dashboards by the names of their files."""
    files = [_HERE.with_name("dashboards") / f"kube-rdma-{board}.json" for board in _DASHBOARDS]
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


@cache
def blueprints() -> Mapping[str, list[Blueprint]]:
    """Return the blueprints of every part of the installation, by the part's name."""
    return parts(
        {name: described(name) for name in FILES},
        [definition(resource) for resource in DEFINITIONS],
        [definition(resource) for resource in OPERATOR_DEFINITIONS],
        dashboards(),
    )


def read_values(path: Path) -> Document:
    """Return the values in a file, unchecked; raise Refused if it cannot be read as YAML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise document.unreadable(str(path), error) from error
    return reader.read(data, str(path))


def assignment(text: str, where: str = "--set") -> Document:
    """Return the values that one assignment such as ``agent.startupTaint=true`` gives.

    Raise Refused for another form.
    """
    return assigned([text], (), where)


def assigned(texts: Sequence[str], below: Sequence[Document], where: str = "--set") -> Document:
    """Return the values that assignments give, merged in their order over the layers `below`.

    `where` names the option in messages. Raise Refused for a text that is no assignment.
    """
    value: Any = {}
    for layer in below:
        value = over(value, layer.value)
    for text in texts:
        for path, one in assignments.pairs(text, where):
            value = assignments.put(value, path, one)
    return _layer(value, where)


def _layer(value: Any, where: str) -> Document:
    """Return values as a layer without places in a text; `where` names the option in messages."""
    read = reader.read(b"{}", where)
    return replace(read, value=value, values={(): read.values[()]}, keys={})


def layers(
    files: Sequence[Path], texts: Sequence[str], namespace: str = "", image: str = ""
) -> list[Document]:
    """Return the layers of values that options give: files, the image, assignments, a namespace.

    Raise Refused for a file that cannot be read, and for a text that is no assignment.
    """
    given = [read_values(path) for path in files]
    if image:
        given.append(_layer({"image": image_values(image)}, "--image"))
    given.append(assigned(texts, given))
    if namespace:
        names = (f'namespace.name="{namespace}"', "namespace.create=false")
        given += [assignment(text, "--namespace") for text in names]
    return given


def release(
    layers: Sequence[Document], preset: str, version: str, networks: Json | None
) -> ChartRelease:
    """Return the installation as `helm install` makes it on a cluster of this version.

    `networks` is the cluster's definition of NetworkAttachmentDefinitions, None without one. Raise
    Refused as `objects` does.
    """
    values = all_values([_layer({VALUE: version}, "version of the API server"), *layers], preset)
    name, platform, agent = values[FULL_NAME] or RELEASE, values["platform"], values["agent"]
    values = with_helm(values, defines_networks=networks is None or not others(networks, name))
    noted = {
        part: [replace(one, body=one.noted) for one in listed]
        for part, listed in blueprints().items()
    }
    borne = tuple(map(tolerated, agent["tolerations"]))
    chosen = ChosenNodes(tuple(sorted(agent["nodeSelector"].items())), borne)
    served = {kind: platform[name] for kind, name in POLICIES.items()}
    notes = (*install_notes.notes(values), *lacking(values))
    return ChartRelease(
        name,
        values["preset"],
        values["namespace"]["name"],
        tuple(owned(one, name) for one in _filled(values, noted)),
        next(filled(described("trial"), values)),
        chosen if agent["enabled"] else None,
        platform["operator"],
        served | {"NetworkAttachmentDefinition": networks is not None},
        tuple(one for one in notes if one not in install_notes.UNSEEN),
    )


def objects(
    layers: Sequence[Document], preset: str = "", part: str = ""
) -> tuple[dict[str, Any], ...]:
    """Return the Kubernetes objects of an installation, of one part or of all.

    Later layers win over earlier ones. Without `preset`, the last layer that names a preset chooses
    it, else the preset is `default`. Raise Refused with every fault of a layer, or of the agent's
    configuration. Raise Refused also where workloads are wanted and no image is named.
    """
    every = blueprints()
    return _filled(all_values(layers, preset), {part: every[part]} if part else every)


def _filled(
    values: Values, described: Mapping[str, Sequence[Blueprint]]
) -> tuple[dict[str, Any], ...]:
    """Return the objects of these parts.

    Raise Refused for workloads without an image, and for faults of the agent's configuration.
    """
    if "workloads" in described and not values["image"]["repository"]:
        raise Refused(
            "no image of kube-rdma is named",
            remedy="Build it, push it to a registry of yours, and name it, such as by --set "
            "image.repository=registry.example.com/rdma/kube-rdma (docs/install.md)",
            where="image.repository",
        )
    platform, config = values["platform"], values["agent"]["config"]
    if (
        platform["configMap"]
        and values["agent"]["enabled"]
        and (config or not platform["networks"])
    ):
        parse_config(config.encode(), CONFIG)
    return tuple(made for listed in described.values() for made in filled(listed, values))


def notes(layers: Sequence[Document], preset: str = "") -> tuple[str, ...]:
    """Return what is left to do and which values have no effect, one sentence each.

    Raise Refused as `all_values` does.
    """
    return install_notes.notes(all_values(layers, preset))


def left_out(layers: Sequence[Document], preset: str = "") -> tuple[str, ...]:
    """Return what the values ask for and the version of Kubernetes lacks, one sentence each.

    Raise Refused as `all_values` does.
    """
    return lacking(all_values(layers, preset))


def policy_values(texts: Sequence[str], where: str) -> Values:
    """Return the values that assignments give to agents of a NicClusterPolicy.

    Raise Refused for an assignment of another form, and for wrong values.
    """
    return _given([assignment(text, where) for text in texts], "nvidia-operator")


def all_values(layers: Sequence[Document], preset: str = "") -> dict[str, Any]:
    """Return all values of an installation, those of its preset too.

    Raise Refused for a layer with faults, and where no namespace is named.
    """
    values = merged(_given(layers, preset))
    if not values["namespace"]["name"]:
        raise Refused(
            "namespace.name is empty, and no namespace is named",
            remedy="Write --namespace NAME, or leave namespace.name out for that of the preset",
        )
    return values


def _given(layers: Sequence[Document], preset: str) -> Values:
    """Return the values that the layers give, checked and merged, with the name of their preset.

    Raise Refused for a layer with faults.
    """
    named = [layer.value.get("preset") for layer in layers if isinstance(layer.value, dict)]
    chosen = preset or next((name for name in reversed(named) if name), DEFAULT_PRESET)
    given: dict[str, Any] = {}
    last = reader.read(json.dumps({"preset": chosen}).encode(), "--preset")
    for layer in (*layers, last):
        value = layer.value
        if isinstance(value, dict):
            value = {"preset": chosen, **written(value)}
        installation.check(replace(layer, value=value))
        given = over(given, layer.value)
    return given
