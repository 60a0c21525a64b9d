"""Addresses of other IPAM plugins: the plan up to their call, and what becomes of an answer."""

import json
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.addresses import of_answer, with_calls
from kube_rdma.attach.rules.foreign_plugins import refuse_missing
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import begun, plans
from kube_rdma.attach.rules.undo import check
from kube_rdma.attach.views import describe
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute, PodView
from kube_rdma.model.attach.cni import CniResult, LinkAddress, LinkRoute
from kube_rdma.model.attach.steps import AddAddress, CallPlugin
from kube_rdma.model.pools import Mode
from tests.kit.pod_networks import SANDBOX, card, network, node, pods, share, wish

CONFIG = {"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "site-ipam"}}


def of_site(one, **config):
    """The wish with the addresses of site-ipam."""
    text = json.dumps({**CONFIG, **config}).encode()
    return replace(one, network=replace(one.network, ipam_plugin="site-ipam", config=text))


def nic_of(mode=Mode.SHARED_MULTI, kind=NetworkKind.MACVLAN, ask=None, **config):
    """The nic of one network with such addresses, on a card of this mode."""
    wished = of_site(wish(0, network("net", kind), **(ask or {})), **config)
    (nic,) = with_calls(pod_nics((wished,), (share(card(0), mode=mode),), node(card(0))))
    return nic


def answer(*texts, routes=()):
    return CniResult(
        addresses=tuple(LinkAddress(ip_interface(one)) for one in texts), routes=routes
    )


@given_by(pods(), st.lists(st.booleans(), min_size=4, max_size=4), st.booleans())
def test_the_whole_plan_begins_with_the_steps_that_were_run(pod, called, alone):
    """Whatever the plugin answers: they are not run again, so they have to be the same."""
    wishes, shares, _, on, leases = pod
    wished = [of_site(one) if own else one for one, own in zip(wishes, called, strict=False)]
    placed = with_calls(pod_nics(wished, shares, on))
    first = begun(SANDBOX, placed, on, alone=alone)
    whole = {one.interface: one for one in plans(SANDBOX, placed, leases, on, alone=alone)}
    assert [one.interface for one in first] == [
        nic.entry.ask.interface for nic in placed if nic.ipam
    ]
    for plan in first:
        steps = whole[plan.interface].steps
        assert steps[: len(plan.steps)] == plan.steps
        assert isinstance(plan.steps[-1], CallPlugin)
        assert not any(isinstance(one, AddAddress) for one in plan.steps)
        assert not any(isinstance(one, CallPlugin) for one in steps[len(plan.steps) :])
        assert replace(whole[plan.interface], steps=(), addresses=()) == replace(plan, steps=())


@pytest.mark.parametrize(
    ("mode", "kind", "device"),
    [
        (Mode.EXCLUSIVE, NetworkKind.DEVICE, card(0).pci),
        (Mode.SHARED_MULTI, NetworkKind.MACVLAN, None),
    ],
)
def test_the_card_s_address_is_told_where_the_card_is_the_pod_s_alone(mode, kind, device):
    """A plugin might configure a card that others use too."""
    (conf,) = nic_of(mode, kind).ipam.plugins
    assert (conf.type, json.loads(conf.config).get("deviceID")) == ("site-ipam", device)


@pytest.mark.parametrize(
    ("written", "told"), [("", "0.3.1"), ("0.2.0", "0.3.1"), ("0.4.0", "0.4.0"), ("1.1.0", "1.1.0")]
)
def test_the_plugin_is_spoken_to_in_a_version_whose_results_can_be_read(written, told):
    call = nic_of(cniVersion=written).ipam
    assert (call.version, json.loads(call.plugins[0].config)["cniVersion"]) == (told, told)


def test_of_a_list_the_plugin_gets_the_part_that_names_it():
    text = json.dumps(
        {"cniVersion": "1.0.0", "name": "lan", "plugins": [CONFIG, {"type": "tuning"}]}
    )
    wished = of_site(wish(0, network("net", NetworkKind.MACVLAN)))
    wished = replace(wished, network=replace(wished.network, config=text.encode()))
    (nic,) = with_calls(pod_nics((wished,), (share(card(0)),), node(card(0))))
    (conf,) = nic.ipam.plugins
    assert json.loads(conf.config) == {**CONFIG, "name": "lan"}


def test_addresses_and_routes_of_an_answer_are_as_a_pool_s():
    """Routes of other tables are not: an interface of kube-rdma's has a table of its own."""
    to, via = ip_network("10.9.0.0/16"), ip_address("10.6.0.1")
    routes = (LinkRoute(to, via), LinkRoute(to, table=254), LinkRoute(to, table=7))
    got = of_answer(nic_of(), answer("10.6.0.7/24", "fd00::7/64", routes=routes))
    assert [(str(one.address), one.prefix) for one in got.addresses] == [
        ("10.6.0.7", 24),
        ("fd00::7", 64),
    ]
    assert got.routes == (NetworkRoute(to, via), NetworkRoute(to, None))


def test_an_address_that_was_asked_for_and_not_given_is_refused():
    """The pod would be known by an address that it has not."""
    asked = {"addresses": (AskedAddress(ip_address("10.6.0.9")),)}
    assert of_answer(nic_of(ask=asked), answer("10.6.0.9/24"))
    with pytest.raises(Refused, match=r"10\.6\.0\.9 is asked for, and site-ipam gave 10\.6\.0\.2"):
        of_answer(nic_of(ask=asked), answer("10.6.0.2/24"))


def test_a_plugin_that_is_not_installed_is_refused_with_the_one_that_was_meant():
    wished = (of_site(wish(0, network("net", NetworkKind.MACVLAN))),)
    refuse_missing(wished, "/opt/cni/bin", ("site-ipam",))
    with pytest.raises(Refused, match=r"ipam\.type: .*no CNI plugin site-ipam .*mean sites-ipam\?"):
        refuse_missing(wished, "/opt/cni/bin", ("bridge", "sites-ipam"))


def test_the_step_is_told_as_what_it_is():
    """In a plan that is shown, and where its interface is gone."""
    nic = nic_of()
    (plan,) = begun(SANDBOX, (nic,), node(card(0)))
    assert describe(nic.ipam) == "have the CNI plugin site-ipam give addresses to net1"
    lines = check(plan, PodView(links=()))
    assert any(
        "the interface that site-ipam gave addresses to is not there" in one for one in lines
    )
