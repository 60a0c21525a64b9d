"""A node for test_bound_node: a kubelet, sandboxes that die, an agent that crashes at any step.

The agent does what the rules say and nothing else, with a journal on a disk that forgets what was
not synced and a CDI folder that is gone after a reboot. The kubelet gives away shares as the device
manager does: init containers and containers of a pod share ids, a dead pod's go to the next.
"""

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube_base.errors import Refused
from kube_rdma.adapters.journal.codec import BINDINGS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.attach.rules import late_binding as rules
from kube_rdma.attach.rules.late_binding import GRACE, SETTLED, Start, Write
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Binding, CdiFile, PodName, Promise, at_start
from kube_rdma.model.pools import Attach, Grant
from kube_rdma_testing.disk import Failing, FakeDisk, Killed

RESOURCE = "rdma/hca"


@dataclass(eq=False)
class Pod:
    name: str
    uid: str
    containers: dict  # name -> ids
    networked: bool
    nonces: dict = field(default_factory=dict)  # container -> nonce of its CDI device
    sandbox: str = ""
    attached: bool = False  # ADD of this sandbox succeeded
    running: set = field(default_factory=set)  # ids of its containers that began

    @property
    def ids(self):
        return frozenset().union(*self.containers.values())

    @property
    def key(self):
        return PodName("default", self.name)


class Node:
    def __init__(self):
        self.disk = FakeDisk()
        self.files = {}  # (container, nonce) -> since
        self.pods = []  # those that the kubelet takes for active
        self.ending = []  # the kubelet forgot them, their containers live on
        self.living = {}  # sandbox -> pod
        self.dels = []  # sandboxes whose DEL may come, again and again
        self.now = 0.0
        self.absent = {}
        self.numbers = count()
        self.failing = Failing(self.disk)

    # what the agent knows

    def known(self):
        files = tuple(CdiFile(n, c, since) for (c, n), since in sorted(self.files.items()))
        loaded = Journal(self.disk, BINDINGS).load()
        assert not loaded.faults
        values = [value for _, value in loaded.records]
        bindings = tuple(one for one in values if isinstance(one, Binding))
        holdings = [
            Holding("default", pod.name, name, RESOURCE, tuple(sorted(ids)))
            for pod in self.pods
            for name, ids in pod.containers.items()
            if name != "init"  # pod resources leave them out
        ]
        return rules.BindingSnapshot(
            tuple(one for one in values if isinstance(one, Promise)),
            bindings,
            files,
            rules.holders(holdings),
            {one.container for one in bindings if not self.lives(one)},
        )

    def lives(self, binding):
        """What network namespaces and the runtime tell of its pod."""
        uids = {pod.uid for pod in (*self.pods, *self.ending)}
        return binding.container in self.living if binding.netns else binding.uid in uids

    # what the agent does; `at` is the step before which it is killed

    def agent(self, at, act, *args):
        """Whether it lived to answer."""
        self.failing = Failing(self.disk, at)
        try:
            act(Journal(self.failing, BINDINGS), *args)
        except Killed:
            self.absent = {}
            return False
        return True

    def write_file(self, one):
        key = (one.container, one.nonce)
        self.failing._step(lambda: self.files.setdefault(key, self.now))

    def remove_file(self, container, nonce):
        self.failing._step(lambda: self.files.pop((container, nonce), None))

    def allocate(self, journal, pod, container):
        ids = tuple(sorted(pod.containers[container]))
        known = self.known()
        number = next(self.numbers)
        nonce = f"n{number}"
        grant = Grant(RESOURCE, ids, ())
        one = rules.promise(grant, nonce, float(number), known.promises, known.bindings)
        journal.put(f"promise-{nonce}", one)
        pod.nonces[container] = nonce

    def keep(self, journal, pod, one, container, uid):
        netns = f"/ns/{container}" if container in self.living else ""
        args = (pod, uid, netns, RESOURCE, one.shares, (), one.cdi, 0.0)
        bound = Binding(one.nonce, container, *args)
        journal.put(f"binding-{container}-{one.nonce}", bound)
        self.write_file(bound)

    def forget(self, journal, one):
        self.remove_file(one.container, one.nonce)
        journal.remove(f"binding-{one.container}-{one.nonce}")

    def add(self, journal, pod):
        plan = rules.bind(self.known(), pod.key, pod.uid, pod.sandbox)
        for one in plan.outdated:
            self.forget(journal, one)
        for one in plan.promises:
            self.keep(journal, pod.key, one, pod.sandbox, pod.uid)

    def delete(self, journal, sandbox):
        for one in self.known().bindings:
            if one.container == sandbox:
                self.forget(journal, one)

    def gate(self, pod, container):
        ids = tuple(sorted(pod.containers[container]))
        known = self.known()
        said = rules.PodAnswer(pod.uid, networked=pod.networked)
        return rules.gate(known, RESOURCE, ids, Attach.AUTO, said, self.now)

    def write(self, journal, effect):
        for one in effect.promises:
            self.keep(journal, effect.pod, one, at_start(one.nonce), effect.uid)

    def sweep(self, journal):
        found = rules.stale(self.known(), self.absent, self.now)
        self.absent = found.absent
        for file in found.files:
            self.remove_file(file.container, file.nonce)
        for one in found.bindings:
            self.forget(journal, one)
        for one in found.promises:
            journal.remove(f"promise-{one.nonce}")

    def blocks(self, pod):
        """Whether a deleted pod's sandbox lives on with a share, by its pod or by the journal.

        What an ended pod of the same name was promised beside a share of this one counts too: it
        may be of an init container, of which the kubelet does not say what it holds.
        """
        known = self.known()
        bound = {}
        for one in known.bindings:
            key = one.container if one.netns else one.uid
            bound[key] = bound.get(key, frozenset()) | set(one.shares)
        beside = (set(one.shares) for one in known.promises if pod.ids & set(one.shares))
        wanted = pod.ids.union(*beside)
        return any(
            bound.get(other.sandbox or other.uid, frozenset()) & wanted
            or (other.sandbox and other.ids & wanted)
            for other in self.ending
        )

    # what happens to it

    def sandbox_dies(self, pod):
        if pod.sandbox:
            self.living.pop(pod.sandbox, None)
            self.dels.append(pod.sandbox)
        pod.sandbox, pod.attached = "", False
        pod.running.clear()

    def reboot(self, lost):
        """The kubelet keeps its checkpoint, so its pods start again with what they hold."""
        self.disk.crash(lost)
        self.files.clear()
        self.absent = {}
        self.ending.clear()
        for pod in self.pods:
            self.sandbox_dies(pod)
        self.living.clear()


