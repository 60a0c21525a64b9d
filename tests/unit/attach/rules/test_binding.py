"""Late binding: promises, bindings, the gate; CDI; device nodes given before a move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules import late_binding
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.model.attach.attachment import NetworkKind
from kube_rdma.model.device import CharKind
from kube_rdma.model.errors import Outdated
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Binding, CdiFile, PodName, Promise, Runtime, at_start
from kube_rdma.model.pools import Attach, Grant, Mode, PoolSpec
from kube_rdma.model.survey import NamespaceMode
from tests.kit.nodes import device
from tests.kit.pod_networks import SANDBOX, card, network, node, share, wish
from tests.kit.pod_networks import given as leased

HCA = "rdma/hca"
POD, OTHER = PodName("default", "a"), PodName("default", "b")


def promised(nonce="n1", shares=("s1",), **change):
    return Promise(nonce, HCA, shares, ("card",), f"kube-rdma.io/hca=s1-{nonce}", 0.0, **change)


def bound(nonce="n1", container="c1", pod=POD, uid="u1", shares=("s1",), netns="/ns"):
    return Binding(nonce, container, pod, uid, netns, HCA, shares, ("card",), "x", 0.0)


def started(nonce="n1", pod=POD, uid="u1", **change):
    """A binding of a pod without a network."""
    return bound(nonce, at_start(nonce), pod, uid, netns="", **change)


def known(promises=(), bindings=(), files=(), held=None, gone=()):
    held = {"s1": POD} if held is None else held
    holders = {(HCA, share): pod for share, pod in held.items()}
    return late_binding.BindingSnapshot(
        tuple(promises), tuple(bindings), tuple(files), holders, gone
    )


def ask(what, attach=Attach.REQUIRED, networked=True, now=10.0, ids=("s1",)):
    said = None if networked is None else late_binding.PodAnswer("u1", networked=networked)
    return late_binding.gate(what, HCA, ids, attach, said, now)


SETTLED_FILE = CdiFile("n1", "c1", 0.0)


@pytest.mark.parametrize(
    ("held", "shares", "enough"),
    [
        (("s1", "s2"), ("s1",), True),
        (("s1",), ("s2",), True),
        ((), ("s1",), True),
        (("s1",), ("s1", "s2"), False),
    ],
)
def test_what_one_pod_holds_tells_whose_a_promise_is(held, shares, enough):
    """Unless the promise is of a share besides, which another pod may hold."""
    holding = Holding("default", "a", "main", HCA, held)
    assert late_binding.suffices([holding], [promised(shares=shares)]) is enough


def test_a_binding_of_another_pod_with_a_share_of_this_one_needs_all_holdings():
    """n0 was for a pod of before; another pod has it bound, and only its own holdings tell so."""
    holding = Holding("default", "a", "main", HCA, ("s1", "s3"))
    mine = promised(shares=("s1", "s3"))
    assert late_binding.suffices([holding], [mine])
    assert not late_binding.suffices([holding], [mine], [bound("n0", "c2", shares=("s1", "s2"))])


@pytest.mark.parametrize(("later", "bound_too"), [(2.0, False), (-1.0, True)])
def test_a_share_that_went_on_to_another_pod_was_for_nobody_here(later, bound_too):
    """n1 is of a pod that ended without a sandbox; the other pod's init container has s3 now.

    Pod resources leave that out. A clock that stepped back between the two tells nothing.
    """
    old, mine = promised(shares=("s1", "s3")), replace(promised("n2"), when=1.0)
    others = replace(promised("n3", ("s2", "s3")), when=later)
    what = known([old, mine, others], held={"s1": POD, "s2": OTHER})
    wanted = (old, mine) if bound_too else (mine,)
    assert late_binding.bind(what, POD, "u1", "c1") == late_binding.BindDecision(wanted, ())


def test_starts_when_attached():
    """Promise, binding and a file that the runtime has seen: go."""
    assert ask(known([promised()], [bound()], [SETTLED_FILE])) == late_binding.Start()


def test_waits_until_the_runtime_has_seen_the_file():
    """A young file is not trusted yet; asked again after that time, it is."""
    file = CdiFile("n1", "c1", 9.98)
    answer = ask(known([promised()], [bound()], [file]))
    assert isinstance(answer, late_binding.Wait)
    assert answer.seconds == pytest.approx(late_binding.SETTLED - 0.02)
    again = ask(known([promised()], [bound()], [file]), now=10.0 + answer.seconds + 1e-6)
    assert again == late_binding.Start()


@pytest.mark.parametrize(
    "what",
    [
        known([promised()]),
        known([promised()], [bound()]),
        known([promised()], [], [SETTLED_FILE]),
        known([promised()], [bound()], [replace(SETTLED_FILE, container="c2")]),
        known([promised()], [bound()], [SETTLED_FILE], gone=["c1"]),
        known([promised()], [bound(pod=OTHER)], [SETTLED_FILE]),
        known([promised(), promised("n2", replaces=("n1",))], [bound()], [SETTLED_FILE]),
        known([promised(), promised("n2")], [bound()], [SETTLED_FILE]),
    ],
    ids=[
        "no binding",
        "no file",
        "a file without binding",
        "another sandbox's file",
        "a dead sandbox's file",
        "another pod's file",
        "the file of the pod before",
        "one of two promises",
    ],
)
def test_does_not_start_without_its_own_file(what):
    """The sentence names pod, card and share, and what to do."""
    with pytest.raises(Refused) as caught:
        ask(what)
    assert caught.value.problem == "no network of pod default/a is attached to card for share s1"
    assert "k8s.v1.cni.cncf.io/networks" in caught.value.remedy
    assert "CNI plugin of kube-rdma" in caught.value.remedy


def test_a_pool_that_binds_at_allocate_has_no_gate():
    assert ask(known(), Attach.NONE) == late_binding.Start()


def test_auto_writes_for_a_pod_without_a_network():
    """What is missing is bound at the start; with a network it is refused as ever."""
    what = known([promised(), promised("n2")], [started("n2")])
    what = replace(what, files=(CdiFile("n2", at_start("n2"), 0.0),))
    assert ask(what, Attach.AUTO, networked=False) == late_binding.Write(POD, "u1", (promised(),))
    with pytest.raises(Refused):
        ask(what, Attach.AUTO, networked=True)


def test_auto_asks_only_what_decides():
    """A container that starts again has its binding, whatever its pod asks for."""
    assert ask(known([promised()]), Attach.AUTO, networked=None) == late_binding.AskPod()
    file = CdiFile("n1", "c1", 0.0)
    assert (
        ask(known([promised()], [bound()], [file]), Attach.AUTO, networked=None)
        == late_binding.Start()
    )
    with pytest.raises(Refused):
        ask(known([promised()]), Attach.REQUIRED, networked=None)


def test_auto_does_not_write_while_another_pod_is_attached():
    """The sandbox of the pod before has to be gone first."""
    what = known([promised("n2", replaces=("n1",))], [bound(pod=OTHER)])
    with pytest.raises(Refused, match="still attached to pod default/b, sandbox c1"):
        ask(what, Attach.AUTO, networked=False)
    assert isinstance(
        ask(replace(what, gone=["c1"]), Attach.AUTO, networked=False), late_binding.Write
    )


def test_a_lost_promise_asks_for_a_new_pod():
    """The kubelet knows a CDI name that we do not; only a new Allocate helps."""
    with pytest.raises(Refused, match=r"nothing was promised for share s1.*Create the pod again"):
        ask(known())


def test_shares_that_no_pod_holds():
    """Pod resources leave out what init containers alone hold, so the remedy says it."""
    with pytest.raises(Refused, match=r"no pod holds share s1 .* not in its init containers alone"):
        ask(known([promised()], held={}))
    with pytest.raises(
        Refused, match="several pods hold share s1 and 1 more: default/a, default/b"
    ):
        ask(known(held={"s1": POD, "s2": OTHER}), ids=("s1", "s2"))


def test_add_binds_every_promise_of_the_pod():
    """Also of an init container that holds more than is listed; none of others."""
    init, app = promised("n1", ("s1", "s2")), promised("n2")
    others = promised("n3", ("s3",)), promised("n4", ("s1", "s3"))
    what = known([init, app, *others], held={"s1": POD, "s3": OTHER})
    assert late_binding.bind(what, POD, "u1", "c1") == late_binding.BindDecision((init, app), ())


def test_add_again_changes_nothing():
    what = known([promised()], [bound()])
    assert late_binding.bind(what, POD, "u1", "c1") == late_binding.BindDecision((promised(),), ())


def test_a_new_sandbox_ends_the_old_one_of_its_pod():
    """Two files of one CDI name would be none for the runtime."""
    what = known([promised()], [bound()])
    assert late_binding.bind(what, POD, "u1", "c2") == late_binding.BindDecision(
        (promised(),), (bound(),)
    )


def test_add_refuses_a_share_of_a_living_sandbox():
    """Of the pod before, even when it has the same name."""
    what = known([promised("n2", replaces=("n1",))], [bound()])
    with pytest.raises(Refused, match=r"share s1 is still attached to pod default/a, sandbox c1"):
        late_binding.bind(what, POD, "u2", "c2")
    assert late_binding.bind(replace(what, gone=["c1"]), POD, "u2", "c2").promises == what.promises


def test_what_the_pod_before_left_is_not_held_against_the_next_but_one():
    """Pod b took an old promise of two shares for its own; the other one is pod a's by now."""
    old, of_b = promised("n0", ("s1", "s2")), promised("n1", ("s1",))
    of_a = promised("n2", ("s2",), replaces=("n0",))
    bindings = [
        bound("n0", "c1", OTHER, "u-b", ("s1", "s2")),
        bound("n1", "c1", OTHER, "u-b", ("s1",)),
    ]
    what = known([old, of_b, of_a], bindings, held={"s1": OTHER, "s2": POD})
    assert late_binding.bind(what, POD, "u-a", "c2") == late_binding.BindDecision(
        (of_a,), (bindings[0],)
    )
    forgotten = replace(what, holders={(HCA, "s2"): POD})  # pod b was deleted by force
    with pytest.raises(Refused, match=r"share s2 is still attached to pod default/b, sandbox c1"):
        late_binding.bind(forgotten, POD, "u-a", "c2")


