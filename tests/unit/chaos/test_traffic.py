"""Who writes to whom: each pod that has a partner on its rail, and never one on another."""

from hypothesis import given
from hypothesis import strategies as st

from chaos.traffic import End, ends, pairs
from kube_base.frozen import replace
from tests.kit.chaos_world import CLUSTER, ChaosWorld

PODS = st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(1, 2)), max_size=8)


@given(PODS)
def test_every_end_with_a_partner_is_in_a_pair(pods):
    seen = ChaosWorld(*pods, has_verbs=True).seen()
    chosen = pairs(seen)
    for one, other in chosen:
        assert one.node != other.node
        assert one.card == other.card
    everyone = tuple(ends(seen))
    assert len(everyone) == sum(pod.interfaces for pod in seen.pods)
    assert {end.dialled for end in everyone} <= {CLUSTER}
    for end in everyone:
        has_partner = any(o.node != end.node and o.card == end.card for o in everyone)
        assert has_partner == any(end in pair for pair in chosen)


@given(PODS)
def test_nobody_writes_where_there_are_no_verbs(pods):
    assert not pairs(ChaosWorld(*pods).seen())


def test_a_pod_that_is_not_ready_is_no_end():
    seen = ChaosWorld((0, False, 1), (1, False, 1), has_verbs=True).seen()
    assert len(pairs(seen)) == 1
    first, second = seen.pods
    assert not pairs(replace(seen, pods=(first, replace(second, is_ready=False))))


def test_a_gid_is_written_as_the_kernel_does():
    """As /sys/class/infiniband/rxe0/ports/1/gids/1 of a machine with this address reads."""
    end = End("pod", "node-1", "ens2f0", "192.168.50.11", "10.244.1.2")
    assert end.gid == "0000:0000:0000:0000:0000:ffff:c0a8:320b"
