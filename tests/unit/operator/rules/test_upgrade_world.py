"""A small world in which drivers come and go: whatever happens, none is unloaded under anybody.

Pods start and end, labels of Node Feature Discovery vanish, kernels and images change, policies are
removed, nodes go away, and people end drivers' pods. Only the last unloads a driver that is in use.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kube_base.frozen import replace
from kube_rdma.model import operator
from kube_rdma.operator.rules.placement import (
    DRIVER_LABEL,
    PEER_LABEL,
    READY_LABEL,
    REQUIRED,
    places,
    policy_node,
)
from kube_rdma.operator.rules.upgrade import is_between, is_outdated, refusal, upgrade_plan

NAMES = ("a", "b", "c", "d")
FEATURE = "feature.node.kubernetes.io"
FOUND = {
    "kubernetes.io/arch": "amd64",
    f"{FEATURE}/pci-15b3.present": "true",
    f"{FEATURE}/pci-10de.present": "true",
    f"{FEATURE}/kernel-version.full": "6.8.0",
    f"{FEATURE}/system-os_release.ID": "ubuntu",
    f"{FEATURE}/system-os_release.VERSION_ID": "24.04",
}
IMAGE = operator.ComponentImage("r", "ofed-driver", "1")
POLICY = operator.ClusterPolicy(
    "p",
    "n",
    "u",
    driver=operator.PolicyDriver(IMAGE),
    peer_driver=operator.PeerDriverSection(IMAGE),
)
EXCLUDING = {
    REQUIRED: {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "out", "operator": "DoesNotExist"}]}]
    }
}
UPGRADES = st.builds(
    operator.UpgradePolicy,
    st.booleans(),
    st.integers(0, 3),
    st.none() | st.just(operator.DrainPolicy()),
)
POLICIES = st.none() | st.builds(
    replace,
    st.just(POLICY),
    driver=st.none() | st.just(POLICY.driver),
    peer_driver=st.none() | st.just(POLICY.peer_driver),
    upgrades=UPGRADES,
    affinity=st.none() | st.just(EXCLUDING),
)
names = st.sampled_from(NAMES)


class OneNode:
    """What is true of a node, whoever knows it."""

    def __init__(self):
        self.labels = dict(FOUND)
        self.pods = {}  # by the label that brought them, with its value
        self.holders = ()
        self.carries = ()
        self.closed = self.ours = self.changing = self.away = False

    def node(self, name):
        return replace(policy_node(name, self.labels), closed=self.closed, ours=self.ours)

    def seen(self, name, policy):
        wanted = places(policy, self.node(name))
        has = {place.key: place.has for place in wanted}
        pods = tuple(
            replace(pod, deleting=pod.deleting or has[key] != value)
            for key, (value, pod) in self.pods.items()
        )
        running = {key for key, (value, _) in self.pods.items() if has[key] == value}
        return operator.UpgradeNode(
            name,
            pods,
            missing=any(value and key not in running for key, value in has.items()),
            holders=self.holders,
            closed=self.closed,
            ours=self.ours,
            changing=self.changing,
            carries=self.carries,
            places=wanted,
            away=self.away,
        )


class World(RuleBasedStateMachine):
    """Nodes by name, a policy or none, and after each act what had to hold of it."""

    def __init__(self):
        super().__init__()
        self.policy = replace(POLICY, upgrades=operator.UpgradePolicy(automatic=True))
        self.nodes = {name: OneNode() for name in NAMES}
        self.serial = 0

    @property
    def upgrades(self):
        return self.policy.upgrades if self.policy else operator.UpgradePolicy()

    def seen(self):
        return [node.seen(name, self.policy) for name, node in self.nodes.items()]

    @rule()
    def look(self):
        before = self.seen()
        between = [n for n in before if is_between(n) and (n.changing or not n.away)]
        plan = upgrade_plan(self.upgrades, before)
        assert [stage.node for stage in plan.stages] == list(NAMES)
        begun = {
            a.node for a in plan.acts if isinstance(a, operator.EndDrivers | operator.LabelDrivers)
        }
        if begun and self.upgrades.parallel:
            assert len(between) + len(begun) <= self.upgrades.parallel
        for act in plan.acts:
            self.do(act, next(node for node in before if node.name == act.node))

    def untouched(self, seen):
        """What has to hold where the driver of the cards comes or goes."""
        assert not seen.holders
        assert not seen.carries
        assert not seen.away
        assert seen.closed

    def do(self, act, seen):
        node = self.nodes[act.node]
        match act:
            case operator.EndDrivers(pods=pods):
                self.end(node, pods, seen)
            case operator.LabelDrivers(labels=labels):
                self.place(node, dict(labels), seen)
            case operator.Evict(pod=pod):
                assert self.upgrades.drains
                assert seen.closed
                assert not pod.stays
                node.holders = tuple(
                    replace(p, deleting=True) if p == pod else p for p in node.holders
                )
            case operator.Close(change=change):
                assert not seen.closed or (seen.ours and change)
                node.closed = node.ours = True
                node.changing = change
                self.not_too_many(node)
            case operator.Open():
                assert seen.ours, "what people closed is theirs to open"
                node.closed = node.ours = node.changing = False

    def not_too_many(self, latest):
        """What has to hold when a node was closed for a change: no more are than may be.

        A policy that has become narrower finds some closed; one that is away stays as it is.
        """
        closed = [n for n in self.nodes.values() if n.changing and (n is latest or not n.away)]
        if latest.changing and self.upgrades.parallel:
            assert len(closed) <= self.upgrades.parallel

    def end(self, node, pods, seen):
        assert self.upgrades.automatic
        assert not seen.holders
        assert not refusal(seen)
        assert [pod.unloads for pod in pods] == sorted(pod.unloads for pod in pods)
        if any(pod.unloads for pod in pods):
            self.untouched(seen)
        for key, (value, pod) in node.pods.items():
            if pod in pods:
                node.pods[key] = value, replace(pod, deleting=True)

    def place(self, node, labels, seen):
        if DRIVER_LABEL in labels:
            self.untouched(seen)
        for key, value in labels.items():
            if key == PEER_LABEL and value is None:
                assert not seen.holders
            # Nothing comes before all that goes is gone.
            assert value is None or not any(pod.deleting for pod in seen.pods)
            node.labels.pop(key, None)
            if value:
                node.labels[key] = value

    @rule(name=names)
    def drivers_go_on(self, name):
        """The controller of DaemonSets ends and makes pods; one that starts is ready."""
        node = self.nodes[name]
        if node.away:
            return
        for key in (PEER_LABEL, DRIVER_LABEL):
            value, pod = node.pods.get(key, ("", None))
            has = node.labels.get(key, "")
            if pod and (pod.deleting or value != has):
                del node.pods[key]
            elif pod:
                node.pods[key] = value, replace(pod, ready=True)
            elif has:
                self.serial += 1
                pod = operator.DriverPod(f"{name}-{self.serial}", "", current=True, ready=False)
                node.pods[key] = has, replace(pod, unloads=key == DRIVER_LABEL)

    @rule(name=names, stays=st.booleans())
    def pod_starts(self, name, stays):
        node = self.nodes[name]
        if (stays or not node.closed) and not node.away and len(node.holders) < 3:
            self.serial += 1
            holder = operator.ShareHolder(
                "default", f"p{self.serial}", str(self.serial), stays=stays
            )
            node.holders = (*node.holders, holder)

    @rule(name=names)
    def pod_ends(self, name):
        self.nodes[name].holders = self.nodes[name].holders[1:]

    @rule(name=names)
    def person_closes(self, name):
        self.nodes[name].closed = True

    @rule(name=names)
    def person_ends_a_driver(self, name):
        for key, (value, pod) in self.nodes[name].pods.items():
            self.nodes[name].pods[key] = value, replace(pod, deleting=True)

    @rule(name=names, away=st.booleans())
    def node_goes_or_comes(self, name, away):
        self.nodes[name].away = away

    @rule(name=names, key=st.sampled_from([*FOUND, "out"]), there=st.booleans())
    def a_label_changes(self, name, key, there):
        labels = self.nodes[name].labels
        labels.pop(key, None)
        if there:
            labels[key] = FOUND.get(key, "")

    @rule(name=names, kernel=st.sampled_from(["6.8.0", "6.11.0"]))
    def node_boots(self, name, kernel):
        node = self.nodes[name]
        node.labels[f"{FEATURE}/kernel-version.full"] = kernel
        node.pods = {key: (v, replace(pod, ready=False)) for key, (v, pod) in node.pods.items()}

    @rule(name=names, carries=st.sampled_from([(), ("the default route",)]))
    def routes_change(self, name, carries):
        self.nodes[name].carries = carries

    @rule(policy=POLICIES)
    def policy_changes(self, policy):
        self.policy = policy

    @rule()
    def image_changes(self):
        for node in self.nodes.values():
            for key, (value, pod) in node.pods.items():
                node.pods[key] = value, replace(pod, current=not pod.unloads)

    @invariant()
    def what_stands_still_is_explained(self):
        for stage in upgrade_plan(self.upgrades, self.seen()).stages:
            node = self.nodes[stage.node].seen(stage.node, self.policy)
            if stage.stage is operator.UpgradeStage.CURRENT:
                assert not is_outdated(node)
            elif stage.stage is not operator.UpgradeStage.STARTING:
                assert stage.sentence

    @rule()
    def left_alone_it_comes_to_an_end(self):
        """Pods end, nodes come back, drivers start: each has what it should have, and is open."""
        for _ in range(24 * len(NAMES)):
            self.look()
            for name, node in self.nodes.items():
                node.away = False
                self.drivers_go_on(name)
                if not self.upgrades.drains or any(pod.stays for pod in node.holders):
                    self.pod_ends(name)
                node.holders = tuple(pod for pod in node.holders if not pod.deleting)
        for seen in self.seen():
            by_hand = not self.upgrades.automatic
            assert is_outdated(seen) == bool(refusal(seen)) or by_hand
            assert not seen.ours
            if not seen.carries:
                assert all(place.has == place.wants for place in seen.places)


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=12, stateful_step_count=40)


@pytest.mark.slow
class TestLongWorld(World.TestCase):
    """The same for longer."""

    settings = settings(max_examples=400, stateful_step_count=60, deadline=None)


def labelled(**labels):
    return policy_node("a", {**FOUND, **{f"kube-rdma.io/{k}": v for k, v in labels.items()}})


def test_labels_that_vanish_leave_a_driver_where_it_is():
    """Node Feature Discovery that is uninstalled says nothing about cards."""
    placed = places(POLICY, labelled(driver="x"))
    lost = operator.PolicyNode("a", labels=((DRIVER_LABEL, placed[0].wants),))
    assert placed[0].wants == "amd64-ubuntu24.04-kver6.8.0"
    assert [place.wants for place in places(POLICY, lost)] == [placed[0].wants, ""]


def test_a_driver_that_goes_takes_the_mark_of_a_ready_node_along():
    node = operator.UpgradeNode("a", places=places(None, labelled(driver="x")), closed=True)
    (act,) = upgrade_plan(operator.UpgradePolicy(), [node]).acts
    assert act == operator.LabelDrivers("a", ((DRIVER_LABEL, None), (READY_LABEL, None)))
