"""Functions for user space, as people's SR-IOV configurations have them: every command agrees.

The node and its configuration are put together from threads of the SR-IOV network device plugin
(#80, #184, #424, #586); such a node has IOMMU groups, which the lines below add.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.record import record
from kube_rdma.cli.config import config
from kube_rdma.cli.doctor import doctor
from kube_rdma.cli.explain import explain
from kube_rdma.model.card import IommuGroup
from kube_rdma_lab.native.tree_text import unpack

CASE = Path(__file__).parents[2] / "data/cases/03-vfio-functions"
BUS, GROUP = "devices/pci0000:17/0000:17:01.0", "kernel/iommu_groups/41"
PF, VF, KERNEL = "0000:18:00.0", "0000:18:00.3", "0000:18:00.4"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, image: x, resources: {limits: {nvidia.com/%s: 1}}}]
"""


def lines(*members: str) -> str:
    """The IOMMU group of the function that vfio-pci has, with these functions in it."""
    links = (f"{GROUP}/devices/{one} -> /{BUS}/{one}\n" for one in (VF, *members))
    return f"{BUS}/{VF}/iommu_group -> /{GROUP}\n{GROUP}/type: DMA-FQ\n{''.join(links)}"


ALONE = lines()
SHARED = lines(PF, KERNEL)
NO_IOMMU = f"{ALONE}{GROUP}/name: vfio-noiommu\n"
NODES = {  # with the driver of the function, and what is said of it
    "as posted": ("", "vfio-pci", "shows no IOMMU group"),
    "a group of its own": (ALONE, "vfio-pci", None),
    "a variant of vfio-pci": (ALONE, "mlx5_vfio_pci", None),
    "a group with the card": (SHARED, "vfio-pci", f"shared with {PF} (mlx5_core), {KERNEL}"),
    "no IOMMU": (NO_IOMMU, "vfio-pci", "no IOMMU keeps it"),
    "uio": ("", "uio_pci_generic", "gives no device files of uio_pci_generic"),
}


@pytest.fixture(params=NODES.values(), ids=NODES)
def machine(request, tmp_path):
    """A function to run a command there, and what is to be said of the function."""
    more, driver, sentence = request.param
    text = (CASE / "tree.txt").read_text() + more
    unpack(text.replace("vfio-pci", driver), tmp_path / "sys")
    written = (CASE / "config.json").read_text().replace("vfio-pci", driver)
    (tmp_path / "config.json").write_text(written)

    def run(command, *words):
        words = (*words, "--sysfs", tmp_path / "sys", "-o", "json")
        result = CliRunner().invoke(command, list(map(str, words)), catch_exceptions=False)
        return json.loads(result.stdout)

    return run, tmp_path, sentence


def test_every_command_says_the_same_of_a_share(machine):
    run, folder, sentence = machine
    file = folder / "config.json"
    pools = {one["resource"]: one for one in run(config, "check", file)["node"]["pools"]}
    assert {name: one["shares"] for name, one in pools.items()} == dict.fromkeys(pools, 1)
    for name, pool in pools.items():
        usable = pool["healthy"] == 1
        assert usable is (sentence is None or not name.endswith("dpdk"))
        (folder / "pod.yaml").write_text(POD % name.partition("/")[2])
        shown = run(explain, "-f", folder / "pod.yaml", "--config", file)
        assert [one["problem"] for one in shown["obstacles"]] == (
            [] if usable else ["1 are asked for, and the node has 0 of 1 available (1 unhealthy)"]
        )
        assert (shown["refused"], len(shown["granted"])) == (not usable, usable)
        assert "at most 0" not in json.dumps(shown)
    (card,) = pools["nvidia.com/dpdk"]["cards"]
    assert (sentence or "") in "".join(card["reasons"])
    found = run(doctor, "--config", file)["findings"]
    assert [one["about"] for one in found] == ([VF] if sentence else [])


def test_a_pool_says_which_files_its_containers_get():
    shown = CliRunner().invoke(config, ["check", str(CASE / "config.json")]).output
    (line,) = (one for one in shown.splitlines() if "/dev/vfio" in one)
    assert line.endswith("get /dev/vfio/GROUP and /dev/vfio/vfio for functions of vfio")


def test_a_record_of_the_node_has_its_groups(machine):
    _, folder, _ = machine
    record(folder / "sys", lambda: None, lambda: None, folder / "copy")
    assert read_survey(folder / "copy") == read_survey(folder / "sys")


@pytest.mark.parametrize(
    ("more", "group"),
    [
        ("", None),
        (ALONE, IommuGroup(41)),
        (NO_IOMMU, IommuGroup(41, guarded=False)),
        (SHARED, IommuGroup(41, ((PF, "mlx5_core"), (KERNEL, "mlx5_core")))),
        (ALONE.replace("/41", "/0x29"), None),
    ],
)
def test_the_group_of_a_function_that_vfio_drives_is_read(more, group, tmp_path):
    unpack((CASE / "tree.txt").read_text() + more, tmp_path)
    survey = read_survey(tmp_path)
    assert {one.position.pci: one.group for one in survey.functions if one.group} == (
        {VF: group} if group else {}
    )
    assert survey.faults == ()
