"""The mode table is complete and says what the kubelet accepts."""

import pytest

from kube_rdma.adapters.kubelet.fake import is_extended_resource
from kube_rdma.model.pool import Mode
from kube_rdma.rules.modes import MODES


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_has_a_row(mode):
    row = MODES[mode]
    assert is_extended_resource(row.resource)
    assert row.shares > 0
    assert row.gives
    assert row.meaning
    assert len(f"{mode}-{row.shares}") <= 63, "the kubelet's limit for the id of a device"


def test_hca_is_what_the_documents_say():
    """1000 shares of rdma/hca, whatever the number of cards."""
    row = MODES[Mode.HCA]
    assert (row.resource, row.shares, row.bind) == ("rdma/hca", 1000, "pool")