STEP = st.one_of(st.none(), st.integers(0, 25))


class BoundNode(RuleBasedStateMachine):
    """Whatever happens in whatever order, a container starts only with its own live file."""

    def __init__(self):
        super().__init__()
        self.node = Node()
        self.uids = 0

    @rule(
        data=st.data(),
        name=st.sampled_from("ab"),
        networked=st.booleans(),
        init=st.sampled_from(["", "same", "less", "more"]),
        at=STEP,
    )
    def admit(self, data, name, networked, init, at):
        """The kubelet picks free ids and allocates for one container after the other."""
        node = self.node
        free = sorted({"s1", "s2", "s3"} - frozenset().union(*(p.ids for p in node.pods)))
        if not free or name in [pod.name for pod in node.pods]:
            return
        ids = data.draw(st.lists(st.sampled_from(free), min_size=1, unique=True))
        app = ids[: max(1, len(ids) - 1)] if init == "more" else ids
        containers = {"app": frozenset(app)}
        if init:
            containers = {"init": frozenset(ids[:1] if init == "less" else ids)} | containers
        elif len(ids) > 1:
            containers = {"app": frozenset(ids[:1]), "app2": frozenset(ids[1:])}
        self.uids += 1
        pod = Pod(name, f"u{self.uids}", containers, networked)
        if all(node.agent(at, node.allocate, pod, container) for container in containers):
            node.pods.append(pod)

    @precondition(lambda self: self.node.pods)
    @rule(data=st.data(), at=STEP)
    def make_sandbox(self, data, at):
        """A pod without a sandbox gets one; where ADD fails it dies, and its DEL may come late."""
        node = self.node
        pod = data.draw(st.sampled_from(node.pods))
        if pod.sandbox or not pod.networked:
            return
        pod.sandbox = f"c{next(node.numbers)}"
        node.living[pod.sandbox] = pod
        try:
            pod.attached = node.agent(at, node.add, pod)
        except Refused:
            assert node.blocks(pod), "refused although no sandbox of a deleted pod has the shares"
        if not pod.attached:
            node.sandbox_dies(pod)

    @precondition(lambda self: self.node.pods)
    @rule(data=st.data())
    def repeat_add(self, data):
        """The runtime asks again for a sandbox that is attached."""
        pod = data.draw(st.sampled_from(self.node.pods))
        if pod.attached:
            before = dict(self.node.files)
            assert self.node.agent(None, self.node.add, pod)
            assert self.node.files == before

    @precondition(lambda self: self.node.pods)
    @rule(data=st.data(), at=STEP)
    def start(self, data, at):
        """The kubelet starts or restarts a container of a pod, once or again."""
        node = self.node
        pod = data.draw(st.sampled_from(node.pods))
        container = data.draw(st.sampled_from(sorted(pod.containers)))
        if pod.networked and not pod.sandbox:
            return  # the kubelet makes the sandbox first
        try:
            answer = node.gate(pod, container)
        except Refused as refused:
            if not (node.blocks(pod) and " is still " in refused.problem):
                raise
            return
        if isinstance(answer, Write):
            assert not pod.networked
            if not node.agent(at, node.write, answer):
                return
            node.now += 2 * SETTLED
            answer = node.gate(pod, container)
        if isinstance(answer, Start):
            nonce = pod.nonces[container]
            (found,) = [key for key in node.files if key[1] == nonce]
            assert found[0] == (pod.sandbox if pod.networked else at_start(nonce))
            assert node.now - node.files[found] >= SETTLED
            ids = pod.containers[container]
            others = {one for one in node.ending if (one.sandbox or one.running) and one.ids & ids}
            assert not others, "two pods with one share"
            pod.running |= ids

    @precondition(lambda self: self.node.pods)
    @rule(data=st.data(), force=st.booleans())
    def end_pod(self, data, force):
        """Its shares are free.

        By force, or when the kubelet lost its checkpoint, its containers live on for a while.
        """
        pod = data.draw(st.sampled_from(self.node.pods))
        self.node.pods.remove(pod)
        if force and (pod.sandbox or pod.running):
            self.node.ending.append(pod)
        else:
            self.node.sandbox_dies(pod)

    @precondition(lambda self: self.node.ending)
    @rule()
    def ending_pod_dies(self):
        """The kubelet got round to it."""
        self.node.sandbox_dies(self.node.ending.pop())

    @precondition(lambda self: self.node.pods)
    @rule(data=st.data())
    def sandbox_dies(self, data):
        """The pod stays and gets another one."""
        pod = data.draw(st.sampled_from(self.node.pods))
        if pod.networked:
            self.node.sandbox_dies(pod)

    @precondition(lambda self: self.node.dels)
    @rule(data=st.data(), at=STEP)
    def late_del(self, data, at):
        """DEL of a dead sandbox: late, repeated, interrupted."""
        self.node.agent(at, self.node.delete, data.draw(st.sampled_from(self.node.dels)))

    @rule(seconds=st.sampled_from([0.01, 0.06, GRACE / 2, GRACE * 2]))
    def time_passes(self, seconds):
        """Of the monotonic clock."""
        self.node.now += seconds

    @rule(at=STEP)
    def sweep(self, at):
        """The agent forgets what it may."""
        self.node.agent(at, self.node.sweep)

    @rule(lost=st.integers(0, 3))
    def reboot(self, lost):
        """Power fails."""
        self.node.reboot(lost)

    @invariant()
    def live_files_stay(self):
        """Nothing takes the file of an attached sandbox away."""
        for pod in self.node.living.values():
            if pod.attached:
                assert {(pod.sandbox, n) for n in pod.nonces.values()} <= self.node.files.keys()

    @invariant()
    def a_share_is_bound_to_one_living_pod(self):
        """As the journal has it."""
        seen = {}
        for one in self.node.known().bindings:
            for share in one.shares if self.node.lives(one) else ():
                assert seen.setdefault(share, one.uid) == one.uid

    def teardown(self):
        """All pods end, no DEL comes any more: two sweeps later nothing is left."""
        node = self.node
        for pod in [*node.pods, *node.ending]:
            node.sandbox_dies(pod)
        node.pods, node.ending = [], []
        for _ in range(2):
            node.agent(None, node.sweep)
            node.now += GRACE + 1
        node.agent(None, node.sweep)
        assert not node.files
        assert not [name for name in node.disk.names() if name.endswith(".json")]


