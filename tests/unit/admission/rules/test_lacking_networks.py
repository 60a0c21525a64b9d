"""Shares and networks of a pod: as many of both where each card is to have an interface."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.admission.rules.findings import findings
from kube_rdma.admission.rules.networks import two_kinds
from kube_rdma.attach.rules.requests import ANNOTATION, DEFAULT_NETWORK
from kube_rdma.model.admission import USUAL, AdmissionFacts, OfferedPool
from kube_rdma.model.attach import kinds
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.finding import Severity
from kube_rdma.model.pools import Bind, Mode, PoolSpec, Selector, Serving
from tests.kit.admission import asking, container, networks, template
from tests.kit.nodes import hard_card

NIC, ANY = "rdma/nic", Selector(vendors=("15b3",))
SPEC = PoolSpec(NIC, Mode.SHARED, "policy")


def on(layer):
    """A pool of one card on this wire."""
    card = hard_card(0x81)
    (device,) = card.devices
    ports = (replace(device.ports[0], link_layer=layer),)
    return OfferedPool(SPEC, cards=(replace(card, devices=(replace(device, ports=ports),)),))


ROCE = on(LinkLayer.ETHERNET)
TIED = kinds.CardNetwork("team/fabric", "here", resource=NIC)
MACVLAN = kinds.MacvlanNetwork("team/fabric", "here", resource=NIC)
IPOIB = kinds.IpoibNetwork("team/fabric", "here", resource=NIC)


def lacking(pod, facts, settings=USUAL):
    return [one for one in findings(pod, facts, settings) if one.code == "shares-without-network"]


@given(st.integers(1, 9), st.integers(0, 9), st.booleans(), st.sampled_from(Mode))
def test_a_pod_has_a_network_for_each_share_of_a_card_that_pods_share(shares, named, on_host, mode):
    """Fewer are told with both numbers; on the node's network a pod has the card's own GIDs."""
    pod = template(
        asking(NIC, shares), annotations=networks(*["fabric"] * named), hostNetwork=on_host
    )
    found = lacking(pod, AdmissionFacts((replace(ROCE, spec=replace(SPEC, mode=mode)),), (TIED,)))
    shared = mode in (Mode.SHARED, Mode.SHARED_MULTI)
    assert bool(found) is (shared and named < shares and not on_host)
    for finding in found:
        assert f"{shares} of {NIC}" in finding.problem
        assert f"for {named or 'no'} network" in finding.problem
        assert finding.path == ("metadata", "annotations", ANNOTATION)
        assert finding.remedy.count("fabric") == min(8, shares - named)


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        (AdmissionFacts((ROCE,)), Severity.WARNING),
        (AdmissionFacts((replace(ROCE, spec=replace(SPEC, selectors=(ANY,))),)), Severity.WARNING),
        (AdmissionFacts((OfferedPool(SPEC),)), Severity.ADVICE),  # who knows on which wire
        (AdmissionFacts(networks=(TIED,)), Severity.ADVICE),
        (AdmissionFacts(networks=(MACVLAN,)), Severity.WARNING),
        (AdmissionFacts(networks=(IPOIB,)), None),
        (AdmissionFacts((OfferedPool(SPEC),), (IPOIB,)), None),
        (AdmissionFacts((on(LinkLayer.INFINIBAND),)), None),
        (AdmissionFacts((ROCE, replace(ROCE, spec=replace(SPEC, mode=Mode.HCA)))), None),
        (AdmissionFacts(), None),
        *(
            (AdmissionFacts((OfferedPool(replace(SPEC, selectors=selectors)),)), severity)
            for selectors, severity in (
                ((Selector(link_types=("ether",)),), Severity.WARNING),
                ((Selector(link_types=("infiniband",)),), None),
                ((Selector(drivers=("efa",)),), None),
                ((Selector(drivers=("mlx5_core",)),), Severity.ADVICE),
                ((Selector(link_types=("infiniband",)), Selector()), Severity.ADVICE),
            )
        ),
        *(
            (AdmissionFacts((replace(ROCE, spec=replace(SPEC, **fields)),)), None)
            for fields in ({"bind": Bind.POOL}, {"host_network": True}, {"serve": Serving.CLAIMS})
        ),
    ],
)
def test_a_network_is_missed_only_where_the_resource_is_seen_to_need_it(facts, severity):
    found = lacking(template(asking(NIC, 1)), facts)
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(("Ethernet (RoCE)" in one.problem) is (severity is Severity.ADVICE) for one in found)


def test_an_administrator_may_name_the_resources_whose_shares_need_networks():
    """They then count as shares, whatever prefix they have; the remedy asks for no known name."""
    settings = replace(USUAL, network_resources=("example.com/nic",))
    pod = template(asking("example.com/nic", 2), annotations=networks("other"))
    (finding,) = lacking(pod, AdmissionFacts(), settings)
    assert finding.severity is Severity.WARNING
    assert finding.remedy.startswith("Add a network for each share")
    assert not lacking(pod, AdmissionFacts())
    moved = OfferedPool(replace(SPEC, resource="example.com/nic", mode=Mode.EXCLUSIVE))
    assert lacking(pod, AdmissionFacts((moved,)), settings)  # as the policies of the API server


def test_networks_of_other_resources_are_no_networks_of_a_share():
    """One that nobody knows here may be; so may one that Multus makes eth0 of, or a claim."""
    facts = AdmissionFacts((ROCE,), (TIED, replace(TIED, name="team/slow", resource="rdma/slow")))
    asks = asking(NIC, 1)
    assert lacking(template(asks, annotations=networks("slow")), facts)
    assert not lacking(template(asks, annotations=networks("unknown")), facts)
    assert not lacking(template(asks, annotations={DEFAULT_NETWORK: "fabric"}), facts)
    assert not lacking(replace(template(asks), whole=False), facts)  # others may add networks
    assert not lacking(template(asks, annotations={ANNOTATION: "["}), facts)
    claims = [{"name": "nic", "resourceClaimName": "nic"}]
    assert not lacking(template(asks, resourceClaims=claims), facts)


def test_rails_are_told_in_one_sentence_with_a_network_of_each():
    rails = [f"rdma/rail-{number}" for number in range(3)]
    pools = tuple(replace(ROCE, spec=replace(SPEC, resource=rail)) for rail in rails)
    tied = tuple(replace(TIED, name=f"team/{rail[5:]}", resource=rail) for rail in rails)
    pod = template(
        container() | {"resources": {"limits": dict.fromkeys(rails, 1)}},
        annotations=networks("rail-1"),
    )
    (finding,) = lacking(pod, AdmissionFacts(pools, tied))
    assert "1 of rdma/rail-0, 1 of rdma/rail-2 and for 1 network:" in finding.problem
    assert finding.remedy == f"Add {ANNOTATION}: rail-0, rail-2"


def test_a_network_of_the_pod_s_own_namespace_is_named_before_others():
    tied = tuple(replace(TIED, name=f"{space}/fabric") for space in ("a", "team", "z"))
    for known, name in ((tied, "fabric"), (tied[2:], "z/fabric")):
        (finding,) = lacking(template(asking(NIC, 1)), AdmissionFacts((ROCE,), known))
        assert finding.remedy == f"Write {ANNOTATION}: {name}"


def test_macvlan_and_ipvlan_exclude_each_other_on_one_interface():
    """Public case 27; the kernel says EBUSY to the second kind."""
    macvlan = replace(MACVLAN, device="ens1")
    ipvlan = kinds.IpvlanNetwork("team/other", "here", device="ens1")
    (finding,) = two_kinds([ipvlan, macvlan])
    assert "team/fabric is of type macvlan and team/other of type ipvlan" in finding.problem
    assert "ens1" in finding.problem
    for others in (
        [macvlan, replace(macvlan, name="team/third")],
        [macvlan, replace(ipvlan, device="ens2")],
        [MACVLAN, replace(ipvlan, device=None)],
    ):
        assert not list(two_kinds(others))
