"""From the values of an installation to its objects, and to the files of the Helm chart.

values files, --set ─► checked (api) ─► merged, filled (rules/install) ─► `kube-rdma render`
rules/install: objects/*.yaml, policies ─► views/install/chart ─► charts/kube-rdma (tools/chart)
sentences (api), defaults (rules) ─► views/install/chart_values ─► what people read of its values
policy of rules/install for agents anywhere ─► views/install/manifests ─► config/admission (it too)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.api.install import installation
from kube_rdma.api.schema.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.api.schema.structural import definition
from kube_rdma.api.text import document, reader
from kube_rdma.api.text.document import Document
from kube_rdma.model.install.blueprint import Blueprint, Values
from kube_rdma.programs.config import parse_config
from kube_rdma.programs.install.described import described
from kube_rdma.rules.install import admission
from kube_rdma.rules.install.defaults import completed
from kube_rdma.rules.install.fill import filled
from kube_rdma.rules.install.kubernetes_version import SINCE, lacking
from kube_rdma.rules.install.parts import PARTS, parts
from kube_rdma.rules.install.presets import DEFAULTS, DISTRIBUTIONS, PRESETS, merged, over, written
from kube_rdma.rules.install.webhook import check_webhook
from kube_rdma.views.install import chart, chart_values
from kube_rdma.views.install.manifests import manifests

CONFIG = "agent.config"
MERGED_BY_HELM = ("agent.resources", "controller.resources")
NO_POOL = (
    "The network rdma has no addresses: set `pools`, or create an IPPool named rdma (docs/ip.md). "
    "RoCE pods are refused until then, but those with cards that bring their own."
)
_POLICY = """\
# Written by tools/chart from src/kube_rdma/rules/install/agent_cel.py; do not edit.
#
# Whatever its token is allowed to do, an agent changes nothing but its own node, that node's report
# and lease, the pods on it, and what the node has of the cluster's addresses. Of its node: the
# labels of docs/labels.md, the startup taint, which it only takes off, and one condition. Labels
# below feature.node.kubernetes.io, by which operators start drivers, it writes only with the right
# to write nfdlabels of kube-rdma.io, and takes away without it. Of a pod: what it reports of the
# pod's networks. Of addresses: its own holdings, not those of another node.
# For Kubernetes 1.30 or newer, which puts the node's name into the token of each pod. It holds for
# service accounts called kube-rdma-agent in every namespace. An installation by Helm or
# `kube-rdma render` has the same for its own namespace.
"""


def blueprints() -> Mapping[str, list[Blueprint]]:
    """Every part of the installation with its blueprints."""
    return parts(
        {part: described(part) for part in PARTS},
        [definition(resource) for resource in DEFINITIONS],
        [definition(resource) for resource in OPERATOR_DEFINITIONS],
    )


def read_values(path: Path) -> Document:
    """The values that a file gives, unchecked; Refused when it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise document.unreadable(str(path), error) from error
    return reader.read(data, str(path))


def assignment(text: str, where: str = "--set") -> Document:
    """What ``agent.startupTaint=true`` gives; Refused for another form. `where` is the option."""
    path, equals, written = text.partition("=")
    names = path.split(".")
    if not equals or not all(names):
        raise Refused(
            f"{text!r} sets no value",
            remedy="Write it like image.tag=0.1.0, or give a file with --values",
            where=where,
        )
    read = reader.read(written.encode(), where)
    value = read.value
    for name in reversed(names):
        value = {name: value}
    return replace(read, value=value, values={(): read.values[()]}, keys={})


def objects(
    layers: Sequence[Document], preset: str = "", part: str = ""
) -> tuple[dict[str, Any], ...]:
    """The objects of an installation, later layers over earlier ones; of one part, or of all.

    Without a preset the last layer that names one does. Raises Refused with every fault of a layer,
    and of the agent's configuration in them.
    """
    values = _values(layers, preset)
    check_webhook(values)
    if values["seed"]["configMap"] and values["agent"]["enabled"]:
        parse_config(values["agent"]["config"].encode(), CONFIG)
    return tuple(
        made
        for name, listed in blueprints().items()
        if part in ("", name)
        for made in filled(listed, values)
    )


def notes(layers: Sequence[Document], preset: str = "") -> tuple[str, ...]:
    """What is left to do, a sentence each; Refused as `objects`."""
    values = _values(layers, preset)
    return (NO_POOL,) if values["preset"] == "vke" and not values["pools"] else ()


def policy_values(texts: Sequence[str], where: str) -> Values:
    """What assignments give to the agents of policies; Refused for what is no value."""
    return _given([assignment(text, where) for text in texts], "nvidia-operator")


def left_out(layers: Sequence[Document], preset: str = "") -> tuple[str, ...]:
    """What of it the version of Kubernetes does not have, a sentence each; Refused as `objects`."""
    return lacking(_values(layers, preset))


def _values(layers: Sequence[Document], preset: str) -> dict[str, Any]:
    """All values of an installation, checked."""
    return merged(_given(layers, preset))


def _given(layers: Sequence[Document], preset: str) -> Values:
    """The values that layers give, with their preset, checked."""
    named = [layer.value.get("preset") for layer in layers if isinstance(layer.value, dict)]
    chosen = preset or next((name for name in reversed(named) if name), None)
    if not chosen:
        raise Refused("no preset is named", remedy=f"Write --preset, with {', '.join(PRESETS)}")
    given: dict[str, Any] = {}
    last = reader.read(json.dumps({"preset": chosen}).encode(), "--preset")
    for layer in (*layers, last):
        value = layer.value
        if isinstance(value, dict):
            value = {"preset": chosen, **written(value)}
        installation.check(replace(layer, value=value))
        given = over(given, layer.value)
    return given


def chart_files() -> dict[str, str]:
    """What the chart's generated files hold, by their names below charts/kube-rdma."""
    layers = {"defaults": DEFAULTS, "presets": PRESETS, "distributions": DISTRIBUTIONS}
    values = [completed(value) for value in installation.values()]
    left_out = {value.path: text for value in values if (text := chart_values.left_out(value))}
    return {
        "README.md": chart_values.readme(values),
        "values.yaml": chart_values.values_file(values),
        "files/layers.json": json.dumps(layers, indent=2) + "\n",
        "templates/_values.tpl": chart.merging(DEFAULTS["distribution"], MERGED_BY_HELM, SINCE),
        "values.schema.json": installation.schema(left_out, {v.path for v in values if v.others}),
        **{
            f"templates/{name}.yaml": chart.template(listed)
            for name, listed in blueprints().items()
        },
    }


def config_files() -> dict[str, str]:
    """What the generated files below config/admission hold, by their names there."""
    return {"agents-own-node.yaml": _POLICY + manifests(admission.anywhere())}


if __name__ == "__main__":
    for folder, files in zip(sys.argv[1:], (chart_files(), config_files()), strict=True):
        for written_name, content in files.items():
            Path(folder, written_name).write_text(content, encoding="utf-8")
