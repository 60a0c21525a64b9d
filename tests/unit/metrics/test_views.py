"""Rates on a page: units, dashes for what is not known, rows that are left out are told."""

import pytest

from kube_base.frozen import replace
from kube_rdma.lib.page import page_text
from kube_rdma.metrics.views import bits, nodes_page, pods_page
from kube_rdma.model.metrics import TrafficKey, TrafficRate, TrafficTotals

GIGABIT = 125_000_000.0


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        (None, "-"),
        (0.0, "0 b/s"),
        (1.0, "8 b/s"),
        (100.0, "800 b/s"),
        (GIGABIT, "1 Gb/s"),
        (97.5 * GIGABIT, "97.5 Gb/s"),
        (399.9 * GIGABIT, "400 Gb/s"),
        (GIGABIT * 0.9999999, "1.0 Gb/s"),
        (1200 * GIGABIT, "1.2 Tb/s"),
    ],
)
def test_rates_are_in_bits_a_second(rate, shown):
    assert bits(rate) == shown


def row(pod, received=None, link=None, **errors):
    key = TrafficKey("mlx5_0", "1", "ns" if pod else "", pod, "c" if pod else "")
    now = TrafficTotals(link=link, state=4)
    return TrafficRate("node-1", key, now, received=received, sent=0.0, errors=errors)


def test_a_page_of_nodes():
    rows = [row("", 200 * GIGABIT, 400 * GIGABIT, out_of_sequence=3.0, symbol_error=1.0)]
    assert page_text(nodes_page(rows, {"node-2": "no way to it"}), 100) == (
        "NODE    DEVICE  PORT  STATE   LINK  RECEIVED   SENT  LOAD  ERRORS\n"
        "node-1  mlx5_0     1  active  400G  200 Gb/s  0 b/s   50%  4/s out_of_sequence\n"
        "\n"
        "node-2 did not answer: no way to it"
    )


def test_what_is_not_known_of_both_directions_is_no_load_of_nothing():
    silent = replace(row("", None, 400 * GIGABIT), sent=None)
    assert page_text(nodes_page([silent], {}), 100).splitlines()[1].split()[5:] == ["-"] * 4
    assert "0%" in page_text(nodes_page([replace(silent, sent=0.0)], {}), 100)


def test_a_page_of_pods_says_what_it_leaves_out():
    rows = [row("a", GIGABIT), row("b"), row("c")]
    shown = page_text(pods_page(rows, {}, 2), 100)
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["ns/a", "ns/b"]
    assert shown.endswith("… and 1 more; --all shows them.")
    assert "ns/c" in page_text(pods_page(rows, {}), 100)


def test_nothing_is_said():
    assert "no node has an RDMA device" in page_text(nodes_page([], {}), 100)
    assert page_text(pods_page([], {}), 100) == "No pod of these has an RDMA device."