TestBoundNode = BoundNode.TestCase
TestBoundNode.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)


def test_a_share_that_an_ended_pod_of_the_name_was_promised_is_waited_for():
    """It may be of an init container; the sandbox that has it still is another pod's."""
    node = Node()

    def admitted(uid, *ids):
        pod = Pod("a", uid, {"app": frozenset(ids)}, networked=True)
        assert node.agent(None, node.allocate, pod, "app")
        node.pods = [pod]
        return pod

    forced = admitted("u1", "s1")
    forced.sandbox = "c1"
    node.living["c1"] = forced
    assert node.agent(None, node.add, forced)
    node.ending.append(forced)
    admitted("u2", "s1", "s2")
    pod = admitted("u3", "s2")
    pod.sandbox = "c2"
    node.living["c2"] = pod
    with pytest.raises(Refused, match="s1 is still attached to pod default/a, sandbox c1"):
        node.agent(None, node.add, pod)
    assert node.blocks(pod)
    node.sandbox_dies(node.ending.pop())
    assert node.agent(None, node.add, pod)


def test_a_pod_without_a_network_that_the_kubelet_forgot_keeps_its_share():
    """Sweeps and the next Allocate take nothing from it while it runs; then its share is free."""
    node = Node()

    def admitted(name):
        pod = Pod(name, f"u-{name}", {"app": frozenset({"s1"})}, networked=False)
        assert node.agent(None, node.allocate, pod, "app")
        node.pods.append(pod)
        return pod

    assert node.agent(None, node.write, node.gate(admitted("job"), "app"))
    node.ending.append(node.pods.pop())
    for _ in range(3):
        assert node.agent(None, node.sweep)
        node.now += GRACE + 1
    thief = admitted("thief")
    assert node.agent(None, node.sweep)
    with pytest.raises(Refused, match="s1 is still held by pod default/job, which runs"):
        node.gate(thief, "app")
    assert len(node.files) == 1
    node.ending.clear()
    assert isinstance(node.gate(thief, "app"), Write)
    assert node.agent(None, node.sweep)
    assert not node.files
