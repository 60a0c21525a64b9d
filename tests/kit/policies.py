"""The policies that hold agents and an operator at the API server, as an installation has them."""

import ast

from kube_rdma.install.installation import assignment, objects
from kube_rdma.reports.cluster import GUARD as AGENTS

ONLY_AGENTS = "agents-write-network-status.kube-rdma.io"
OPERATOR = "operator-closes-nodes.kube-rdma.io"
NFD_RIGHT = ("write", "kube-rdma.io", "nfdlabels")  # verb, group, resource; at no API


def policy(name, preset="nvidia-operator"):
    """The spec of a policy."""
    (made,) = (
        made["spec"]
        for made in objects([assignment("admission.install=true")], preset, "admission")
        if made["kind"] == "ValidatingAdmissionPolicy" and name in made["metadata"]["name"]
    )
    return made


def agents_keys(kind):
    """Patterns of the keys of a kind (label, annotation) that an agent may write, by resource."""
    (text,) = (one["expression"] for one in policy(AGENTS)["variables"] if one["name"] == kind)
    return ast.literal_eval(text.rpartition("[")[0].strip())
