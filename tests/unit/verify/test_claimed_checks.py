"""BandwidthChecks over cards of claims: whose nodes take part, what is measured, what is said."""

import pytest

from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.resource_api import (
    CLAIM_TEMPLATE,
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    TAINT_RULE,
)
from kube_rdma.verify.rules.pairs import AGAIN
from tests.unit.agent.world import until
from tests.unit.verify.test_bandwidth_checks import COPIED, SELECTED, CheckWorld

DRIVER = "nic.example.com"
BY_TEMPLATE = {
    "template": {
        "spec": {
            "containers": [{"name": "c", "image": "perftest"}],
            "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nics"}],
        }
    }
}


class ClaimWorld(CheckWorld):
    """The same where a driver has cards, whose classes, slices and claims are objects."""

    def __init__(self):
        super().__init__()
        for kind in (RESOURCE_SLICE, DEVICE_CLASS, CLAIM_TEMPLATE, RESOURCE_CLAIM):
            self.server.add(kind)
        self.of_class("nics")
        for number in (1, 2):
            self.cards(f"node-{number}", "mlx5_0", "mlx5_1")

    def of_class(self, name, resource=""):
        expression = f'device.driver == "{DRIVER}"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        spec |= {"extendedResourceName": resource} if resource else {}
        self.server.put(DEVICE_CLASS, {"metadata": {"name": name}, "spec": spec})

    def cards(self, node, *names):
        devices = [
            {
                "name": name.replace("_", "-"),
                "attributes": {f"{DRIVER}/rdmaDevice": {"string": name}},
            }
            for name in names
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        self.server.put(RESOURCE_SLICE, {"metadata": {"name": f"{node}-nic"}, "spec": spec})

    def template(self, name="nics", device_class="nics"):
        request = {"name": "nic", "exactly": {"deviceClassName": device_class}}
        meta = {"name": name, "namespace": "train"}
        spec = {"spec": {"devices": {"requests": [request]}}}
        self.server.put(CLAIM_TEMPLATE, {"metadata": meta, "spec": spec})

    def claimed(self, name, node, device):
        """A pod of the job that has this card of its node by a claim."""
        result = {"request": "nic", "driver": DRIVER, "pool": node, "device": device}
        meta = {"name": name, "namespace": "train"}
        status = {"allocation": {"devices": {"results": [result]}}}
        self.server.put(RESOURCE_CLAIM, {"metadata": meta, "spec": {}, "status": status})
        (pod,) = (p for p in self.server.documents("pods") if p["metadata"]["name"] == name)
        entry = {"name": "nic", "resourceClaimName": name}
        self.server.put(POD, {**pod, "spec": {**pod["spec"], "resourceClaims": [entry]}})

    def left_out(self):
        return {each["name"]: each["why"] for each in self.status().get("leftOut", ())}


@pytest.fixture
def world():
    return ClaimWorld()


async def test_a_resource_that_claims_serve_is_offered(world):
    """The kubelet has no share of it, and the scheduler makes claims of its class."""
    world.of_class("hcas", "rdma/hca")
    for number in (1, 2, 3):
        world.pods.node(f"node-{number}", "0")
    world.check(**COPIED)
    await world.run_until()
    assert world.status()["pairsMeasured"] == 1
    assert world.left_out() == {
        "node-3": "it offers no rdma/hca, nor do claims: no driver offers a device to it"
    }


async def test_a_slice_or_a_class_that_cannot_be_read_hides_no_other(world):
    """Any driver of any node writes slices; one kept all checks by claims from their nodes."""
    world.of_class("hcas", "rdma/hca")
    world.server.put(RESOURCE_SLICE, {"metadata": {"name": "odd"}, "spec": {"devices": 5}})
    world.server.put(DEVICE_CLASS, {"metadata": {"name": "odd"}, "spec": {"selectors": 5}})
    for number in (1, 2):
        world.pods.node(f"node-{number}", "0")
    world.check(**COPIED)
    await world.run_until()


async def test_without_the_right_to_look_a_node_without_shares_says_so(world):
    world.of_class("hcas", "rdma/hca")
    world.server.forbidden = {("list", "deviceclasses")}
    world.pods.node("node-1", "0")
    world.check(**COPIED)
    await world.run_until("NotMeasured")
    why = world.status()["result"]
    assert "node-1: it offers no rdma/hca, and whether claims give it is not known" in why
    assert "list deviceclasses" in why


async def test_shares_of_the_plugin_need_no_right_to_look_at_claims(world):
    world.server.forbidden = {("list", "deviceclasses"), ("list", "resourceslices")}
    world.check(**COPIED)
    await world.run_until()
    assert world.status()["result"] == "All is well: 1 pair, 97.50 to 97.50 Gb/s."


async def test_copies_with_a_claim_template_are_for_nodes_that_have_its_devices(world):
    """A copy on another node would wait until the time of the run is over."""
    world.template()
    world.pods.node("node-3")
    world.check(**BY_TEMPLATE)
    await world.run_until()
    assert world.left_out() == {"node-3": "claim template nics: no driver offers a device to it"}


def bad_node(world, name):
    """A rule that taints all cards of a node."""
    world.server.add(TAINT_RULE)
    spec = {"deviceSelector": {"pool": name}, "taint": {"key": "bad", "effect": "NoSchedule"}}
    world.server.put(TAINT_RULE, {"metadata": {"name": "bad-node"}, "spec": spec})


async def test_a_node_whose_cards_a_rule_taints_is_left_out_with_the_rule(world):
    world.template()
    bad_node(world, "node-3")
    world.pods.node("node-3")
    world.cards("node-3", "mlx5_0")
    world.check(**BY_TEMPLATE)
    await world.run_until()
    assert world.left_out() == {
        "node-3": "claim template nics: it lacks 1 of 1 devices: 1 is tainted by DeviceTaintRule "
        "bad-node (bad:NoSchedule)"
    }
    assert "TaintRule" not in world.status()["result"]


async def test_without_the_right_to_see_rules_the_result_says_so(world):
    world.template()
    bad_node(world, "node-3")
    world.server.forbidden = {("list", "devicetaintrules")}
    world.check(**BY_TEMPLATE)
    await world.run_until()
    result = world.status()["result"]
    assert result.startswith("All is well: 1 pair")
    assert "DeviceTaintRules, if there are any, were not read: the API server forbids" in result


async def test_a_template_that_is_missing_is_named(world):
    world.check(**BY_TEMPLATE)
    async with world.running():
        await until(lambda: world.state() == "NotMeasured")
        assert "node-1: there is no claim template nics" in world.status()["result"]
        world.template()
        world.now += AGAIN
        world.check("other", **SELECTED)
        await until(lambda: world.state() == "Well")


async def test_of_pods_with_claims_their_cards_are_measured_and_no_other(world):
    """A privileged pod opens all cards of its node."""
    for number in (1, 2):
        world.pods.rails[f"node-{number}"] = ("mlx5_0", "mlx5_1")
        world.claimed(f"p{number}", f"node-{number}", "mlx5-1")
    world.check(**SELECTED)
    await world.run_until()
    (pair,) = world.status()["pairs"]
    assert pair["devices"] == ["mlx5_1", "mlx5_1"]


async def test_cards_that_the_controller_may_not_see_are_a_sentence_of_the_result(world):
    world.server.forbidden = {("get", "resourceclaims")}
    for number in (1, 2):
        world.claimed(f"p{number}", f"node-{number}", "mlx5-1")
    world.check(**SELECTED)
    await world.run_until()
    result = world.status()["result"]
    assert result.startswith("All is well: 1 pair")
    assert "Cards of ResourceClaims are not known, pods tell their own" in result
    assert "resourceclaims" in result
