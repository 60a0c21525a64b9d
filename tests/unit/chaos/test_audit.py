"""The audit finds nothing where all is well, and everything that is planted, by its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.audit import audit
from chaos.seen import (
    KubeletClaim,
    SeenBinding,
    SeenBooking,
    SeenCdiFile,
    SeenLink,
    SeenNamespace,
    SeenRule,
    SeenTransfer,
)
from kube_base.frozen import replace
from tests.kit.chaos_world import TAINT, ChaosWorld, in_namespace, on, shares_of

PODS = st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(1, 2)), max_size=8)
WORLD = ChaosWorld((0, False, 2), (0, True, 1), (1, False, 1))  # pod-0 to pod-2
NODE, SPACE = "node-1", "cni-uid-0"


def kinds(seen):
    """What an audit calls wrong, with repetitions left out."""
    return {(each.wrong, each.thing) for each in audit(seen, WORLD.before())}


@given(PODS, st.booleans())
def test_nothing_is_wrong_where_all_is_well(pods, has_verbs):
    world = ChaosWorld(*pods, has_verbs=has_verbs)
    assert audit(world.seen(), world.before()) == ()


def more(field, value):
    """A node with one value more in a field."""
    return lambda seen: on(seen, NODE, **{field: lambda node: (*getattr(node, field), value)})


def more_in_the_node(field, value):
    """The node's own namespace with one value more."""
    return lambda seen: in_namespace(
        seen, NODE, "", **{field: lambda space: (*getattr(space, field), value)}
    )


def more_in_a_pod(field, value):
    return lambda seen: in_namespace(
        seen, NODE, SPACE, **{field: lambda space: (*getattr(space, field), value)}
    )


def fewer(field):
    """A node without the first value of a field."""
    return lambda seen: on(seen, NODE, **{field: lambda node: getattr(node, field)[1:]})


def fewer_in_a_pod(field):
    """A pod's namespace without the last value of a field."""
    return lambda seen: in_namespace(
        seen, NODE, SPACE, **{field: lambda space: getattr(space, field)[:-1]}
    )


def tainted(seen, *taints):
    """With these taints alone of the first node."""
    return replace(seen, offers=(replace(seen.offers[0], taints=taints), *seen.offers[1:]))


LEAKS = {
    "share": more("bindings", SeenBinding("n", "c", "uid-gone", ("0000:04:00.0-9",))),
    "address": more("bookings", SeenBooking("c", "uid-gone", ("10.77.0.90",))),
    "netdev": more_in_the_node("links", SeenLink("net1", "macvlan")),
    "CDI file": more("cdi", SeenCdiFile("kube-rdma-gone-nonce.json")),
    "rule": more_in_the_node("rules", SeenRule("10.77.0.90", "101")),
    "namespace": more("namespaces", SeenNamespace("cni-gone")),
    "claim": more("claims", "claim-of-nobody"),
    "settings": more("settings", "claims/container-of-nobody"),
    "RDMA device": more("rdma", "mlx5_9"),
    "taint": lambda seen: tainted(seen, TAINT, "kube-rdma.io/repair=chaos:PreferNoSchedule"),
}


@pytest.mark.parametrize("thing", LEAKS)
def test_a_planted_leak_is_called_by_its_name(thing):
    assert ("leaked", thing) in kinds(LEAKS[thing](WORLD.seen()))


LOSSES = {
    "share": fewer("bindings"),
    "address": lambda seen: in_namespace(
        seen,
        NODE,
        SPACE,
        links=lambda space: tuple(replace(link, addresses=()) for link in space.links),
    ),
    "netdev": fewer_in_a_pod("links"),
    "rule": fewer_in_a_pod("rules"),
    "CDI file": fewer("cdi"),
    "record": fewer("attachments"),
    "claim": fewer("claims"),
    "settings": fewer("settings"),
    "RDMA device": fewer("rdma"),
    "offer": lambda seen: replace(seen, offers=seen.offers[1:]),
    "taint": tainted,
}


@pytest.mark.parametrize("thing", LOSSES)
def test_a_planted_loss_is_called_by_its_name(thing):
    assert ("lost", thing) in kinds(LOSSES[thing](WORLD.seen()))


def again(field):
    """The first value of a field of the other node here too."""
    return lambda seen: on(
        seen, NODE, **{field: lambda node: (*getattr(node, field), getattr(node, field)[0])}
    )


@pytest.mark.parametrize(
    ("thing", "plant"),
    [
        (
            "share",
            more("bindings", SeenBinding("n", "c", "uid-2", shares_of(WORLD.seen().pods[0]))),
        ),
        ("address", again("bookings")),
        ("record", again("attachments")),
        ("netdev", more_in_a_pod("links", SeenLink("net3", "macvlan"))),
        ("rule", more_in_a_pod("rules", SeenRule("10.77.0.1", "101"))),
        ("namespace", more("namespaces", SeenNamespace("cni-second", ("uid-0",)))),
    ],
)
def test_what_two_have_is_doubled(thing, plant):
    assert ("doubled", thing) in kinds(plant(WORLD.seen()))


def test_one_address_on_two_nodes_is_doubled():
    """Each node has a record of it, so that nothing on either alone is wrong."""
    seen = WORLD.seen()
    theirs = next(space for space in seen.nodes[1].namespaces if space.name)
    mine = next(space for space in seen.nodes[0].namespaces if space.name == SPACE)
    links = (*mine.links[:-1], replace(mine.links[-1], addresses=theirs.links[-1].addresses))
    wrong = audit(in_namespace(seen, NODE, SPACE, links=lambda _: links), WORLD.before())
    assert any(each.wrong == "doubled" and "two places" in each.text for each in wrong)


