"""`kube-rdma config` from the outside: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_rdma.admission.manifest_check import check as judge
from kube_rdma.cli.config import config
from kube_rdma.hardware import survey
from kube_rdma.lib.text.reader import read_all
from kube_rdma.pools.documents.config import DIALECTS, schema
from kube_rdma_lab.native.tree_text import unpack
from tests.kit.nodes import device, function, position
from tests.kit.nodes import node as node_of
from tests.unit.kube_client.test_connect import Server, answer

TREES = Path(__file__).parents[2] / "data/trees"
HCA = '{"mode": "hca"}'
TWICE = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools:
  - {resource: rdma/a, mode: %s, selectors: [{vendors: [15b3]}]}
  - {resource: rdma/b, mode: hca, selectors: [{linkTypes: [infiniband]}]}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Find the folder of a machine's tree by its name."""

    def unpacked(name):
        root = tmp_path_factory.mktemp(name)
        unpack((TREES / name / "tree.txt").read_text(), root)
        return root

    return unpacked


@pytest.fixture
def check(tmp_path):
    """Run the check on a text."""

    def run(text, *options):
        file = tmp_path / "config"
        file.write_text(text)
        return CliRunner().invoke(config, ["check", str(file), *map(str, options)])

    return run


NODE_POLICY = """\
POOL      MODE     SHARES  ATTACH  PREFER
rdma/hca  hca   1000/pool  none    -
  └ every card with an RDMA device
"""
WISHES = f"""\
{NODE_POLICY}\
  └ containers open uverbs, umad, issm, rdma_cm
"""
LAB = """
On the node of {}:

POOL      CARD  FUNCTION      NUMA  SHARES  USABLE
rdma/hca  rxe0  0000:25:00.0     0    1000  yes
          rxe1  0000:45:00.0     1          yes

In no pool:
  eth0 (0000:00:04.0), ens4f0 (0000:46:00.0), ens4f0v0 (0000:46:10.0), ens4f0v1 (0000:46:10.2),
  ens4f0v2 (0000:46:10.4), ens4f0v3 (0000:46:10.6)
    └ it has no RDMA device
"""


def test_a_good_file_is_shown(check):
    result = check(HCA)
    assert (result.output, result.exit_code) == (WISHES, 0)


def test_what_is_not_known_of_this_node_is_said(check):
    """The agent knows the node's addresses and spares their cards; without a name nobody asks."""
    result = check(TWICE % "exclusive", "--node")
    assert "cards with the node's own addresses, not known here: give --node-name" in result.stderr
    assert "own addresses" not in check(HCA, "--node").stderr


def test_a_recorded_node_shows_its_cards(check, tree):
    """Those in the pool, and why the others are not."""
    there = tree("lab-node")
    result = check(HCA, "--sysfs", there)
    assert (result.output, result.exit_code) == (WISHES + LAB.format(there), 0)


WITH_FUNCTIONS = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools:
  - {resource: rdma/hca, mode: hca}
  virtualFunctions:
  - {selectors: [{interfaces: [ens2f0]}, {vendors: [15b3]}], count: 16}
  - {selectors: [{interfaces: [ens4f0]}], count: 0, autoprobe: false, force: true}
"""
FUNCTIONS = """\
FUNCTIONS  DRIVERS  FORCED  OF
       16  yes      no      interface ens2f0; or vendor 15b3
        0  no       yes     interface ens4f0
"""


def test_virtual_functions_are_shown(check):
    assert check(WITH_FUNCTIONS).output == NODE_POLICY + "\n" + FUNCTIONS
    first, second = json.loads(check(WITH_FUNCTIONS, "-o", "json").output)["functions"]
    assert first["selectors"][1]["vendors"] == ["15b3"]
    assert second.pop("source")
    assert [one.pop("source") for one in second["selectors"]]
    assert second == {
        "count": 0,
        "autoprobe": False,
        "force": True,
        "selectors": [{"interfaces": ["ens4f0"]}],
    }


RANGED = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  virtualFunctions: [{selectors: [{%s}], count: 4}]
  pools:
  - {resource: rdma/vf, mode: sriov, selectors: [{physicalFunctions: ["ens4f0#4-9"]}]}
"""


def test_a_range_beyond_the_functions_of_a_node_is_a_warning(check, tree):
    """The lab's card can have 7, and the wish may mean another."""
    result = check(RANGED % "vendors: [15b3]", "--sysfs", tree("lab-node"))
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "! ens4f0#4-9 of rdma/vf (" in said
    assert "function 4 is asked for, and ens4f0 has 4 (0-3), of 7 at most." in said


VIRTUAL = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools:
  - {resource: rdma/vf, mode: %s, attach: %s, selectors: [{rootDevices: ["%s#0-7"]}]}
"""
BOUND = "its driver is vfio-pci, which leaves no interface to attach"
LINKS = [("mlx5-ib-pf-vfs", "0000:41:00.0", 4), ("mlx5-roce-pf-vfs", "0000:c1:00.0", 3)]


def reasons(check, root, *pool):
    """By card what stands against it on the node of a tree."""
    (found,) = json.loads(check(VIRTUAL % pool, "-o", "json", "--sysfs", root).output)["node"][
        "pools"
    ]
    return {card["name"]: card["reasons"] for card in found["cards"]}


@pytest.mark.parametrize(("name", "physical", "count"), LINKS)
def test_functions_that_a_network_sets_up_are_judged_by_their_physical_one(
    check, tree, name, physical, count
):
    """As made, a function's port is DOWN; one for user space and one without a driver stay out."""
    root = tree(name)
    for attach in ("none", "auto"):
        found = reasons(check, root, "sriov", attach, physical)
        assert len(found) == count
        for card, against in found.items():
            assert bool(against) is (not card.startswith("mlx5_")), against
        assert any(one.startswith(BOUND) for against in found.values() for one in against)
    port = next((root / "bus/pci/devices" / physical).glob("infiniband/*/ports/1")).resolve()
    (port / "state").write_text("1: DOWN\n")
    for against in reasons(check, root, "sriov", "auto", physical).values():
        assert any("mlx5_0, which it is a part of: no port is ACTIVE" in one for one in against)


