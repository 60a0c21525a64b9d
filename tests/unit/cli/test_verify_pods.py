"""`kube-rdma verify pods` and `nodes` in a small cluster in memory, in whose pods perftest runs."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kube_rdma.cli.verify import verify
from kube_rdma.verify.cluster import VerifyObjects
from kube_rdma.verify.pairs import CopyRequest, copies
from kube_rdma.verify.rules.copies import pod_for
from kube_rdma_testing.perftest import PerftestCluster

RESOURCE = "rdma/hca"
POD = f"""\
kind: Pod
apiVersion: v1
metadata: {{name: job}}
spec:
  containers:
  - {{name: c, image: perftest, command: [train], resources: {{limits: {{{RESOURCE}: 1}}}}}}
"""


class World:
    """A cluster in memory, and the command in front of it."""

    def __init__(self):
        self.cluster = PerftestCluster()

    def run(self, *words):
        """As from a terminal."""
        return CliRunner().invoke(verify, words, obj=self.cluster.open)


@pytest.fixture
def world():
    """Four pods that run."""
    made = World()
    for number in range(1, 5):
        made.cluster.pod(f"p{number}", number)
    return made


@pytest.fixture
def nodes():
    """No pod, and some nodes that a test adds."""
    return World()


def pairs(result):
    return json.loads(result.stdout)["pairs"]


def test_rows_and_the_map_are_for_those_who_ask(world):
    shown = world.run("pods", "-l", "app=job").stdout
    assert "mlx5_0 → mlx5_0" not in shown
    assert shown.endswith("✓ All is well: 6 pairs, 97.50 to 97.50 Gb/s.\n")
    shown = world.run("pods", "-l", "app=job", "--verbose").stdout
    assert "default/p1  default/p4  mlx5_0 → mlx5_0" in shown
    assert "98%" in shown
    assert shown.endswith("✓ All is well: 6 pairs, 97.50 to 97.50 Gb/s.\n")


def test_a_pair_that_fails_does_not_stop_the_others(world):
    world.cluster.figures = {"p1 p2": None, "p2 p1": None}
    result = world.run("pods", "-l", "app=job", "-o", "json")
    assert result.exit_code == 1
    bad = [pair for pair in pairs(result) if pair["rating"] != "ok"]
    assert len(pairs(result)) == 6
    assert [{p["client"], p["server"]} for p in bad] == [{"default/p1", "default/p2"}]
    assert "Failed status 12" in bad[0]["why"]
    (suspect,) = json.loads(result.stdout)["suspects"]
    assert {suspect["node"], suspect["peer"]} == {"default/p1", "default/p2"}
    assert (suspect["kind"], suspect["device"], suspect["pairs"]) == ("pair", "mlx5_0", 1)


@pytest.mark.parametrize("text", ["", "[]", '{"pairs": 3}', '{"pairs": [], "test": "ib_read_lat"}'])
def test_what_is_no_earlier_run_is_refused(world, tmp_path, text):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(text)
    result = world.run("pods", "p1", "p2", "--against", str(earlier))
    assert type(result.exception).__name__ == "Refused"
    assert str(result.exception).startswith(f"{earlier}: it is ")


def test_the_map_is_drawn(world, tmp_path):
    picture = tmp_path / "map.svg"
    world.run("pods", "-l", "app=job", "--svg", str(picture))
    assert picture.read_text().count("<rect") == 1 + 4 * 3


@pytest.fixture
def full():
    """An output that takes nothing."""
    stream = Path("/dev/full").open("w")  # noqa: SIM115  its end fails, as its writes do
    yield stream
    with contextlib.suppress(OSError):  # what it did not take is in its buffer still
        stream.close()


@pytest.mark.parametrize("more", [(), ("--verbose",), ("-o", "json")])
def test_a_run_into_a_full_disk_is_kept_and_it_is_told_where(
    world, full, tmp_path, monkeypatch, capsys, more
):
    """With the row of each pair, where these were asked for: none is measured again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", full)
    words = ["pods", "p1", "p2", "p3", *more]
    with pytest.raises(OSError, match="No space left on device"):
        verify.main(words, obj=world.cluster.open, standalone_mode=False)
    (file,) = tmp_path.glob("kube-rdma-*.txt")
    kept = file.read_text()
    assert f"The result is kept in {file}." in capsys.readouterr().err
    if "json" in more:
        assert len(json.loads(kept)["pairs"]) == 3
    else:
        assert kept.endswith("✓ All is well: 3 pairs, 97.50 to 97.50 Gb/s.")
    assert kept.count("mlx5_0 → mlx5_0") == (3 if "--verbose" in more else 0)


