"""Evidence of the AI conformance items, taken by their command from the lab's own cluster.

Its pods stand on seed S3's network, so verbs and UCX move data over Soft-RoCE devices of the pods.
"""

import re
from math import ceil

import pytest
import yaml

from kube_rdma.model.verify import PROBE_SECONDS
from tests.documents.on_lab import followed
from tests.documents.shell import Shell
from tests.house.tree import ROOT

pytestmark = pytest.mark.slow  # perftest and UCX between two emulated machines take minutes
# As docs/hardware.md has it; without a KUBECONFIG the cluster is that of the lab.
COMMAND = """\
ARGS="--resource rdma/hca_shared_devices_a --network rdma-net-ipam" make conformance
"""
FOLDER = ROOT / "dist/conformance"


@pytest.fixture(scope="module")
def taken(lab):
    """The folder with the files, and what the command printed."""
    variables = {
        "KUBECONFIG": "",
        "KUBE_RDMA_LAB": lab.state.name,
        "KUBE_RDMA_PROBE_SECONDS": str(ceil(PROBE_SECONDS * max(lab.state.pace, 1.0))),
    }
    with (
        followed(lab, "examples/s3-network/README.md", part=slice(-1)),
        Shell(variables, lab.state.binaries) as shell,
    ):
        yield FOLDER, shell.check(COMMAND.strip())


def test_every_check_that_can_run_here_is_met(taken):
    folder, shown = taken
    verdicts = re.findall(r"(?m)^  (met|not met|not run) ", shown)
    assert "not met" not in verdicts, shown
    assert verdicts.count("not run") == 2  # claims are off in S3's agents, and no engine runs here
    assert verdicts.count("met") == 6
    entries = yaml.safe_load((folder / "items.yaml").read_text())["spec"]["networking"]
    assert {one["status"] for one in entries} == {"Partially Implemented"}


def test_the_page_names_the_transport_and_the_pods_own_device(taken):
    folder, _ = taken
    page = (folder / "disaggregated_inference.md").read_text()
    assert "100 reads of 1 MiB went by rc_verbs on rxe" in page
