"""A record of every kind, with every step and every word in it: what the golden files hold.

``python -m tests.unit.adapters.journal.samples FOLDER`` writes them as the agent does, one
folder for each of its journals. The files under data/ were written so by the commit that their
folder is named after; nobody writes them again, for disks hold what that commit wrote
(test_codec.py).
"""

from __future__ import annotations

import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from kube_base.frozen import replace
from kube_rdma.adapters.journal import codec
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model import pools as vf
from kube_rdma.model.attach import attachment, steps
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.claims import claim
from kube_rdma.model.device import CharKind, PciAddress, PlannedHostLink
from kube_rdma.model.ipam import AddressAllocation, AllocationRecord, JournalIdentity
from kube_rdma.model.late_binding import Binding, PodName, Promise
from kube_rdma.model.pools import (
    AppliedPools,
    Attach,
    Bind,
    ExtraInfo,
    FunctionRange,
    MadeFunctions,
    Mode,
    PoolSpec,
    Preference,
    RailRecord,
    RdmaLimits,
    Selector,
    Serving,
    Variables,
)
from kube_rdma.model.settings import FabricProfile

CONTAINER = "0d5f1c9ae8b74f3f"
V4, V6 = ip_address("192.168.111.7"), ip_address("fd00:111::7")
GATEWAY = ip_address("192.168.111.1")
PCI, PHYSICAL = PciAddress("0000:81:00.2"), PciAddress("0000:81:00.0")
MAC = "02:00:00:00:00:01"
PARENT = PlannedHostLink(3, "ens2f0")
PLACE = vf.FunctionPlace(PARENT, PHYSICAL, 0)
SANDBOX = attachment.Sandbox(
    CONTAINER, PodName("default", "tr\u00e4iner-0"), "6f1d", "/run/netns/cni-1", 4026532666
)

CALL = steps.CallPlugin(
    "net4",
    (
        steps.PluginConf("bridge", b'{"type": "bridge", "bytes": "\xff\x00"}'),
        steps.PluginConf("tuning", b"{}"),
    ),
    "1.0.0",
    check=False,
)

PLANS = (
    attachment.Plan(
        "net1",
        "default/rail-1",
        PHYSICAL,
        (
            steps.MakeLink(
                steps.VirtualKind.MACVLAN, PARENT, "net1", "kube-rdma c/net1", "bridge", 9000, MAC
            ),
            steps.SetLink("net1", 9000, MAC),
            steps.Probe("net1", V4),
            steps.AddAddress("net1", V4, 24),
            steps.AddAddress("net1", V6, 64),
            steps.AddRoute("net1", ip_network("10.0.0.0/8"), GATEWAY, V4, 101, onlink=True),
            steps.AddRoute("net1", ip_network("fd00::/16")),
            steps.AddRule(V6, 101, 20000),
            steps.SetSysctl("net/ipv4/conf/net1/arp_ignore", "1"),
            steps.MakeRdma("rxe-c-1", "rxe", "net1"),
            steps.AwaitGid("rxe-c-1", "net1", V4),
            steps.Announce("net1", V4),
        ),
        (attachment.InterfaceAddress(V4, 24, GATEWAY), attachment.InterfaceAddress(V6, 64)),
        ("rdma/hca", "0000:81:00.0-0"),
    ),
    attachment.Plan(
        "net2",
        "default/vf",
        PCI,
        (
            vf.SetFunction(
                PLACE,
                vf.FunctionSettings(
                    mac=MAC,
                    vlan=100,
                    qos=3,
                    protocol=vf.VlanProtocol.PROVIDER,
                    spoof_check=True,
                    trust=False,
                    link_state=vf.LinkState.ENABLE,
                    min_rate=0,
                    max_rate=25000,
                ),
                vf.FunctionSettings(
                    mac="00:00:00:00:00:00",
                    vlan=0,
                    qos=0,
                    protocol=vf.VlanProtocol.CUSTOMER,
                    spoof_check=False,
                    trust=True,
                    link_state=vf.LinkState.AUTO,
                    min_rate=0,
                    max_rate=0,
                ),
            ),
            vf.SetFunction(
                PLACE,
                vf.FunctionSettings(link_state=vf.LinkState.DISABLE),
                vf.FunctionSettings(link_state=vf.LinkState.AUTO),
            ),
            steps.TakeLink(
                PlannedHostLink(9, "ens2f0v0"),
                "net2",
                PCI,
                1500,
                MAC,
                up=True,
                soft=(("rxe_v0", "rxe"), ("siw_v0", "siw")),
                addresses=((V4, 24), (V6, 64)),
            ),
            steps.MoveRdma("mlx5_2", PCI),
            steps.SetLink("net2"),
            steps.MakeLink(
                steps.VirtualKind.IPVLAN,
                PlannedHostLink(9, "net2"),
                "net2i",
                "kube-rdma c/net2i",
                "l2",
                inside=True,
            ),
        ),
    ),
    attachment.Plan(
        "net3",
        "default/ib",
        PCI,
        (
            vf.SetFunction(
                PLACE,
                vf.FunctionSettings(
                    node_guid="02:00:00:00:00:00:00:01", port_guid="02:00:00:00:00:00:00:02"
                ),
                vf.FunctionSettings(
                    node_guid="00:00:00:00:00:00:00:00", port_guid="00:00:00:00:00:00:00:00"
                ),
            ),
            vf.RebindFunction(PCI, PHYSICAL, "mlx5_core", "0200:0000:0000:0001", "ffff:" * 3),
            steps.AwaitPartition(PCI, 0x7001),
            steps.MakeLink(
                steps.VirtualKind.IPOIB,
                PlannedHostLink(5, "ib0"),
                "net3",
                "kube-rdma c/net3",
                pkey=0x7001,
            ),
            steps.TakeLink(
                PlannedHostLink(6, "ib1"), "net3", None, 2044, "80:" * 19 + "00", up=False
            ),
            steps.MoveRdma("mlx5_3", None),
        ),
    ),
    attachment.Plan("net4", "default/bridged", None, (CALL,), held=("rdma/hca", "shared-3")),
)
DNS = Dns(("192.168.111.53",), "cluster.local", ("svc.cluster.local",), ("ndots:5",))
RESULTS = (
    attachment.PluginResult("net4", b'{"cniVersion": "1.0.0"}', DNS),
    attachment.PluginResult("net5", b"{}"),
)
ATTACHMENT = attachment.Attachment(SANDBOX, PLANS, results=RESULTS)
SHARES = ("0000:81:00.0-0", "0000:81:00.0-1")

