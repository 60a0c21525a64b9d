"""`kube-rdma doctor` from the outside, on trees and bundles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_rdma.adapters.files import bundle
from kube_rdma.cli.doctor import doctor
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.model.doctor import Observation
from kube_rdma_lab.native.tree_text import unpack
from tests.unit.doctor.rules.healthy import HEALTHY

TREES = sorted((Path(__file__).parents[2] / "data/trees").iterdir())


def run(*words):
    return CliRunner().invoke(doctor, [str(word) for word in words], catch_exceptions=False)


@pytest.mark.parametrize("tree", TREES, ids=lambda path: path.name)
def test_a_recorded_node_is_judged(tree, tmp_path):
    unpack((tree / "tree.txt").read_text(), tmp_path / "sys")
    result = run("--sysfs", tmp_path / "sys", "--node-name", "recorded", "--json")
    document = json.loads(result.stdout)
    assert document["node"] == "recorded"
    # Of a tree alone most checks cannot be made, and nobody asked for them.
    assert (document["findings"], result.exit_code) == ([], 0)


def test_a_bundle_is_judged_as_the_node_was(tmp_path):
    ill = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))
    bundle.write(ill, tmp_path / "node.json")
    result = run("--bundle", tmp_path / "node.json")
    assert result.exit_code == 1
    assert result.stdout.startswith("node node-1 · 2 RDMA devices · namespace mode shared")
    assert "✗ KR201  kubelet\n    Seen   There is no kubelet.sock" in result.stdout
    document = json.loads(run("--bundle", tmp_path / "node.json", "-o", "json").stdout)
    assert [one["code"] for one in document["findings"]] == [
        one.code for one in diagnose(ill).findings
    ]


def test_a_healthy_bundle_exits_with_nothing(tmp_path):
    bundle.write(HEALTHY, tmp_path / "node.json")
    result = run("--bundle", tmp_path / "node.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "Nothing is wrong in what was seen."


def test_what_was_seen_is_collected_for_its_owner_alone(tmp_path):
    unpack((TREES[0] / "tree.txt").read_text(), tmp_path / "sys")
    run("--sysfs", tmp_path / "sys", "--collect", tmp_path / "b.json")
    assert (tmp_path / "b.json").stat().st_mode & 0o777 == 0o600
    seen = bundle.read(tmp_path / "b.json")
    assert seen.survey
    assert seen.taken.endswith("Z")


def test_a_bundle_can_go_to_the_output_alone(tmp_path):
    """For containers, of which the root is read-only."""
    bundle.write(HEALTHY, tmp_path / "node.json")
    result = run("--bundle", tmp_path / "node.json", "--collect", "-")
    assert bundle.decode(result.stdout.encode(), "stdout") == HEALTHY


def test_an_unknown_target_is_a_usage_error():
    assert run("cluster").exit_code == 2


def test_a_part_that_fails_is_named_and_judges_nothing(tmp_path):
    (tmp_path / "c.json").write_text("{}")
    unpack((TREES[0] / "tree.txt").read_text(), tmp_path / "sys")
    result = run("--sysfs", tmp_path / "sys", "--state-dir", tmp_path / "none", "--json")
    hidden = {one["part"] for one in json.loads(result.stdout)["notSeen"]}
    assert "specs" in hidden
    result = run("--sysfs", tmp_path / "sys", "--config", tmp_path / "c.json", "--json")
    assert "KR130" in {one["code"] for one in json.loads(result.stdout)["findings"]}


def test_nothing_seen_is_nothing_wrong():
    diagnosis = diagnose(Observation("node-1"))
    assert not diagnosis.findings
    assert not diagnosis.passed


@pytest.mark.parametrize("seconds", ["-1", "61", "soon"])
def test_an_interval_has_bounds(seconds):
    result = run("--interval", seconds)
    assert result.exit_code == 2
    assert "--interval" in result.stderr


def test_what_was_not_checked_is_named_on_request_or_if_nothing_else_is_the_result(tmp_path):
    ill = run("--sysfs", "dgx-cable-out")
    assert ill.exit_code == 1
    assert ill.stdout.splitlines()[2] == "✗ KR121  mlx5_3"
    assert ill.stdout.endswith("; only cards were judged.\n")
    assert "Not checked" not in ill.stdout
    assert (
        "? Not checked: device nodes (KR105)" in run("--sysfs", "dgx-cable-out", "--verbose").stdout
    )
    assert "Not checked" not in run("--sysfs", "dgx-like").stdout
    more = run("--sysfs", "dgx-like", "--verbose").stdout
    assert "? Not seen: specs. the node's files do not say which pools it has" in more
    bundle.write(Observation("node-1", survey=HEALTHY.survey), tmp_path / "node.json")
    blind = run("--bundle", tmp_path / "node.json")
    assert blind.exit_code == 6
    assert "? Not checked: device nodes (KR105)" in blind.stdout


def test_a_recorded_node_has_the_name_of_its_folder_and_takes_no_target(tmp_path):
    unpack((TREES[0] / "tree.txt").read_text(), tmp_path / "node-7")
    assert run("--sysfs", tmp_path / "node-7").stdout.startswith(f"node {tmp_path / 'node-7'} ·")
    refused = run("node/node-1", "--sysfs", "dgx-like")
    assert refused.exit_code == 2
    assert "--sysfs and node/node-1 exclude each other" in refused.stderr


def test_what_is_not_seen_of_a_recorded_tree_is_no_finding(tmp_path):
    """ACS, domains of an IOMMU, flow control and errors are in no record."""
    unpack((TREES[0] / "tree.txt").read_text(), tmp_path / "sys")
    unmade = json.loads(run("--sysfs", tmp_path / "sys", "--json").stdout)["notChecked"]
    assert {one["code"] for one in unmade} >= {"KR126", "KR127", "KR129", "KR141", "KR142"}
