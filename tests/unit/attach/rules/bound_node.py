"""A node for test_bound_node: a kubelet, sandboxes that die, an agent that crashes at any step.

The agent does what the rules say and nothing else, with a journal on a disk that forgets what was
not synced and a CDI folder that is gone after a reboot. The kubelet gives away shares as the device
manager does: init containers and containers of a pod share ids, a dead pod's go to the next.
"""

from dataclasses import dataclass, field
from itertools import count

from kube_rdma.adapters.journal.codec import BINDINGS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.attach.rules import late_binding as rules
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
        return rules.Known(
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
        said = rules.Asked(pod.uid, networked=pod.networked)
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
