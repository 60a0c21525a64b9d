"""The pod that tries an image, and the wait for definitions; tests of cli/install have the rest."""

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD
from kube_rdma.install import apply, installation
from kube_rdma.install.rules.plan import install_plan
from kube_rdma.model.install import ClusterObject, InstallSight
from kube_rdma_testing.cluster.server import FakeServer
from tests.unit.cli.test_install import World, kind_of

IMAGE = "registry.example.com/rdma/kube-rdma:0.2.0"
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


def released(*words):
    layers = installation.layers((), words, image=IMAGE)
    return installation.release(layers, "", "v1.36.3", None)


class Trial:
    """A cluster whose kubelet makes of the pod, a step at each look, what a test says."""

    def __init__(self, *steps):
        self.server = FakeServer([kind_of(SPACE)])
        self.server.put(kind_of(SPACE), SPACE)
        self.steps = list(steps)
        self.pods = []

    async def sleep(self, _):
        (pod,) = self.server.documents("pods")
        self.pods.append(pod)
        status = self.steps.pop(0) if self.steps else {}
        if isinstance(status, BaseException):
            raise status
        spec = {**pod["spec"], "nodeName": "node-1"}
        self.server.put(FULL_POD, {**pod, "spec": spec, "status": status})

    def run(self, *words):
        return asyncio.run(
            apply.try_image(Cluster(self.server.line()), released(*words), self.sleep)
        )


def waiting(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "image", "state": state}]}


def test_an_image_that_runs_is_told_with_its_node_and_the_pod_is_gone():
    trial = Trial(waiting("ContainerCreating"), {"phase": "Succeeded"})
    assert trial.run("image.pullSecrets[0].name=reg", "agent.nodeSelector.a=b") == "node-1"
    assert not trial.server.documents("pods")
    spec = trial.pods[0]["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["args"]) == (IMAGE, ["--version"])
    assert spec["imagePullSecrets"] == [{"name": "reg"}]
    assert spec["nodeSelector"] == {"a": "b"}
    assert trial.pods[0]["metadata"]["namespace"] == "default"  # kube-rdma is not there yet


def test_a_pull_that_fails_is_one_sentence_with_the_remedy():
    message = 'failed to resolve reference "r/k": r/k: not found'
    trial = Trial(waiting("ErrImagePull", message))
    with pytest.raises(Refused) as refused:
        trial.run()
    assert refused.value.problem == f"node node-1 cannot pull {IMAGE}: ErrImagePull {message}"
    assert "image.pullSecrets" in refused.value.remedy
    assert not trial.server.documents("pods")


@pytest.mark.parametrize(
    "step",
    [
        {"phase": "Failed", "reason": "OutOfcpu", "message": "no room"},
        {
            "phase": "Failed",
            "containerStatuses": [
                {"name": "image", "state": {"terminated": {"reason": "OutOfcpu", "message": ""}}}
            ],
        },
        waiting("CreateContainerError", "OutOfcpu"),
    ],
)
def test_an_image_of_another_program_is_refused(step):
    with pytest.raises(Refused, match=rf"node node-1 does not run {IMAGE} --version: .*OutOfcpu"):
        Trial(step).run()


def test_a_pod_that_no_node_takes_ends_after_two_minutes():
    why = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available."}
    trial = Trial(*[{"phase": "Pending", "conditions": [why]}] * 300)
    with pytest.raises(Unavailable, match=r"after 120 s: 0/2 nodes are available\.$"):
        trial.run()
    assert len(trial.pods) == 240
    assert not trial.server.documents("pods")


def test_who_interrupts_leaves_no_pod():
    trial = Trial(waiting("ContainerCreating"), asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        trial.run()
    assert not trial.server.documents("pods")


def written(world, sleep):
    """Write a release with a pool into an empty cluster."""
    release = released("pools[0].name=rdma", "pools[0].spec.ranges[0].subnet=10.0.0.0/24")
    sight = InstallSight(release, "v1.36.3", tuple(map(ClusterObject, release.objects)))
    done = []
    cluster = Cluster(world.server.line())
    asyncio.run(apply.write(cluster, install_plan(sight), done.append, sleep))
    return done


def test_objects_wait_until_their_definitions_are_served():
    world, looks = World(), []
    world.server.establishes = False

    async def sleep(_):
        looks.append(len(world.made))
        if len(looks) % 3 == 0:
            world.server.establish()

    assert "IPPool" in [one["kind"] for one in written(world, sleep)]
    assert len(looks) == 3 * sum(name.startswith("CustomRes") for name in world.made)


def test_a_definition_that_is_never_served_ends_the_wait():
    world = World()
    world.server.establishes = False

    async def sleep(_):
        pass

    with pytest.raises(Unavailable, match=r"does not serve ippools\.kube-rdma\.io after 60 s"):
        written(world, sleep)
