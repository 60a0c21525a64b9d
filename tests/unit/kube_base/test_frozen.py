"""A frozen value can be changed into another and shown as a dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import Frozen, asdict, field, replace


class Point(Frozen, order=True):
    """With every kind of default."""

    x: int
    y: int = 7
    marks: dict = field(default_factory=dict)


class Line(Frozen):
    """Values inside a value, and a field that only its own class has."""

    ends: tuple[Point, ...]


class Circle(Point):
    """A value that inherits fields."""

    radius: int = 1


POINTS = st.builds(Point, st.integers(), st.integers(), st.dictionaries(st.text(), st.integers()))


@given(POINTS, POINTS)
def test_replace_changes_what_is_named(first, second):
    """And leaves the first as it was."""
    before = asdict(first)
    assert replace(first, x=second.x, y=second.y, marks=second.marks) == second
    assert asdict(first) == before


@given(st.lists(POINTS, max_size=3).map(tuple))
def test_values_in_values_become_dicts_too(ends):
    """All the way down, in tuples, lists and dicts."""
    parts = tuple({"x": end.x, "y": end.y, "marks": end.marks} for end in ends)
    assert asdict(Line(ends)) == {"ends": parts}
    assert asdict(Point(1, 2, {"a": [Line(ends)]})) == {
        "x": 1,
        "y": 2,
        "marks": {"a": [{"ends": parts}]},
    }


def test_a_value_does_not_change():
    """It has no place for more than its fields either."""
    with pytest.raises(AttributeError):
        Point(1).x = 2
    with pytest.raises(AttributeError):
        Point(1).z = 2
    with pytest.raises(TypeError):
        replace(Point(1), z=2)


def test_equal_is_one_of_the_same_class():
    """And each has a dict of its own."""
    assert Point(1) == Point(1, 7, {})
    assert Point(1) != Circle(1)
    assert Point(1).marks is not Point(1).marks