@pytest.mark.parametrize("command", ["pods", "nodes"])
@pytest.mark.parametrize("place", ["nowhere/map.svg", "."])
def test_a_map_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path, command, place
):
    """The cluster is not even asked."""
    (tmp_path / "pod.yaml").write_text(POD)
    who = ["p1", "p2"] if command == "pods" else ["-f", str(tmp_path / "pod.yaml")]
    asked = []
    words = [command, *who, "--svg", str(tmp_path / place)]
    result = CliRunner().invoke(verify, words, obj=lambda *_, **__: asked.append(1))
    assert (asked, result.stdout) == ([], "")
    assert result.exit_code
    assert str(tmp_path / place) in f"{result.exception} {result.stderr}"


def test_nodes_get_copies_which_go(nodes, tmp_path):
    for name in "ab":
        nodes.cluster.node(name)
    nodes.cluster.node("c", unschedulable=True)
    nodes.cluster.node("d", "0")
    (tmp_path / "pod.yaml").write_text(POD)
    result = nodes.run("nodes", "-f", str(tmp_path / "pod.yaml"))
    assert result.exit_code == 0, result.output
    assert "! c takes no part: it is cordoned." in result.stdout
    assert "! d takes no part: it offers no rdma/hca." in result.stdout
    assert "✓ All is well: 1 pair, " in result.stdout
    assert nodes.cluster.pods == []


def test_a_node_that_was_named_is_not_excused(nodes, tmp_path):
    """Nobody asked for a cordoned node above; here somebody does."""
    for name in "ab":
        nodes.cluster.node(name)
    nodes.cluster.node("c", unschedulable=True)
    (tmp_path / "pod.yaml").write_text(POD)
    result = nodes.run("nodes", "-f", str(tmp_path / "pod.yaml"), "a", "b", "c", "-o", "json")
    assert result.exit_code == 6
    document = json.loads(result.stdout)
    assert (document["well"], document["unseen"]) == (False, 1)


def test_a_manifest_for_one_node_is_good_for_all():
    """Seed S3's pods name their node, and have more than one thing that a copy must not have."""
    pinned = yaml.safe_load(POD)
    pinned["spec"] |= {"nodeName": "x", "nodeSelector": {"kubernetes.io/hostname": "x", "gpu": "h"}}
    pinned["spec"]["containers"].append({"name": "more"})
    for where in "ab":
        copy = pod_for(pinned, where, "run", "file")
        assert copy["spec"]["nodeSelector"] == {"gpu": "h"}
        assert "nodeName" not in copy["spec"]
        assert [container["name"] for container in copy["spec"]["containers"]] == ["c"]
        assert "train" not in str(copy)
    assert pinned["spec"]["nodeName"] == "x"


