"""`kube-rdma ip translate`: CIDRPools of nv-ipam in, IPPools out."""

from __future__ import annotations

import yaml
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli.main import cli
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.ipam import PerNode

POOLS = """\
apiVersion: v1
kind: List
items:
- apiVersion: nv-ipam.nvidia.com/v1alpha1
  kind: CIDRPool
  metadata: {name: rail-0, namespace: nvidia-network-operator}
  spec: {cidr: 192.168.0.0/16, gatewayIndex: 0, perNodeNetworkPrefix: 31}
  status: {allocations: [{nodeName: a, prefix: 192.168.0.0/31}]}
- apiVersion: nv-ipam.nvidia.com/v1alpha1
  kind: CIDRPool
  metadata: {name: rail-1}
  spec: {cidr: "fd00::/48", perNodeNetworkPrefix: 120, nodeSelector: {nodeSelectorTerms: []}}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
"""


def translate(tmp_path, text):
    file = tmp_path / "pools.yaml"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli, ["ip", "translate", str(file)])


def test_pools_are_printed_as_kubectl_applies_them(tmp_path):
    """Each is a pool that kube-rdma reads; other documents are left out, notes are on stderr."""
    result = translate(tmp_path, POOLS)
    assert result.exit_code == 0, result.output
    first, second = yaml.safe_load_all(result.stdout)
    pools = [ip_pool.load(of_value(one, "pool")) for one in (first, second)]
    assert [(pool.name, pool.ranges[0].per_node) for pool in pools] == [
        ("rail-0", PerNode(31, 0)),
        ("rail-1", PerNode(120)),
    ]
    assert "rail-1: nodeSelector is not translated" in result.stderr


def test_a_file_without_cidr_pools_is_refused(tmp_path):
    """With the command that writes them."""
    result = translate(tmp_path, "kind: Pod\napiVersion: v1\n")
    assert isinstance(result.exception, Refused)
    assert "there is no CIDRPool in what was read" in str(result.exception)
