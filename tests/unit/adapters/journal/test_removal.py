"""Records go when nobody needs them, and what is not a record stays."""

import pytest

from kube_rdma.adapters.journal.disk import needed, remove


@pytest.fixture
def state(tmp_path):
    """A node's records as an agent leaves them, without attachments."""
    for folder in ("attachments", "delegated", "pools"):
        (tmp_path / "state" / folder).mkdir(parents=True)
        (tmp_path / "state" / folder / ".lock").touch()
    (tmp_path / "state/pools/pools.json").write_text("{}")
    (tmp_path / "state/chained").symlink_to(tmp_path)
    return tmp_path / "state"


def test_all_goes_and_nothing_beside_it(state):
    """A link is removed, not what it leads to."""
    beside = state.parent / "beside"
    beside.touch()
    assert needed(state) == ()
    assert remove(state)
    assert not state.exists()
    assert beside.exists()


def test_it_may_be_repeated(state):
    assert remove(state)
    assert not remove(state)


@pytest.mark.parametrize("folder", ["attachments", "delegated"])
def test_a_record_of_a_network_is_needed(state, folder):
    (state / folder / "c1@net1.json").write_text("{}")
    assert needed(state) == (f"{folder}/c1@net1.json",)
