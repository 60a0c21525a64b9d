"""An ADD on a timeline: what is recorded from outside, and the picture of it."""

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.attach_timeline import PICTURE, RECORD, draw, record, spans_of
from bench.timeline import Timeline, TimelineSpan
from bench.timeline_svg import merged, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
LANES = ("API server", "kubelet", "disk", "addresses", "kernel", "agent")


class Part:
    """Something that a program calls."""

    size = 3

    def work(self, number):
        if number < 0:
            raise ValueError(number)
        return number * 2

    async def wait(self):
        return "done"


@pytest.fixture
def timeline():
    """Its clock goes on by a second each time that somebody looks."""
    return Timeline(clock=itertools.count().__next__)


async def test_calls_with_a_text_are_spans_and_all_else_is_as_it_was(timeline):
    texts = {"work": lambda number: f"work on {number}", "wait": "wait"}
    part = timeline.around(Part(), "agent", texts)
    assert (part.work(4), await part.wait(), part.size) == (8, "done", 3)
    assert timeline.spans == (
        TimelineSpan("agent", "work on 4", 1000, 2000),
        TimelineSpan("agent", "wait", 3000, 4000),
    )


def test_a_call_that_fails_is_a_span_too(timeline):
    part = timeline.around(Part(), "agent", {"work": "work"})
    with pytest.raises(ValueError, match="-1"):
        part.work(-1)
    assert len(timeline.spans) == 1


def test_a_new_start_forgets_what_was(timeline):
    with timeline.part("disk", "a"):
        pass
    timeline.start()
    with timeline.part("disk", "b"):
        pass
    assert [(span.text, span.begin) for span in timeline.spans] == [("b", 1000)]


def test_steps_of_one_kind_behind_each_other_are_one_row():
    spans = [
        TimelineSpan("kernel", "set a to 1", 0, 1),
        TimelineSpan("kernel", "set b to 1", 1, 2),
        TimelineSpan("kernel", "bring net1 up", 2, 3),
        TimelineSpan("kernel", "set c to 1", 3, 4),
        TimelineSpan("disk", "journal: a", 4, 5),
        TimelineSpan("disk", "journal: b", 5, 6),
    ]
    rows = [(row.text, row.begin, row.end) for row in merged(spans)]
    assert rows == [
        ("set a to 1, and 1 more", 0, 2),
        ("bring net1 up", 2, 3),
        ("set c to 1", 3, 4),
        ("journal: a", 4, 5),
        ("journal: b", 5, 6),
    ]


def test_the_picture_of_the_page_is_what_is_drawn_of_the_record():
    """`python -m bench.attach_timeline --draw` writes it."""
    assert PICTURE.read_text(encoding="utf-8") == draw()


def test_the_record_is_a_whole_add():
    spans = spans_of(RECORD.read_text())
    texts = [span.text for span in spans]
    assert texts[0] == "read the pod"
    assert texts[-1] == "journal: it is complete"
    first = texts.index("make net1, macvlan (bridge) on rail0")
    assert texts.index("journal: the whole plan") < first
    assert all(span.lane in LANES and span.begin <= span.end for span in spans)


TIMES = st.floats(0, 500, allow_nan=False)
SPANS = st.builds(
    lambda lane, text, begin, lasts: TimelineSpan(lane, text, begin, begin + lasts),
    st.sampled_from(LANES),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=80),
    TIMES,
    TIMES,
)


@given(st.lists(SPANS, max_size=12))
@example([TimelineSpan("kernel", "", 0, 5e-324)])  # of which no scale can be made
def test_each_bar_is_in_a_row_of_its_own_on_the_page(spans):
    svg = timeline_svg(spans, "a", "b")
    picture = ET.fromstring("".join(c for c in svg if c.isprintable() or c == "\n"))  # noqa: S314
    bars = [one for one in picture.iter(f"{SVG}rect") if one.get("x")]
    assert len(bars) == len(list(merged(spans)))
    assert len({bar.get("y") for bar in bars}) == len(bars)
    assert all(float(bar.get("x")) + float(bar.get("width")) <= 760 for bar in bars)
    assert all(float(bar.get("width")) > 0 for bar in bars)


@pytest.mark.slow  # some ADDs in a network namespace, which root may make
def test_an_add_is_recorded(tmp_path):
    spans = spans_of(record(tmp_path, 2))
    assert {span.lane for span in spans} == set(LANES)
    assert spans[-1].text == "journal: it is complete"
