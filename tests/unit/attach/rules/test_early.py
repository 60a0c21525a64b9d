"""Device nodes that were given before the device moved: compared, and warned about."""

import pytest

from kube_base.frozen import replace
from kube_rdma.attach.rules.late_binding import refuse_renumbered, renumbered
from kube_rdma.attach.rules.plan import plans
from kube_rdma.attach.rules.seats import seats
from kube_rdma.model.attach.attachment import NetworkKind
from kube_rdma.model.device import CharKind
from kube_rdma.model.errors import Outdated
from kube_rdma.model.pools import Attach, Mode, PoolSpec
from kube_rdma.model.survey import NamespaceMode
from tests.kit.nodes import device
from tests.kit.pod_networks import SANDBOX, card, network, node, share, wish
from tests.kit.pod_networks import given as leased

EXCLUSIVE = NamespaceMode.EXCLUSIVE


def placed(*, early=True, mode=EXCLUSIVE):
    """The plan and the seat of a function that its container opens as uverbs0."""
    function = card(0)
    given = share(function, mode=Mode.SRIOV)
    given = replace(given, early=early, char_paths=("/dev/infiniband/uverbs0",))
    here = node(function, mode=mode)
    found = seats([wish(0, network("n0", NetworkKind.CARD))], [given], here)
    return plans(SANDBOX, found, [leased(1, "10.0.0.7/24")], here), found


def seen(number):
    """The device with the node of this number."""
    return (replace(device(number, kinds=(CharKind.UVERBS, CharKind.UMAD)), name="mlx5_0"),)


def test_a_device_that_kept_its_number_is_what_the_container_was_given():
    refuse_renumbered(*placed(), seen(0))


def test_a_device_with_another_number_is_not():
    """The kubelet tries again; it may be another pod's by now."""
    with pytest.raises(Outdated) as caught:
        refuse_renumbered(*placed(), seen(3))
    assert str(caught.value).rstrip(".") == (
        "mlx5_0 is /dev/infiniband/uverbs3 since it moved into the pod, and the container was "
        "given /dev/infiniband/uverbs0, so only a new pod can use it"
    )


@pytest.mark.parametrize("facts", [{"early": False}, {"mode": NamespaceMode.SHARED}])
def test_who_gets_nodes_after_the_move_or_without_one_is_not_compared(facts):
    refuse_renumbered(*placed(**facts), seen(3))


@pytest.mark.parametrize(
    ("mode", "attach", "namespaces", "warned"),
    [
        (Mode.SRIOV, None, EXCLUSIVE, True),
        (Mode.EXCLUSIVE, Attach.NONE, EXCLUSIVE, True),
        (Mode.EXCLUSIVE, None, EXCLUSIVE, False),
        (Mode.SRIOV, Attach.AUTO, EXCLUSIVE, False),
        (Mode.HCA, None, EXCLUSIVE, False),  # its devices move nowhere
        (Mode.SRIOV, None, NamespaceMode.SHARED, False),
        (Mode.SRIOV, None, NamespaceMode.UNKNOWN, False),
    ],
)
def test_a_pool_that_binds_early_where_devices_move_is_warned_about(
    mode, attach, namespaces, warned
):
    sentences = tuple(renumbered([PoolSpec("rdma/vf", mode, "test", attach=attach)], namespaces))
    assert len(sentences) == warned
    assert all(one.startswith("rdma/vf gives device nodes before") for one in sentences)
