"""Parameters of claims: what each field means, and what is said to a document that is wrong."""

import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.claims.parameters import ClaimParametersObject, of_bytes, of_document
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.claims.claim import MOST_PARAMETERS, ClaimParameters, NetworkReference
from kube_rdma.pools.documents.config import schema_text

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
    with pytest.raises(Refused) as caught:
        read(**fields)
    return [
        f"{one.where}: {one.problem}. {one.remedy}." for one in (caught.value, *caught.value.more)
    ]


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
        addresses=(
            AskedAddress(ip_address("10.0.0.10"), 24),
            AskedAddress(ip_address("fd00::10")),
        ),
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
        ({"defaultRoute": "yes"}, 'claim: defaultRoute: "yes" is neither true nor false. Allow'),
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


@given(st.binary(max_size=40))
def test_whatever_bytes_come_are_understood_or_refused(data):
    with pytest.raises(Refused):
        of_bytes(data, "claim")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS[2:], JSON)))
def test_both_doors_say_the_same(fields):
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
