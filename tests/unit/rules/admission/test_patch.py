"""Completions as a patch: applied by the RFC's rules, it gives what was to be completed."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.api.admission import pod_manifest
from kube_rdma.api.text.document import of_value
from kube_rdma.rules.admission.completions import completions
from kube_rdma.rules.admission.patch import operations, pointer
from tests.kit.admission import VKE, asking, container, pod

CAPABILITIES = st.sampled_from([None, {}, {"add": None}, {"add": []}, {"add": ["SYS_NICE"]}])
SECURITY = st.none() | st.just({}) | st.fixed_dictionaries({"capabilities": CAPABILITIES})
CONTAINERS = st.lists(
    st.builds(
        lambda number, security, asks: (
            asking(VKE, 1, name=f"c{number}", security=security)
            if asks
            else container(name=f"c{number}", security=security)
        ),
        st.integers(0, 99),
        SECURITY,
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
VOLUMES = st.sampled_from([{}, {"volumes": None}, {"volumes": []}, {"volumes": [{"name": "x"}]}])


def applied(document, listed):
    """What RFC 6902 makes of a document: the parent of each place has to be there."""
    made = copy.deepcopy(document)
    for operation in listed:
        assert operation["op"] == "add"
        *steps, last = (
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        )
        place = made
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if last == "-":
            place.append(operation["value"])
        else:
            place[last] = operation["value"]
    return made


@given(CONTAINERS, VOLUMES)
def test_after_the_patch_nothing_is_left_to_complete(containers, volumes):
    """Whatever of the objects around was there; and the pod that was given stays as it was."""
    words = {"kube-rdma.io/complete": "ipc-lock, shm, pod-networks"}
    manifest = pod(*containers, annotations=words, **volumes)
    before = copy.deepcopy(manifest)
    wanted = completions(pod_manifest.load(of_value(manifest)))
    listed = operations(manifest, wanted)
    assert manifest == before
    assert len(listed) == len(wanted)
    made = applied(manifest, listed)
    assert completions(pod_manifest.load(of_value(made))) == ()


def test_a_pointer_escapes_what_it_has_to():
    assert (
        pointer(("metadata", "annotations", "a/b~c", 0, "-")) == "/metadata/annotations/a~1b~0c/0/-"
    )