@pytest.mark.parametrize(
    ("binding", "owned"),
    [
        (started(pod=OTHER), False),
        (started(pod=OTHER, uid=""), False),
        (started(uid="u0"), False),
        (started(pod=OTHER, shares=("s9",)), True),
        (bound(pod=OTHER, shares=("s9",)), True),
    ],
    ids=["its share", "of an older record", "of its name", "its own card", "that has a network"],
)
def test_what_a_living_pod_has_is_not_given_to_another(binding, owned):
    """With a network and without one; a card of its own by any of its shares."""
    what = known([promised("n2")], [binding])
    what = replace(what, owned=("card",) if owned else ())
    with pytest.raises(Refused, match=r"still (attached to|held by) pod default/"):
        ask(what, Attach.AUTO, networked=False)
    with pytest.raises(Refused, match=r"still (attached to|held by) pod default/"):
        late_binding.bind(what, POD, "u1", "c2")
    gone = replace(what, gone=[binding.container])
    assert isinstance(ask(gone, Attach.AUTO, networked=False), late_binding.Write)
    assert late_binding.bind(gone, POD, "u1", "c2").promises == (promised("n2"),)


@pytest.mark.parametrize(
    "binding",
    [started(), started(uid=""), started(pod=OTHER, shares=("s9",)), bound(uid="")],
    ids=["its own", "its own by an older record", "another share of a shared card", "no uid"],
)
def test_what_is_no_other_pods_is_given(binding):
    what = known([promised("n2")], [binding])
    assert isinstance(ask(what, Attach.AUTO, networked=False), late_binding.Write)


