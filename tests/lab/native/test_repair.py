"""RepairPolicies on a cluster: a card that is down taints its node, and one that is well clears it.

The controller runs in a pod with the rights of its role, and under the policies of the
installation. Who is called at night does what docs/repair.md says.
"""

import json

import pytest

from kube_base.errors import KubeError
from kube_rdma.cli.output import ExitCode
from kube_rdma.install.installation import assignment
from kube_rdma.model import repair as model
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.native.replay import Replay
from tests.kit.on_page import on_page
from tests.kit.pods import sleeping_pod
from tests.kit.walks import Walker

NODE, CARD, AGENTS, PAGE = "node-1", "mlx5_3", "kube-rdma", "docs/repair.md"
CONTROLLER = "system:serviceaccount:kube-rdma:kube-rdma-controller"
OTHER = "example.com/maintenance=yes:NoSchedule"


@pytest.fixture(scope="module")
def lab(native):
    """Agents of preset `default` on constructed cards, and a controller that repairs."""
    scc.install_kinds(native)
    made = objects([assignment("controller.repair=true")], "default")
    items = [one for one in made if one["kind"] != "CustomResourceDefinition"]
    cluster.apply(native, *made)
    cluster.rollout(native, "kube-rdma-agent", AGENTS)
    yield native
    cluster.kubectl(native, "delete", "repairpolicies", "--all")
    waiting.until(native, "the end of all taints", lambda: not taints(native))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl(native, "delete", "-f", "-", "--cascade=foreground", stdin=text)


def policy(lab, **spec):
    """The policy of the page with other fields; nodes of the lab have eight cards."""
    document = on_page(PAGE, "RepairPolicy")
    document["spec"] |= {"enforce": True, "clearAfterSeconds": 10, **spec}
    cluster.apply(lab, document)


def taints(lab, node=NODE):
    """The taints of a node, as key=value:effect."""
    found = cluster.get(lab, f"node/{node}")["spec"].get("taints", ())
    return {f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in found}


TAINT = f"{model.KEY}=cards:NoSchedule"


@pytest.fixture
def down(lab):
    """A card of the node that is down."""
    replay = Replay(lab, NODE)
    replay.down(CARD)
    yield replay
    replay.up(CARD)
    waiting.until(lab, "the end of the taint", lambda: TAINT not in taints(lab))


def test_a_card_that_is_down_taints_its_node_and_one_that_is_well_clears_it(lab, down):
    cluster.kubectl(lab, "taint", "node", NODE, OTHER)
    policy(lab)
    waiting.until(lab, "the taint", lambda: TAINT in taints(lab))
    why = f"fewer than 8: {CARD}: no port is ACTIVE"
    assert why in cluster.get(lab, f"node/{NODE}")["metadata"]["annotations"][model.KEY]
    cluster.until_event(lab, "RepairTainted", why)
    down.up(CARD)
    waiting.until(lab, "the end of the taint", lambda: TAINT not in taints(lab))
    assert OTHER in taints(lab)
    cluster.kubectl(lab, "taint", "node", NODE, f"{OTHER}-")


def test_who_is_called_at_night_learns_why_and_overrules_it(lab, down, tmp_path):
    policy(lab)
    waiting.until(lab, "the taint", lambda: TAINT in taints(lab))
    on_call = Walker(lab, "on-call", [PAGE], tmp_path)
    with on_call.granted("kube-rdma-view"):
        on_call.may("list", "repairpolicies.kube-rdma.io")
        waiting.until(lab, "the status", lambda: CARD in on_call.does("kube-rdma repair show")[1])
        _, shown = on_call.does("kube-rdma repair show")
        assert all(word in shown for word in (NODE, "Tainted", CARD))
        _, done = on_call.does("kube-rdma repair history")
        assert NODE in done
        code, refused = on_call.does("kube-rdma repair resume")
        assert code != ExitCode.OK
        assert "cannot patch" in refused
    admin = Walker(lab, "admin", [PAGE], tmp_path)
    with admin.granted("cluster-admin"):
        admin.may("patch", "nodes")
        admin.does("kubectl annotate node NODE kube-rdma.io/repair-ignored=yes", NODE=NODE)
        waiting.until(lab, "the end of the taint", lambda: TAINT not in taints(lab))
        assert admin.does("kube-rdma repair pause --why REASON", REASON="work")[0] == ExitCode.OK
        assert admin.does("kubectl annotate node NODE kube-rdma.io/repair-ignored-", NODE=NODE)
        waiting.until(lab, "the pause", lambda: "WouldTaint" in states(lab))
        assert TAINT not in taints(lab)
        assert admin.does("kube-rdma repair resume")[0] == ExitCode.OK
        waiting.until(lab, "the taint", lambda: TAINT in taints(lab))


def states(lab):
    status = cluster.get(lab, "repairpolicy/cards").get("status", {})
    return {one["state"] for one in status.get("nodes", ())}


def test_a_stolen_token_of_the_controller_writes_no_other_taint(lab):
    """The policy of the installation judges it, not the controller's program."""
    words = ("taint", "node", NODE, f"--as={CONTROLLER}")
    for taint in (OTHER, "node.kubernetes.io/unreachable=x:NoExecute"):
        with pytest.raises(KubeError, match=r"the controller writes kube-rdma\.io/repair alone"):
            cluster.kubectl(lab, *words, taint)
    cluster.kubectl(lab, *words, f"{model.KEY}=by-hand:NoSchedule")
    waiting.until(lab, "the end of a taint of no policy", lambda: not taints(lab))


def test_the_api_server_refuses_a_policy_that_says_nothing(lab):
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "RepairPolicy"}
    document |= {"metadata": {"name": "empty"}, "spec": {"when": {}}}
    with pytest.raises(KubeError, match="say what counts"):
        cluster.apply(lab, document)


def test_a_pod_does_not_start_on_a_tainted_node(lab, down):
    policy(lab)
    waiting.until(lab, "the taint", lambda: TAINT in taints(lab))
    here = {"kubernetes.io/hostname": NODE}
    pod = sleeping_pod("train", limits={"rdma/nic": 1}, nodeSelector=here)
    cluster.apply(lab, pod)
    try:
        cluster.until_event(lab, "FailedScheduling", "untolerated taint")
    finally:
        cluster.kubectl(lab, "delete", "pod/train")
