"""The table of labels is what the page shows and what the policy for agents allows."""

import re
from pathlib import Path

import pytest

from kube_rdma.operator.rules import placement
from kube_rdma.pools.rules.labels import REMEMBERED, TABLE, VENDOR, is_nfd, writes
from tests.kit.policies import agents_keys

ROOT = Path(__file__).parents[4]
KEYS = [row.key.replace(VENDOR, "15b3") for row in TABLE if row.by_agent]
OTHERS = [row.key for row in TABLE if not row.by_agent] + [
    "feature.node.kubernetes.io/pci-15b3.sriov",
    "feature.node.kubernetes.io/pci-15B3.present",
    "feature.node.kubernetes.io/pci-0207_15b3.present",
    "feature.node.kubernetes.io/pci-VENDOR.present",
    "feature.node.kubernetes.io/kernel-versionXfull",
    "example.org/pci-15b3.present",
    "kube-rdma.io/agent",
    "kube-rdma.io/ports-",
    "x.kube-rdma.io/ports",
    "node-role.kubernetes.io/control-plane",
    "",
]


@pytest.mark.parametrize("key", KEYS)
def test_an_agent_may_write_each_of_its_labels(key):
    assert writes(key)
    assert re.search(agents_keys("label")["nodes"], key)


@pytest.mark.parametrize("key", OTHERS)
def test_an_agent_may_write_no_other(key):
    assert not writes(key)
    assert not re.search(agents_keys("label")["nodes"], key)


def test_an_agent_may_remember_them():
    assert re.search(agents_keys("annotation")["nodes"], REMEMBERED)


def test_the_page_shows_the_table():
    """To accept a change of the table, change the page."""
    lines = (ROOT / "docs/labels.md").read_text().splitlines()
    first = lines.index("|---|---|---|---|") + 1
    assert lines[first : first + len(TABLE)] == [
        f"| `{row.key}` | {row.values} | {row.meaning} | {writer(row)} |" for row in TABLE
    ]
    assert not lines[first + len(TABLE)]


def writer(row):
    if row.by_agent:
        return "the agent with `write-nfd`" if is_nfd(row.key) else "the agent"
    return "the administrator"


def test_the_operator_selects_by_labels_of_the_table():
    selected = (
        placement.CARDS_LABEL,
        placement.GPUS_LABEL,
        placement.KERNEL_LABEL,
        placement.DISTRIBUTION_LABEL,
        placement.RELEASE_LABEL,
    )
    assert all(map(writes, selected))
