"""Reads nodes from recorded machines, and an installation from files.

Of an installation only NodePolicies and values are read; `kube-rdma config check` judges the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma import __version__
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
from kube_rdma.admission.manifest_check import fields_of, text_of
from kube_rdma.discover.cluster import recorded_policy
from kube_rdma.hardware.recorded_survey import called, survey_at
from kube_rdma.install.installation import all_values
from kube_rdma.lib.text.document import Document
from kube_rdma.model.discover import Installed, SeenNode
from kube_rdma.pools.rules.labels import LabelFacts, wanted_labels
from kube_rdma.reports.rules.node_report import first_report


def recorded_node(sysfs: SysfsRoot) -> SeenNode:
    """Return the node of a recorded sysfs, with the report and labels that its agent would write.

    Raise Refused for what is no recording.
    """
    survey = survey_at(sysfs)
    labels = wanted_labels(LabelFacts(survey)).labels
    return SeenNode(called(sysfs), first_report(__version__, survey), labels, len(survey.gpus))


def written_installation(documents: Sequence[Document]) -> Installed:
    """Return the installation of files: NodePolicies that record hardware, and merged values.

    Raise Refused for values with faults.
    """
    policies, layers = [], []
    for document in documents:
        value = fields_of(document.value)
        if value.get("kind") == "NodePolicy":
            meta = fields_of(value.get("metadata"))
            selector = fields_of(fields_of(value.get("spec")).get("nodeSelector"))
            labels = {key: text_of(one) for key, one in selector.items()}
            name, notes = text_of(meta.get("name")), fields_of(meta.get("annotations"))
            policies.append(recorded_policy(name, labels, notes))
        elif "kind" not in value:
            layers.append(document)
    values = all_values(layers) if layers else None
    return Installed(tuple(filter(None, policies)), values)