def test_the_runtime_is_asked_about_what_the_kubelet_may_have_forgotten():
    """Not about pods that have a network, nor about those that the kubelet knows."""
    mine, replaced = started(), started("n0")
    promises = [promised("n0"), promised("n1", replaces=("n0",))]
    bindings = [mine, replaced, bound("n0", "c0")]
    assert late_binding.doubtful(promises, bindings, {(HCA, "s1"): POD}) == (replaced,)
    for held in ({}, {(HCA, "s1"): OTHER}):
        assert late_binding.doubtful(promises, bindings, held) == (mine, replaced)


def test_the_promise_of_the_pod_before_counts_no_more():
    """Its sandbox is gone, and so is its file: neither ADD nor the gate asks for it."""
    new = promised("n2", replaces=("n1",))
    what = known([promised(), new], [bound("n2", "c2", uid="u2")], [CdiFile("n2", "c2", 0.0)])
    assert late_binding.bind(what, POD, "u2", "c2").promises == (new,)
    assert ask(what) == late_binding.Start()


def test_allocate_of_bound_shares_begins_a_new_generation():
    """What was bound before was another pod's; what was not may be of the same pod."""
    old, same = promised("n1"), promised("n2")
    grant = Grant(HCA, ("s1", "s@2"), (), cards=("card",))
    made = late_binding.promise(grant, "n3", 5.0, [old, same], [bound("n1")])
    assert made.replaces == ("n1",)
    assert (made.cdi, made.cards) == ("kube-rdma.io/hca=s1-n3", ("card",))


