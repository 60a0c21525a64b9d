"""Networks of other plugins: what these are told, and what is refused before anything is done."""

import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kube_base.errors import Broken, Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.foreign_plugins import attached, plans, refuse_missing
from kube_rdma.attach.rules.requests import in_order
from kube_rdma.attach.rules.undo import undo
from kube_rdma.attach.views import describe
from kube_rdma.model.attach import attachment
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.attach.steps import AddRoute, CallPlugin
from kube_rdma.model.pools import Mode
from tests.kit.pod_networks import RESOURCE, card, network, node, planned, share, wish
from tests.kit.refusals import assert_written_down, refusal

OTHER = attachment.NetworkKind.OTHER
PLUGINS = [{"type": "bridge", "capabilities": {"ips": True, "mac": True}}, {"type": "tuning"}]


def other(document, number=0, *, resource=None, **facts):
    """A wish for a network with this document."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    of = network("other", OTHER, resource=resource, config=text, plugin="bridge")
    return wish(number, of, **facts)


def listed(**facts):
    """A list of two plugins."""
    return {"cniVersion": "1.0.0", "name": "lan", "plugins": PLUGINS, **facts}


def called(one, *shares):
    """The call for a wish, and what each plugin is told."""
    cards = [each for one in shares for each in one.cards]
    (plan,) = plans([one], shares, node(*cards))
    step = plan.steps[0]
    assert isinstance(step, CallPlugin)
    return step, [json.loads(each.config) for each in step.plugins]


def test_a_lone_plugin_is_a_list_of_one():
    """It gets its document, with the network's name where it has none."""
    step, (told,) = called(other({"cniVersion": "0.3.1", "type": "ovs", "bridge": "br1"}))
    assert (step.name, step.version, step.check) == ("net1", "0.3.1", True)
    assert told == {"cniVersion": "0.3.1", "name": "other", "type": "ovs", "bridge": "br1"}


def test_each_plugin_of_a_list_gets_its_name_and_version():
    step, told = called(other(listed(disableCheck=True)))
    assert not step.check
    assert told == [{**one, "name": "lan", "cniVersion": "1.0.0"} for one in PLUGINS]


def test_a_call_and_its_end_are_told_to_people():
    (plan,) = plans([other(listed())], [], node())
    assert [describe(one) for one in (*plan.steps, *undo(plan))] == [
        "have the CNI plugins bridge, tuning make net1",
        "have the CNI plugins bridge, tuning take net1 back",
    ]


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({}, "0.1.0"),
        ({"cniVersion": "1.0.0", "cniVersions": ["0.4.0", "1.1.0", "2.0.0"]}, "1.1.0"),
        ({"cniVersion": "9.0.0"}, "0.1.0"),
        ({"cniVersion": "9" * 5000}, "0.1.0"),
    ],
)
def test_the_newest_version_that_we_speak_is_used(said, version):
    step, (told,) = called(other({"type": "ovs", **said}))
    assert step.version == told["cniVersion"] == version


def test_what_is_asked_for_goes_to_who_declares_it():
    """As runtimeConfig, in the terms of the conventions of CNI."""
    asked = (
        attachment.AskedAddress(ip_address("10.0.0.7"), 24),
        attachment.AskedAddress(ip_address("fd00::7")),
    )
    _, told = called(other(listed(), addresses=asked, mac="02:00:00:00:00:01"))
    assert told[0]["runtimeConfig"] == {
        "ips": ["10.0.0.7/24", "fd00::7"],
        "mac": "02:00:00:00:00:01",
    }
    assert "runtimeConfig" not in told[1]


def test_ports_bandwidth_and_guid_are_passed_on():
    able = {"portMappings": True, "bandwidth": True, "infinibandGUID": True}
    asked = (("portMappings", b'[{"hostPort": 80}]'), ("bandwidth", b'{"ingressRate": 1}'))
    guid = "02:00:0a:00:00:00:00:01"
    one = other({"type": "x", "capabilities": able}, capabilities=asked, guid=guid)
    _, (told,) = called(one)
    assert told["runtimeConfig"] == {
        "portMappings": [{"hostPort": 80}],
        "bandwidth": {"ingressRate": 1},
        "infinibandGUID": guid,
    }


