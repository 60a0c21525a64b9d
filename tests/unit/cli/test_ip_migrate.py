"""`kube-rdma ip migrate`: what whereabouts gave stays with its pods, whatever it left behind."""

import json
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.ipam.rules.subpools import key_of, mask, subpools
from kube_rdma.model.ipam import IPPool, IPRange
from kube_rdma.model.kubernetes import PodState
from kube_rdma_whereabouts import objects as whereabouts
from kube_rdma_whereabouts.plan import AllocatedAddress, LegacyAddresses, OwnObjects, plan
from tests.unit.cli.ip_world import LEGACY, World, meta


@pytest.fixture
def old():
    """A cluster where whereabouts gives addresses to three pods, one of which is no more."""
    world = World(LEGACY)
    ipam = {"type": "whereabouts", "range": "10.0.0.0/24", "range_start": "10.0.0.10"}
    blue = {**ipam, "network_name": "blue", "range": "fd00::/64", "range_start": "fd00::10"}
    world.attachment("red", {"type": "macvlan", "ipam": ipam})
    world.attachment("blue", {"plugins": [{"type": "ipvlan", "ipam": blue}, {"type": "tuning"}]})
    world.attachment("other", {"type": "macvlan", "ipam": {"type": "dhcp"}})
    world.legacy_pool(
        "10.0.0.0-24",
        "10.0.0.0/24",
        **{
            "12": {"id": "c1", "podref": "default/a", "ifname": "net1"},
            "13": {"id": "c2", "podref": "default/gone", "ifname": "net1"},
        },
    )
    entry = {"id": "c1", "podref": "default/b", "ifname": "net2"}
    world.legacy_pool("blue-fd00---64", "fd00::/64", **{"17": entry})
    reservation = {"podref": "default/b", "ifname": "net3", "containerid": "c"}
    world.server.put(
        whereabouts.RESERVATION,
        {"metadata": meta("blue-fd00--20", "kube-system"), "spec": reservation},
    )
    world.pod("a", "node-1")
    world.pod("b", "node-2")
    world.pod("gone", "node-2", "Succeeded")
    return world


def ours(world):
    """The excludes of our pools by network; whereabouts has pools of the same plural."""
    return {
        each["spec"]["network"]: each["spec"].get("excludes", [])
        for each in world.documents("ippools").values()
        if "network" in each["spec"]
    }


def test_migrate_keeps_what_pods_have(old):
    """Allocations and reservations of living pods are excluded; the rest is free."""
    result = old.run("migrate")
    assert result.exit_code == 0, result.output
    assert ours(old) == {"default": ["10.0.0.12"], "blue": ["fd00::11", "fd00::20"]}
    assert "10.0.0.13 of network default was of pod default/gone" in result.output
    kept = json.loads(old.run("migrate", "-o", "json").output)["kept"]
    assert [(each["address"], each["pod"], each["node"]) for each in kept] == [
        ("fd00::11", "default/b", "node-2"),
        ("fd00::20", "default/b", "node-2"),
        ("10.0.0.12", "default/a", "node-1"),
    ]


def test_migrate_writes_neighbours_as_one_exclude_and_knows_them_again(old):
    """A pool has room for some thousand; an earlier release wrote each address alone."""
    given = {
        str(n): {"id": f"c{n}", "podref": "default/a", "ifname": f"net{n}"} for n in range(20, 29)
    }
    old.legacy_pool("10.0.0.0-24", "10.0.0.0/24", **given)
    old.run("migrate")
    assert ours(old)["default"] == ["10.0.0.20-10.0.0.28"]
    (document,) = (
        each
        for each in old.documents("ippools").values()
        if each["spec"].get("network") == "default"
    )
    alone = [f"10.0.0.{n}" for n in range(20, 29)]
    old.server.put(IP_POOL, {**document, "spec": {**document["spec"], "excludes": alone}})
    old.pod("a", "node-1", "Succeeded")
    old.run("migrate")
    assert ours(old)["default"] == []


def test_migrate_dry_writes_nothing(old):
    before = old.documents("ippools")
    result = old.run("migrate", "--dry-run")
    assert "Nothing is written yet" in result.output
    assert result.output.count("+ IPPool whereabouts-") == 2
    assert old.documents("ippools") == before


def test_migrate_twice_changes_nothing(old):
    old.run("migrate")
    before = old.documents("ippools")
    assert "No pool changes." in old.run("migrate").output
    assert old.documents("ippools") == before


def test_migrate_again_frees_what_has_ended(old):
    """And leaves what people changed meanwhile: other excludes, the size of blocks."""
    old.run("migrate")
    name = next(
        n for n, d in old.documents("ippools").items() if d["spec"].get("network") == "default"
    )
    document = old.documents("ippools")[name]
    spec = {**document["spec"], "blockSize": 8, "excludes": ["10.0.0.99", "10.0.0.12"]}
    old.server.put(IP_POOL, {**document, "spec": spec})
    old.server.remove(POD, "a", "default")
    assert f"~ IPPool {name}" in old.run("migrate").output
    spec = old.documents("ippools")[name]["spec"]
    assert (spec["excludes"], spec["blockSize"]) == (["10.0.0.99"], 8)


