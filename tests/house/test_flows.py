"""How many files a reader opens to follow one thing through the product, from one end to the other.

Each flow is one test, or two, run with a profiler (tests/visited.py): each file of the product of
which a function is called counts, values and IPAM included, what fakes call left out. A new file on
the way means: merge two that are one thing, or say in the commit why the number grows.
"""

import subprocess
import sys

import pytest

from .tree import ROOT

UNIT = "tests/unit"
OPERATOR = "test_on_each_node_the_driver_comes_first_and_the_others_when_it_is_ready"
FLOWS = {
    "a card, ListAndWatch, Allocate": (
        43,
        f"{UNIT}/agent/test_plugin.py::test_a_node_with_two_cards",
    ),
    "an ADD with an address": (
        47,
        f"{UNIT}/attach/test_one_add.py::test_one_add",
        f"{UNIT}/ipam/test_contract.py::test_every_nic_gets_an_address_of_its_own",
    ),
    "a claim with its ADD": (
        52,
        f"{UNIT}/claims/test_attached.py::test_a_pod_by_a_claim_has_what_a_pod_by_a_share_has",
    ),
    "kube-rdma status": (
        21,
        f"{UNIT}/cli/test_status.py::test_it_says_what_is_wrong_and_what_to_do_next",
    ),
    "a NicClusterPolicy": (29, f"{UNIT}/operator/test_reconcile.py::{OPERATOR}"),
}
OF_OTHER_KINDS = {
    *(f"attach/rules/{name}.py" for name in ("delegated", "foreign_plugins", "infiniband", "vf")),
    "attach/documents/pod_networks.py",
}
"""The ADD is of type macvlan, which has no use for these."""


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_goes_through_few_files(flow, tmp_path):
    most, *tests = FLOWS[flow]
    written = tmp_path / "visited"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.visited", *tests]
    environment = {"PATH": "/usr/bin:/bin", "KUBE_RDMA_VISITED": str(written)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    files = written.read_text().splitlines()
    assert len(files) > most // 2, files  # else nobody looked
    assert len(files) <= most, "\n".join(files)
    assert flow != "an ADD with an address" or OF_OTHER_KINDS.isdisjoint(files)
