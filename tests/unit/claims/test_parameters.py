"""Parameters of claims: documents, and what class and claim say together."""

import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.claims import parameters
from kube_rdma.claims.parameters import (
    GROUP,
    PLACES,
    ClaimParametersObject,
    WrittenRequest,
    judged,
    of_bytes,
    of_document,
    parameters_of,
    places,
)
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.claims.claim import (
    MOST_PARAMETERS,
    ClaimParameters,
    ConfigOrigin,
    NetworkReference,
    OpaqueConfig,
)
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.pools.documents.config import schema_text
from tests.kit.refusals import refusal

HEAD = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
DOCS = Path(__file__).parents[3] / "docs"
FIELDS = [one.alias or name for name, one in ClaimParametersObject.model_fields.items()]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def read(**fields):
    return of_document(of_value(HEAD | fields, "claim"))


def refusals(**fields):
    caught = refusal(read, **fields)
    return [f"{one.where}: {one.problem}. {one.remedy}." for one in (caught, *caught.more)]


def test_a_document_without_fields_says_nothing():
    assert read() == ClaimParameters()


def test_every_field_has_its_meaning():
    assert read(
        network="team-a/rdma-net",
        type="macvlan",
        mode="bridge",
        interface="rdma0",
        mtu=9000,
        pool="rail-0",
        addresses=["10.0.0.10/24", "fd00::10"],
        routes=[{"dst": "10.0.0.0/8", "gw": "10.0.0.1"}, {"dst": "fd00::/8"}],
        defaultRoute=True,
        mac="02-00-0A-00-00-01",
        guid="02:00:0A:00:00:00:00:01",
    ) == ClaimParameters(
        network=NetworkReference("rdma-net", "team-a"),
        kind=NetworkKind.MACVLAN,
        mode="bridge",
        interface="rdma0",
        mtu=9000,
        pool="rail-0",
        addresses=(AskedAddress(ip_address("10.0.0.10"), 24), AskedAddress(ip_address("fd00::10"))),
        routes=(
            NetworkRoute(ip_network("10.0.0.0/8"), ip_address("10.0.0.1")),
            NetworkRoute(ip_network("fd00::/8")),
        ),
        default_route=True,
        mac="02:00:0a:00:00:01",
        guid="02:00:0a:00:00:00:00:01",
    )


def test_a_network_without_a_namespace_is_that_of_the_claim():
    assert read(network="rdma-net").network == NetworkReference("rdma-net")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"mtus": 9000},
            'claim: mtus: there is no such field. Did you mean "mtu"? Known: apiVersion, ',
        ),
        ({"mtu": "9000"}, 'claim: mtu: "9000" is not a whole number. Write digits, without'),
        ({"mtu": 65536}, "claim: mtu: 65536 is too large. Write 65535 or less."),
        ({"network": "a/b/c"}, 'claim: network: "a/b/c" is not the name of a network, with its'),
        ({"network": "a/" + "b" * 254}, "claim: network: "),
        ({"type": "sriov"}, 'claim: type: "sriov" is not a value of this field. '),
        ({"mode": "l3"}, 'claim: mode: "l3" is not a value of this field. '),
        ({"mode": "passthru"}, 'claim: mode: "passthru" is not a value of this field. '),
        ({"interface": "eth0"}, "claim: interface: every pod has an interface eth0 already. "),
        ({"interface": "a b"}, 'claim: interface: "a b" is not the name of an interface: '),
        ({"addresses": "10.0.0.1"}, 'claim: addresses: "10.0.0.1" is not a list. Write it in '),
        ({"addresses": ["10.0.0.300"]}, 'claim: addresses[0]: "10.0.0.300" is not an IP address'),
        (
            {"addresses": ["10.0.0.1", "10.0.0.1/24"]},
            "claim: addresses[1]: the address stands here twice. Remove one of the two.",
        ),
        (
            {"addresses": [f"10.0.0.{n}" for n in range(17)]},
            "claim: addresses: it has more than 16 entries. Keep 16 or fewer.",
        ),
        (
            {"routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]},
            "claim: routes[0].gw: fd00::1 is IPv6, the destination 10.0.0.0/8 IPv4. Write a gate",
        ),
        ({"routes": [{"to": "10.0.0.0/8"}]}, 'claim: routes[0].dst: the field is missing. Add "'),
        ({"mac": "01:00:00:00:00:01"}, "claim: mac: "),
        ({"guid": "02:00"}, "claim: guid: "),
        ({"defaultRoute": "yes"}, 'claim: defaultRoute: "yes" is neither true nor false. Write'),
        ({"kind": "ClaimParameter"}, 'claim: kind: "ClaimParameter" is not a value of this'),
        ({"apiVersion": "kube-rdma.io/v1"}, 'claim: apiVersion: "kube-rdma.io/v1" is not a value'),
    ],
)
def test_a_fault_is_one_sentence_with_its_place(fields, sentence):
    assert any(one.startswith(sentence) for one in refusals(**fields)), refusals(**fields)


