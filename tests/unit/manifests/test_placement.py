"""The examples for schedulers that know the topology name our labels, and their parts fit.

tests/lab/native shows what Kueue (test_placement.py) and the scheduler (test_pod_groups.py) make of
them; LeaderWorkerSet and Slurm are not in the lab.
"""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kube_rdma.cli.config import check
from kube_rdma.fabric.rules.leaves import BLOCK, LEAF

FOLDER = Path(__file__).parents[3] / "examples/placement"
PODS = {"kueue.yaml": "Job", "podgroup.yaml": "Job", "lws.yaml": "LeaderWorkerSet"}


def documents(name):
    """The objects of a file by their kinds, of which it has one each."""
    listed = list(yaml.safe_load_all((FOLDER / name).read_text()))
    return {one["kind"]: one for one in listed}


@pytest.mark.parametrize("name", PODS)
def test_the_pods_pass_the_check(name):
    answer = CliRunner().invoke(check, [str(FOLDER / name), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    assert '"warning"' not in answer.output


def test_the_check_sees_each_of_them():
    """So one that it does not know would be noticed."""
    for name, kind in PODS.items():
        shown = CliRunner().invoke(check, [str(FOLDER / name)]).output
        assert f"{kind} " in shown
        assert "pods with rdma/nic: 1" in shown


def test_kueue_has_the_levels_that_the_controller_writes_and_the_job_asks_for_one():
    found = documents("kueue.yaml")
    levels = [one["nodeLabel"] for one in found["Topology"]["spec"]["levels"]]
    assert levels == [BLOCK, LEAF, "kubernetes.io/hostname"]
    template = found["Job"]["spec"]["template"]
    required = template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"]
    assert required == LEAF
    flavor = found["ResourceFlavor"]
    assert flavor["spec"]["topologyName"] == found["Topology"]["metadata"]["name"]
    assert flavor["spec"]["nodeLabels"]  # Kueue refuses a topology without
    (group,) = found["ClusterQueue"]["spec"]["resourceGroups"]
    (container,) = template["spec"]["containers"]
    assert {*container["resources"]["limits"]} <= {*group["coveredResources"]}


def test_the_scheduler_s_group_is_that_of_the_job_s_pods():
    found = documents("podgroup.yaml")
    group, job = found["PodGroup"], found["Job"]["spec"]
    assert group["spec"]["schedulingConstraints"]["topology"] == [{"key": LEAF}]
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == job["parallelism"]
    named = job["template"]["spec"]["schedulingGroup"]["podGroupName"]
    assert named == group["metadata"]["name"]


def test_a_group_of_a_leader_has_a_leaf_to_itself():
    noted = documents("lws.yaml")["LeaderWorkerSet"]["metadata"]["annotations"]
    assert noted["leaderworkerset.sigs.k8s.io/exclusive-topology"] == LEAF


def test_slurm_s_root_switch_has_all_leaves():
    values = yaml.safe_load((FOLDER / "slurm-values.yaml").read_text())
    (topology,) = yaml.safe_load(values["configFiles"]["topology.yaml"])
    root, *leaves = topology["tree"]["switches"]
    assert root["children"].split(",") == [one["switch"] for one in leaves]
    assert f"spec={topology['topology']}:" in (FOLDER / "README.md").read_text()
