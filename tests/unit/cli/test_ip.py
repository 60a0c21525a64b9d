"""`kube-rdma ip` from the outside, against an API server in memory."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.cli.ip import ip
from kube_rdma.cli.main import cli
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.ipam import PerNode
from tests.unit.cli.ip_world import World, meta


@pytest.fixture
def world():
    return World()


@pytest.fixture
def full(world):
    """Two pools, two nodes that hold addresses, one of them gone."""
    world.pool("rail-0", "10.0.0.0/24", "fd00::/64", restSeconds=30)
    world.pool("tiny", "10.0.9.0/30")
    world.block("10.0.0.0", ("node-1", "10.0.0.1-10.0.0.32"), ("node-9", "10.0.0.40"))
    world.block("10.0.9.0", ("node-2", "10.0.9.1-10.0.9.2"))
    world.lease("node-1")
    return world


LIST = """\
POOL    NETWORK  FOR   HELD     SIZE  NODES  FULL             RANGES
rail-0  default  IPv4    33      254      2  █░░░░░░░░░  13%  10.0.0.0/24
                 IPv6     0  1.8e19      0  ░░░░░░░░░░   0%  fd00::/64
tiny    default  IPv4     2        2      1  ██████████ 100%  10.0.9.0/30
tiny: 2 of 2 IPv4 addresses are held by 1 nodes: add a range before the pool is full
"""


def test_list(full):
    result = full.run("list")
    squeezed = [line.split() for line in result.output.splitlines()]
    assert (squeezed, result.exit_code) == ([line.split() for line in LIST.splitlines()], 0)


def test_list_shows_a_pool_that_cannot_be_used(world):
    """Its ranges and why."""
    world.pool("a", "10.0.0.0/32", excludes=["10.0.0.0"])
    result = world.run("list")
    assert "10.0.0.0/32" in result.output
    assert "nothing is left to give" in result.output


SHOW = """\
Gateways:        -
Excluded:        -
Routes:          -
A node takes:    32 at once
Freed ones rest: 30 s