def test_a_node_over_quota_and_a_full_one_are_told(nodes, tmp_path):
    for name in "abcd":
        nodes.cluster.node(name)
    nodes.cluster.over_quota, nodes.cluster.full = {"a"}, {"b"}
    (tmp_path / "pod.yaml").write_text(POD)
    result = nodes.run("nodes", "-f", str(tmp_path / "pod.yaml"), "--start-seconds", "1")
    assert result.exit_code == 6  # of two nodes nothing is known, and the other two are well
    assert "! a takes no part: " in result.stdout
    assert "exceeded quota: rdma." in result.stdout
    assert "! b takes no part: Insufficient rdma." in result.stdout
    assert nodes.cluster.pods == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "neither JSON nor YAML"),
        ("kind: Job", "holds 0 pods"),
        (f"{POD}---\n{POD}", "2 pods"),
        ("kind: Pod\nmetadata: x", "metadata has not the form"),
        ("kind: Pod\nmetadata: {labels: x}", "metadata.labels has not the form"),
        ("kind: Pod\nspec: []", "spec has not the form"),
        ("kind: Pod\nspec: {nodeSelector: x}", "spec.nodeSelector has not the form"),
        ("kind: Pod\nspec: {containers: x}", "spec.containers has not the form"),
        ("kind: Pod\nspec: {containers: 0}", "spec.containers has not the form"),
        ("kind: Pod\nspec: {containers: {}}", "spec.containers has not the form"),
        ("kind: Pod\nspec: {containers: [x]}", "spec.containers[0] has not the form"),
        ('kind: Pod\nspec: {containers: [""]}', "spec.containers[0] has not the form"),
        ("kind: Pod\nspec: {resourceClaims: x}", "spec.resourceClaims has not the form"),
        ("kind: Pod\nspec: {resourceClaims: false}", "spec.resourceClaims has not the form"),
        ("kind: Pod\nspec: {resourceClaims: [x]}", "spec.resourceClaims[0] has not the form"),
        ("kind: Pod\nspec: {containers: [{resources: x}]}", "[0].resources has not"),
        ("kind: Pod\nspec: {containers: [{resources: {limits: x}}]}", "limits has not"),
    ],
)
def test_what_is_no_pod_is_refused(world, tmp_path, text, words):
    (tmp_path / "pod.yaml").write_text(text)
    assert words in str(world.run("nodes", "-f", str(tmp_path / "pod.yaml")).exception)


def test_a_node_that_is_not_one_is_refused(world, tmp_path):
    world.cluster.node("a")
    (tmp_path / "pod.yaml").write_text(POD)
    result = world.run("nodes", "z", "-f", str(tmp_path / "pod.yaml"))
    assert "the cluster has no node 'z'" in str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("pods",),
        ("pods", "p1", "-l", "app=job"),
        ("pods", "p1", "p2", "-a", "-s", "8"),
        ("pods", "p1", "p2", "--latency", "--min-gbps", "3"),
        ("pods", "p1", "p2", "--max-us", "3"),
        ("--hardware-selftest", "pods", "p1", "p2"),
    ],
)
def test_words_that_exclude_each_other(world, words):
    assert world.run(*words).exit_code == 2


def test_what_the_server_forbids_is_said_with_the_rule_that_is_missing(world):
    world.cluster.server.forbidden = {("get", "pods/exec")}
    result = world.run("pods", "p1", "p2", "-o", "json")
    assert result.exit_code == 3
    why = json.loads(result.stdout)["leftOut"][0]["why"]
    assert why.startswith("the API server forbids to get pods/exec default/p1: ")
    assert 'resources: ["pods/exec"], verbs: ["get"]' in why


def test_a_pod_that_is_not_there_is_named(world):
    assert 'pods "p9" not found' in str(world.run("pods", "p1", "p9").exception)


def test_nodes_are_measured_over_their_own_devices_where_the_manifest_says_so(nodes, tmp_path):
    """Host to host: no annotation tells the devices, so the pod itself is asked."""
    for name in "ab":
        nodes.cluster.node(name)
    manifest = yaml.safe_load(POD)
    manifest["spec"]["hostNetwork"] = True
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(manifest))
    result = nodes.run("nodes", "-f", str(tmp_path / "pod.yaml"), "-o", "json")
    assert [pair["devices"] for pair in pairs(result)] == [["mlx5_0", "mlx5_0"]]
    assert {pairs(result)[0]["client"], pairs(result)[0]["server"]} == {"a", "b"}


def test_an_interruption_takes_the_copies_away(nodes):
    async def interrupted():
        request = CopyRequest(yaml.safe_load(POD), "pod.yaml", "default")
        async with nodes.cluster.open() as cluster, copies(VerifyObjects(cluster), request) as made:
            assert len(made.pods) == 2
            asyncio.current_task().cancel()
            await asyncio.Event().wait()

    for name in "ab":
        nodes.cluster.node(name)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert nodes.cluster.pods == []