PROMISE = Promise(
    "3f9a",
    "rdma/hca",
    SHARES,
    (PHYSICAL,),
    "kube-rdma.io/hca=0000:81:00.0-0-3f9a",
    1763801234.5,
    ("17bc",),
)
BINDING = Binding(
    PROMISE.nonce,
    CONTAINER,
    SANDBOX.pod,
    SANDBOX.uid,
    SANDBOX.netns_path,
    PROMISE.resource,
    PROMISE.shares,
    PROMISE.cards,
    PROMISE.cdi,
    1763801235.0,
)
SELECTOR = Selector(
    source="config.yaml:7",
    vendors=("15b3",),
    device_ids=("101e",),
    drivers=("mlx5_core",),
    interfaces=("ens2f0",),
    link_types=("ether",),
    pci_addresses=(PCI,),
    acpi_indexes=(3,),
    physical=(FunctionRange("ens2f0", ((0, 3), (6, 6))),),
    roots=(FunctionRange(PHYSICAL),),
    auxiliary_types=("sf",),
    rdma_devices=("mlx5_0",),
    pkeys=(0x7001,),
    rdma=True,
)
POOL = PoolSpec(
    resource="rdma/vf",
    mode=Mode.SRIOV,
    source="config.yaml:3",
    selectors=(SELECTOR, Selector()),
    shares=64,
    bind=Bind.PER_CARD,
    attach=Attach.REQUIRED,
    prefer=Preference.NUMA,
    numa_hints=False,
    variables=Variables.PCIDEVICE,
    extra_info=(ExtraInfo("*", (("rail", "1"),)),),
    extra_paths=("/dev/infiniband/rdma_cm",),
)
APPLIED = AppliedPools(
    (
        POOL,
        replace(POOL, resource="rdma/hca", mode=Mode.HCA, bind=Bind.POOL, attach=Attach.NONE),
        PoolSpec("rdma/a", Mode.EXCLUSIVE, "s", attach=Attach.AUTO, prefer=Preference.PACK),
        PoolSpec("rdma/b", Mode.SHARED, "s", prefer=Preference.SPREAD),
        PoolSpec("rdma/c", Mode.SHARED_MULTI, "s", prefer=Preference.LEAST_LOADED),
    )
)
FABRIC = FabricProfile(106, 3, 22, 7, 4, (("NCCL_IB_AR_THRESHOLD", "0"),))
ON_FABRICS = AppliedPools(
    (
        PoolSpec("rdma/d", Mode.SHARED, "s", fabric=FABRIC, bare_ids=True),
        PoolSpec("rdma/e", Mode.SHARED, "s", fabric=FabricProfile(), host_network=True),
    )
)
SERVED = AppliedPools(
    (
        PoolSpec("rdma/f", Mode.HCA, "s", serve=Serving.CLAIMS),
        PoolSpec("rdma/g", Mode.SHARED, "s", serve=Serving.PLUGIN),
    )
)
LIMITED = AppliedPools(
    (
        PoolSpec("rdma/h", Mode.SHARED_MULTI, "s", limits=RdmaLimits(16, 20000)),
        PoolSpec("rdma/i", Mode.HCA, "s", limits=RdmaLimits(objects=5)),
    )
)
OPENED = AppliedPools((PoolSpec("rdma/j", Mode.HCA, "s", device_files=tuple(CharKind)),))
BOOKING = AllocationRecord(
    CONTAINER,
    SANDBOX.uid,
    (
        AddressAllocation(
            "default/rail-1", "net1", "rail", V4, ip_network("192.168.111.0/24"), GATEWAY, 30.0
        ),
        AddressAllocation(
            "default/rail-1",
            "net1",
            "rail6",
            V6,
            ip_network("fd00:111::/64"),
            owner="default/trainer-0/net1",
            cooling=True,
        ),
    ),
    12.25,
)