def test_all_faults_come_at_once():
    assert len(refusals(mtu=-1, mode="l4", pool="Rail 0")) == 3


def test_more_than_kubernetes_takes_is_refused_before_it_is_read():
    document = json.dumps(HEAD | {"interface": "a" * MOST_PARAMETERS}).encode()
    with pytest.raises(Refused, match=r"have \d+ bytes, and Kubernetes takes 10240") as caught:
        of_bytes(document, "claim")
    assert not caught.value.more
    with pytest.raises(Refused, match=r"have \d+ bytes, and Kubernetes takes 10240"):
        of_document(of_value(json.loads(document), "claim"))


@given(JSON)
def test_whatever_json_comes_is_understood_or_refused_in_sentences(value):
    """As a driver reads it, and as files are read."""
    data = json.dumps(value).encode()
    for outcome in (understood(of_bytes, data, "claim"), understood(of_document, of_value(value))):
        assert isinstance(outcome, ClaimParameters) or all(
            one.problem and one.remedy for one in outcome
        )


def understood(read_it, *arguments):
    """What a document means, or all that is wrong with it."""
    try:
        return read_it(*arguments)
    except Refused as refused:
        return (refused, *refused.more)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS[2:], JSON)))
def test_both_readers_say_the_same(fields):
    value = HEAD | fields
    of_driver = understood(of_bytes, json.dumps(value).encode(), "claim")
    of_file = understood(of_document, of_value(value, "claim"))
    if isinstance(of_driver, tuple):
        assert list(map(str, of_driver)) == list(map(str, of_file))
    else:
        assert of_driver == of_file


def test_the_schema_is_written_down():
    """`kube-rdma config schema claim-parameters` writes it."""
    file = DOCS / "schema" / "claim-parameters.json"
    assert schema_text(ClaimParametersObject) + "\n" == file.read_text(encoding="utf-8")


# The configuration of an allocation: the documents of class and claim in their order.

CLASS, CLAIM = ConfigOrigin.CLASS, ConfigOrigin.CLAIM


def config(source, *requests, driver=DRIVER, **fields):
    return OpaqueConfig(source, driver, json.dumps(HEAD | fields).encode(), requests)


def allocated(*configs, request="card"):
    return parameters_of(configs, request, "ResourceClaim team/rdma")


def test_without_configuration_nothing_is_asked_for():
    assert allocated() == ClaimParameters()


def test_the_claim_wins_over_the_class_by_field_in_whatever_order_they_are_listed():
    configs = config(CLAIM, mtu=4000), config(CLASS, mtu=9000, interface="rdma0")
    assert allocated(*configs) == allocated(*reversed(configs))
    assert allocated(*configs) == ClaimParameters(mtu=4000, interface="rdma0")


def test_configuration_of_others_and_for_other_requests_is_passed_over():
    assert allocated(
        OpaqueConfig(CLAIM, "gpu.nvidia.com", b"not JSON"),
        OpaqueConfig(CLAIM, DRIVER, b"not JSON", ("other",)),
        config(CLASS, "card/big", mtu=1),
        config(CLASS, "card", mtu=9000),
        request="card/small",
    ) == ClaimParameters(mtu=9000)


def test_each_fault_names_the_claim_and_the_document():
    caught = refusal(allocated, config(CLASS, mtu=-1), OpaqueConfig(CLAIM, DRIVER, b"{"))
    places = [one.where for one in (caught, *caught.more)]
    assert places == [
        "ResourceClaim team/rdma: parameters of its DeviceClass, config[0]: mtu",
        "ResourceClaim team/rdma: parameters of the claim, config[1]",
    ]


@pytest.mark.parametrize(
    ("of_class", "of_claim", "place"),
    [
        ({"pool": "rail-0"}, {"network": "rdma"}, "pool"),
        ({"type": "macvlan"}, {"mode": "l2"}, "mode"),
        ({}, {"mode": "l2"}, "mode"),
        ({}, {"addresses": ["10.0.0.1"]}, "addresses"),
    ],
)
def test_what_they_say_together_is_judged(of_class, of_claim, place):
    caught = refusal(allocated, config(CLASS, **of_class), config(CLAIM, **of_claim))
    assert caught.where == f"ResourceClaim team/rdma: request card: {place}"


