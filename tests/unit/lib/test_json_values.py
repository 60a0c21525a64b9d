"""Documents of `-o json`, made of the fields of values."""

from __future__ import annotations

import json
from enum import StrEnum
from ipaddress import ip_address, ip_network

from kube_base.frozen import Frozen, field
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.model.device import PciAddress


class Colour(StrEnum):
    RED = "red"


class Inner(Frozen):
    a_b: int
    near: PciAddress | None = None


class Outer(Frozen):
    first_name: Colour
    inner: tuple[Inner, ...] = ()
    address: object = None
    by_name: dict = field(default_factory=dict)
    own: str = field(default="", name="itsOwn")

    @property
    def is_red(self):
        return self.first_name is Colour.RED


VALUE = Outer(
    Colour.RED,
    (Inner(1, PciAddress("0000:81:00.0")),),
    ip_address("192.0.2.1"),
    {"a_b": ip_network("192.0.2.0/24")},
)


def test_keys_are_camel_case_and_values_what_json_has():
    shown = json_object(VALUE)
    assert shown == {
        "firstName": "red",
        "inner": [{"aB": 1, "near": "0000:81:00.0"}],
        "address": "192.0.2.1",
        "byName": {"a_b": "192.0.2.0/24"},
        "itsOwn": "",
    }
    assert type(shown["firstName"]) is type(shown["inner"][0]["near"]) is str
    assert json.loads(json.dumps(shown)) == shown


def test_fields_are_chosen_left_out_and_added():
    assert json_object(VALUE, "is_red", "first_name") == {"isRed": True, "firstName": "red"}
    assert json_object(Inner(1), without=("near",), more=Colour.RED) == {"aB": 1, "more": "red"}
    assert json_object(Inner(1), near="x") == {"aB": 1, "near": "x"}
    assert json_list(None) == []
    assert json_list([Inner(1)], "a_b") == [{"aB": 1}]