NODE           HELD  ADDRESSES
node-1           32  10.0.0.1-10.0.0.32
node-9 (gone)     1  10.0.0.40
"""


def test_show(full):
    assert full.run("show", "rail-0").output.endswith(SHOW)


def test_show_of_no_pool_names_those_that_are_there(full):
    result = full.run("show", "rail")
    assert isinstance(result.exception, Refused)
    assert "there is no IPPool rail. Name one that is there: rail-0, tiny" in str(result.exception)


def test_json_holds_it_all(full):
    """The same of one pool and in the list; the sizes are exact."""
    shown = json.loads(full.run("show", "rail-0", "-o", "json").output)
    assert json.loads(full.run("list", "-o", "json").output)[0] == shown
    assert [each["size"] for each in shown["usage"]] == [254, 2**64 - 1]
    assert shown["holders"][1] == {
        "node": "node-9",
        "held": 1,
        "addresses": ["10.0.0.40"],
        "gone": True,
    }


def test_check_is_content_with_a_good_cluster(world):
    """Overlapping pools and addresses of a pool that shrank are warnings, and no faults."""
    world.pool("a", "10.0.0.0/24")
    world.lease("node-1")
    assert (world.run("check").exit_code, world.run("check").output[:11]) == (0, "All is well")
    world.pool("b", "10.0.0.0/25")
    world.block("10.0.0.192", ("node-1", "10.0.0.255"))
    result = world.run("check", "-o", "json")
    kinds_found = [each["kind"] for each in json.loads(result.output)]
    assert (result.exit_code, kinds_found) == (0, ["in no pool", "overlap"])
    assert world.run("check").output.startswith("warning: IPBlock default.10-0-0-192")


def plant_two_holders(world):
    world.block("10.0.0.0", ("node-1", "10.0.0.1-10.0.0.9"), ("node-2", "10.0.0.9"))


def plant_gone(world):
    world.block("10.0.0.0", ("node-9", "10.0.0.1"))


def plant_left_lease(world):
    world.lease("node-9")


def plant_full(world):
    world.pool("tiny", "10.0.9.0/30")
    world.block("10.0.9.0", ("node-1", "10.0.9.1-10.0.9.2"))


def plant_edited_block(world):
    world.block("10.0.0.0", ("node-1", "10.0.7.0"))


def plant_renamed_block(world):
    world.block("10.0.0.0", ("node-1", "10.0.0.1"), name="default.10-0-0-64")


def plant_edited_pool(world):
    world.pool("b", "10.0.0.0/33")


def plant_edited_lease(world):
    labels = {"kube-rdma.io/lease": "ipam"}
    spec = {"leaseDurationSeconds": 600}
    document = {"metadata": meta("ipam.node-1", "x", labels=labels), "spec": spec}
    world.server.put(kinds.LEASE, document)


@pytest.mark.parametrize(
    ("plant", "kind", "says"),
    [
        (plant_two_holders, "two holders", "10.0.0.9 is held by node node-1 and node node-2"),
        (plant_gone, "node gone", "node node-9 is gone and holds 1 address;"),
        (plant_left_lease, "node gone", "its lease ipam.node-9 is left"),
        (plant_full, "nearly full", "IPPool tiny: 2 of 2 IPv4 addresses"),
        (plant_edited_block, "edited", "IPBlock default.10-0-0-0"),
        (plant_renamed_block, "edited", "belongs in the block default.10-0-0-0"),
        (plant_edited_pool, "edited", "IPPool b"),
        (plant_edited_lease, "edited", "Lease ipam.node-1"),
    ],
)
def test_check_finds_what_is_wrong(world, plant, kind, says):
    """One finding, with its kind; exit code 1."""
    world.pool("a", "10.0.0.0/24")
    plant(world)
    result = world.run("check", "-o", "json")
    (found,) = json.loads(result.output)
    assert (result.exit_code, found["kind"]) == (1, kind)
    assert says in found["sentence"]
    assert world.run("check").output.startswith(f"{kind}: ")


def test_release_says_the_risk_and_asks(full):
    """Without a yes nothing is written."""
    before = full.documents("ipblocks")
    result = full.run("release", "10.0.0.40", input="n\n")
    assert "is no longer a node of this cluster" in result.output
    assert (result.exit_code, full.documents("ipblocks")) == (1, before)


def test_release_frees_the_address(full):
    """The edition rises, so that every older write of the block fails."""
    result = full.run("release", "10.0.0.2", "--yes")
    assert "a second pod may get it" in result.output
    assert result.output.endswith("10.0.0.2 is free.\n")
    spec = full.documents("ipblocks")["default.10-0-0-0"]["spec"]
    assert spec["edition"] == 2
    assert spec["holdings"][0]["addresses"] == ["10.0.0.1", "10.0.0.3-10.0.0.32"]


def test_release_of_the_last_address_takes_the_holder_away(full):
    document = json.loads(full.run("release", "10.0.0.40", "--yes", "-o", "json").output)
    assert document == {"address": "10.0.0.40", "network": "default", "from": ["node-9"]}
    spec = full.documents("ipblocks")["default.10-0-0-0"]["spec"]
    assert [each["node"] for each in spec["holdings"]] == ["node-1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("10.0.0.50",), "no node holds 10.0.0.50 of network default"),
        (("10.0.0.99",), "no node holds 10.0.0.99 of network default"),
        (("10.0.0.40", "--network", "blue"), "no node holds 10.0.0.40 of network blue"),
    ],
)
def test_release_of_what_nobody_holds_is_refused(full, words, says):
    result = full.run("release", *words, "--yes")
    assert isinstance(result.exception, Refused)
    assert says in str(result.exception)


def test_release_of_no_address_is_a_slip(full):
    assert full.run("release", "10.0.0").exit_code == 2


def test_without_an_api_server_nothing_is_said_wrong(full):
    """Unavailable, which the command turns into its exit code."""

    @asynccontextmanager
    async def opener(_):
        line = full.server.line()
        line.cut()
        yield Cluster(line)

    assert isinstance(CliRunner().invoke(ip, ["check"], obj=opener).exception, Unavailable)


# `kube-rdma ip translate`: CIDRPools of nv-ipam in, IPPools out.

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
- apiVersion: nv-ipam.nvidia.com/v1alpha1
  kind: IPPool
  metadata: {name: shared}
  spec:
    subnet: 10.1.0.0/16
    perNodeBlockSize: 100
    gateway: 10.1.0.1
    exclusions: [{startIP: 10.1.0.10, endIP: 10.1.0.20}]
    perNodeExclusions: [{startIndex: 5, endIndex: 10}]
    defaultGateway: true
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
    first, second, third = yaml.safe_load_all(result.stdout)
    pools = [ip_pool.load(of_value(one, "pool")) for one in (first, second)]
    assert [(pool.name, pool.ranges[0].per_node) for pool in pools] == [
        ("rail-0", PerNode(31, 0)),
        ("rail-1", PerNode(120)),
    ]
    assert "rail-1: nodeSelector is not translated" in result.stderr
    assert third["spec"]["ranges"] == [{"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}]
    assert third["spec"]["excludes"] == ["10.1.0.10-10.1.0.20"]
    assert third["spec"]["routes"] == [{"dst": "0.0.0.0/0"}]
    for field in ("perNodeBlockSize", "perNodeExclusions"):
        assert f"shared: {field}" in result.stderr


NV = "---\napiVersion: nv-ipam.nvidia.com/v1alpha1\nkind: %s\nmetadata: {name: a}\nspec: {%s}\n"
WIDE, RAIL = (
    'subnet: "fd00::/64", perNodeBlockSize: 9',
    "cidr: 10.1.0.0/24, perNodeNetworkPrefix: 28",
)


@pytest.mark.parametrize(
    ("kind", "names", "said"),
    [
        ("IPPool", ["a", "a"], "a: perNodeBlockSize is not translated"),
        ("IPPools", ["a"], "IPPools of nv-ipam.nvidia.com is not translated."),
    ],
)
def test_nothing_of_nv_ipam_is_left_out_without_a_word(tmp_path, kind, names, said):
    result = translate(tmp_path, NV % ("CIDRPool", RAIL) + NV % (kind, WIDE))
    assert result.exit_code == 0, result.output
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(result.stdout)] == names
    assert said in result.stderr


def test_a_file_without_cidr_pools_is_refused(tmp_path):
    """With the command that writes them."""
    result = translate(tmp_path, "kind: Pod\napiVersion: v1\n")
    assert isinstance(result.exception, Refused)
    assert "there is no CIDRPool or IPPool of nv-ipam in what was read" in str(result.exception)
