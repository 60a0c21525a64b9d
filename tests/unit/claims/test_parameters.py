"""What a driver is told of a device: the documents of class and claim in their order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.claims.parameters import parameters_of
from kube_rdma.model.claims.claim import ClaimParameters, ConfigOrigin, OpaqueConfig
from kube_rdma.model.claims.devices import DRIVER

HEAD = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
CLASS, CLAIM = ConfigOrigin.CLASS, ConfigOrigin.CLAIM


def config(source, *requests, driver=DRIVER, **fields):
    return OpaqueConfig(source, driver, json.dumps(HEAD | fields).encode(), requests)


def read(*configs, request="card"):
    return parameters_of(configs, request, "ResourceClaim team/rdma")


def test_without_configuration_nothing_is_asked_for():
    assert read() == ClaimParameters()


def test_the_claim_wins_over_the_class_by_field_in_whatever_order_they_are_listed():
    configs = config(CLAIM, mtu=4000), config(CLASS, mtu=9000, interface="rdma0")
    assert read(*configs) == read(*reversed(configs))
    assert read(*configs) == ClaimParameters(mtu=4000, interface="rdma0")


def test_configuration_of_others_and_for_other_requests_is_passed_over():
    assert read(
        OpaqueConfig(CLAIM, "gpu.nvidia.com", b"not JSON"),
        OpaqueConfig(CLAIM, DRIVER, b"not JSON", ("other",)),
        config(CLASS, "card/big", mtu=1),
        config(CLASS, "card", mtu=9000),
        request="card/small",
    ) == ClaimParameters(mtu=9000)


def test_each_fault_names_the_claim_and_the_document():
    with pytest.raises(Refused) as caught:
        read(config(CLASS, mtu=-1), OpaqueConfig(CLAIM, DRIVER, b"{"))
    places = [one.where for one in (caught.value, *caught.value.more)]
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
    with pytest.raises(Refused) as caught:
        read(config(CLASS, **of_class), config(CLAIM, **of_claim))
    assert caught.value.where == f"ResourceClaim team/rdma: request card: {place}"


@given(
    st.lists(
        st.builds(
            OpaqueConfig,
            st.sampled_from(ConfigOrigin),
            st.sampled_from((DRIVER, "gpu.nvidia.com")),
            st.binary(max_size=12) | st.sampled_from((json.dumps(HEAD).encode(), b"null")),
            st.sampled_from(((), ("card",), ("card/big",), ("",))),
        ),
        max_size=4,
    ),
    st.sampled_from(("card", "card/big", "", "/")),
)
def test_whatever_was_allocated_is_understood_or_refused(configs, request_name):
    outcome = understood(configs, request_name)
    assert outcome == ClaimParameters() or outcome.startswith("claim: parameters of ")


def understood(configs, request_name):
    """What they mean, or where the fault is."""
    try:
        return parameters_of(configs, request_name, "claim")
    except Refused as refused:
        return refused.where
