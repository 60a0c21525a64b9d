"""Writes the files of the Helm chart, a base for kustomize, and the policy of agents alone.

    install/rules: objects/*.yaml, pod_policies ─► chart_templates ─► charts/kube-rdma/templates
    sentences (documents), defaults (rules) ─► chart_values ─► values.yaml, README.md
    the objects of preset default, without CRDs ─► config/default.yaml
    objects/policies.yaml, for agents of every namespace ─► config/admission

`python -m kube_rdma_tools.chart CHART CONFIG`; tools/chart calls it, and tests compare.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kube_rdma.install.documents import installation
from kube_rdma.install.installation import blueprints, object_file, objects
from kube_rdma.install.rules.presets import DEFAULTS, DISTRIBUTIONS, PRESETS
from kube_rdma.install.rules.release import SINCE
from kube_rdma.install.views import manifests
from kube_rdma.lib.text import reader
from kube_rdma_tools import chart_templates, chart_values
from kube_rdma_tools.chart_values import completed

MERGED_BY_HELM = ("agent.resources", "controller.resources")
# What the policy for agents of every namespace has in the place of parts of one installation's.
_ANYWHERE = {
    "when: [admission.install, platform.addressFunctions]\n": "",
    "${namespace.name}.${platform.own}": "",
    " == 'system:serviceaccount:${namespace.name}:${platform.agentAccount}'": (
        ".matches('^system:serviceaccount:[^:]+:kube-rdma-agent$')"
    ),
}
_POLICY = """\
# Written by tools/chart from src/kube_rdma/install/rules/objects/policies.yaml; do not edit.
#
# Whatever its token is allowed to do, an agent changes nothing but its own node, that node's report
# and lease, the pods on it, and what the node has of the cluster's addresses. Of its node: the
# labels of docs/config.md, the startup taint, which it only takes off, and one condition. Labels
# below feature.node.kubernetes.io, by which operators start drivers, it writes only with the right
# to write nfdlabels of kube-rdma.io, and takes away without it. Of a pod: what it reports of the
# pod's networks. Of addresses: its own holdings, not those of another node.
# For Kubernetes 1.31 or newer: it uses CEL's functions for addresses, and the name of the node that
# each pod's token has. It holds for service accounts called kube-rdma-agent in every namespace. An
# installation by Helm or `kube-rdma render` has the same for its own namespace.
"""


# No registry can have this image: whoever takes the base names another one.
_BASE = {"image": {"repository": "kube-rdma.invalid/kube-rdma"}, "crds": {"install": False}}
_BASE_SAYS = """\
# Written by tools/chart: the objects of preset default, as kustomization.yaml uses them.
"""


def chart_files() -> dict[str, str]:
    """Return the texts of the chart's generated files, by their names below charts/kube-rdma."""
    layers = {"defaults": DEFAULTS, "presets": PRESETS, "distributions": DISTRIBUTIONS}
    values = [completed(value) for value in installation.values()]
    left_out = {value.path: text for value in values if (text := chart_values.left_out(value))}
    return {
        "README.md": chart_values.readme(values),
        "values.yaml": chart_values.values_file(values),
        "files/layers.json": json.dumps(layers, indent=2) + "\n",
        "templates/_values.tpl": chart_templates.merging(DEFAULTS, MERGED_BY_HELM, SINCE),
        "values.schema.json": installation.schema(left_out, {v.path for v in values if v.others}),
        **{
            f"templates/{name}.yaml": chart_templates.template(listed)
            for name, listed in blueprints().items()
        },
    }


def config_files() -> dict[str, str]:
    """Return the texts of the policy of agents and of the kustomize base, by names below config."""
    _, policy, binding, *_ = object_file("policies").split("---\n")
    text = f"{policy}---\n{binding}"
    for own, anywhere in _ANYWHERE.items():
        text = text.replace(own, anywhere)
    base = manifests(objects([reader.read(json.dumps(_BASE).encode(), "_BASE")], "default"))
    return {"admission/agents-own-node.yaml": _POLICY + text, "default.yaml": _BASE_SAYS + base}


if __name__ == "__main__":
    for folder, files in zip(sys.argv[1:], (chart_files(), config_files()), strict=True):
        for written_name, content in files.items():
            Path(folder, written_name).write_text(content, encoding="utf-8")