def test_cni_args_are_added_to_those_of_the_document():
    document = {"type": "x", "args": {"a": 1, "cni": {"b": 2, "c": 3}}}
    _, (told,) = called(other(document, arguments=b'{"c": 4}'))
    assert told["args"] == {"a": 1, "cni": {"b": 2, "c": 4}}


def test_the_card_of_the_share_is_told_to_every_plugin():
    """As Multus 4 does: deviceID, pciBusID, and the capability where it is declared."""
    of = share(card(1), mode=Mode.SRIOV)
    (plan,) = plans([other(listed(), resource=RESOURCE)], [of], node(card(1)))
    first, second = (json.loads(one.config) for one in plan.steps[0].plugins)
    assert first["deviceID"] == first["pciBusID"] == card(1).pci
    assert second["deviceID"] == second["pciBusID"] == card(1).pci
    assert (plan.card, plan.held) == (card(1).id, of.held)
    able = {"type": "x", "capabilities": {"deviceID": True}}
    _, (told,) = called(other(able, resource=RESOURCE), of)
    assert told["runtimeConfig"] == {"deviceID": card(1).pci}


def test_a_shared_card_is_not_the_plugins():
    _, (told, _) = called(other(listed(), resource=RESOURCE), share(card(1)))
    assert "deviceID" not in told


def test_a_resource_of_others_is_theirs():
    """We do not know what the pod holds of it."""
    step, _ = called(other(listed(), resource="intel.com/vf"), share(card(1), mode=Mode.SRIOV))
    assert "deviceID" not in json.loads(step.plugins[0].config)


def test_a_card_that_the_pod_names_goes_to_who_takes_it():
    """As Multus 4 does: to plugins with the capability alone, never as the network's own."""
    able = {"type": "x", "capabilities": {"deviceID": True}}
    _, told = called(other(listed(plugins=[able, {"type": "tuning"}]), device_id="0000:99:00.1"))
    assert told[0]["runtimeConfig"] == {"deviceID": "0000:99:00.1"}
    assert [field for one in told for field in one if field in ("deviceID", "pciBusID")] == []
    assert "runtimeConfig" not in told[1]


ABLE = {"type": "bridge", "capabilities": {"deviceID": True}}
ASKED = card(1).pci


def test_networks_of_both_kinds_take_shares_in_their_order():
    """The second network gets the second share, whoever makes the first."""
    cards = (card(1), card(2))
    shares = [share(each, mode=Mode.SRIOV) for each in cards]
    wishes = [other(listed(), 0, resource=RESOURCE), wish(1)]
    ours = planned(wishes, shares, node(*cards))
    theirs = plans(wishes, shares, node(*cards))
    assert [plan.card for plan in in_order(wishes, (*ours, *theirs))] == [one.id for one in cards]


def test_routes_of_the_entry_follow_the_call():
    """Default routes last; the plugin has brought the interface up."""
    via, to = ip_address("10.0.0.1"), ip_network("10.8.0.0/16")
    one = other({"type": "x"}, default_routes=(via,), routes=(attachment.NetworkRoute(to, via),))
    ((_, *routes),) = (plan.steps for plan in plans([one], [], node()))
    assert routes == [AddRoute("net1", to, via), AddRoute("net1", ip_network("0.0.0.0/0"), via)]


def test_a_plugin_gets_no_default_route_to_put_into_the_main_table():
    """Neither by its routes nor as the gateway of a bridge; what is no route is the plugin's."""
    routes = [{"dst": to} for to in ("0.0.0.0/0", "::/0", "128.0.0.0/1", "10.8.0.0/16")]
    ipam = {"type": "host-local", "routes": [*routes, "x", {"gw": "10.0.0.1"}]}
    _, (told,) = called(other({"type": "bridge", "isDefaultGateway": True, "ipam": ipam}))
    assert told["ipam"] == {"type": "host-local", "routes": [routes[-1], "x", {"gw": "10.0.0.1"}]}
    assert (told["isGateway"], told["isDefaultGateway"]) == (True, False)


