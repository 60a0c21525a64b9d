"""The shim, compiled and fake alike, in the lists of other projects, called as libcni calls it."""

import json

import pytest

from kube_rdma.attach.rules.requests import ANNOTATION
from tests.kit.libcni import as_given, previous
from tests.unit.adapters.cni.conf.test_networks import CHAINED, NODES, called
from tests.unit.shim.calls import environment


@pytest.mark.parametrize("name", CHAINED)
async def test_a_plain_pod_passes_and_one_that_asks_waits(shim, name):
    """Without an agent: the previous result in its version, or an error in the list's version."""
    version = NODES[name].version
    _, plain = as_given(called(name), "ADD")
    done = await shim.run(environment(), plain)
    assert (done.code, done.document) == (0, previous(version))
    _, asking = as_given(called(name), "ADD", {ANNOTATION: "rdma"})
    done = await shim.run(environment(), asking)
    assert (done.code, done.document["code"]) == (1, 11)
    assert done.document["cniVersion"] == version


async def test_every_version_of_those_lists_is_one_that_the_shim_speaks(shim):
    """libcni asks for them before it calls."""
    done = await shim.run({"CNI_COMMAND": "VERSION"}, b'{"cniVersion":"0.3.0"}')
    assert json.loads(done.out)["cniVersion"] == "0.3.0"
    assert {node.version for node in NODES.values()} <= set(done.document["supportedVersions"])
