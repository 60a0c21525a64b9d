"""What was written must be there; what others add is theirs."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.operator.rules.daemon_sets import holds

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def defaulted(document):
    """The document as the API server holds it: each object has one more field."""
    if isinstance(document, dict):
        return {"defaulted": 1} | {key: defaulted(value) for key, value in document.items()}
    return [defaulted(each) for each in document] if isinstance(document, list) else document


@given(documents)
def test_a_document_holds_itself_and_what_the_server_adds_is_no_difference(document):
    assert holds(document, document)
    assert holds(defaulted(document), document)


def test_a_field_that_is_another_or_gone_and_a_list_that_is_longer_are_differences():
    wanted = {"image": "a", "args": [{"name": "x"}]}
    assert not holds({"image": "b", "args": [{"name": "x"}]}, wanted)
    assert not holds({"args": [{"name": "x"}]}, wanted)
    assert not holds({"image": "a", "args": [{"name": "x"}, {"name": "y"}]}, wanted)
    assert not holds({"image": "a", "args": "x"}, wanted)
    assert not holds(None, wanted)
