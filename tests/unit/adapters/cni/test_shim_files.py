"""What agent and shim leave for each other; tests/unit/shim shows that the shim understands it."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.shim_files import AskingPods, Mark, MissedDeletes
from kube_rdma.model.attach.cni import CniAttachment
from kube_rdma.model.late_binding import PodName

PODS = st.frozensets(
    st.builds(PodName, st.sampled_from(["a", "b-1"]), st.sampled_from(["x", "y.z-0", "a"]))
)


@given(st.lists(PODS))
def test_just_these_pods_are_kept(tmp_path_factory, rounds):
    """Whatever was kept before, the folder holds what was said last."""
    asking = AskingPods(tmp_path_factory.mktemp("asking") / "deep")
    for pods in rounds:
        asking.keep(pods)
        assert asking.present() == pods


def test_a_pod_that_stays_is_known_since_it_came(tmp_path):
    """Whatever else is kept, and by another life of the agent too."""
    one, other = PodName("ml", "a-0"), PodName("ml", "a-1")
    AskingPods(tmp_path).keep(frozenset({one}))
    os.utime(tmp_path / "ml/a-0", ns=(5, 5))
    AskingPods(tmp_path).keep(frozenset({one, other}))
    asking = AskingPods(tmp_path)
    assert asking.since(one) == 5
    assert asking.since(other) > 5
    asking.keep(frozenset({other}))
    assert asking.since(one) is None


def test_a_mark_says_since_when_it_is_set(tmp_path):
    """Set again it stays what it was; cleared and set, it is of now."""
    mark = Mark(tmp_path / "deep/chained")
    assert mark.since() is None
    mark.clear()
    mark.set()
    os.utime(mark.path, ns=(5, 5))
    Mark(mark.path).set()
    assert mark.since() == 5
    mark.clear()
    mark.set()
    assert mark.since() > 5


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "A", "a_b"])
def test_what_is_no_name_is_no_path(tmp_path, name):
    """Nothing is written for it, in the folder or out of it."""
    asking = AskingPods(tmp_path / "asking")
    asking.keep(frozenset({PodName("ml", name), PodName(name, "a")}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_deletes_are_read_and_forgotten(tmp_path):
    """A note names sandbox and interface; forgetting twice is no error."""
    missed = MissedDeletes(tmp_path / "missed")
    for name in ("c2@eth0.1", "c1@net1", "c1@a@b"):
        (missed.path / name).touch()
    found = missed.present()
    assert found == (
        CniAttachment("c1", "a@b"),
        CniAttachment("c1", "net1"),
        CniAttachment("c2", "eth0.1"),
    )
    for _ in range(2):
        missed.forget(found[0])
    assert missed.present() == found[1:]


def test_a_folder_that_cannot_be_used_is_said(tmp_path):
    """A file in the place of a folder: the sentence names it."""
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"file/asking cannot be used"):
        AskingPods(tmp_path / "file/asking").keep(frozenset({PodName("a", "b")}))
    with pytest.raises(Unavailable, match=r"file/missed cannot be used"):
        MissedDeletes(tmp_path / "file/missed")
    for act in (Mark.set, Mark.clear, Mark.since):
        with pytest.raises(Unavailable, match=r"file/chained cannot be used"):
            act(Mark(tmp_path / "file/chained"))
