"""Label selectors are read and judged as the API server does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client.wire import ApiRequest
from kube_rdma.lib.label_selector import label_terms
from kube_rdma_testing.cluster.select import matches
from kube_rdma_testing.cluster.store import ServedResource

PODS = ServedResource("", "v1", "Pod", "pods", namespaced=True)
KEY, VALUE = st.sampled_from(["app", "a.b/tier", "x"]), st.sampled_from(["", "a", "B-1", "c_2.d"])
TERM = st.one_of(
    KEY,
    KEY.map("!{}".format),
    st.builds("{}{}{}".format, KEY, st.sampled_from(["=", "==", "!="]), VALUE),
    st.builds(
        "{} {} ({})".format,
        KEY,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUE, min_size=1).map(", ".join),
    ),
)


@given(st.lists(TERM, min_size=1, max_size=3).map(",".join), st.dictionaries(KEY, VALUE))
def test_a_selector_selects_what_the_api_server_selects(text, labels):
    asked = ApiRequest("list", "", "v1", "pods", query=(("labelSelector", text),))
    judged = matches(asked, PODS, {"metadata": {"labels": labels}})
    terms = label_terms(text)
    assert terms
    assert all(one.holds(labels) for one in terms) == judged


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "app=a,",
        "=a",
        "a in",
        "a in b",
        "a in (b",
        "a>1",
        "app=ä",
        "a b",
        "!a=b",
        "x" * 99,
    ],
)
def test_what_is_no_selector_has_no_terms(text):
    assert label_terms(text) == ()


@given(st.text(max_size=40))
def test_any_text_has_terms_or_none(text):
    assert isinstance(label_terms(text), tuple)
