"""The lines that a pod needs where no policy adds them."""

import yaml
from click.testing import CliRunner

from kube_rdma.cli.preflight import preflight
from kube_rdma.model import preflight as model


def test_the_lines_are_a_part_of_a_manifest():
    """tests/lab/native/test_preflight.py compares them with what the policy adds."""
    done = CliRunner().invoke(preflight, ["lines", "--image", "r.example.com/kube-rdma:1"])
    lines = yaml.safe_load(done.output)
    assert lines["metadata"]["labels"] == {model.REQUEST: "ring"}
    names = [one["name"] for one in lines["spec"]["initContainers"]]
    assert names == [model.MEASURES, model.AWAITS]
    assert {one["image"] for one in lines["spec"]["initContainers"]} == {
        "r.example.com/kube-rdma:1"
    }


def test_without_an_image_there_are_no_lines():
    done = CliRunner().invoke(preflight, ["lines"])
    assert done.exit_code == 2
    assert "Give --image with that of your installation" in done.output


def test_the_lines_are_of_a_ring_or_of_a_star():
    done = CliRunner().invoke(preflight, ["lines", "--image", "a", "--pairs", "star"])
    metadata = yaml.safe_load(done.output)["metadata"]
    assert metadata["labels"] == metadata["annotations"] == {model.REQUEST: "star"}
    assert CliRunner().invoke(preflight, ["lines", "--pairs", "all"]).exit_code == 2
