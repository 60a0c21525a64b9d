"""Pools of addresses as people and programs see them."""

import json
from ipaddress import ip_address, ip_network

import pytest

from kube_rdma.ipam import views
from kube_rdma.lib.page import page_text
from kube_rdma.model import ipam
from kube_rdma.model.finding import Finding, Severity

POOL = ipam.IPPool(
    "training",
    (
        ipam.IPRange(ip_network("10.10.0.0/24"), gateway=ip_address("10.10.0.1"), rail=0),
        ipam.IPRange(ip_network("10.10.1.0/24"), first=ip_address("10.10.1.9"), rail=1),
    ),
    excludes=(
        ipam.Span(ip_address("10.10.0.7"), ip_address("10.10.0.7")),
        ipam.Span(ip_address("10.10.0.8"), ip_address("10.10.0.9")),
    ),
    routes=(
        ipam.Route(ip_network("10.0.0.0/8")),
        ipam.Route(ip_network("0.0.0.0/0"), ip_address("10.10.0.2")),
    ),
    cooldown=0.5,
)


def usage(rail, size, held, nodes):
    return ipam.Usage(family="IPv4", rail=rail, size=size, held=held, free=size - held, nodes=nodes)


STATE = views.PoolState(
    POOL,
    (usage(0, 250, 1, 1), usage(1, 246, 246, 9)),
    (
        views.Holder("node-1", 246, ("10.10.1.9-10.10.1.254",)),
        views.Holder("old", 1, ("10.10.0.3",), is_gone=True),
    ),
    ipam.BorrowQueue(
        "training",
        (
            ipam.BorrowRequest(node="node-2", family="IPv4", rail=1, count=3),
            ipam.BorrowRequest(node="node-3", family="IPv4", rail=1, count=1, address="10.10.1.20"),
        ),
    ),
    ("246 of 246 are held",),
)
PAGE = """\
POOL      NETWORK  FOR          HELD  SIZE  NODES  FULL             RANGES
training  default  IPv4 rail 0     1   250      1  █░░░░░░░░░   0%  10.10.0.0/24
                   IPv4 rail 1   246   246      9  ██████████ 100%  10.10.1.0/24
training: 246 of 246 are held

Gateways:        10.10.0.1
Excluded:        10.10.0.7, 10.10.0.8-10.10.0.9
Routes:          10.0.0.0/8 via the gateway, 0.0.0.0/0 via 10.10.0.2
A node takes:    32 at once
Freed ones rest: 0.5 s

NODE        HELD  ADDRESSES
node-1       246  10.10.1.9-10.10.1.254
old (gone)     1  10.10.0.3
Node node-2 is short of 3 IPv4 addresses.
Node node-3 is short of 10.10.1.20."""


def test_the_page_of_a_pool():
    """A rail is a row, one held address is seen, wants stand last."""
    assert page_text(views.pool_page(STATE), 100) == PAGE


def test_the_list_begins_as_the_page():
    assert PAGE.startswith(page_text(views.pools_page([STATE]), 100))


def test_json_is_json_and_complete():
    (found,) = json.loads(json.dumps(views.pools_document([STATE])))
    assert found["ranges"][1] == {
        "subnet": "10.10.1.0/24",
        "start": "10.10.1.9",
        "end": None,
        "gateway": None,
        "rail": 1,
        "perNode": None,
    }
    assert (found["usage"][0]["free"], found["wants"][1]["address"]) == (249, "10.10.1.20")
    assert found["holders"][1] == {
        "node": "old",
        "held": 1,
        "addresses": ["10.10.0.3"],
        "gone": True,
    }


def test_what_needs_somebody_comes_first():
    found = [
        Finding("", "a " * 60, severity=Severity.WARNING, code="overlap"),
        Finding("", "b", code="edited"),
    ]
    lines = page_text(views.findings_page(found), 80).splitlines()
    assert (lines[0], lines[1][:8], len(lines)) == ("edited: b", "warning:", 3)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("is_done", [True, False])
def test_a_migration(is_done):
    """What is written and what is not; the sentences of what is left to do."""
    row = ("10.0.0.5", "default", "a/b", "net1", "node-1", "whereabouts-1")
    found = views.Migration((("whereabouts-1", "create"),), (row,), ("x",), ("y",), ("z",))
    text = page_text(views.migration_page(found, is_done=is_done), 100)
    assert text.startswith("Nothing is written yet") is not is_done
    assert "+ IPPool whereabouts-1" in text
    assert text.endswith("Free: x.\nNot mapped: y.\nNote: z.")
