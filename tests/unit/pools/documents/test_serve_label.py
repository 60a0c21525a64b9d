"""The label by which a node says who serves its pools."""

import pytest

from kube_base.errors import Refused
from kube_rdma.model.pools import Serving
from kube_rdma.pools.documents.config import label_serving


@pytest.mark.parametrize("claims", [True, False])
def test_without_the_label_it_is_the_plugin(claims):
    assert label_serving(None, claims=claims) is Serving.PLUGIN
    assert label_serving("plugin", claims=claims) is Serving.PLUGIN


def test_claims_are_for_agents_that_serve_them():
    assert label_serving("claims", claims=True) is Serving.CLAIMS
    with pytest.raises(Refused, match=r"this agent does not serve claims\. Install it with"):
        label_serving("claims", claims=False)


@pytest.mark.parametrize("value", ["", "Claims", "claim", "both", "true"])
def test_anything_else_is_refused_with_what_is_allowed(value):
    with pytest.raises(Refused, match=r"kube-rdma\.io/serve=plugin or kube-rdma\.io/serve=claims"):
        label_serving(value, claims=True)
