"""Files that people wrote with a mistake, whole: what `config check` says of them, and where."""

import pytest

from kube_rdma.admission.documents.pod_manifest import load_settings
from kube_rdma.admission.manifest_check import check
from kube_rdma.lib.text.reader import read_all
from kube_rdma.model.admission import USUAL

NETWORK = """
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: NAME, namespace: default, annotations: {k8s.v1.cni.cncf.io/resourceName: rdma/nic}}
spec: {config: '{"cniVersion": "1.0.0", "type": "TYPE", "master": "ens1", "ipam": {}}'}
---
"""
WORKLOAD = """
kind: KIND
apiVersion: VERSION
metadata: {name: some}
spec:
  COUNT
  template:
    metadata: {annotations: {k8s.v1.cni.cncf.io/networks: '[{"name": "a", "ips": ["10.0.0.9"]}]'}}
    spec: {containers: [{name: main, resources: {limits: {rdma/nic: 1}}}]}
"""
VOLUME = """
kind: Pod
apiVersion: v1
metadata: {name: runner}
spec:
  containers:
  - name: c
    resources: {limits: {rdma/hca_shared_devices_a: 1}}
    env: [{name: UNREAD, valueFrom: {fieldRef: {}}}, {name: NCCL_NET, value: Socket}]
    volumeMounts: [{name: infiniband, mountPath: /dev/infiniband}]
  volumes:
  - {name: infiniband, hostPath: {path: /dev/infiniband, type: Directory}}
"""
BARE = "{kind: Pod, apiVersion: v1, metadata: {name: p}, spec: {containers: [{name: c, resources: "
BARE += "{limits: {rdma/nic: 1}}}]}}"


CLASS = """
kind: DeviceClass
apiVersion: resource.k8s.io/v1
metadata: {name: nics}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]}
---
kind: ResourceClaim
apiVersion: resource.k8s.io/v1
metadata: {name: nics}
spec:
  devices:
    requests:
    - name: nic
      exactly:
        CLASS
        selectors: [{cel: {expression: 'device.attributes["rdma.kube-rdma.io"].rail == 1'}}]
"""


def said(text, settings=USUAL):
    """Code and line of each finding that a rule about pods or networks has made."""
    found = check(read_all(text.encode(), "f.yaml"), settings).findings
    return [
        (one.code, one.subject.split(":")[1] if one.subject else "") for one in found if one.code
    ]


def network(name, of_type):
    return NETWORK.replace("NAME", name).replace("TYPE", of_type)


@pytest.mark.parametrize(("named", "count"), [("deviceClassName: nics", 1), ("count: 1", 0)])
def test_the_name_of_a_claim_is_not_that_of_its_class(named, count):
    """Without a class nobody knows which devices the claim's selector is asked of."""
    found = check(read_all(CLASS.replace("CLASS", named).encode(), "f.yaml")).findings
    assert sum("class nics has devices of dra.net" in one.problem for one in found) == count


def test_a_volume_of_the_host_s_device_files_is_told_at_the_volume():
    """Public case 17; and a variable at its own place in the list."""
    assert said(VOLUME) == [("device-volume", "12"), ("variables", "9")]


def test_networks_of_two_kinds_on_one_card_are_told_together():
    """Public case 27."""
    both = network("br-n6", "ipvlan") + network("br-n7", "macvlan")
    assert said(both) == [("two-kinds", "")]


@pytest.mark.parametrize(
    ("kind", "version", "count", "many"),
    [
        ("StatefulSet", "apps/v1", "replicas: 3", True),
        ("Deployment", "apps/v1", "replicas: 1", False),
        ("Deployment", "apps/v1", "", False),
        ("Deployment", "apps/v1", "replicas: some", False),
        ("Job", "batch/v1", "parallelism: 2", True),
        ("Job", "batch/v1", "completions: 2", False),
        ("DaemonSet", "apps/v1", "", True),
        ("Roles", "example.com/v1", "replicas: 2", True),
    ],
)
def test_a_fixed_address_is_told_where_a_template_makes_several_pods(kind, version, count, many):
    """Forty mistakes 10."""
    text = WORKLOAD.replace("KIND", kind).replace("VERSION", version).replace("COUNT", count)
    assert said(text) == ([("one-address", "8")] if many else [])


def test_a_share_without_its_network_is_told_where_the_files_have_the_network():
    """Review U1: by a network of the resource, or by the administrator's list."""
    assert said(BARE) == []
    assert said(network("fabric", "macvlan") + BARE) == [("shares-without-network", "7")]
    named = load_settings(["networkResources=rdma/nic"], "--admission-set")
    assert said(BARE, named) == [("shares-without-network", "1")]