# Objects as people write them: claims, templates, classes and others.

PLACE = ("spec", "devices")


def entry(*requests, driver=DRIVER, **fields):
    made = {"opaque": {"driver": driver, "parameters": HEAD | fields}}
    return {"requests": list(requests), **made} if requests else made


def claim(*configs, requests=({"name": "card", "exactly": {"deviceClassName": "rdma"}},)):
    return {"spec": {"devices": {"requests": list(requests), "config": list(configs)}}}


def faults(value, place=PLACE):
    caught = refusal(judged, of_value(value), place)
    return [(one.where, one.problem) for one in (caught, *caught.more)]


def test_a_good_claim_has_its_configs_in_order():
    made = judged(of_value(claim(entry(mtu=9000), entry("card", interface="rdma0"))), PLACE)
    assert [one.parameters.mtu for one in made.configs] == [9000, None]
    assert [one.requests for one in made.configs] == [(), ("card",)]


def test_other_drivers_write_what_they_like():
    other = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}
    assert not judged(of_value(claim(other, {"opaque": None}, 5)), PLACE).configs


def test_each_fault_stands_at_its_field():
    base = "spec.devices.config[0].opaque.parameters"
    assert faults(claim(entry(mtu="9000"), entry("crd", mtu=1))) == [
        (f"{base}.mtu", '"9000" is not a whole number'),
        ("spec.devices.config[1].requests[0]", '"crd" is no request here'),
    ]
    for name, guess in (("crd", 'Did you mean "card"? '), ("other", "")):
        assert refusal(judged, of_value(claim(entry(name))), PLACE).remedy == f"{guess}Known: card"


def test_parameters_for_a_driver_that_does_not_read_them_are_refused():
    ((where, problem),) = faults(claim(entry(driver="kube-rdma.io")))
    assert where == "spec.devices.config[0].opaque.driver"
    assert problem == f'the driver is "kube-rdma.io", and these parameters are of {DRIVER}'


def test_two_documents_for_one_request_are_judged_together():
    """The fault stands at the document that says the field last."""
    assert faults(claim(entry(network="rdma"), entry("card", pool="rail-0"))) == [
        ("spec.devices.config[1].opaque.parameters.pool", "the network rdma has its own pool")
    ]


def test_a_class_alone_may_leave_the_rest_to_claims():
    value = {"spec": {"config": [entry(mode="l2"), entry(addresses=["10.0.0.1"])]}}
    assert len(judged(of_value(value), ("spec",)).configs) == 2
    value["spec"]["config"].append(entry(type="macvlan", mode="l2"))
    ((where, _),) = faults(value, ("spec",))
    assert where == "spec.config[2].opaque.parameters.mode"


@pytest.mark.parametrize(
    "written",
    [
        {"name": "card", "exactly": {"deviceClassName": "rdma", "count": 2}},
        {"name": "card", "deviceClassName": "rdma", "count": 2},
    ],
    ids=["v1", "v1beta1"],
)
def test_requests_of_each_version_are_counted(written):
    made = parameters.load(of_value(claim(requests=[written])), PLACE)
    assert made.requests == (WrittenRequest("card", 2, "rdma"),)
    ((_, problem),) = faults(claim(entry(interface="rdma0"), requests=[written]))
    assert problem == "request card asks for 2 devices, and interface rdma0 is for one"


def test_subrequests_can_be_named_alone():
    subrequests = [{"name": "big", "deviceClassName": "rdma"}, {"name": "small"}]
    requests = [{"name": "card", "firstAvailable": subrequests}]
    configs = entry("card/big", mtu=9000), entry("card", interface="rdma0")
    made = judged(of_value(claim(*configs, requests=requests)), PLACE)
    assert [one.requests for one in made.configs] == [("card/big",), ("card",)]


@pytest.mark.parametrize("kind", PLACES)
def test_kinds_of_kubernetes_have_their_place(kind):
    assert places(of_value({}), GROUP, kind) == (PLACES[kind],)
    assert places(of_value(claim(entry())), GROUP, "ResourceSlice") == ()


@given(
    st.lists(st.sampled_from(("spec", "template", "items", "draResources")), max_size=4),
    st.booleans(),
)
def test_a_claim_in_an_object_of_any_kind_is_found(names, is_listed):
    value, place = claim(entry(mtu=9000))["spec"]["devices"], []
    for name in reversed(names):
        value = {"other": 1, name: [value] if is_listed else value}
        place = [name, *((0,) if is_listed else ()), *place]
    assert places(of_value(value), "example.com", "Thing") == (tuple(place),)