CLAIM = claim.ClaimName("team", "job-0-nic-x7", "5b0e8b0a-1111-2222-3333-444455556666")
PREPARED = claim.PreparedClaim(
    CLAIM,
    (
        claim.ClaimShare(
            request="nic/fast",
            pool="node-1",
            device="0000-81-00-0",
            share_id="0c5f2f0e-aaaa-bbbb-cccc-ddddeeeeffff",
            resource="rdma/multi",
            share="0000:81:00.0-5b0e8b0a111122223333444455556666.0",
            cards=(PHYSICAL,),
            slots=2,
            char_paths=("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"),
            cdi=f"kube-rdma.io/claim={CLAIM.uid}_nic.fast_0c5f2f0e-aaaa-bbbb-cccc-ddddeeeeffff",
        ),
        claim.ClaimShare(
            "look",
            "node-1",
            "0000-82-00-0",
            None,
            "rdma/own",
            "0000:82:00.0-5b0e.1",
            ("0000:82:00.0",),
            1,
            (),
            admin=True,
        ),
    ),
    (claim.ClaimUser("pods", "job-0", "f3a0"),),
    "b00t",
    1764115200.25,
)

# Parameters of claims came later than claims.
WORDS = claim.ClaimParameters(
    claim.NetworkReference("rdma-net", "team"),
    interface="rdma0",
    mtu=9000,
    addresses=(attachment.AskedAddress(ip_address("10.0.0.10"), 24), attachment.AskedAddress(V6)),
    routes=(
        attachment.NetworkRoute(ip_network("10.0.0.0/8"), GATEWAY),
        attachment.NetworkRoute(ip_network("::/0")),
    ),
    default_route=True,
    mac=MAC,
    guid="02:00:0a:00:00:00:00:01",
)
INTERFACES = replace(
    PREPARED,
    shares=tuple(
        replace(PREPARED.shares[0], share=f"{PHYSICAL}-5b0e.{number}", parameters=parameters)
        for number, parameters in enumerate(
            (
                WORDS,
                claim.ClaimParameters(
                    kind=attachment.NetworkKind.MACVLAN, mode="bridge", pool="rail-0"
                ),
                *(claim.ClaimParameters(kind=kind) for kind in attachment.NetworkKind),
            )
        )
    ),
)

RECORDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fabrics": (codec.POOLS, {"pools": ON_FABRICS}),
    "attachments": (
        codec.ATTACHMENTS,
        {
            f"attached-{CONTAINER}": ATTACHMENT,
            "attachment-1": attachment.Attachment(
                replace(SANDBOX, container="1"), (), complete=True
            ),
        },
    ),
    "delegated": (
        codec.ATTACHMENTS,
        {
            f"attached-{CONTAINER}@net2": attachment.Attachment(
                replace(SANDBOX, container=f"{CONTAINER}@net2"), PLANS[1:2]
            )
        },
    ),
    "bindings": (
        codec.BINDINGS,
        {
            f"promise-{PROMISE.nonce}": PROMISE,
            f"binding-{CONTAINER}-{PROMISE.nonce}": BINDING,
            "binding-start-17bc-17bc": replace(
                BINDING, nonce="17bc", container="start-17bc", uid="", netns=""
            ),
        },
    ),
    "functions": (
        codec.FUNCTIONS,
        {
            PHYSICAL: MadeFunctions(PHYSICAL, "b00t", begun=True),
            "0000:82:00.0": MadeFunctions(PciAddress("0000:82:00.0"), "b00t"),
        },
    ),
    "pools": (codec.POOLS, {"pools": APPLIED}),
    "serving": (codec.POOLS, {"pools": SERVED}),
    "limits": (codec.POOLS, {"pools": LIMITED}),
    "device-files": (codec.POOLS, {"pools": OPENED}),
    "rails": (codec.RAILS, {"rails": RailRecord((PHYSICAL, "rxe0@eth0"), (("ens2f0", PHYSICAL),))}),
    "claims": (codec.CLAIMS, {CLAIM.uid: PREPARED}),
    "interfaces": (codec.CLAIMS, {CLAIM.uid: INTERFACES}),
    "addresses": (
        codec.ADDRESSES,
        {CONTAINER: BOOKING, "journal@id": JournalIdentity("2b7e151628aed2a6abf7158809cf4f3c")},
    ),
}


def main(folder: Path) -> None:
    for name, (kinds, records) in RECORDS.items():
        with Journal[Any](Folder(folder / name), kinds) as journal:
            for record, value in records.items():
                journal.put(record, value)
        (folder / name / ".lock").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
