"""What class and claim say together: later documents win, field by field."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.claims.rules.parameters import (
    clashes,
    contradictions,
    covers,
    gaps,
    merged,
    unbacked,
)
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind
from kube_rdma.model.claims.claim import AskedDevices, ClaimParameters, NetworkReference

NOTHING = ClaimParameters()
BARE = AskedAddress(ip_address("10.0.0.10"))
DOCUMENTS = st.builds(
    ClaimParameters,
    network=st.sampled_from((None, NetworkReference("a"), NetworkReference("a", "b"))),
    kind=st.sampled_from((None, NetworkKind.MACVLAN, NetworkKind.IPVLAN, NetworkKind.IPOIB)),
    mode=st.sampled_from((None, "bridge", "l2", "vepa")),
    interface=st.sampled_from((None, "rdma0", "rdma1")),
    mtu=st.sampled_from((None, 0, 9000)),
    pool=st.sampled_from((None, "rail-0")),
    addresses=st.sampled_from((None, (), (BARE,), (replace(BARE, prefix=24),))),
    default_route=st.sampled_from((None, False, True)),
    mac=st.sampled_from((None, "02:00:0a:00:00:01")),
    guid=st.sampled_from((None, "02:00:0a:00:00:00:00:01")),
)
NAMES = st.sampled_from(("card", "card/big", "card/small", "other"))


@given(st.lists(DOCUMENTS, max_size=4), st.lists(DOCUMENTS, max_size=4))
def test_the_order_counts_and_the_grouping_does_not(first, later):
    assert merged((merged(first), merged(later))) == merged((*first, *later))


@given(DOCUMENTS)
def test_a_document_that_says_nothing_changes_nothing(document):
    assert merged((NOTHING, document)) == merged((document, NOTHING)) == document


@given(DOCUMENTS, DOCUMENTS)
def test_of_each_field_the_later_document_wins(of_class, of_claim):
    together = merged((of_class, of_claim))
    for name in NOTHING.__struct_fields__:
        late, early = getattr(of_claim, name), getattr(of_class, name)
        assert getattr(together, name) == (early if late is None else late)


@given(DOCUMENTS, DOCUMENTS)
def test_of_a_claim_that_passes_nothing_is_set_that_nobody_allowed(of_class, of_claim):
    """What a class says by itself always counts."""
    whole = merged((of_class, of_claim))
    refused = {fault.field for fault in unbacked(of_claim, whole)}
    if whole.network is None:
        assert bool(of_claim.mac) == ("mac" in refused)
        assert bool(of_claim.guid) == ("guid" in refused)
    if whole.network is None and whole.pool is None:
        assert bool(of_claim.addresses) == ("addresses" in refused)
        assert bool(of_claim.default_route) == ("defaultRoute" in refused)
    assert whole.network is None or not refused
    assert not list(unbacked(NOTHING, of_class))


def test_an_empty_list_and_a_false_are_words_too():
    of_class = ClaimParameters(addresses=(BARE,), default_route=True, mtu=9000)
    of_claim = ClaimParameters(addresses=(), default_route=False, mtu=0)
    assert merged((of_class, of_claim)) == of_claim


@given(st.lists(NAMES, max_size=3), NAMES)
def test_a_request_stands_for_its_subrequests(requests, request_name):
    main = request_name.partition("/")[0]
    expected = not requests or request_name in requests or main in requests
    assert covers(requests, request_name) == expected


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"kind": NetworkKind.MACVLAN}, "type", "the network a has its own type"),
        ({"mode": "l2"}, "mode", "the network a has its own mode"),
        ({"pool": "rail-0"}, "pool", "the network a has its own pool"),
    ],
)
def test_a_network_says_itself_what_the_interface_is(fields, field, problem):
    (fault,) = contradictions(ClaimParameters(network=NetworkReference("a"), **fields))
    assert (fault.field, fault.problem) == (field, problem)


@pytest.mark.parametrize(
    ("kind", "mode", "remedy"),
    [
        (NetworkKind.MACVLAN, "l2", "Allowed: bridge, private, vepa"),
        (NetworkKind.IPVLAN, "bridge", "Allowed: l2"),
        (NetworkKind.IPOIB, "bridge", "Remove mode"),
        (NetworkKind.CARD, "bridge", "Remove mode"),
    ],
)
def test_a_mode_is_one_of_its_type(kind, mode, remedy):
    (fault,) = contradictions(ClaimParameters(kind=kind, mode=mode))
    assert (fault.field, fault.remedy) == ("mode", remedy)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (NetworkKind.IPVLAN, "mac"),
        (NetworkKind.IPOIB, "mac"),
        (NetworkKind.MACVLAN, "guid"),
        (NetworkKind.IPVLAN, "guid"),
    ],
)
def test_a_link_with_the_address_of_its_card_has_no_other(kind, field):
    (fault,) = contradictions(ClaimParameters(kind=kind, **{field: "02:00:0a:00:00:01"}))
    assert fault.field == field
    assert not list(contradictions(ClaimParameters(**{field: "02:00:0a:00:00:01"})))


def test_what_another_document_may_add_is_no_contradiction():
    parts = (ClaimParameters(mode="l2"), ClaimParameters(addresses=(BARE,)))
    assert not [fault for part in parts for fault in contradictions(part)]
    assert [fault.field for part in parts for fault in gaps(part)] == ["mode", "addresses"]
    assert not list(gaps(merged((parts[0], ClaimParameters(kind=NetworkKind.IPVLAN)))))
    assert not list(gaps(merged((parts[1], ClaimParameters(pool="rail-0")))))
    assert not list(gaps(merged((parts[1], ClaimParameters(network=NetworkReference("a"))))))


@given(DOCUMENTS)
def test_each_fault_is_about_a_field_that_somebody_wrote(document):
    written = {"type": document.kind, "defaultRoute": document.default_route}
    for fault in (*contradictions(document), *gaps(document)):
        assert written.get(fault.field, getattr(document, fault.field, None)) is not None


@pytest.mark.parametrize("count", [2, None])
def test_several_devices_of_a_request_cannot_have_one_name(count):
    ((request_name, fault),) = clashes(
        [AskedDevices("card", count, ClaimParameters(interface="rdma0"))]
    )
    assert (request_name, fault.field) == ("card", "interface")


def test_two_requests_cannot_have_one_address():
    parameters = ClaimParameters(addresses=(BARE,))
    ((request_name, fault),) = clashes(
        [AskedDevices("a", 1, parameters), AskedDevices("b", 1, parameters)]
    )
    assert request_name == "b"
    assert fault.problem == "the requests a, b would all get addresses 10.0.0.10"


def test_subrequests_share_a_name_without_harm():
    parameters = ClaimParameters(interface="rdma0")
    assert not list(
        clashes([AskedDevices("a/x", 1, parameters), AskedDevices("a/y", 1, parameters)])
    )
