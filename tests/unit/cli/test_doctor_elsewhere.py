"""`kube-rdma doctor` of nodes and pods elsewhere, against a cluster in memory with its agents."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.files import bundle
from kube_rdma.cli.bundle import bundle as bundle_command
from kube_rdma.cli.doctor import doctor
from tests.kit import explained
from tests.kit.agents import FleetOfAgents
from tests.kit.opener import opener_of
from tests.unit.cli.test_explain_waiting import MOUNT, put_event
from tests.unit.doctor.rules.healthy import HEALTHY

ILL = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))


@pytest.fixture
def fleet():
    return FleetOfAgents("node-1", "node-2", seen=HEALTHY, pods={("train", "w-0"): "node-2"})


@pytest.fixture
def run(fleet, tmp_path):
    """Run it on a machine that is no node."""

    def call(*words):
        given = [*words, "--state-dir", str(tmp_path / "no-node")]
        obj = opener_of(fleet.server)
        env = {"NODE_NAME": None}
        return CliRunner().invoke(doctor, given, obj=obj, env=env, catch_exceptions=False)

    return call


def test_a_node_is_shown_as_on_itself(run):
    result = run("node/node-2")
    assert result.exit_code == 0
    assert result.stdout.startswith("node node-2 · 2 RDMA devices")
    assert result.stdout.splitlines()[-1].startswith("Nothing is wrong in what was seen")


def test_a_fault_of_a_node_is_the_exit_code(run, fleet):
    fleet.seen["node-2"] = replace(ILL, node="node-2")
    assert run("node/node-1").exit_code == 0
    assert run("node/node-2").exit_code == 1


def test_a_pod_is_looked_at_on_its_node(run, fleet):
    document = json.loads(run("pod/w-0", "-n", "train", "-o", "json").stdout)
    assert (document["node"], document["pod"]) == ("node-2", "train/w-0")
    assert [one.argv[2] for one in fleet.commands] == ["pod/train/w-0"]


def test_why_a_pod_waits_is_read_with_the_rights_of_who_asks(tmp_path):
    """The agent may read no Events, and here not even the pod: its other checks are made."""
    server = explained.server()
    fleet = FleetOfAgents("node-1", server=server)
    fleet.texts["node-1"] = bundle.encode(replace(HEALTHY, node="node-1")).decode()
    fleet.pods["default", "waits"] = "node-1"
    server.put(POD, explained.pod("waits", "Pending"))
    uid = next(p["metadata"]["uid"] for p in server.documents("pods") if "waits" in str(p))
    about = {"kind": "Pod", "name": "waits", "namespace": "default", "uid": uid}
    put_event(server, "FailedMount", MOUNT, involvedObject=about)
    words = ["pod/default/waits", "--state-dir", str(tmp_path / "no-node")]
    result = CliRunner().invoke(doctor, words, obj=opener_of(server), catch_exceptions=False)
    code, seen, *rest = result.stdout.splitlines()
    assert code == "✗ KR490  default/waits"
    assert any(line.startswith("default/waits on node-1 · ") for line in rest)
    assert seen == f"    Seen   not RDMA: FailedMount: {MOUNT}"
    assert result.exit_code == 1


def test_a_machine_with_the_agents_records_is_a_node_and_asks_no_other(fleet, tmp_path):
    words = ["pod/train/w-0", "--state-dir", str(tmp_path), "--node-name", "node-1"]
    result = CliRunner().invoke(doctor, words, obj=opener_of(fleet.server))
    assert result.stdout.startswith("train/w-0 on node-1")
    assert fleet.commands == []


def test_all_nodes_come_on_one_page(run, fleet):
    assert run("--all-nodes").exit_code == 0
    fleet.seen["node-1"] = replace(ILL, node="node-1")
    result = run("--all-nodes")
    assert result.exit_code == 1
    assert "✗ KR201  1 of 2 nodes  kubelet" in result.stdout
    document = json.loads(run("--all-nodes", "-o", "json").stdout)
    assert [one["node"] for one in document["nodes"]] == ["node-1", "node-2"]


def test_a_node_that_did_not_answer_is_an_exit_code_of_its_own(run, fleet):
    fleet.failing["node-1"] = "it broke"
    result = run("--all-nodes")
    assert result.exit_code == 6
    assert "? Not seen: node-1" in result.stdout


def test_what_a_node_answers_moves_no_cursor(run, fleet):
    """Its words are foreign text."""
    system = replace(HEALTHY.versions, kernel="6.8\x1b[2J")
    fleet.seen["node-1"] = replace(HEALTHY, node="node-1", versions=system)
    assert "\x1b" not in run("node/node-1").stdout


def test_a_bundle_of_a_node_is_kept_here(run, tmp_path):
    run("node/node-2", "--collect", str(tmp_path / "b.json"))
    assert bundle.read(tmp_path / "b.json") == replace(HEALTHY, node="node-2")


def collect(fleet, file):
    return CliRunner().invoke(
        bundle_command, [str(file)], obj=opener_of(fleet.server), catch_exceptions=False
    )


def test_a_cluster_is_judged_by_its_bundle_as_by_its_nodes(run, fleet, tmp_path):
    fleet.seen["node-1"] = replace(ILL, node="node-1")
    fleet.failing["node-2"] = "it broke"
    result = collect(fleet, tmp_path / "c.tar.gz")
    assert (result.exit_code, result.stdout) == (
        6,
        f"{tmp_path}/c.tar.gz: 1 of 2 nodes answered.\n",
    )
    assert (tmp_path / "c.tar.gz").stat().st_mode & 0o777 == 0o600
    now, then = run("--all-nodes"), run("--all-nodes", "--bundle", str(tmp_path / "c.tar.gz"))
    assert (then.stdout, then.exit_code) == (now.stdout, 1)


def test_a_bundle_is_never_written_over_a_file(fleet, tmp_path):
    (tmp_path / "c.tar.gz").write_text("precious")
    with pytest.raises(Refused, match="the bundle cannot be written"):
        collect(fleet, tmp_path / "c.tar.gz")
    assert (tmp_path / "c.tar.gz").read_text() == "precious"


def tar_of(path, *members):
    """A file that others wrote."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(data), kind
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize(
    "members",
    [
        [("../../etc/passwd", b"x", tarfile.REGTYPE)],
        [("nodes/a.json", b"", tarfile.SYMTYPE)],
        [("nodes/a.json", b"{}", tarfile.REGTYPE)],
        [("nodes/../a.json", b"{}", tarfile.REGTYPE)],
        [("unseen.json", b"[]", tarfile.REGTYPE)],
    ],
    ids=["elsewhere", "link", "no bundle", "above", "no list"],
)
def test_what_is_no_bundle_of_a_cluster_is_refused(run, tmp_path, members):
    tar_of(tmp_path / "x", *members)
    with pytest.raises(Refused):
        run("--all-nodes", "--bundle", str(tmp_path / "x"))


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8b\x08garbage"])
def test_a_file_of_another_kind_is_refused(run, tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Refused, match="cannot be read"):
        run("--all-nodes", "--bundle", str(tmp_path / "x"))


@pytest.mark.parametrize(
    "words",
    [("node/",), ("node/a/b",), ("--all-nodes", "node/a"), ("--all-nodes", "--collect", "x")],
)
def test_what_cannot_be_meant_is_a_usage_error(run, words):
    assert run(*words).exit_code == 2


def test_a_namespace_without_agents_is_refused(run):
    with pytest.raises(Refused, match="no agent runs in namespace default"):
        run("--all-nodes", "--agent-namespace", "default")