def test_a_pod_that_does_not_work_says_why_or_is_silent():
    pods = WORLD.seen().pods
    waiting = replace(pods[0], is_ready=False, phase="Pending")
    assert ("silent", "pod") in kinds(replace(WORLD.seen(), pods=(waiting, *pods[1:])))
    tells = replace(waiting, notes=("FailedCreatePodSandBox: there is no network",))
    assert not kinds(replace(WORLD.seen(), pods=(tells, *pods[1:])))


def test_who_was_told_that_its_card_is_away_may_lack_its_interface():
    pods = WORLD.seen().pods
    seen = fewer_in_a_pod("links")(fewer_in_a_pod("rules")(WORLD.seen()))
    tells = replace(pods[0], notes=("RDMACardUnhealthy: mlx5_0 is gone",))
    assert not kinds(replace(seen, pods=(tells, *pods[1:])))


def test_a_pod_that_was_told_of_its_lost_interface_keeps_the_rule():
    """A card that comes back alone: machines, seed 5."""
    pods = WORLD.seen().pods
    seen = fewer_in_a_pod("links")(WORLD.seen())
    assert ("leaked", "rule") in kinds(seen)
    tells = replace(pods[0], notes=("NetworksLost: net2 is gone",))
    assert not kinds(replace(seen, pods=(tells, *pods[1:])))


def test_a_pod_that_was_told_of_its_lost_interface_keeps_a_file_of_device_nodes_that_are_gone():
    seen = on(WORLD.seen(), NODE, device_nodes=lambda _: ())
    assert ("lost", "CDI file") in kinds(seen)
    tells = tuple(replace(pod, notes=("NetworksLost: net1 is gone",)) for pod in seen.pods)
    assert not kinds(replace(seen, pods=tells))


def test_a_pod_has_the_claim_that_the_kubelet_had_prepared_for_it():
    """A restore of etcd took the claim of a running pod, which was made another: seed 81."""
    seen = WORLD.seen()
    mine = next(claim for claim in seen.claims if claim.owner == "uid-1")
    another = replace(mine, uid="another")
    restored = replace(seen, claims=tuple({mine: another}.get(one, one) for one in seen.claims))
    assert kinds(restored) == {("leaked", "claim"), ("lost", "claim")}
    had = (KubeletClaim(mine.uid, ("uid-1",)),)
    assert not kinds(on(restored, NODE, kubelet_claims=lambda _: had))
    gone = (KubeletClaim(mine.uid, ("uid-of-before",)),)
    assert kinds(on(restored, NODE, kubelet_claims=lambda _: gone))


def test_shares_that_came_with_allocate_need_no_record():
    """So it is where the runtime was not known at that moment."""
    seen = on(
        WORLD.seen(),
        NODE,
        bindings=lambda _: (),
        cdi=lambda node: node.cdi[1:],
        settings=lambda node: node.settings[1:],
        kubelet=lambda node: tuple(replace(held, is_late=False) for held in node.kubelet),
    )
    assert not kinds(seen)


@given(PODS.filter(bool), st.data())
def test_a_pod_that_goes_without_a_word_leaves_all_of_it_leaked(pods, data):
    """Its object is gone, and no node has heard of it."""
    world = ChaosWorld(*pods)
    seen = world.seen()
    gone = data.draw(st.sampled_from(seen.pods))
    left = tuple(pod for pod in seen.pods if pod is not gone)
    wrong = audit(replace(seen, pods=left), world.before())
    assert {each.wrong for each in wrong} == {"leaked"}
    wanted = {"address", "record", "namespace", "claim" if gone.by_claim else "share"}
    assert wanted <= {each.thing for each in wrong}
    assert shares_of(gone)


MACHINES = ChaosWorld((0, False, 2), (0, True, 1), (1, False, 1), has_verbs=True)
MOVED = SeenTransfer("pod-0", "pod-2", "ib0")


@pytest.mark.parametrize(
    ("wrong", "left"),
    [
        ("lost", (("rxe-uid-0-1", "net1"),)),
        ("doubled", (("rxe-uid-0-1", "net1"), ("rxe-uid-0-2", "net2"), ("rxe-uid-0-3", "net2"))),
    ],
)
def test_each_interface_of_a_pod_has_one_rdma_device_where_there_are_verbs(wrong, left):
    seen = in_namespace(MACHINES.seen(), NODE, SPACE, rdma=lambda _: left)
    assert (wrong, "RDMA device") in kinds(seen)


def test_a_pod_s_rdma_device_that_came_to_the_node_is_leaked():
    """It stays when the pod's namespace is gone, for all namespaces see all devices."""
    gone = in_namespace(MACHINES.seen(), NODE, SPACE, rdma=lambda _: ())
    assert ("leaked", "RDMA device") in kinds(gone)


def test_two_ready_pods_that_move_no_bytes_are_silent_unless_one_says_why():
    seen = MACHINES.seen()
    assert not kinds(replace(seen, transfers=(MOVED,)))
    failed = replace(seen, transfers=(MOVED, replace(MOVED, why="Couldn't connect")))
    assert kinds(failed) == {("silent", "transfer")}
    first, *others = seen.pods
    tells = replace(first, notes=("RDMACardUnhealthy: ens2f0 is down",))
    assert not kinds(replace(failed, pods=(tells, *others)))
