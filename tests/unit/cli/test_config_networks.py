"""`kube-rdma config check` on networks and pools of addresses: where their default routes are."""

import pytest

from kube_rdma.admission.manifest_check import check as judge
from kube_rdma.lib.text.reader import read_all

ROUTED = """\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: fast, namespace: team}
spec: {config: '{"cniVersion": "1.0.0", "type": "%s",
  "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "routes": [{"dst": "%s"}]}}'}
---
apiVersion: kube-rdma.io/v1alpha1
kind: IPPool
metadata: {name: rail-0}
spec: {ranges: [{subnet: 10.8.0.0/24, gateway: 10.8.0.1}], routes: [{dst: %s}]}
"""


@pytest.mark.parametrize(
    ("plugin", "to", "is_told"),
    [
        ("macvlan", "0.0.0.0/0", True),
        ("macvlan", "128.0.0.0/1", True),
        ("bridge", "0.0.0.0/0", True),
        ("macvlan", "10.0.0.0/8", False),
        ("bridge", "10.0.0.0/8", False),
    ],
)
def test_a_default_route_of_a_network_or_pool_is_told(plugin, to, is_told):
    """By its place, with what a pod writes to have it."""
    warnings = judge(read_all((ROUTED % (plugin, to, to)).encode(), "0.yaml")).warnings
    told = [one for one in warnings if "default route" in one.problem]
    places = ["0.yaml:4:16: spec.config", "0.yaml:10:68: spec.routes"]
    assert [one.subject for one in told] == (places if is_told else [])
    assert all("default-route" in one.remedy for one in told)
