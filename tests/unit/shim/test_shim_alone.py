"""What the shim decides alone, compiled and fake alike, because the answer is the same anyway.

Of our marked entry in the cluster's list: pods that the runtime tells to ask for nothing, STATUS.
"""

import pytest

from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    DEFAULT_NETWORK,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
)
from kube_rdma.model.attach.cni import ANNOTATIONS, CniInterface, CniResult
from kube_rdma.model.late_binding import PodName
from tests.unit.shim.calls import PREVIOUS, asking, chained, claimed, environment, serving, text

PLAIN = {"kubernetes.io/config.source": "api", "note": f'"{ANNOTATION}": {{'}
KEYS = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION, DEFAULT_NETWORK)
ASKING = [{**PLAIN, key: "x"} for key in KEYS]


@pytest.mark.parametrize("annotations", [PLAIN, {}, None])
async def test_a_pod_that_is_told_to_ask_for_nothing_is_none_of_the_agents_business(
    shim, root, annotations
):
    """Where the runtime tells its annotations, the agent is not even asked, nor its list read."""

    async def handler(call):
        raise AssertionError(call)

    asking(root).keep(frozenset({PodName("default", "a")}))
    async with serving(root, handler):
        done = await shim.run(environment(), chained(annotations))
    assert (done.code, done.document, done.err) == (0, PREVIOUS, b"")
    done = await shim.run(environment(), chained(annotations))
    assert (done.code, done.document) == (0, PREVIOUS)


async def waits_for_the_agent(shim, root, annotations):
    done = await shim.run(environment(), chained(annotations))
    assert (done.code, done.document["code"]) == (1, 11)

    async def handler(call):
        return CniResult((CniInterface("net1"),))

    async with serving(root, handler):
        done = await shim.run(environment(), chained(annotations))
    assert [one["name"] for one in done.document["interfaces"]] == ["eth0", "net1"]


@pytest.mark.parametrize("annotations", [PLAIN, None])
async def test_a_pod_of_a_namespace_with_a_claim_is_the_agents(shim, root, annotations):
    """It may have the claim, which no annotation names; without the agent it waits."""
    claimed(root).keep(frozenset({"default"}))
    await waits_for_the_agent(shim, root, annotations)
    claimed(root).keep(frozenset({"other"}))
    assert (await shim.run(environment(), chained(annotations))).document == PREVIOUS


@pytest.mark.parametrize("annotations", ASKING)
async def test_a_pod_that_is_told_to_ask_is_never_let_pass(shim, root, annotations):
    """Also one that the agent has not seen before it went away; while it is there, it is asked."""
    await waits_for_the_agent(shim, root, annotations)


@pytest.mark.parametrize("annotations", [[], "x", 7, {"k8s.v1.cni.cncf.io\\u002fnetworks": "x"}])
async def test_what_is_doubtful_counts_as_asking(shim, annotations):
    """Annotations that are none, and a key whose letters are written in another way."""
    config = chained(annotations).replace(b"\\\\u", b"\\u")
    done = await shim.run(environment(), config)
    assert (done.code, done.document["code"]) == (1, 11)


@pytest.mark.parametrize(
    "config",
    [
        text(**ENTRY),
        text(**ENTRY, runtimeConfig={"ips": []}),
        text(runtimeConfig={ANNOTATIONS: PLAIN}),
        text(runtimeConfig={ANNOTATIONS: PLAIN}, chain="true"),
    ],
)
async def test_where_no_annotations_are_told_the_list_counts(shim, root, config):
    """An older runtime, or an entry that an earlier version of ours has written."""
    assert (await shim.run(environment(), config)).document == PREVIOUS
    asking(root).keep(frozenset({PodName("default", "a")}))
    assert (await shim.run(environment(), config)).document["code"] == 11


async def test_a_plain_pod_without_a_previous_result_is_the_agents(shim):
    """Somebody has put our entry first; the shim has nothing to pass on."""
    done = await shim.run(environment(), chained(PLAIN, prevResult=None))
    assert (done.code, done.document["code"]) == (1, 11)


async def test_status_of_the_clusters_network_is_good_without_and_with_an_agent(shim, root):
    """An error would make the node NotReady, for pods that ask for nothing too."""

    async def handler(call):
        raise AssertionError(call)

    done = await shim.run(environment("STATUS"), text(**ENTRY))
    assert (done.code, done.out) == (0, b"")
    async with serving(root, handler):
        done = await shim.run(environment("STATUS"), text(**ENTRY))
    assert (done.code, done.out) == (0, b"")
