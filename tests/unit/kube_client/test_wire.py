"""Objects as they travel, and what is no object."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client import wire
from kube_client.kinds import Wanted
from tests.kit.api_server import TRIAL, Spec

NAMES = st.from_regex(r"[a-z]{1,9}", fullmatch=True)
PAIRS = st.dictionaries(NAMES, st.text(max_size=9)).map(lambda found: tuple(sorted(found.items())))


@given(st.builds(Wanted, NAMES, spec=st.builds(Spec), labels=PAIRS, annotations=PAIRS))
def test_what_is_written_is_read(wanted):
    """Encoding and decoding lose nothing."""
    found = wire.stored(TRIAL, wire.document(TRIAL, wanted))
    assert (found.name, found.spec, found.labels) == (wanted.name, wanted.spec, wanted.labels)
    assert found.annotations == wanted.annotations


def test_a_kind_without_a_field_of_its_own_has_its_content_beside_the_metadata():
    kind = replace(TRIAL, content="")
    data = wire.document(kind, Wanted("a", spec=Spec(7)))
    assert b'"spec"' not in data
    assert wire.stored(kind, data).spec == Spec(7)


TEXTLESS = b'{"metadata": {"name": "\xff", "resourceVersion": "\xff"}, "type": "\xff"}'


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 5000, b"\xff", TEXTLESS])
def test_what_is_no_object_is_no_answer_of_an_api_server(data):
    for read in (wire.page, wire.line, wire.identity):
        with pytest.raises(Unavailable, match="does not speak its protocol"):
            read(data)
