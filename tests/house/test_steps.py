"""Every kind of Step has all of it: its row, its sentence, and an act of the kernel's adapter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.undo import ROWS, lacks, undone
from kube_rdma.attach.views import TEXTS, describe
from kube_rdma.model.attach.attachment import PodView
from kube_rdma.model.attach.steps import (
    CallPlugin,
    EndPlugin,
    MakeLink,
    RemoveLink,
    SetLink,
    Step,
    Undo,
)
from tests.kit.recorded_values import values

from .tree import ROOT

STEPS, UNDOS = get_args(Step), get_args(Undo)
KERNEL = ROOT / "src/kube_rdma/adapters/kernel/pod/steps.py"  # the fake has the same tests
PLUGINS = {CallPlugin, EndPlugin}  # run by binaries of others, in attach/executor


def _runs(kind: type) -> re.Pattern[str]:
    """The row of the table that runs a kind."""
    return re.compile(rf"[ .]{kind.__name__}: ")


def faults(rows: Collection[type], texts: Collection[type], runner: str) -> Iterator[str]:
    """One sentence for each kind that is forgotten somewhere; `runner` is the source of KERNEL."""
    for kind in STEPS:
        if kind not in rows:
            yield f"{kind.__name__} has no row in attach/rules/undo"
    for kind in dict.fromkeys((*STEPS, *UNDOS)):
        if kind not in texts:
            yield f"{kind.__name__} has no sentence in attach/views"
        if kind not in PLUGINS and not _runs(kind).search(runner):
            yield f"{kind.__name__} is not run in adapters/kernel/pod/steps"


def test_no_kind_is_forgotten() -> None:
    """Nor does a table have a kind that is none."""
    assert not list(faults(ROWS, TEXTS, KERNEL.read_text(encoding="utf-8")))
    assert set(ROWS) == set(STEPS)
    assert set(TEXTS) == {*STEPS, *UNDOS}


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (SetLink, ["has no row in attach/rules/undo", "has no sentence in attach/views"]),
        (RemoveLink, ["has no sentence in attach/views"]),
        (MakeLink, ["has no row in attach/rules/undo", "has no sentence in attach/views"]),
    ],
)
def test_a_planted_fault_is_found(kind: type, sentences: list[str]) -> None:
    """A kind that is left out of a table, and out of the source of whoever runs it, is named."""
    rows, texts = set(ROWS) - {kind}, set(TEXTS) - {kind}
    runner = _runs(kind).sub(" ", KERNEL.read_text(encoding="utf-8"))
    wanted = [*sentences, "is not run in adapters/kernel/pod/steps"]
    assert list(faults(rows, texts, runner)) == [f"{kind.__name__} {each}" for each in wanted]


@given(st.sampled_from(STEPS).flatmap(values))
def test_every_step_says_what_it_comes_to(step: Step) -> None:
    """Whatever its fields are; in a pod that has nothing of it too."""
    assert isinstance(lacks(step, PodView()), str)
    assert all(isinstance(act, UNDOS) for act in undone(step))


@given(st.sampled_from((*STEPS, *UNDOS)).flatmap(values))
def test_every_step_and_undo_has_a_sentence(step: Step | Undo) -> None:
    """Whatever its fields are: none raises, as that of several links once did."""
    assert describe(step)
