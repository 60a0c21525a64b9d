"""`kube-rdma explain` of pods with a preflight: what they measure, await and found."""

import json

import pytest

from kube_rdma.attach.documents.network_status import OWN_ANNOTATION
from kube_rdma.explain.workloads import kinds
from kube_rdma.model.preflight import AWAITS, MEASURES, PLAN, REQUEST, VERDICT
from kube_rdma.preflight.documents import plan_text
from kube_rdma.preflight.rules import plans
from tests.kit import explained as kit
from tests.unit.cli.test_explain import run, written
from tests.unit.preflight.test_rules import RING, pods

ROUND = "0" * 16
RUNS = {"running": {}}


def asking(name="train-0", phase="Pending", inits=(MEASURES, AWAITS), state=RUNS, **annotations):
    """A pod of a Job that asks for a ring."""
    made = kit.pod(name, phase, **{REQUEST: "ring", OWN_ANNOTATION: kit.STATUS, **annotations})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    made["spec"]["initContainers"] = [{"name": one} for one in inits]
    made["status"]["initContainerStatuses"] = [{"name": MEASURES, "state": state}]
    return made


def section(server, target):
    """The lines of the section, and all that is printed."""
    shown = run(server, target).stdout
    lines = shown.partition("PREFLIGHT\n")[2].partition("\n\n")[0]
    return " ".join(lines.split()), shown


def test_a_plan_and_a_verdict_are_sentences_and_not_their_texts():
    server, (first, *_) = kit.server(), pods(4)
    plan = plan_text(plans(pods(4), RING)[first.uid])
    kit.put_pod(server, asking(**{PLAN: plan}))
    said, shown = section(server, "pod/train-0")
    head = "4 pods of Job default/train measure; it is in 4 pairs, on rails 0, 1."
    assert said == f"{head} It measures now."
    assert PLAN not in shown
    assert "It starts only after a preflight that is well." in shown
    verdict = json.dumps(
        {"round": ROUND, "well": False, "why": "Not well: node-2 mlx5_0 \x1b[31mis slow."}
    )
    kit.put_pod(server, asking(**{PLAN: plan, VERDICT: verdict}, state={"terminated": {}}))
    said, shown = section(server, "pod/train-0")
    assert said == f"{head} Not well: node-2 mlx5_0 ?[31mis slow."
    assert (VERDICT in shown, "\x1b" in shown) == (False, False)
    document = json.loads(run(server, "pod/train-0", "--json").stdout)
    assert document["preflight"] == [head[:-1], "Not well: node-2 mlx5_0 ?[31mis slow."]
    assert document["asked"]["annotations"] == [f"{REQUEST}: ring"]


def test_a_workload_shows_for_what_its_pod_waits():
    kind = kinds()["job"]
    server = kit.server(kinds=(*kit.KINDS, kind))
    labels = {"job-name": "train"}
    template = {"metadata": {"labels": labels}, "spec": kit.pod("t")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "train", "namespace": "default"}
    server.put(kind, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    waits = asking()
    waits["metadata"]["labels"] = labels
    kit.put_pod(server, waits)
    said, _ = section(server, "job/train")
    assert said == "It awaits other pods of Job default/train, which Events name."


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_without_the_init_containers_is_refused_as_the_agent_refuses_it(phase):
    """By one rule. One that runs, such as on the node's own network, is said to be unmeasured."""
    server = kit.server()
    kit.put_pod(server, asking(phase=phase, inits=("fetch",), **{OWN_ANNOTATION: "[]"}))
    said, shown = section(server, "pod/train-0")
    assert f"its first init containers are not {MEASURES} and {AWAITS}" in said
    assert "kube-rdma preflight lines" in said
    is_refused = f"✗ The agent, at pod default/train-0: {REQUEST}" in shown
    assert is_refused is (phase == "Pending")
    assert run(server, "pod/train-0").exit_code == is_refused


def test_the_policy_may_complete_a_pod_of_a_file(tmp_path):
    """A note names the command for releases that have no such policy."""
    pod = kit.pod("new", node="", **{REQUEST: "ring"})
    result = run(kit.server(), "-f", written(tmp_path, pod))
    assert "PREFLIGHT" not in result.stdout
    assert "kube-rdma preflight lines --image IMAGE" in " ".join(result.stdout.split())
    assert "would refuse" not in result.stdout


def test_a_pod_that_asks_for_no_preflight_has_no_such_part():
    server = kit.server()
    kit.put_pod(server, kit.attached())
    assert "PREFLIGHT" not in run(server, "pod/worker-0").stdout
    assert json.loads(run(server, "pod/worker-0", "--json").stdout)["preflight"] == []
