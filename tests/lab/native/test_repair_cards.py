"""A bad card that claims use: no new claim gets it, its node stays in use, and all of it is undone.

The real scheduler judges. It takes DeviceTaintRules from Kubernetes 1.37 on, on which
test_claims_releases.py runs this file; before that the policy says what is missing, and its node is
tainted. The measurement is written by hand, as the controller writes that of a gang.
"""

import json
from datetime import UTC, datetime

import pytest

from kube_base.errors import KubeError
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.preflight import RESULT
from kube_rdma_lab import cluster, waiting
from tests.kit import manifests
from tests.kit.claiming import NAMESPACE, NODE, agents, applied, device_of, of_template, slices

CARD = "mlx5_3"
CONTROLLER = "system:serviceaccount:kube-rdma:kube-rdma-controller"
CHECK = ("-n", NAMESPACE, "bandwidthcheck", "by-hand")
ATTRIBUTE = f'device.attributes["{DRIVER}"].rdmaDevice'


@pytest.fixture(scope="module")
def lab(native):
    """Agents whose cards claims use, and a controller that repairs."""
    with agents(native, "controller.repair=true") as installed:
        yield installed
        cluster.kubectl(installed, "delete", "repairpolicies", "--all")
        waiting.until(installed, "the end of all rules", lambda: not rules(installed))


@pytest.fixture(scope="module")
def is_served(lab):
    return "devicetaintrules" in cluster.kubectl(lab, "api-resources", "-o", "name")


@pytest.fixture
def measured(lab):
    """What writes the suspects of a measurement, which the controller leaves alone."""
    meta = {"name": "by-hand", "namespace": NAMESPACE, "labels": {RESULT: "Job"}}
    made = {"preflight": "Job/by-hand"}
    cluster.apply(lab, manifests.manifest("kube-rdma.io/v1alpha1", "BandwidthCheck", meta, made))

    def write(*cards):
        now = moment(datetime.now(UTC))
        found = [
            {"kind": "card", "node": NODE, "device": one, "pairs": 3, "of": 3} for one in cards
        ]
        status = {"observedGeneration": 1, "state": "NotWell", "suspects": found}
        status |= {"startTime": now, "completionTime": now}
        patch = json.dumps({"status": status})
        cluster.kubectl(lab, "patch", *CHECK, "--subresource=status", "--type=merge", "-p", patch)

    yield write
    cluster.kubectl(lab, "delete", *CHECK)


def policy(lab, **spec):
    spec = {"when": {"slow": True}, "deviceTaint": "NoSchedule", "enforce": True, **spec}
    spec |= {"clearAfterSeconds": 10}
    cluster.apply(lab, manifests.manifest("kube-rdma.io/v1alpha1", "RepairPolicy", "slow", spec))


def rules(lab):
    """The DeviceTaintRules of policies; none where the kind is not served."""
    try:
        found = cluster.get(lab, "devicetaintrules", "-l", model.KEY)["items"]
    except KubeError:
        return []
    return [one["spec"]["deviceSelector"]["device"] for one in found]


def parts(lab):
    """The devices of the card."""
    every = [one for devices in slices(lab).values() for one in devices]
    return {
        one["name"]
        for one in every
        if one["attributes"].get("rdmaDevice", {}).get("string") == CARD
    }


def status(lab):
    return cluster.get(lab, "repairpolicy/slow").get("status", {})


def tainted(lab):
    taints = cluster.get(lab, f"node/{NODE}")["spec"].get("taints", ())
    return model.KEY in [one["key"] for one in taints]


def asks(name, expression):
    """A pod with a claim of one such device."""
    template, pod = of_template(name)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    return template, pod


def test_a_suspected_card_is_given_to_no_new_claim_until_it_is_well(lab, measured, is_served):
    policy(lab)
    measured(CARD)
    if not is_served:
        waiting.until(lab, "the taint of the node", lambda: tainted(lab))
        waiting.until(
            lab, "the remark", lambda: "DeviceTaintRules" in status(lab).get("remark", "")
        )
        measured()
        waiting.until(lab, "the end of the taint", lambda: not tainted(lab))
        return
    waiting.until(lab, "the rules of the card", lambda: {*rules(lab)} == parts(lab) != set())
    cluster.until_event(lab, "RepairTainted", f"is a suspect of BandwidthCheck {NAMESPACE}/by-hand")
    other = asks("other-card", f'{ATTRIBUTE} != "{CARD}"')
    with applied(lab, *asks("bad-card", f'{ATTRIBUTE} == "{CARD}"'), *other):
        cluster.ready(lab, "other-card")
        assert device_of(lab, "other-card") not in parts(lab)
        cluster.until_event(lab, "FailedScheduling", "cannot allocate all claims")
        assert not tainted(lab)
        measured()
        waiting.until(lab, "the end of the rules", lambda: not rules(lab))
        cluster.ready(lab, "bad-card")
    cluster.until_event(lab, "RepairCleared", f"{model.KEY}=slow:NoSchedule")
    waiting.until(lab, "the history", lambda: len(status(lab)["history"]) == 2)


def test_rules_end_with_their_policy(lab, measured, is_served):
    if not is_served:
        return
    policy(lab)
    measured(CARD)
    waiting.until(lab, "the rules of the card", lambda: rules(lab))
    cluster.kubectl(
        lab, "scale", "-n", NAMESPACE, "deployment/kube-rdma-controller", "--replicas=0"
    )
    cluster.kubectl(lab, "delete", "repairpolicy", "slow")
    waiting.until(lab, "the end of the rules", lambda: not rules(lab))
    cluster.kubectl(
        lab, "scale", "-n", NAMESPACE, "deployment/kube-rdma-controller", "--replicas=1"
    )


def test_a_stolen_token_of_the_controller_writes_no_other_rule(lab, is_served):
    """The policy of the installation judges it, not the controller's program."""
    if not is_served:
        return
    own = {"key": model.KEY, "value": "x", "effect": "NoExecute"}
    device = {"driver": DRIVER, "pool": NODE, "device": "x"}
    meta = {"name": "stolen", "labels": {model.KEY: "x"}}

    def create(meta=meta, taint=own, selector=device):
        spec = {"taint": taint, "deviceSelector": selector}
        made = manifests.manifest("resource.k8s.io/v1", "DeviceTaintRule", meta, spec)
        cluster.kubectl(lab, "create", "-f", "-", f"--as={CONTROLLER}", stdin=json.dumps(made))

    wrong = (
        {"meta": {"name": "stolen"}},
        {"taint": {**own, "key": "example.com/x"}},
        {"selector": {**device, "driver": "gpu.example.com"}},
        {"selector": {"driver": DRIVER}},
        {"selector": {**device, "pool": None}},
    )
    for one in wrong:
        with pytest.raises(KubeError, match="The controller creates and deletes DeviceTaintRules"):
            create(**one)
    create()
    words = ("delete", "devicetaintrule", "stolen")
    cluster.kubectl(lab, "label", "devicetaintrule", "stolen", f"{model.KEY}-")
    with pytest.raises(KubeError, match="The controller creates and deletes DeviceTaintRules"):
        cluster.kubectl(lab, *words, f"--as={CONTROLLER}")
    cluster.kubectl(lab, *words)
