"""What `verify` says of a big cluster fits on a screen, and what is left out there is counted."""

import pytest

from kube_rdma.lib.page import page_text
from kube_rdma.model.verify import PairProof, PairStandard, PerftestRun
from kube_rdma.verify.rules.suspects import rate, suspects
from kube_rdma.verify.views import pods_of, proof_document, proof_page
from tests.unit.verify.rules.test_suspects import NOISE, SLOW, measured


def text_of(proof, width, height=24, *, verbose=False):
    """What a terminal of this size shows."""
    return page_text(proof_page(proof, width, height, verbose=verbose), width)


def proof(nodes, rails, is_bad, figure=SLOW, left_out=(), chance=0.0):
    noise = NOISE()
    outcomes = measured(
        nodes, rails, lambda p, r: is_bad(p, r) or noise.random() < chance, noise, figure
    )
    rated = rate(outcomes, PairStandard())
    return PairProof(PerftestRun(), rated, suspects(rated), left_out, excused=len(left_out))


def one_card(pair, rail):
    return "node-17" in pair and rail == 3


@pytest.mark.parametrize("width", [80, 120])
def test_the_bad_card_of_a_big_cluster_is_the_first_line_of_one_screen(width):
    absent = tuple((f"cpu-{n}", "it offers no rdma/hca") for n in range(900))
    lines = text_of(proof(24, 4, one_card, left_out=absent), width).splitlines()
    assert lines[0] == "✗ node-17 mlx5_3: 23 of 23 pairs at ~194 Gb/s (due 320)."
    assert "! 900 take no part: it offers no rdma/hca (cpu-0, cpu-1, cpu-2, …)." in lines
    assert " ".join(lines[-2:]).endswith("; look at node-17 mlx5_3.")
    assert len(lines) < 24
    assert max(map(len, lines)) <= width


def test_many_faults_are_cut_to_the_screen_and_counted():
    shown = text_of(proof(20, 4, one_card, figure=None, chance=0.1), 80)
    assert len(shown.splitlines()) < 24
    assert "more lines: --verbose" in shown
    whole = text_of(proof(20, 4, one_card, figure=None, chance=0.1), 80, verbose=True)
    assert "more lines" not in whole
    assert len(whole.splitlines()) > 50


def test_a_map_is_drawn_where_it_fits():
    small, big = proof(5, 1, one_card), proof(40, 1, one_card)
    assert text_of(small, 80).splitlines()[0].split() == ["1", "2", "3", "4", "5"]
    assert "node-39" not in text_of(big, 80)
    assert "40 node-39" in text_of(big, 80, verbose=True)


def test_numbers_in_names_are_sorted_as_numbers():
    assert pods_of(proof(12, 1, one_card).rated)[-2:] == ["node-10", "node-11"]


def test_programs_read_node_device_pairs_and_median():
    (suspect,) = proof_document(proof(24, 4, one_card))["suspects"]
    assert suspect.pop("median") == pytest.approx(195, abs=5)
    assert suspect == {
        "kind": "card",
        "node": "node-17",
        "device": "mlx5_3",
        "rail": None,
        "peer": None,
        "peerDevice": None,
        "pairs": 23,
        "of": 23,
        "due": 320.0,
        "why": None,
    }


def test_where_all_is_bad_the_pairs_say_why():
    shown = text_of(proof(4, 1, lambda *_: True), 100)
    assert "less than the 320.00 due at its line rate" in shown
    assert "→ Look" not in shown
