"""Claims, templates and classes as people write them: what of their parameters is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.claims import parameters
from kube_rdma.claims.parameters import GROUP, PLACES, WrittenRequest, judged, places
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.claims.devices import DRIVER

HEAD = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
PLACE = ("spec", "devices")


def entry(*requests, driver=DRIVER, **fields):
    made = {"opaque": {"driver": driver, "parameters": HEAD | fields}}
    return {"requests": list(requests), **made} if requests else made


def claim(*configs, requests=({"name": "card", "exactly": {"deviceClassName": "rdma"}},)):
    return {"spec": {"devices": {"requests": list(requests), "config": list(configs)}}}


def faults(value, place=PLACE):
    with pytest.raises(Refused) as caught:
        judged(of_value(value), place)
    return [(one.where, one.problem) for one in (caught.value, *caught.value.more)]


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
    made = judged(
        of_value(
            claim(entry("card/big", mtu=9000), entry("card", interface="rdma0"), requests=requests)
        ),
        PLACE,
    )
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


JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from((DRIVER, "card", "a/b", "All", "")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("requests", "config", "opaque", "driver", "parameters", "name", "count"),
                    *("exactly", "firstAvailable", "allocationMode", "interface", "spec"),
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_whatever_an_object_is_it_is_judged_or_refused(value):
    document = of_value(value, "object")
    for place in (*places(document, "example.com", "Thing"), *PLACES.values()):
        for refused in refusals(document, place):
            assert refused.where.startswith("object: ")
            assert refused.remedy


def refusals(document, place):
    try:
        judged(document, place)
    except Refused as refused:
        return (refused, *refused.more)
    return ()