@pytest.mark.parametrize(("name", "physical", "_"), LINKS)
def test_functions_that_nobody_sets_up_are_judged_by_their_own_port(check, tree, name, physical, _):
    found = reasons(check, tree(name), "hca", "none", physical)
    usable = [card for card, against in found.items() if not against]
    assert len(usable) == len(found) - 1 == 1


def test_this_node_is_looked_at(check):
    result = check(HCA, "--node")
    assert result.output.startswith(WISHES + "\nOn this node:\n\nPOOL")
    assert result.exit_code == 0


async def test_a_card_with_the_address_of_the_named_node_is_spared_and_told(
    check, tmp_path, monkeypatch
):
    """By the Node object; which interface has the address is the kernel's word, here a fake's."""
    addresses = [{"type": "InternalIP", "address": "10.1.0.5"}]
    meta = {"name": "node-1", "uid": "u", "resourceVersion": "1"}
    node = {"metadata": meta, "spec": {}, "status": {"addresses": addresses}}

    def take(*, own):
        card = function(position(0x81), "ens1f0")
        netdevs = (replace(card.netdevs[0], needed=own().get("10.1.0.5")),)
        one = device(0, card.position, "ens1f0")
        return node_of(replace(card, netdevs=netdevs), devices=(one,)).survey

    monkeypatch.setattr(survey, "take_survey", take)
    monkeypatch.setattr(survey, "with_uses", lambda seen: seen)
    async with Server(answer(node)).running(tmp_path) as kubeconfig:
        options = ("--node", "--node-name", "node-1", "--kubeconfig", kubeconfig)
        result = await asyncio.to_thread(check, TWICE % "exclusive", *options)
    said = " ".join(result.output.split())
    why = "ens1f0 carries the node's InternalIP 10.1.0.5, without which the node is cut off"
    assert "In no pool: mlx5_0" in said
    assert f"rdma/a: {why}" in said


def test_two_pools_for_one_card_are_a_problem_when_one_owns_it(check, tree):
    """Told once for the pair, with exit code 1."""
    result = check(TWICE % "exclusive", "--sysfs", tree("dgx-like"))
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert said.count("✗ ") == 1
    assert "✗ mlx5_0 belongs to rdma/a (" in said
    clash = said.partition(" POOL ")[0]
    assert clash.endswith("; likewise mlx5_1, mlx5_2, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_7.")


def test_json_of_a_good_file(check, tree):
    shown = json.loads(check(HCA, "-o", "json").output)
    (pool,) = shown["pools"]
    assert (pool["resource"], pool["shares"], pool["bind"]) == ("rdma/hca", 1000, "pool")
    assert (shown["rescan"], shown["node"]) == (300, None)
    shown = json.loads(check(HCA, "-o", "json", "--sysfs", tree("lab-node")).output)
    assert [card["name"] for card in shown["node"]["pools"][0]["cards"]] == ["rxe0", "rxe1"]


BAD = '{"mode": "hcaa",\n "shares": 1}'


def test_json_of_a_bad_file_has_every_fault(check):
    result = check(BAD, "-o", "json")
    assert result.exit_code == 3
    errors = json.loads(result.output)["errors"]
    assert [error["where"].split(":", 1)[1] for error in errors] == ["1:10: mode", "2:2: shares"]
    assert errors[0]["remedy"].startswith("Did you mean")


def test_stdin_is_read():
    """In a process of its own, with the exit codes of the command."""

    def run(text):
        command = [sys.executable, "-m", "kube_rdma.cli.main", "config", "check", "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    good, bad = run(HCA), run(BAD)
    assert (good.stdout, good.returncode) == (WISHES, 0)
    assert (bad.stdout, bad.returncode) == ("", 3)
    assert bad.stderr.startswith('kube-rdma: stdin:1:10: mode: "hcaa" is not a value')


def test_a_file_that_is_not_there_is_refused(tmp_path):
    result = CliRunner().invoke(config, ["check", str(tmp_path / "nothing")])
    assert "there is no such file" in str(result.exception)


def test_one_node_at_a_time(check, tmp_path):
    assert check(HCA, "--node", "--sysfs", tmp_path).exit_code == 2


@pytest.mark.parametrize("name", DIALECTS)
def test_the_schema_is_printed(name):
    assert CliRunner().invoke(config, ["schema", name]).output == schema(name) + "\n"


def test_the_schemas_are_listed():
    lines = CliRunner().invoke(config, ["schema"]).output.splitlines()
    assert [line.split()[0] for line in lines] == [*DIALECTS, "claim-parameters"]
    assert CliRunner().invoke(config, ["schema", "none"]).exit_code == 2


# `kube-rdma config check` on networks and pools of addresses: where their default routes are.

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


def test_a_field_that_belongs_inside_of_another_is_not_to_be_removed(check):
    """To remove rootDevices would give the pool all cards (case 30)."""
    text = '{"resourceList": [{"resourceName": "a", "rootDevices": ["0000:03:00.0"]}]}'
    said = str(check(text).exception)
    assert "rootDevices: there is no such field. Write it inside of selectors." in said
    deep = """{"resourceList": [{"resourceName": "a", "selectors": {"pfNames": ["ens2f0"],
        "resourcePrefix": "intel.com"}}]}"""
    assert "Write it one level higher, beside selectors." in str(check(deep).exception)
