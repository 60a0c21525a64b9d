"""What `verify --pairs ring` shows of 64 nodes with 8 rails, as whole pages of 80 columns."""

from pathlib import Path

import pytest

from kube_rdma.lib.page import page_text
from kube_rdma.verify.views import proof_document, proof_page
from tests.kit.golden import assert_golden
from tests.kit.rails import pod, pods, proof


def text_of(proof, width, height=24, *, verbose=False):
    """What a terminal of this size shows."""
    return page_text(proof_page(proof, width, height, verbose=verbose), width)


PAGES = Path(__file__).with_name("ring_pages.txt")
WIDTH, HEIGHT = 80, 24


def cards(*bad):
    return lambda title, name: (title, name) in bad


ABSENT = (
    *((f"cpu-{number}", "it offers no rdma/hca") for number in range(30)),
    ("node-63", "the node is not Ready: Kubelet stopped posting node status."),
)
UNLIKE = [pod(f"node-{n}", range(4 if n % 8 == 0 else 8)) for n in range(63)]
RUNS = {
    "all is well": proof(pods(64, 8), cards()),
    "a bad card": proof(pods(64, 8), cards(("node-17", "mlx5_3"))),
    "two bad cards beside each other": proof(
        pods(64, 8), cards(("node-17", "mlx5_3"), ("node-18", "mlx5_3"))
    ),
    "a bad rail": proof(pods(64, 8), lambda _, name: name == "mlx5_6"),
    "a node that cannot be reached": proof(
        pods(64, 8), lambda title, _: title == "node-5", figure=None
    ),
    "a bad card, a bad node, a bad rail, nodes that are away, an odd number of nodes": proof(
        pods(63, 8),
        lambda title, name: title == "node-5" or name == "mlx5_6" or title + name == "node-9mlx5_0",
        left_out=ABSENT,
    ),
    "a bad card, nodes with four rails and with eight": proof(UNLIKE, cards(("node-7", "mlx5_7"))),
    "a bad card in every second node": proof(
        pods(64, 8), lambda title, name: name == "mlx5_1" and int(title[5:]) % 2 == 0
    ),
}


def page(name):
    return f"== {name}\n{text_of(RUNS[name], WIDTH, HEIGHT)}\n"


def test_the_pages_are_those_that_were_looked_at():
    assert_golden(PAGES, "\n".join(map(page, RUNS)))


@pytest.mark.parametrize("name", RUNS)
def test_a_page_fits_on_a_terminal(name):
    lines = text_of(RUNS[name], WIDTH, HEIGHT).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) < HEIGHT


def test_programs_read_how_pairs_were_chosen():
    document = proof_document(RUNS["a bad card"])
    assert (document["pairing"], document["interrupted"]) == ("ring", False)
    assert document["against"] is None
