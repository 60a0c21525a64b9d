"""What the policy for agents lets an agent write is what the agent's code writes; see the lab's
test_agent_policy for the same at an API server."""

import re

from kube_rdma.attach.documents import network_status
from kube_rdma.install.rules.agent_cel import ANNOTATIONS, LABELS
from kube_rdma.model.attach.attachment import RESTART

WRITTEN = {
    network_status.ANNOTATION,
    network_status.OWN_ANNOTATION,
    network_status.POD_NETWORKS_STATUS,
    RESTART,
}
OTHERS = ("k8s.v1.cni.cncf.io/networks", "x.kube-rdma.io/network-status", "kube-rdma.io/test", "")


def test_an_agent_tells_pods_what_it_has_to_tell():
    assert all(re.search(ANNOTATIONS["pods"], key) for key in WRITTEN)
    assert not [key for key in OTHERS if re.search(ANNOTATIONS["pods"], key)]


def test_an_agent_marks_a_pod_with_one_label():
    assert re.search(LABELS["pods"], RESTART)
    assert not [key for key in (*OTHERS, "app") if re.search(LABELS["pods"], key)]