def test_nothing_is_forgotten_while_it_is_held():
    what = known([promised()], [bound()], [SETTLED_FILE])
    first = late_binding.stale(what, {}, 0.0)
    assert late_binding.stale(what, first.absent, 10 * late_binding.GRACE) == first
    assert first == late_binding.Stale((), (), (), {})


def test_a_promise_is_forgotten_after_the_grace():
    """It counts from when the share was first missing, and again from the start when it is back."""
    what = known([promised()], held={})
    first = late_binding.stale(what, {}, 100.0)
    assert first.absent == {"n1": 100.0}
    assert late_binding.stale(what, first.absent, 100.0 + late_binding.GRACE).promises == ()
    assert late_binding.stale(what, first.absent, 100.1 + late_binding.GRACE).promises == (
        promised(),
    )
    assert late_binding.stale(known([promised()]), first.absent, 120.0).absent == {}


def test_a_living_sandbox_is_never_forgotten():
    """A pod that was deleted by force goes on for a while, and so does its binding."""
    what = known([promised()], [bound()], [SETTLED_FILE], held={})
    found = late_binding.stale(what, {"n1": 0.0}, 10 * late_binding.GRACE)
    assert (found.promises, found.bindings, found.files) == ((promised(),), (), ())
    assert late_binding.stale(known([], [started()], held={}), {}, 0.0).bindings == ()
    assert late_binding.stale(known([], [started()], held={}, gone=["start-n1"]), {}, 0.0).bindings


def test_a_dead_sandbox_whose_delete_never_came():
    """It ends at once when its shares went to the next pod, else after the grace."""
    dead = known([promised()], [bound()], [SETTLED_FILE], gone=["c1"])
    assert late_binding.stale(dead, {}, 0.0).bindings == ()
    late = late_binding.stale(dead, {"c1": 0.0}, late_binding.GRACE + 1)
    assert (late.bindings, late.files, late.promises) == ((bound(),), (SETTLED_FILE,), ())
    given_on = replace(dead, promises=(promised(), promised("n2", replaces=("n1",))))
    now = late_binding.stale(given_on, {}, 0.0)
    assert (now.bindings, now.files, now.promises) == ((bound(),), (SETTLED_FILE,), (promised(),))


def test_a_file_without_binding_is_a_leftover():
    assert late_binding.stale(known([promised()], files=[SETTLED_FILE]), {}, 0.0).files == (
        SETTLED_FILE,
    )


def test_replaced_promises_go_first():
    """Were the newer one removed alone, the older would count again."""
    old, new = promised("n2"), promised("n1", replaces=("n2",))
    found = late_binding.stale(known([new, old], held={}), {"n1": 0.0}, late_binding.GRACE + 1)
    assert found.promises == (old, new)


EXCLUSIVE = NamespaceMode.EXCLUSIVE


def given_early(*, early=True, mode=EXCLUSIVE):
    """The plan and the interface of a function that its container opens as uverbs0."""
    function = card(0)
    given = share(function, mode=Mode.SRIOV)
    given = replace(given, early=early, char_paths=("/dev/infiniband/uverbs0",))
    here = node(function, mode=mode)
    found = pod_nics([wish(0, network("n0", NetworkKind.CARD))], [given], here)
    return plans(SANDBOX, found, [leased(1, "10.0.0.7/24")], here), found


def numbered(number):
    """The device with the node of this number."""
    return (replace(device(number, kinds=(CharKind.UVERBS, CharKind.UMAD)), name="mlx5_0"),)


def test_a_device_that_kept_its_number_is_what_the_container_was_given():
    late_binding.refuse_renumbered(*given_early(), numbered(0))