@pytest.mark.parametrize(
    ("name", "range_", "offset", "says"),
    [
        (
            "10.5.0.0-24",
            "10.5.0.0/24",
            "3",
            "10.5.0.3 of network default of pod default/a is in no",
        ),
        ("10.0.0.0-24-node-1", "10.0.0.0/24", "40", "the name does not end in that of its"),
        ("10.0.0.0-25", "10.0.0.0/25", "200", "allocation '200' lies outside of 10.0.0.0/25"),
        ("10.0.0.0-25", "10.0.0.0/25", "-1", "allocation '-1' lies outside"),
        ("10.0.0.0-25", "10.0.0.0/25", "9" * 5000, "lies outside of 10.0.0.0/25"),
        ("10.0.0.0", "10.0.0.x", "1", "is not a subnet"),
    ],
)
def test_migrate_tells_what_it_cannot_map(old, name, range_, offset, says):
    """Exit code 1, and the rest is done."""
    entry = {"id": "c", "podref": "default/a", "ifname": "net9"}
    old.legacy_pool(name, range_, **{offset: entry})
    result = old.run("migrate", "-o", "json")
    assert result.exit_code == 1
    (sentence,) = json.loads(result.output)["unmapped"]
    assert says in sentence
    assert ours(old)["default"] == ["10.0.0.12"]


@pytest.fixture
def sliced():
    """A cluster whose nodes have slices of two ranges, and a named network of one of the ranges."""
    world = World(LEGACY)
    ipam = {"type": "whereabouts", "range": "10.0.0.0/22", "enable_overlapping_ranges": False}
    slices = {**ipam, "node_slice_size": "/24"}
    world.attachment("plain", {"name": "n", "type": "macvlan", "ipam": slices})
    blue = {**slices, "network_name": "blue", "range": "10.8.0.0/22"}
    world.attachment("blue", {"name": "n", "type": "macvlan", "ipam": blue})
    world.attachment("red", {"type": "macvlan", "ipam": {**ipam, "network_name": "red"}})
    entry = {"id": "c", "podref": "default/a", "ifname": "net1"}
    world.legacy_pool("node-1-10.0.1.0-24", "10.0.1.0/24", **{"5": entry})
    world.legacy_pool("blue-node-1-10.8.1.0-24", "10.8.1.0/24", **{"6": entry})
    world.legacy_pool("red-10.0.0.0-22", "10.0.0.0/22", **{"7": entry})
    world.pod("a", "node-1")
    return world


def test_migrate_keeps_addresses_of_a_nodes_slice(sliced):
    """A pool named by its node belongs to the network whose range it is a part of."""
    result = sliced.run("migrate")
    assert result.exit_code == 0, result.output
    assert ours(sliced) == {"default": ["10.0.1.5"], "blue": ["10.8.1.6"], "red": ["10.0.0.7"]}


def test_migrate_keeps_an_address_in_every_network_that_it_may_be_of(sliced):
    """A network may be called as a node is: then whereabouts itself has one pool for both."""
    ipam = {"type": "whereabouts", "range": "10.0.1.0/24", "network_name": "node-1"}
    sliced.attachment("same", {"type": "macvlan", "ipam": ipam})
    sliced.run("migrate")
    assert ours(sliced)["node-1"] == ours(sliced)["default"] == ["10.0.1.5"]


def test_migrate_counts_from_the_address_that_is_written(old):
    """Older pools have a range whose bits behind its length are set; distances begin there."""
    entry = {"id": "c", "podref": "default/a", "ifname": "net9"}
    old.legacy_pool("10.0.0.16-24", "10.0.0.16/24", **{"4": entry})
    old.run("migrate")
    assert ours(old)["default"] == ["10.0.0.12", "10.0.0.20"]


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ("{", "NetworkAttachmentDefinition default/bad: spec.config is not JSON"),
        ({"ipam": {"type": "whereabouts", "range": "x"}}, "default/bad: ipam.range"),
    ],
)
def test_migrate_names_a_bad_attachment(old, conf, says):
    old.attachment("bad", conf)
    result = old.run("migrate", "--dry-run", "-o", "json")
    assert any(says in each for each in json.loads(result.output)["unmapped"])


def test_migrate_tells_an_address_that_a_node_holds(old):
    """Two pods may have it."""
    old.block("10.0.0.0", ("node-2", "10.0.0.12"))
    (sentence,) = json.loads(old.run("migrate", "--dry-run", "-o", "json").output)["unmapped"]
    assert sentence.startswith("10.0.0.12 of pod default/a is held by a node")


def test_migrate_where_whereabouts_is_not():
    result = World().run("migrate")
    assert isinstance(result.exception, Refused)
    assert "Migrate where whereabouts is installed" in str(result.exception)


POOL = IPPool("p", (IPRange(ip_network("10.0.0.0/25")),))
ADDRESSES = st.integers(1, 140).map(lambda n: ip_network("10.0.0.0/24")[n])
GIVEN = st.dictionaries(ADDRESSES, st.sampled_from(["a/x", "a/y", "a/z"]), max_size=9)
LIVING = st.sets(st.sampled_from(["x", "y", "z"]))


@given(GIVEN, LIVING, LIVING)
def test_no_address_of_a_living_pod_is_ever_given(given_, first, then):
    """After any two runs: exactly the living ones' are excluded, and a third changes nothing."""
    allocated = tuple(
        AllocatedAddress("default", at, pod, "net1", "a pool") for at, pod in given_.items()
    )
    legacy = LegacyAddresses((POOL,), allocated)
    present = OwnObjects()
    for names in (first, then):
        pods = [PodState("a", name, "uid", node="n", phase="Running") for name in names]
        for change in plan(legacy, pods, present).changes:
            present = OwnObjects({"p": change.pool}, {"p": frozenset(change.imported)})
    (subpool,) = subpools(present.pools["p"])
    for at, pod in given_.items():
        key, bit = key_of("default", at)
        inside = at in ip_network("10.0.0.0/25") and int(at) % 128 != 127
        assert bool(mask(subpool, key) & bit) == (inside and pod.removeprefix("a/") not in then)
    assert plan(legacy, pods, present).changes == ()
