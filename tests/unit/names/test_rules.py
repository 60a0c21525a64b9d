"""Which addresses a Service names, and in which slices, as decisions over values."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model import names as model
from kube_rdma.model.ipam import Block, BlockKey, Family, IPPool, IPRange, NodeHolding
from kube_rdma.names import rules
from kube_rdma.names.rules import NamesRequest, named_addresses, names_request, sliced, spaces

SERVICE = model.NamingService("default", "trainer", "0123456789", ((model.PODS, "app=trainer"),))
REQUEST = names_request(SERVICE)
ADDRESS = ip_address("198.51.100.5")


def pod(name, *addresses, **more):
    inside = (model.PodInterface("default/rail-0", "card", tuple(map(ip_address, addresses))),)
    usual = {"labels": {"app": "trainer"}, "node": "node-1", "ready": True, "interfaces": inside}
    return model.AddressedPod("default", name, f"uid-{name}", **{**usual, **more})


def world(*pods, **more):
    """The world of these pods, with the indexes that the publisher keeps."""
    holders = {}
    for one in pods:
        for address in (each for inside in one.interfaces for each in inside.addresses):
            holders[address] = holders.get(address, frozenset()) | {one.title}
    return model.NamesWorld({one.title: one for one in pods}, {"default": pods}, holders, **more)


def named(*pods, service=SERVICE, listed=(), **more):
    """What the Service names, by address, with whether it is ready."""
    seen = named_addresses(service, REQUEST, world(*pods, **more), listed)
    return {key[1]: each.conditions.ready for key, each in seen.endpoints.items()}


@pytest.mark.parametrize("text", ["", "app=a,", "a in b", "a=b," * 400 + "a"])
def test_what_is_no_selector_is_refused_in_a_sentence(text):
    with pytest.raises(Refused, match=r"is no label selector of at most 1024 characters\. Write"):
        names_request(replace(SERVICE, annotations=((model.PODS, text),)))


def test_pods_are_chosen_by_all_terms_of_the_selector():
    text = "app in (trainer, web),!old"
    request = names_request(replace(SERVICE, annotations=((model.PODS, text),)))
    assert request.selects(pod("a"))
    assert not request.selects(pod("a", labels={"app": "web", "old": ""}))


def test_a_pod_without_an_interface_has_no_name():
    assert named(pod("a", interfaces=())) == {}


@pytest.mark.parametrize(
    ("name", "hostname", "called"),
    [("a", "", "a"), ("a", "b", "b"), ("a.b", "", None), ("x" * 64, "", None)],
)
def test_a_pod_is_called_by_its_hostname_or_its_name(name, hostname, called):
    one = pod(name, str(ADDRESS), hostname=hostname)
    seen = named_addresses(SERVICE, REQUEST, world(one), ())
    assert [each.hostname for each in seen.endpoints.values()] == [called]


def test_the_limit_keeps_those_that_have_names(monkeypatch):
    monkeypatch.setattr(rules, "MOST_ENDPOINTS", 2)
    pods = [pod(name, f"198.51.100.{n}") for n, name in enumerate("abc")]
    listed = {("uid-c", "198.51.100.2")}
    seen = named_addresses(SERVICE, REQUEST, world(*pods), listed)
    assert {key[0] for key in seen.endpoints} == {"uid-a", "uid-c"}
    assert seen.left_out == 1


def test_equal_addresses_of_two_networks_are_two_addresses():
    """Each of two nodes holds the address in another network; a third pod has it of none."""
    number = int(ip_address("10.0.0.5"))
    pools = tuple(
        IPPool(name, (IPRange(ip_network("10.0.0.0/24")),), name) for name in ("blue", "red")
    )
    keys = [BlockKey(pool.network, Family.V4, number - 5) for pool in pools]
    blocks = {key: Block(key, (NodeHolding(f"node-{n}", 1 << 5),)) for n, key in enumerate(keys, 1)}
    pods = [pod(f"p{n}", "10.0.0.5", node=f"node-{n}", created=str(n)) for n in (1, 2, 3)]
    more = pod("p4", "10.0.0.5", created="4")
    seen = world(*pods, more, pools=pools, blocks=blocks)
    found = [spaces(one, ip_address("10.0.0.5"), seen) for one in (*pods, more)]
    assert found == [{"blue"}, {"red"}, set(), {"blue"}]
    named_pods = named_addresses(SERVICE, REQUEST, seen, ())
    assert {key[0] for key in named_pods.endpoints} == {"uid-p1", "uid-p2"}
    assert set(named_pods.doubts) == {"default/p3", "default/p4"}


def test_a_pod_that_ends_gives_its_address_to_the_one_that_comes():
    old = pod("old", str(ADDRESS), created="1", deleting=True)
    new = pod("new", str(ADDRESS), created="2")
    seen = named_addresses(SERVICE, REQUEST, world(old, new), ())
    assert set(seen.endpoints) == {("uid-new", str(ADDRESS))}


# Slices.

ENDPOINT = model.SliceEndpoint(("198.51.100.5",), model.EndpointConditions(True, True, False))
NUMBERS = st.sets(st.integers(0, 400), max_size=350)


def endpoints(numbers, *, ready=True):
    """Endpoints of numbered pods; every fifth has an address of IPv6."""
    made = {}
    for n in sorted(numbers):
        address = f"fd00::{n:x}" if n % 5 == 0 else f"198.51.{100 + n // 250}.{n % 250}"
        reference = model.PodReference(f"p{n}", "default", f"uid-{n}")
        conditions = model.EndpointConditions(ready, ready, False)
        one = model.SliceEndpoint((address,), conditions, f"p{n}", "node-1", reference)
        made[f"uid-{n}", address] = one
    return made


def where(slices):
    """The slice of each endpoint."""
    return {key: name for name, spec in slices.items() for key in rules.keys_of(spec)}


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_slices_have_what_is_wanted_and_an_endpoint_stays_in_its_slice(steps):
    before = {}
    for numbers in steps:
        wanted = endpoints(numbers)
        after = sliced(SERVICE, wanted, before)
        every = [each for spec in after.values() for each in spec.endpoints]
        assert sorted(map(str, every)) == sorted(map(str, wanted.values()))
        assert all(1 <= len(spec.endpoints) <= rules.SLICE_ENDPOINTS for spec in after.values())
        for spec in after.values():
            versions = {ip_address(each.addresses[0]).version for each in spec.endpoints}
            assert versions == {4 if spec.address_type == "IPv4" else 6}
        stayed = where(before).keys() & where(after).keys()
        assert all(where(before)[key] == where(after)[key] for key in stayed)
        assert sliced(SERVICE, wanted, after) == after
        before = after


@given(NUMBERS, st.integers(401, 450))
def test_a_pod_that_comes_or_changes_costs_one_write(numbers, new):
    before = sliced(SERVICE, endpoints(numbers), {})
    after = sliced(SERVICE, endpoints({*numbers, new}), before)
    assert sum(before.get(name) != spec for name, spec in after.items()) == 1
    changed = {**endpoints({*numbers, new}), **endpoints({new}, ready=False)}
    again = sliced(SERVICE, changed, after)
    assert sum(after.get(name) != spec for name, spec in again.items()) == 1


@given(st.integers(1, 2000))
def test_all_pods_at_once_cost_one_write_for_each_hundred(count):
    fours = {key: one for key, one in endpoints(range(1, count * 2)).items() if ":" not in key[1]}
    assert len(sliced(SERVICE, fours, {})) == -(-len(fours) // rules.SLICE_ENDPOINTS)


def test_a_name_that_another_object_has_is_not_used():
    (first,) = sliced(SERVICE, endpoints({1}), {})
    (second,) = sliced(SERVICE, endpoints({1}), {}, {first})
    assert (first, second) == ("trainer-rdma-01234567-ipv4-0", "trainer-rdma-01234567-ipv4-1")


def test_an_endpoint_that_somebody_added_or_repeated_goes():
    wanted = endpoints({1})
    (name,) = made = dict(sliced(SERVICE, wanted, {}))
    (own,) = made[name].endpoints
    edited = {name: replace(made[name], endpoints=(own, own, ENDPOINT))}
    assert sliced(SERVICE, wanted, edited) == made
    assert sliced(SERVICE, {}, edited) == {}


def test_a_request_for_a_rail_takes_cards_of_each_node_by_its_own_numbers():
    request = NamesRequest((), rail=1)
    inside = model.PodInterface("default/rails", "card", ())
    assert not request.wants(inside, model.NodeCards())
    assert not request.wants(inside, model.NodeCards(rails={"card": 0}))
    assert request.wants(inside, model.NodeCards(rails={"card": 1}))