SEEN = attachment.SeenLink(
    "net1",
    7,
    1450,
    "06:00:00:00:00:01",
    True,
    addresses=((ip_address("fe80::1"), 64), (ip_address("10.5.0.2"), 24)),
)


def test_an_interface_is_told_as_the_pod_shows_it():
    """Without the address that the kernel makes itself; DNS is what the plugins answered."""
    wishes = [other({"type": "x"}, default_routes=(ip_address("10.5.0.1"),))]
    results = [attachment.PluginResult("net1", b"{}", Dns(("10.5.0.3",)))]
    (one,) = attached(wishes, plans(wishes, [], node()), attachment.PodView((SEEN,)), results)
    assert (one.network, one.interface, one.mtu) == ("default/other", "net1", 1450)
    assert [str(each.address) for each in one.addresses] == ["10.5.0.2"]
    assert (one.default_routes, one.dns) == ((ip_address("10.5.0.1"),), Dns(("10.5.0.3",)))


def test_an_interface_that_is_not_there_contradicts_the_answer():
    wishes = [other({"type": "x"})]
    with pytest.raises(Broken, match=r"plugins of default/other reported .* no interface net1 in"):
        attached(wishes, plans(wishes, [], node()), attachment.PodView(), [])


CLUSTER = {"name": "cluster", "plugins": [{"type": "x"}, {"type": "kube-rdma", "chain": True}]}


def blocked(one):
    """The same, asked for by a block."""
    return replace(one, ask=replace(one.ask, source="pod-networks[0]", by_pod_networks=True))


INSTALLED = ("bridge", "host-local", "tuning")
REFUSED = {
    "a slip of a plugin's name": other({"type": "brigde"}),
    "a slip of a name of ours": other({"type": "macvaln"}),
    "a plugin for addresses": other({"type": "bridge", "ipam": {"type": "dhcp"}}),
    "a path": other({"type": "../../bin/sh"}),
    "what kube-rdma does not make": other({"type": "kube-rdma", "linkInContainer": True}),
    "the cluster's own network": other(CLUSTER),
    "the cluster's own network in a block": blocked(other(CLUSTER)),
    "YAML": other(b"type: bridge"),
    "a capability that no plugin declares": other({"type": "bridge"}, mac="02:00:00:00:00:01"),
    "a default route without its gateway": other({"type": "bridge"}, default=True),
    "a card that no plugin takes": other({"type": "bridge"}, device_id=ASKED),
    "a card of a network of others' resource": other(
        ABLE, resource="intel.com/vf", device_id=ASKED
    ),
    "a card over the network's own": other({**ABLE, "master": "ens9"}, device_id=ASKED),
    "a path for a card": other(ABLE, device_id="../../virtual/net/veth1234"),
    "a card of a pool": other(ABLE, device_id=card(2).pci),
    "a card of several pods": other(ABLE, device_id=card(4).pci),
    "the card with the node's default route": other(ABLE, device_id=card(3).pci),
}
GOLDEN = Path(__file__).with_name("plugin_refusals.txt")


def planned_for(one):
    """What ADD asks of these rules, in its order."""
    refuse_missing([one], "/opt/cni/bin", INSTALLED)
    on = node(card(1), card(2), card(4))
    routed = node(card(3), default_route=True).links
    owned = ((card(2), "rdma/whole"),)
    shared = ((card(4), "rdma/hca"),)
    return plans([one], [], replace(on, links=(*on.links, *routed), owned=owned, shared=shared))


def test_every_sentence_is_written_down():
    assert_written_down(GOLDEN, lambda name: refusal(planned_for, REFUSED[name]), REFUSED)


def test_all_that_is_missing_is_told_at_once():
    """Of all entries; what is installed and what is ours is not looked for."""
    wishes = [other({"type": "a"}), wish(1), other({"type": "bridge"}, 2), other({"type": "b"}, 3)]
    with pytest.raises(Refused) as caught:
        refuse_missing(wishes, "/opt/cni/bin", INSTALLED)
    first, second = str(caught.value).splitlines()
    assert first.startswith("networks[0]")
    assert second.startswith("networks[3]")
