"""The annotation as programs in Go write it: with null, empty texts, and keys of later days."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents.networks import asks, load

FIELDS = (
    *("namespace", "ips", "mac", "infiniband-guid", "interface", "interfaceRequest"),
    *("portMappings", "bandwidth", "deviceID", "cni-args", "default-route"),
    "ipam-claim-reference",
)
TEXTS = ("namespace", "mac", "infiniband-guid", "interface", "interfaceRequest", "deviceID")


@pytest.mark.parametrize("field", FIELDS)
def test_null_says_nothing(field):
    """As if the field were not there, and nobody is warned."""
    found = load(json.dumps([{"name": "a", field: None}]), "default")
    assert (found.asks, found.warnings) == (asks("a", "default"), ())


@pytest.mark.parametrize("field", TEXTS)
def test_an_empty_text_says_nothing(field):
    """Where Go has a text, its zero value is the empty one."""
    assert asks(json.dumps([{"name": "a", field: ""}]), "default") == asks("a", "default")


def test_null_inside_of_an_entry_says_nothing():
    """Neither in a port mapping nor in the rates."""
    ports = [{"hostPort": 80, "containerPort": 8080, "hostIP": None}]
    entry = {
        "name": "a",
        "portMappings": ports,
        "bandwidth": {"ingressRate": 5, "egressRate": None},
    }
    (found,) = asks(json.dumps([entry]), "default")
    assert {key: json.loads(value) for key, value in found.capabilities} == {
        "portMappings": [{"hostPort": 80, "containerPort": 8080}],
        "bandwidth": {"ingressRate": 5},
    }


def test_null_in_cni_args_is_the_plugins_business():
    """What is in there goes to them as it is."""
    (found,) = asks('[{"name": "a", "cni-args": {"x": null}}]', "default")
    assert json.loads(found.arguments) == {"x": None}


def test_a_name_is_needed_all_the_same():
    """Null is none, and the empty text is not one."""
    with pytest.raises(Refused, match="the field is missing"):
        load('[{"name": null}]', "default")
    with pytest.raises(Refused, match="is not the name of an object"):
        load('[{"name": ""}]', "default")


def test_a_key_of_nobody_is_passed_over_with_a_warning():
    """At its place; one that is like ours was probably meant, and is refused as ever."""
    text = '[{"name": "a",\n  "x-team": {"b": 1}, "portMappings": [{"hostPort": 1, "zone": 2,'
    found = load(f'{text} "containerPort": 2}}]}}]', "default")
    assert [one.network for one in found.asks] == ["a"]
    assert [one.partition("networks:")[2] for one in found.warnings] == [
        '2:3: networks[0]."x-team": there is no such field, it is ignored',
        "2:56: networks[0].portMappings[0].zone: there is no such field, it is ignored",
    ]
    with pytest.raises(Refused, match='Did you mean "default-route"'):
        load('[{"name": "a", "default_route": ["10.0.0.1"]}]', "default")


def test_a_claim_is_known_and_somebody_elses():
    """It is no fault; that we do nothing with it is said."""
    found = load('[{"name": "a", "ipam-claim-reference": "vm-a"}]', "default")
    (warning,) = found.warnings
    assert warning.endswith("only plugins that read it themselves heed it")
    assert found.asks == asks("a", "default")
