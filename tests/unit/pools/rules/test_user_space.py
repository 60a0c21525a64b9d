"""A function of vfio is a share where a pod can open it, and no share where it cannot."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.claims.rules import prepare
from kube_rdma.claims.rules.shape import UNHEALTHY, claim_offer
from kube_rdma.hardware.kernel_events import KernelSources, look
from kube_rdma.model.card import CardId, Function, IommuGroup
from kube_rdma.model.claims.claim import AllocationResult, ClaimName, ResourceClaim
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.kubernetes import Toleration
from kube_rdma.model.pools import Attach, Mode, PoolSpec, Selector, Variables
from kube_rdma.pools.rules.allocation import allocate, card_facts
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from tests.kit.nodes import RDMA_CM, device, node, physical_with_virtual

ABOVE, FIRST, SECOND, KERNEL = physical_with_virtual(0x81, 3)
OTHER, A, B = ABOVE.position.pci, FIRST.position.pci, SECOND.position.pci
DPDK = PoolSpec(
    "nvidia.com/dpdk",
    Mode.SRIOV,
    "c:1",
    selectors=(Selector(drivers=("vfio-pci", "mlx5_vfio_pci", "igb_uio", "uio_pci_generic")),),
    attach=Attach.NONE,
    variables=Variables.PCIDEVICE,
)
OWN = replace(DPDK, variables=Variables.NONE)  # a NodePolicy that names the driver


def bound(function: Function, *others: tuple[str, str | None], driver="vfio-pci", **group):
    """The function with a driver for user space, in group 41 with these devices."""
    whole = IommuGroup(41, tuple(others), **group) if "vfio" in driver else None
    return replace(function, driver=driver, netdevs=(), group=whole)


def pools_of(*functions: Function, specs=(DPDK,), **facts):
    """The pools of a node whose physical function carries RDMA, and what is in them."""
    devices = (device(0, ABOVE.position, "ens1f0"), device(1, KERNEL.position, "ens1f0v2"))
    survey = node(ABOVE, *functions, KERNEL, devices=devices).survey
    return evaluate(NodeFacts(survey, node_cards(survey), specs, **facts)).pools


def shares(pool):
    return [share.id for share in pool.shares if share.healthy]


def test_a_virtual_function_of_one_that_vfio_has_is_no_share():
    """Only who knows the token of the physical one opens it."""
    survey = node(bound(ABOVE), bound(FIRST), devices=()).survey
    (pool,) = evaluate(NodeFacts(survey, node_cards(survey), (DPDK,))).pools
    (virtual,) = [card for card in pool.cards if card.id == A]
    assert "VF token" in virtual.reasons[0]
    assert shares(pool) == []


@pytest.mark.parametrize("spec", [DPDK, OWN], ids=["resourceList", "NodePolicy"])
@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci"])
@pytest.mark.parametrize(
    "beside",
    [(), (("0000:80:01.0", "pcieport"),), ((OTHER, None), ("0000:81:00.7", "pci-stub"))],
    ids=["alone", "bridge", "without driver"],
)
def test_a_container_gets_the_files_of_the_group(spec, driver, beside):
    (pool,) = pools_of(bound(FIRST, *beside, driver=driver), specs=(spec,))
    assert shares(pool) == [A]
    given = allocate(pool, [A])
    assert given.char_paths == ("/dev/vfio/41", "/dev/vfio/vfio")
    assert dict(given.env).get("PCIDEVICE_NVIDIA_COM_DPDK", A) == A
    assert card_facts(pool, pool.cards[0]) == {
        "generic": {"deviceID": A},
        "vfio": {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/41"},
    }


def booked(pools, pci, **facts):
    """The files of a claim to which the scheduler gave this function."""
    wanted = AllocationResult("nic", DRIVER, "node-1", re.sub("[:.]", "-", pci), **facts)
    asked = ResourceClaim(ClaimName("team", "nic", "uid-1"), allocated=(wanted,), users=())
    where = prepare.BookingNode("node-1", "b", prepare.devices_of(pools), ())
    (share,) = prepare.book(asked.claim, asked, where, 7.0).shares
    return share.char_paths


def test_a_claim_gets_them_too():
    assert booked(pools_of(bound(FIRST)), A) == ("/dev/vfio/41", "/dev/vfio/vfio")


REFUSED = """\
kube-rdma gives no device files of uio_pci_generic: bind it to vfio-pci
kube-rdma gives no device files of igb_uio: bind it to vfio-pci, or let the SR-IOV network device \
plugin serve this pool
/sys shows no IOMMU group of it, so no file in /dev/vfio is for pods: bind it to vfio-pci again, \
dmesg may say why it has none
no IOMMU keeps it from the node's memory (no-IOMMU mode of vfio): switch the IOMMU on, or let the \
SR-IOV network device plugin serve this pool
its IOMMU group 41 is shared with 0000:81:00.0 (mlx5_core), so no program can open it: take the \
card out of this pool, or bind the others to vfio-pci too if the node can do without them
its IOMMU group 41 is shared with 0000:01:00.0, which a pod would get too: take the card out of \
this pool, or the whole group into it
""".splitlines()
USELESS = (
    bound(FIRST, driver="uio_pci_generic"),
    bound(FIRST, driver="igb_uio"),
    replace(bound(FIRST), group=None),
    bound(FIRST, guarded=False),
    bound(FIRST, (OTHER, "mlx5_core"), (B, "vfio-pci")),
    bound(FIRST, ("0000:01:00.0", "vfio-pci")),  # a GPU, say
)


@pytest.mark.parametrize(("function", "sentence"), [*zip(USELESS, REFUSED, strict=True)])
def test_what_cannot_be_given_is_not_counted(function, sentence):
    """Neither as a share nor for claims; Allocate names the reason."""
    (pool,) = pools_of(function)
    assert [card.reasons for card in pool.cards] == [(sentence,)]
    assert shares(pool) == []
    with pytest.raises(Refused, match="cannot be used") as refused:
        allocate(pool, [A])
    assert sentence in str(refused.value)
    (offered,) = claim_offer([pool]).cards
    assert offered.taints == (UNHEALTHY,)
    with pytest.raises(Refused, match="cannot be used") as refused:
        booked([pool], A, tolerations=(Toleration(operator="Exists"),))
    assert sentence in str(refused.value)


def test_two_functions_of_one_group_are_one_share():
    """One program at a time opens a group, and reaches all of its functions by it."""
    both = bound(FIRST, (B, "vfio-pci")), bound(SECOND, (A, "vfio-pci"))
    (pool,) = pools_of(*both)
    assert shares(pool) == [A]
    (reason,) = pool.cards[1].reasons
    assert f"is shared with {A}, whose share stands for it, as one pod at a time opens" in reason
    with pytest.raises(Refused, match="whose share stands for it"):  # a tenant may tolerate all
        booked([pool], B, tolerations=(Toleration(operator="Exists"),))
    (pool,) = pools_of(*both, held={DPDK.resource: {CardId(B): ("team/pod",)}})
    assert shares(pool) == [B], "which a pod had before the first came to the group"
    specs = [
        replace(DPDK, resource=f"nvidia.com/{n}", selectors=(Selector(pci_addresses=(pci,)),))
        for n, pci in enumerate((A, B))
    ]
    assert [shares(pool) for pool in pools_of(*both, specs=specs)] == [[], []]


def test_a_pool_of_mixed_drivers_gives_each_what_its_driver_has():
    mixed = replace(DPDK, selectors=(Selector(vendors=("15b3",)),))
    (pool,) = pools_of(bound(FIRST), bound(SECOND, driver="igb_uio"), specs=(mixed,))
    c = KERNEL.position.pci
    assert shares(pool) == [A, c]
    assert allocate(pool, [A, c]).char_paths == (
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs1",
        "/dev/vfio/41",
        "/dev/vfio/vfio",
    )
    facts = json.loads(dict(allocate(pool, [A, c]).env)["PCIDEVICE_NVIDIA_COM_DPDK_INFO"])
    assert {name: sorted(one) for name, one in facts.items()} == {
        A: ["generic", "vfio"],
        c: ["generic", "rdma"],
    }


def test_a_function_without_rdma_is_a_share_for_its_network():
    """As isRdma false has it: the pod gets the interface, and no file."""
    plain = replace(DPDK, selectors=(Selector(pci_addresses=(A,)),))
    (pool,) = pools_of(FIRST, specs=(plain,))
    assert shares(pool) == [A]
    assert allocate(pool, [A]).char_paths == ()


@pytest.mark.parametrize("path", ["/dev/vfio/41", "/dev/vfio/vfio"])
def test_a_file_that_is_missing_is_named(path):
    (pool,) = pools_of(bound(FIRST), missing={path, RDMA_CM.path})
    assert [card.reasons for card in pool.cards] == [
        (f"{path} is missing: modprobe vfio_pci, and bind the card to its driver again",)
    ]


def test_the_agent_looks_for_these_files():
    survey = node(bound(FIRST), rdma_cm=None).survey
    seen, missing = look(KernelSources(lambda: survey, missing=frozenset))
    assert (seen, missing) == (survey, {"/dev/vfio/41", "/dev/vfio/vfio"})


DRIVERS = ("mlx5_core", "vfio-pci", "mlx5_vfio_pci", "uio_pci_generic", "igb_uio", None)


@st.composite
def machines(draw):
    """Virtual functions with any drivers, in any groups, guarded or not; the physical one too."""
    above, *parts = physical_with_virtual(0x81, 5)
    places = {one.position.pci: draw(st.integers(0, 2)) for one in (above, *parts)}
    drivers = {one.position.pci: draw(st.sampled_from(DRIVERS)) for one in parts}
    drivers[above.position.pci] = "mlx5_core"
    for at, one in enumerate(parts):
        pci, driver = one.position.pci, drivers[one.position.pci]
        others = ((n, drivers[n]) for n in places if places[n] == places[pci] and n != pci)
        found = bound(one, *others, driver=driver or "", guarded=draw(st.booleans()))
        group = found.group and replace(found.group, number=places[pci])
        netdevs = one.netdevs if driver == "mlx5_core" else ()
        parts[at] = replace(one, driver=driver, netdevs=netdevs, group=group)
    first = draw(st.sets(st.sampled_from([one.position.pci for one in parts]), min_size=1))
    chosen = (tuple(first), tuple(places.keys() - first))
    specs = [
        replace(DPDK, resource=f"r/{n}", selectors=(Selector(pci_addresses=names),))
        for n, names in enumerate(chosen)
    ]
    return node(above, *parts).survey, specs


@given(machines())
def test_no_share_is_empty_and_no_group_is_given_twice(machine):
    """And none is given of which the kernel, or another pool, has a part."""
    survey, specs = machine
    pools = evaluate(NodeFacts(survey, node_cards(survey), specs)).pools
    functions = {one.position.pci: one for one in survey.functions}
    opened = []
    for pool in pools:
        mine = {card.id for card in pool.cards}
        for name in shares(pool):
            paths = allocate(pool, [name]).char_paths
            assert bool(paths) is functions[name].for_programs
            opened += paths[:1]
            for other, driver in functions[name].group.others if paths else ():
                assert driver is None or other in mine
    assert len(opened) == len(set(opened))
