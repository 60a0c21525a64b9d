"""A node on which all is well, seen whole: tests break one thing of it at a time."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.rules.kubelet import KUBELET_SOCKET, socket_of
from kube_rdma.model import doctor
from kube_rdma.model.card import Netdev
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice, PublishedCard, SliceDevice
from kube_rdma.model.device import CharKind, Gid, GidType, Gpu, PciAddress, PcieLink
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Runtime
from kube_rdma.model.pools import Mode, PoolSpec, ShareId
from tests.kit.nodes import device, function, node, position

RESOURCE = "rdma/shared"
SPEC = PoolSpec(RESOURCE, Mode.SHARED, "config.json:1")
BUSES = (0x81, 0x82)
CHAR_KINDS = (CharKind.UVERBS, CharKind.UMAD)


def card(number, bus):
    """The function and the device of one good card, on interface eth<number>."""
    netdev = f"eth{number}"
    at = position(bus, numa=number)
    made = device(number, at, netdev, CHAR_KINDS, driver="mlx5_core")
    gid = Gid(3, f"0000:0000:0000:0000:0000:ffff:0a{number:02x}:0001", GidType.ROCE_V2, netdev)
    return function(at, netdev), replace(made, ports=(replace(made.ports[0], gids=(gid,)),))


FUNCTIONS, DEVICES = zip(*(card(n, bus) for n, bus in enumerate(BUSES)), strict=True)
GPUS = tuple(Gpu(position(0xC0 + n, numa=n), 0x030200, 0x10DE, 0x2330, "nvidia") for n in range(2))
SURVEY = replace(node(*FUNCTIONS, devices=DEVICES).survey, gpus=GPUS)
LINKS = tuple(
    doctor.ObservedLink(
        f"eth{n}", 9000, True, True, "", "", FUNCTIONS[n].position.pci, (f"10.{n}.0.1/16",)
    )
    for n in range(2)
)
ROUTES = tuple(doctor.ObservedRoute(f"eth{n}", f"10.{n}.0.0/16") for n in range(2))

HEALTHY = doctor.Observation(
    "node-1",
    "2026-01-01T00:00:00Z",
    versions=doctor.SystemVersions("0.1.0", "6.8.0-40-generic", "Debian", "v1.36.3"),
    survey=SURVEY,
    modules=("ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia_peermem", "rdma_ucm"),
    absent=(),
    links=LINKS,
    routes=ROUTES,
    neighbours=(doctor.ObservedNeighbour("eth0", "10.0.0.2", True),),
    settings=tuple(
        (f"net/ipv4/conf/{name}/{word}", "0")
        for name in ("all", "eth0", "eth1")
        for word in ("rp_filter", "arp_ignore", "arp_announce")
    ),
    specs=(SPEC,),
    refusals=(),
    rails=tuple(doctor.ObservedRail(str(n), one.position.pci) for n, one in enumerate(FUNCTIONS)),
    kubelet=doctor.ObservedKubelet(
        (KUBELET_SOCKET, socket_of(RESOURCE)),
        ((RESOURCE, 2),),
        (
            Holding("default", "train", "main", RESOURCE, (ShareId("x"),), (0,)),
            Holding("default", "train", "main", "nvidia.com/gpu", (ShareId("g"),), (0,)),
        ),
        "best-effort",
    ),
    folders=(doctor.ObservedFolder("/var/lib/kube-rdma", 1 << 20),),  # the least
    runtime=Runtime("containerd", "v2.4.2", True),
    cni=doctor.ObservedCni(
        (("10-cilium.conflist", ("ptp", "kube-rdma")),),
        "chain",
        "10-cilium.conflist",
        guard="Cilium",
        installed=True,
    ),
    problems=(),
    cables=(),
    uses=(
        doctor.AddressUse("default/train", "default/rdma", "net1", "10.0.1.1"),
        doctor.AddressUse("default/other", "default/rdma", "net1", "10.0.1.2"),
    ),
    ranges=(doctor.AddressRange("default/rdma", ("10.0.0.0/16",)),),
    slices=(),
    bridges=(doctor.ObservedBridge(FUNCTIONS[0].position.path[0], 0x11),),
    domains=tuple(doctor.ObservedDomain(one.position.pci, "identity") for one in FUNCTIONS),
    flow_control=tuple(doctor.ObservedFlowControl(f"eth{n}", (3,), "dscp", (3,)) for n in range(2)),
    errors=(),
    virtual_machine=False,
    pcie=tuple(PcieLink(one.position.pci, 16, 32.0, 16, 32.0) for one in FUNCTIONS),
)

# A pod on the first card of that node, with an interface and an address of its own.
GID = Gid(5, "0000:0000:0000:0000:0000:ffff:0a00:0101", GidType.ROCE_V2, "net1")
DEVICE = DEVICES[0]
INSIDE = replace(
    SURVEY,
    devices=(
        replace(DEVICE, ports=(replace(DEVICE.ports[0], gids=(*DEVICE.ports[0].gids, GID)),)),
        DEVICES[1],
    ),
)
CONTAINER = doctor.ObservedContainer(
    "main",
    ((RESOURCE, 1),),
    user=1000,
    memlock=-1,
    locks=False,
    asked_lock=False,
    nodes=("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"),
    granted=True,
    pinned=64 << 20,
    variables=(("NCCL_IB_GID_INDEX", "5"), ("NCCL_IB_HCA", "=mlx5_0:1")),
)
POD = doctor.ObservedPod(
    "default",
    "train",
    "node-1",
    "Running",
    networks=("default/rdma",),
    attached=HEALTHY.uses[:1],
    findings=(),
    containers=(CONTAINER,),
    links=(
        doctor.ObservedLink("eth0", 1500, True, True, "veth", addresses=("10.244.0.7/24",)),
        doctor.ObservedLink(
            "net1", 9000, True, True, "macvlan", "eth0", addresses=("10.0.1.1/16",)
        ),
    ),
    routes=(doctor.ObservedRoute("net1", "10.0.0.0/16"),),
    survey=INSIDE,
    limits=(),
    attachments=(doctor.ObservedAttachment("net1", "default/rdma"),),
)
WITH_POD = replace(HEALTHY, pod=POD)

# A pod that has the second card by a claim of DRANET, which moved eth1 into it.
NIC = PublishedCard("nic", FUNCTIONS[1].position.pci, "mlx5_1", "eth1", capable=True)
MOVED = replace(LINKS[1], addresses=("10.1.0.9/16",))
MOVED_GID = Gid(5, "0000:0000:0000:0000:0000:ffff:0a01:0009", GidType.ROCE_V2, "eth1")
BY_CLAIM = replace(
    CONTAINER, asks=(), nodes=("/dev/infiniband/uverbs1",), variables=(("NCCL_IB_HCA", "mlx5_1"),)
)
CLAIMING = replace(
    HEALTHY,
    kubelet=replace(
        HEALTHY.kubelet,
        devices=(ClaimedDevice("team", "job", "main", SliceDevice("dra.net", "node-1", "nic")),),
    ),
    slices=(DeviceSlice("dra.net", "node-1", 1, cards=(NIC,)),),
    links=LINKS[:1],
    routes=ROUTES[:1],
    pod=doctor.ObservedPod(
        "team",
        "job",
        "node-1",
        "Running",
        attached=(),
        findings=(),
        containers=(BY_CLAIM,),
        links=(POD.links[0], MOVED),
        routes=(doctor.ObservedRoute("eth1", "10.1.0.0/16"),),
        limits=(),
        survey=replace(
            SURVEY,
            devices=(
                DEVICES[0],
                replace(DEVICES[1], ports=(replace(DEVICES[1].ports[0], gids=(MOVED_GID,)),)),
            ),
        ),
        attachments=(),
    ),
)


def with_pod(**facts):
    """The same where the pod is otherwise."""
    return replace(WITH_POD, pod=replace(POD, **facts))


def with_container(**facts):
    """The same where its container is otherwise."""
    return with_pod(containers=(replace(CONTAINER, **facts),))


def with_net1(**facts):
    """The same where its interface is otherwise."""
    return with_pod(links=(POD.links[0], replace(POD.links[1], **facts)))


def with_device(number=0, *, base=HEALTHY, port=None, netdev=None, **facts):
    """The same where a device, its port or its interface is otherwise."""
    survey = base.survey
    devices, functions = list(survey.devices), list(survey.functions)
    if port:
        facts["ports"] = (replace(devices[number].ports[0], **port),)
    devices[number] = replace(devices[number], **facts)
    if netdev:
        was: Netdev = functions[number].netdevs[0]
        functions[number] = replace(functions[number], netdevs=(replace(was, **netdev),))
    made = replace(survey, devices=tuple(devices), functions=tuple(functions))
    return replace(base, survey=made)


# Cards that are up and slow.

PORTS = tuple(PciAddress(f"0000:{bus}:00.0") for bus in ("10", "11", "12", "13"))


def codes(seen):
    """What the doctor finds, by its codes."""
    return [one.code for one in diagnose(seen).findings]


def rising(*counters, device="mlx5_0", **facts):
    """The same where these counters of a port rise by 7 while they are watched."""
    rises = tuple((name, 7) for name in counters)
    return replace(HEALTHY, errors=(doctor.ObservedErrors(device, 1, 2.0, rises),), **facts)


def flow_control(**facts):
    """The same where the first port does otherwise about congestion."""
    first, *others = HEALTHY.flow_control
    return (replace(first, **facts), *others)


def four_ports(**facts):
    """A node of four RoCE ports, the first of which does otherwise about congestion."""
    made = [card(number, 0x81 + number) for number in range(4)]
    controls = [
        doctor.ObservedFlowControl(f"eth{number}", (3,), "dscp", (3,)) for number in range(4)
    ]
    controls[0] = replace(controls[0], **facts)
    whole = replace(
        SURVEY, functions=tuple(f for f, _ in made), devices=tuple(d for _, d in made), gpus=()
    )
    return replace(
        HEALTHY,
        survey=whole,
        flow_control=tuple(controls),
        pcie=(),
        rails=(),
        kubelet=replace(HEALTHY.kubelet, allocatable=((RESOURCE, 4),)),
    )


def below_a_switch(acs, **facts):
    """The same where the first card and the first GPU are below one switch."""
    root, upper, *sides = PORTS
    positions = [
        replace(one.position, path=(root, upper, side, one.position.pci))
        for one, side in zip((FUNCTIONS[0], GPUS[0]), sides, strict=True)
    ]
    made = replace(
        SURVEY,
        functions=(replace(FUNCTIONS[0], position=positions[0]), FUNCTIONS[1]),
        devices=(replace(DEVICES[0], position=positions[0]), DEVICES[1]),
        gpus=(replace(GPUS[0], position=positions[1]), GPUS[1]),
    )
    bridges = tuple(
        doctor.ObservedBridge(pci, control) for pci, control in zip(sides, acs, strict=True)
    )
    return replace(HEALTHY, survey=made, bridges=bridges, **facts)
