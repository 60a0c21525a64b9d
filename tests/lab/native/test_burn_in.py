"""New nodes at a real API server: check, verdict, receipt, and the end of the taint.

Native nodes have no verbs, so the test writes the figures as the controller's BandwidthChecks do;
machines/test_burn_in.py has real ones. The controller has the rights of its role, and no more.
"""

import json
from datetime import UTC, datetime

import pytest

from kube_base.errors import KubeError
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.reports import NodeReportStatus, ReportSummary
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.native.replay import Replay
from tests.kit.cluster_users import impersonating
from tests.kit.on_page import on_page
from tests.kit.walks import Walker
from tests.lab.native.test_repair import AGENTS, CONTROLLER, NODE, PAGE, lab

__all__ = ["lab"]  # agents, and a controller that repairs

CARD, PARTNER, CHECK = "mlx5_3", "node-2", "burn-in-new-nodes"
TAINT = f"{model.BURN_IN}=:NoSchedule"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def new(lab):
    """A node that is new, the policy of the page with a short soak, and the check it names."""
    cluster.kubectl(lab, "taint", "node", NODE, TAINT)
    policy = on_page(PAGE, "RepairPolicy", "new-nodes")
    policy["spec"]["burnIn"]["soakSeconds"] = 0
    kinds = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "BandwidthCheck"}
    named = {"name": policy["spec"]["burnIn"]["check"], "namespace": AGENTS}
    cluster.apply(lab, {**kinds, "metadata": named, "spec": {"template": TEMPLATE}}, policy)
    yield lab
    cluster.kubectl(lab, "delete", "repairpolicy", policy["metadata"]["name"])
    cluster.kubectl(lab, "delete", "bandwidthcheck", named["name"], "-n", AGENTS)
    waiting.until(lab, "the end of the check with its policy", lambda: not check(lab))
    if is_new(lab):
        cluster.kubectl(lab, "taint", "node", NODE, f"{model.BURN_IN}-")
    # With its receipt; the agent writes another, which may not be there yet.
    cluster.kubectl(lab, "delete", "nodereport", NODE, "--ignore-not-found")


def check(lab):
    every = cluster.get(lab, "bandwidthchecks", "-n", AGENTS)["items"]
    return next((one for one in every if one["metadata"]["name"] == CHECK), None)


def node(lab):
    return cluster.get(lab, f"node/{NODE}")


def is_new(lab):
    return any(one["key"] == model.BURN_IN for one in node(lab)["spec"].get("taints", ()))


def report(lab):
    return cluster.get(lab, f"nodereport/{NODE}")


def ends(lab, state, result, **status):
    """A run of the check ends so; the controller's own has ended before, for it lacks rights."""
    waiting.until(lab, "the run without rights", lambda: has_run(check(lab)))
    now = moment(datetime.now(UTC))
    holds = "True" if state == "Well" else "False"
    words = {"type": "Well", "status": holds, "reason": state, "message": result}
    condition = {**words, "lastTransitionTime": now, "observedGeneration": 1}
    status |= {"observedGeneration": 1, "state": state, "result": result}
    status |= {"startTime": now, "completionTime": now, "conditions": [condition]}
    patch = json.dumps({"status": status})
    words = ("bandwidthcheck", CHECK, "-n", AGENTS, "--subresource=status", "--type=merge")
    cluster.kubectl(lab, "patch", *words, "-p", patch)


def has_run(found):
    return found and found.get("status", {}).get("state") == "NotMeasured"


def test_a_new_node_is_admitted_with_a_receipt_that_its_agent_leaves_alone(new):
    cluster.until_event(new, "BurnInNotMeasured", "forbidden")
    assert check(new)["spec"]["nodes"] == [NODE, PARTNER]
    assert is_new(new)
    result = "All is well: 8 pairs, 96.00 to 98.00 Gb/s."
    ends(new, "Well", result)
    waiting.until(new, "the end of the taint", lambda: not is_new(new))
    receipt = report(new)["status"]["receipt"]
    assert (receipt["policy"], receipt["result"]) == ("new-nodes", result)
    assert receipt["peers"] == [PARTNER]
    cluster.until_event(new, "BurnInPassed", result)
    waiting.until(new, "the end of the check", lambda: not check(new))
    replay = Replay(new, NODE)
    replay.down(CARD)
    waiting.until(new, "the card", lambda: report(new)["status"]["summary"]["healthy"] == 7)
    replay.up(CARD)
    waiting.until(new, "the card", lambda: report(new)["status"]["summary"]["healthy"] == 8)
    assert report(new)["status"]["receipt"] == receipt


def test_a_suspected_node_keeps_the_taint_until_a_person_has_it_measured_again(new, tmp_path):
    suspect = {"kind": "card", "node": NODE, "device": CARD, "pairs": 1, "of": 1}
    figures = {"medianMeasured": "12G", "medianDue": "80G"}
    waiting.until(new, "the check", lambda: check(new))
    uid = check(new)["metadata"]["uid"]
    ends(new, "NotWell", "Not well", suspects=[suspect | figures])
    why = f"1 of 1 pairs of {CARD} are bad: 12G where 80G is due"
    cluster.until_event(new, "BurnInFailed", why)
    waiting.until(new, "the end of the check", lambda: not check(new))
    assert node(new)["metadata"]["annotations"][model.BURN_IN].endswith(why)
    assert is_new(new)
    admin = Walker(new, "admin", [PAGE], tmp_path)
    with admin.granted("cluster-admin"):
        waiting.until(
            new, "the status", lambda: "BurnInFailed" in admin.does("kube-rdma repair show")[1]
        )
        admin.does("kubectl annotate node NODE kube-rdma.io/burn-in-", NODE=NODE)
        waiting.until(new, "another check", lambda: check(new))
    assert check(new)["metadata"]["uid"] != uid


async def test_a_stolen_token_of_the_controller_writes_no_such_taint_and_no_report(new, tmp_path):
    """The policy of the installation judges it; removing a taint is what the controller is for."""
    words = ("taint", "node", PARTNER, f"--as={CONTROLLER}", TAINT)
    with pytest.raises(KubeError, match=r"removes kube-rdma\.io/burn-in"):
        cluster.kubectl(new, *words)
    forged = NodeReportStatus("forged", summary=ReportSummary(0, 0))
    async with connect(impersonating(new, CONTROLLER, tmp_path)) as api:
        with pytest.raises(KubeError, match="of a NodeReport the receipt"):
            await api.apply_status(NODE_REPORT, PARTNER, "", forged, force=True)


def test_the_api_server_refuses_a_policy_that_asks_for_nothing(new):
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "RepairPolicy"}
    with pytest.raises(KubeError, match="Say what makes a node bad"):
        cluster.apply(new, {**document, "metadata": {"name": "empty"}, "spec": {}})
