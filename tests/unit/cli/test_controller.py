"""`kube-rdma controller`: what it refuses before it asks any API server."""

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli.controller import controller


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policies", "--policy-set", "host.runtime"), "host.runtime' sets no value"),
        (("--policies", "--policy-set", "host.runtime=run"), "--policy-set:1:1: host.runtime"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(Refused, match=words):
        CliRunner().invoke(controller, arguments, catch_exceptions=False)
