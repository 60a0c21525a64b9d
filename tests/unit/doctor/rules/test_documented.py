"""docs/doctor.md against the checks, and what the doctor says of a planted fault for each."""

from pathlib import Path

import pytest

from kube_rdma.doctor.rules.diagnose import CHECKS, diagnose
from kube_rdma_tools.doctor_page import PAGE, codes, filled, noticed
from tests.kit.golden import assert_golden
from tests.unit.doctor.rules.test_faults import FAULTS

FILE = Path(__file__).parents[4] / PAGE


def findings():
    """What the doctor says first of each planted fault."""
    return [diagnose(seen).findings[0] for _, seen in FAULTS.values()]


def test_the_page_has_every_code_with_its_causes():
    """KUBE_RDMA_WRITE=1 writes it."""
    assert_golden(FILE, filled(FILE.read_text(encoding="utf-8"), findings()))


@pytest.mark.parametrize("code", [check.code for check in CHECKS])
def test_a_check_says_what_people_notice(code):
    """In the docstring of its look."""
    assert noticed(code).endswith((".", '"'))
    assert all(len(sentence.split()) <= 30 for sentence in noticed(code).split(". "))


def test_other_codes_and_pages_are_links():
    text = codes(findings())
    assert "[KR125](#kr125--pcie-link)" in text
    assert "([agent.md#locked-memory](agent.md#locked-memory))" in text
