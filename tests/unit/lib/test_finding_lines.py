"""How findings are set on a page by every command that shows some."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.plain_text import ended
from kube_rdma.lib import page
from kube_rdma.model.finding import Finding, NotSeen

FULL = Finding("node/node-1", "It is not ready", remedy="See its log", code="NodeNotReady")


def test_a_title_has_no_blank_behind_it():
    assert page.titled("✗", FULL).text == "✗ NodeNotReady  node/node-1"
    assert page.titled("!", Finding("", "x", code="NoAgent")).text == "! NoAgent"


def test_a_sentence_leaves_out_what_is_missing():
    assert page.sentence(FULL) == "node/node-1: It is not ready. See its log."
    assert page.sentence(Finding("", "two pools overlap")) == "two pools overlap."
    asked = Finding("", "nobody offers it", remedy="Did you mean rdma/nic?")
    assert page.sentence(asked) == "nobody offers it. Did you mean rdma/nic?"
    assert (
        str(Refused("no such", remedy="Did you mean a?", where="f"))
        == "f: no such. Did you mean a?"
    )
    assert page.located(FULL) == {
        "where": "node/node-1",
        "problem": "It is not ready",
        "remedy": "See its log",
    }


@given(st.integers(30, 120), st.text("ab ", min_size=1, max_size=300))
def test_texts_stand_below_each_other(width, text):
    texts = {"Seen": f"x{text}", "Cause": "y", "Fix": "z"}
    lines = list(page.block_lines(page.labelled(texts), width))
    begins = [line for line in lines if not line.startswith(" " * 5)]
    assert [line.split()[0] for line in begins] == list(texts)
    assert {line[:11].strip() for line in lines if line not in begins} <= {""}
    assert all(line[11:12].strip() for line in lines)


def test_what_was_not_seen_has_its_reason_with_one_stop():
    parts = (NotSeen("cni", "no right"), NotSeen("Events", "forbidden."))
    assert list(page.block_lines(page.not_seen(parts), 80)) == [
        "? Not seen: cni. no right.",
        "? Not seen: Events. forbidden.",
    ]
    assert list(page.block_lines(page.not_seen(parts[:1], "read"), 80)) == [
        "? Not read: cni. no right."
    ]


@pytest.mark.parametrize(("text", "whole"), [("a", "a."), ("a.", "a."), ("a…", "a…"), ("a?", "a?")])
def test_a_sentence_has_one_stop(text, whole):
    assert ended(text) == whole


def test_one_thing_is_singular():
    assert [page.counted(n, "error") for n in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