def test_a_device_with_another_number_is_not():
    """The kubelet tries again; it may be another pod's by now."""
    with pytest.raises(Outdated) as caught:
        late_binding.refuse_renumbered(*given_early(), numbered(3))
    assert str(caught.value).rstrip(".") == (
        "mlx5_0 is /dev/infiniband/uverbs3 since it moved into the pod, and the container was "
        "given /dev/infiniband/uverbs0, so only a new pod can use it"
    )


@pytest.mark.parametrize("facts", [{"early": False}, {"mode": NamespaceMode.SHARED}])
def test_who_gets_nodes_after_the_move_or_without_one_is_not_compared(facts):
    late_binding.refuse_renumbered(*given_early(**facts), numbered(3))


@pytest.mark.parametrize(
    ("mode", "attach", "namespaces", "warned"),
    [
        (Mode.SRIOV, None, EXCLUSIVE, True),
        (Mode.EXCLUSIVE, Attach.NONE, EXCLUSIVE, True),
        (Mode.EXCLUSIVE, None, EXCLUSIVE, False),
        (Mode.SRIOV, Attach.AUTO, EXCLUSIVE, False),
        (Mode.HCA, None, EXCLUSIVE, False),  # its devices move nowhere
        (Mode.SRIOV, None, NamespaceMode.SHARED, False),
        (Mode.SRIOV, None, NamespaceMode.UNKNOWN, False),
    ],
)
def test_a_pool_that_binds_early_where_devices_move_is_warned_about(
    mode, attach, namespaces, warned
):
    sentences = tuple(
        late_binding.renumbered([PoolSpec("rdma/vf", mode, "test", attach=attach)], namespaces)
    )
    assert len(sentences) == warned
    assert all(one.startswith("rdma/vf gives device nodes before") for one in sentences)


@pytest.mark.parametrize(
    ("kubelet", "runtime", "sentence"),
    [
        ("v1.36.3", Runtime("containerd", "v2.4.2"), "containerd is v2.4.2 and CDI is on."),
        ("v1.29.0-eks-5e0fdde", Runtime("containerd", "2.0.2-k3s2", True), "CDI is on"),
        ("1.31", Runtime("containerd", "1.7.13~ds1", True), "CDI is on"),
        ("v1.30.1+k0s.0", Runtime("cri-o", "1.30.1"), "cri-o is 1.30.1."),
        (f"v1.{'9' * 5_000}", Runtime("cri-o", f"1.{'9' * 5_000}"), "cri-o is 1.9999"),
    ],
)
def test_where_it_works(kubelet, runtime, sentence):
    works, why = late_binding.cdi_works(kubelet, runtime)
    assert works
    assert sentence in why


@pytest.mark.parametrize(
    ("kubelet", "runtime", "sentence"),
    [
        (None, Runtime("containerd", "v2.4.2"), "kubelet is not known"),
        ("", Runtime("containerd", "v2.4.2"), "kubelet is not known"),
        ("v1.28.9", Runtime("containerd", "v2.4.2"), "need 1.29"),
        ("v1.36.3", None, "runtime is not known"),
        ("v1.36.3", Runtime("containerd", "git"), "cannot be read"),
        ("v1.36.3", Runtime("containerd", "1.6.36", True), "need 1.7 with enable_cdi"),
        ("v1.36.3", Runtime("containerd", "1.7.20"), "does not say"),
        ("v1.36.3", Runtime("containerd", "1.7.20", False), "is off"),
        ("v1.36.3", Runtime("containerd", "2.1.0", False), "is off"),
        ("v1.36.3", Runtime("cri-o", "1.27.8"), "need 1.28"),
        ("v1.36.3", Runtime("docker", "28.0.1"), "not known that docker"),
    ],
)
def test_where_it_does_not(kubelet, runtime, sentence):
    works, why = late_binding.cdi_works(kubelet, runtime)
    assert not works
    assert sentence in why


versions = st.one_of(st.text(max_size=8), st.from_regex(r"v?[0-3]\.\d{1,2}(\.\d)?", fullmatch=True))
runtimes = st.builds(
    Runtime,
    st.sampled_from(["containerd", "cri-o", "docker", ""]),
    versions,
    st.sampled_from([None, True, False]),
)


@given(st.none() | versions, st.none() | runtimes)
def test_what_is_not_known_does_not_work(kubelet, runtime):
    works, why = late_binding.cdi_works(kubelet, runtime)
    assert why.endswith(".")
    if works:
        assert kubelet
        assert runtime
        assert runtime.name == "cri-o" or runtime.cdi is not False
