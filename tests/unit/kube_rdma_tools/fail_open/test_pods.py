"""Pods of the check, the check itself, and the two commands around kubectl."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma_tools.fail_open.__main__ import main
from kube_rdma_tools.fail_open.judge import LINE
from kube_rdma_tools.fail_open.pods import CHECK, EXPECTATIONS, LABEL, probes

CLAIM = {"name": "nic", "resourceClaimTemplateName": "nic"}


def asking(**container):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "nic", "annotations": {"k8s.v1.cni.cncf.io/networks": "rail"}},
        "spec": {
            "resourceClaims": [CLAIM],
            "containers": [{"name": "main", "image": "busybox", **container}],
        },
    }


def test_what_the_pod_asks_for_stays_and_its_program_is_the_check():
    document = asking(
        resources={"limits": {"rdma/nic": "1"}},
        args=["--serve"],
        readinessProbe={"exec": {}},
        env=[{"name": "LATE", "value": "mine"}, {"name": "A", "value": "b"}],
    )
    first, second = probes(document, 2, ("netdev", "verbs"), 5)
    assert [one["metadata"]["name"] for one in (first, second)] == ["nic-1", "nic-2"]
    assert first["metadata"]["labels"] == {LABEL: "nic"}
    assert first["metadata"]["annotations"] == document["metadata"]["annotations"]
    assert first["spec"]["resourceClaims"] == [CLAIM]
    assert first["spec"]["restartPolicy"] == "Never"
    (container,) = first["spec"]["containers"]
    assert container == {
        "name": "main",
        "image": "busybox",
        "resources": {"limits": {"rdma/nic": "1"}},
        "command": ["sh", "-c", CHECK],
        "env": [
            {"name": "A", "value": "b"},
            {"name": "EXPECT", "value": "netdev verbs"},
            {"name": "LATE", "value": "5"},
        ],
    }
    assert "command" not in document["spec"]["containers"][0]


@pytest.mark.parametrize(
    "document", [{"kind": "Deployment", "metadata": {"name": "x"}}, {"kind": "Pod"}]
)
def test_what_is_no_pod_is_refused(document):
    with pytest.raises(Refused, match="no Pod with a name"):
        list(probes(document, 1, (), 0))


def test_a_pod_of_two_containers_is_refused_for_nobody_says_which_has_the_nic():
    document = asking()
    document["spec"]["containers"] *= 2
    with pytest.raises(Refused, match="2 containers"):
        list(probes(document, 1, (), 0))


def test_kubernetes_expands_nothing_in_the_check():
    """`$(NAME)` means a variable of the container there, and `$$` a dollar."""
    assert "$$" not in CHECK
    assert not any(f"$({name})" in CHECK for name in ("EXPECT", "LATE"))


def checked(*expect, inside="", late=0):
    """The line of the check in a network namespace of its own, after these commands."""
    words = ("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c")
    # The termination log of a container is a file of its own.
    script = inside + CHECK.replace("/dev/termination-log", "/dev/null")
    environment = {**os.environ, "EXPECT": " ".join(expect), "LATE": str(late)}
    done = subprocess.run(
        [*words, script], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def namespaces():
    if subprocess.run(["unshare", "--user", "--net", "true"], check=False).returncode:
        pytest.skip("this machine makes no namespaces")


def test_the_check_sees_no_interface_in_a_bare_namespace(namespaces):
    assert LINE.search(checked("netdev"))["lacks"] == "netdev"


def test_the_check_sees_an_interface_besides_lo_and_eth0(namespaces):
    line = checked("netdev", inside="ip link add net1 type veth peer name eth0\n")
    assert LINE.search(line)["lacks"] == ""
    assert "netdev=net1 " in line


def test_the_check_tells_how_late_an_interface_came(namespaces):
    add = "(sleep 0.2; ip link add net1 type veth peer name eth0) &\n"
    line = LINE.search(checked("netdev", inside=add, late=20))
    assert line["lacks"] == "netdev"
    assert int(line["late"]) >= 1


def test_what_does_not_come_has_no_time(namespaces):
    line = LINE.search(checked("netdev", late=1))
    assert (line["lacks"], line["late"]) == ("netdev", "")


def run(*words, given=None):
    return CliRunner().invoke(main, words, input=given)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(asking()))
    return str(path)


def test_pods_prints_what_kubectl_creates(file):
    printed = run("pods", file, "--count", "3", "--expect", "netdev,rdma")
    names = [one["metadata"]["name"] for one in json.loads(printed.output)["items"]]
    assert names == ["nic-1", "nic-2", "nic-3"]
    assert set(EXPECTATIONS) == {"netdev", "rdma", "verbs"}


def test_an_expectation_that_nobody_can_check_is_named(file):
    printed = run("pods", file, "--expect", "netdev,gpu")
    assert printed.exit_code == 2
    assert "'gpu' is none of netdev, rdma, verbs" in printed.output


@pytest.mark.parametrize("text", ["kind: Node", "- 1", "{"])
def test_a_file_without_a_pod_is_one_sentence(tmp_path, text):
    path = Path(tmp_path / "pod.yaml")
    path.write_text(text)
    printed = run("pods", str(path))
    assert printed.exit_code == 3
    assert printed.output.startswith(str(path))


def judged(lacks):
    line = f"fail-open lacks={lacks} netdev= rdma= verbs= late=\n"
    state = {"terminated": {"startedAt": "2026-11-26T21:00:00Z", "message": line}}
    made = {"kind": "Pod", "metadata": {"name": "nic-1", "uid": "u", "labels": {LABEL: "nic"}}}
    items = [{**made, "status": {"containerStatuses": [{"state": state}]}}]
    return run("judge", given=json.dumps({"items": items}))


def test_judge_tells_the_score_by_its_exit_code():
    assert judged("").exit_code == 0
    assert "Fail-open: 0." in judged("").output
    assert judged("netdev").exit_code == 1
    assert "without  nic-1  no netdev" in judged("netdev").output
    assert "Fail-open: 1." in judged("netdev").output


def test_judge_takes_no_pods_for_no_success():
    printed = run("judge", given=json.dumps({"items": []}))
    assert printed.exit_code == 1
    assert "No pod of the check" in printed.output


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"'])
def test_input_that_is_no_list_is_one_sentence(text):
    printed = run("judge", given=text)
    assert printed.exit_code == 3
    assert "kubectl get pods,events -o json" in printed.output
