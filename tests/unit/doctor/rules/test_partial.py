"""Whatever part is missing, the doctor ends, and says nothing that the whole does not say."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.adapters.files import bundle
from kube_rdma.doctor.rules.check import part_of
from kube_rdma.doctor.rules.diagnose import CHECKS, diagnose
from kube_rdma.doctor.views import doctor_document, doctor_page
from kube_rdma.lib.page import page_text
from kube_rdma.model.device import PciAddress
from kube_rdma.model.doctor import Observation, ObservedPod
from kube_rdma.model.survey import NamespaceMode
from tests.unit.doctor.rules.healthy import POD, WITH_POD, with_container
from tests.unit.doctor.rules.test_faults import FAULTS

PARTS = [one for one in Observation.__struct_fields__ if getattr(WITH_POD, one) is not None]
OTHERS = ("node", "taken", "document", "from_files", "not_seen", "pod")
PARTS = [name for name in PARTS if name not in OTHERS]
OF_POD = ("attached", "attachments", "findings", "containers", "links", "routes", "survey")
OF_KUBELET = ("allocatable", "holdings")
OF_CONTAINER = ("user", "memlock", "locks", "asked_lock", "nodes", "granted", "variables")

st.register_type_strategy(
    PciAddress, st.sampled_from(("0000:81:00.0", "0000:82:00.1")).map(PciAddress)
)


def without(value, names):
    """The same with these fields unseen."""
    return None if value is None else replace(value, **dict.fromkeys(names))


def blind(seen, parts, of_pod, of_kubelet, of_container):
    """What a doctor sees who lacks the right to these parts."""
    seen = replace(seen, kubelet=without(seen.kubelet, of_kubelet))
    if seen.pod and seen.pod.containers:
        containers = tuple(without(one, of_container) for one in seen.pod.containers)
        seen = replace(seen, pod=replace(seen.pod, containers=containers))
    seen = replace(seen, pod=without(seen.pod, of_pod))
    return without(seen, parts)


def some(names):
    return st.sets(st.sampled_from(names))


@given(some(PARTS), some(OF_POD), some(OF_KUBELET), some(OF_CONTAINER))
def test_nothing_is_found_by_not_seeing(parts, of_pod, of_kubelet, of_container):
    seen = blind(WITH_POD, parts, of_pod, of_kubelet, of_container)
    diagnosis = diagnose(seen)
    assert diagnosis.findings == ()
    assert len(diagnosis.passed) + len(diagnosis.unseen) == len(CHECKS)


@given(st.sampled_from(sorted(FAULTS)), some(PARTS), some(OF_POD), some(OF_CONTAINER))
def test_who_sees_less_finds_no_more(name, parts, of_pod, of_container):
    _, seen = FAULTS[name]
    whole = {(one.code, one.subject) for one in diagnose(seen).findings}
    less = diagnose(blind(seen, parts, of_pod, (), of_container))
    assert {(one.code, one.subject) for one in less.findings} <= whole


FIELDS = get_type_hints(Observation)


@st.composite
def edited(draw):
    """An observation of which some parts say anything; all at once are too large to be made."""
    names = draw(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3))
    return replace(WITH_POD, **{name: draw(st.from_type(FIELDS[name])) for name in sorted(names)})


@given(edited())
def test_no_observation_is_too_strange(seen):
    """As one that somebody has edited; text, document and bundle of it are made too."""
    diagnosis = diagnose(seen)
    assert page_text(doctor_page(seen, diagnosis), 100)
    assert doctor_document(seen, diagnosis)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bundle_says_what_the_node_says(name):
    _, seen = FAULTS[name]
    again = bundle.decode(bundle.encode(seen), "x.json")
    assert again == seen
    assert diagnose(again) == diagnose(seen)


@pytest.mark.parametrize("index", ["9" * 5000, "²", "-1", "x"])
def test_an_index_that_is_none_ends_no_diagnosis(index):
    """A pod's author writes its variables."""
    seen = with_container(variables=(("NCCL_IB_GID_INDEX", index),))
    assert "KR420" not in {one.code for one in diagnose(seen).findings}


def test_a_namespace_mode_that_nobody_knows_is_not_seen():
    survey = replace(WITH_POD.survey, namespace_mode=NamespaceMode.UNKNOWN)
    unseen = diagnose(replace(WITH_POD, survey=survey)).unseen
    assert [one.code for one in unseen] == ["KR110", "KR417"]
    assert {one.parts for one in unseen} == {("survey.namespace_mode",)}


def test_every_need_of_a_check_is_a_part():
    for check in CHECKS:
        assert all(part_of(WITH_POD, part) is not None for part in check.needs), check.code


def test_a_check_of_pods_is_not_made_without_a_pod():
    codes = {one.code for one in diagnose(replace(WITH_POD, pod=None)).unseen}
    assert not any(code.startswith("KR4") for code in codes)
    seen = replace(WITH_POD, pod=ObservedPod(POD.namespace, POD.name))
    assert {one.code for one in diagnose(seen).unseen} >= {"KR403", "KR415", "KR430"}
