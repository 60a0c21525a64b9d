"""What each dialect means, word for word."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.model.device import CharKind, PciAddress
from kube_rdma.model.pools import (
    Attach,
    Bind,
    ExtraInfo,
    FunctionRange,
    FunctionsSpec,
    Mode,
    PoolSpec,
    Preference,
    RdmaLimits,
    Selector,
    Serving,
    Variables,
)
from kube_rdma.model.settings import FabricProfile
from kube_rdma.pools.documents.config import label_pools, parse

ALL_FILES = tuple(CharKind)
SHARED = {
    "periodicUpdateInterval": 0,
    "configList": [
        {
            "resourceName": "a",
            "resourcePrefix": "nvidia.com",
            "rdmaHcaMax": 63,
            "selectors": {
                "vendors": ["15B3"],
                "deviceIDs": ["101D"],
                "drivers": ["mlx5_core"],
                "ifNames": ["ens2f0"],
                "linkTypes": ["ether", "infiniband"],
            },
        },
        {"resourceName": "b", "rdmaHcaMax": 1000, "devices": ["ens2f1"]},
    ],
}
SRIOV = {
    "resourceList": [
        {
            "resourceName": "a",
            "resourcePrefix": "x.org",
            "deviceType": "netDevice",
            "excludeTopology": True,
            "additionalInfo": {"*": {"a": "b"}, "0000:81:0A.1": {"c": "d"}},
            "selectors": {
                "vendors": ["15b3"],
                "devices": ["101e"],
                "drivers": ["mlx5_core"],
                "pciAddresses": ["0000:81:0A.1"],
                "acpiIndexes": ["101"],
                "pfNames": ["ens2f0#0,2-7"],
                "rootDevices": ["0000:81:00.0"],
                "linkTypes": ["ether"],
                "pKeys": ["0x8001"],
                "isRdma": True,
                "needVhostNet": True,
            },
        },
        {
            "resourceName": "b",
            "deviceType": "auxNetDevice",
            "selectors": [{"auxTypes": ["sf"]}, {"vendors": ["15b3"], "isRdma": False}],
        },
    ]
}
POLICY = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "NodePolicy",
    "metadata": {"name": "a", "uid": "b"},
    "spec": {
        "nodeSelector": {"a": "b"},
        "priority": 7,
        "pools": [
            {
                "resource": "x.org/a",
                "mode": "shared-multi",
                "shares": 4,
                "bind": "per-card",
                "attach": "required",
                "prefer": "pack",
                "numaHints": False,
                "extraInfo": {"*": {"a": "b"}},
                "fabric": {
                    "trafficClass": 106,
                    "serviceLevel": 3,
                    "timeout": 22,
                    "retryCount": 7,
                    "qpsPerConnection": 4,
                    "variables": {"NCCL_IB_AR_THRESHOLD": "0"},
                },
                "deviceFiles": ["umad", "uverbs", "uverbs"],
                "rdmaLimits": {"hcaHandle": 16, "hcaObject": 20000},
                "selectors": [
                    {
                        "vendors": ["15B3"],
                        "deviceIDs": ["101D"],
                        "drivers": ["mlx5_core"],
                        "interfaces": ["ens2f0"],
                        "linkTypes": ["ether"],
                        "pciAddresses": ["0000:81:0A.1"],
                        "acpiIndexes": [101],
                        "physicalFunctions": ["ens2f0#0-3"],
                        "rootDevices": ["0000:81:00.0#1"],
                        "rdmaDevices": ["mlx5_0"],
                        "pKeys": ["0x1"],
                        "rdma": False,
                    },
                    {"rdma": True},
                ],
            },
            {
                "resource": "rdma/hca",
                "mode": "hca",
                "bind": "pool",
                "hostNetwork": True,
                "serve": "claims",
            },
        ],
        "rails": ["0000:1A:00.0", "ens2f0"],
        "virtualFunctions": [
            {
                "selectors": [{"interfaces": ["ens2f0"], "vendors": ["15B3"]}],
                "count": 8,
                "autoprobe": False,
                "force": True,
            },
            {"selectors": [{"pciAddresses": ["0000:81:0A.1"]}, {"drivers": ["igb"]}], "count": 0},
        ],
    },
}
WHOLE = {"hca": {"mode": "hca", "hostNetwork": True}, "config-list": SHARED, "resource-list": SRIOV}
WHOLE["node-policy"] = POLICY


def read(value):
    return parse(json.dumps(value).encode(), "f")


def test_config_list_word_for_word():
    found = read(SHARED)
    assert found.rescan == 0
    assert found.warnings == ()
    common = {"mode": Mode.HCA, "bind": Bind.POOL, "bare_ids": True}
    common["device_files"] = ALL_FILES
    assert found.pools == (
        PoolSpec(
            "nvidia.com/a",
            source="f:1:46: configList[0]",
            selectors=(
                Selector(
                    "f:1:131: configList[0].selectors",
                    vendors=("15b3",),
                    device_ids=("101d",),
                    drivers=("mlx5_core",),
                    interfaces=("ens2f0",),
                    link_types=("ether", "infiniband"),
                ),
            ),
            shares=63,
            **common,
        ),
        PoolSpec(
            "rdma/b",
            source="f:1:265: configList[1]",
            selectors=(Selector("f:1:318: configList[1].devices", interfaces=("ens2f1",)),),
            shares=1000,
            **common,
        ),
    )


def test_config_list_looks_again_each_minute_unless_it_says_otherwise():
    rest = {"configList": SHARED["configList"]}
    assert read(rest).rescan == 300
    assert read({"periodicUpdateInterval": 300} | rest).rescan == 300


def test_empty_selectors_beside_devices_choose_nothing():
    entry = {"resourceName": "a", "rdmaHcaMax": 1, "devices": ["x"], "selectors": {"vendors": []}}
    (pool,) = read({"configList": [entry]}).pools
    assert pool.selectors[0].interfaces == ("x",)


def test_a_bare_name_given_twice_is_a_warning():
    one = {"resourceName": "a", "rdmaHcaMax": 1, "devices": ["x"]}
    found = read({"configList": [one, one | {"resourcePrefix": "y", "devices": ["y"]}]})
    assert [pool.resource for pool in found.pools] == ["rdma/a", "y/a"]
    (warning,) = found.warnings
    assert warning.startswith("2 pools are named a under different prefixes")


def test_resource_list_word_for_word():
    address = PciAddress("0000:81:0a.1")
    common = {"mode": Mode.SRIOV, "attach": Attach.NONE, "variables": Variables.PCIDEVICE}
    common["device_files"] = ALL_FILES
    assert read(SRIOV).pools == (
        PoolSpec(
            "x.org/a",
            source="f:1:19: resourceList[0]",
            selectors=(
                Selector(
                    "f:1:198: resourceList[0].selectors",
                    vendors=("15b3",),
                    device_ids=("101e",),
                    drivers=("mlx5_core",),
                    pci_addresses=(address,),
                    acpi_indexes=(101,),
                    physical=(FunctionRange("ens2f0", ((0, 0), (2, 7))),),
                    roots=(FunctionRange("0000:81:00.0"),),
                    link_types=("ether",),
                    pkeys=(1,),
                    rdma=True,
                ),
            ),
            numa_hints=False,
            extra_info=(ExtraInfo("*", (("a", "b"),)), ExtraInfo(address, (("c", "d"),))),
            extra_paths=("/dev/vhost-net", "/dev/net/tun"),
            **common,
        ),
        PoolSpec(
            "intel.com/b",
            source="f:1:472: resourceList[1]",
            selectors=(
                Selector("f:1:538: resourceList[1].selectors[0]", auxiliary_types=("sf",)),
                Selector(
                    "f:1:560: resourceList[1].selectors[1]",
                    vendors=("15b3",),
                    auxiliary_types=("sf",),
                ),
            ),
            **common,
        ),
    )


def test_node_policy_word_for_word():
    first, second = read(POLICY).pools
    assert first == PoolSpec(
        "x.org/a",
        Mode.SHARED_MULTI,
        first.source,
        selectors=(
            Selector(
                first.selectors[0].source,
                vendors=("15b3",),
                device_ids=("101d",),
                drivers=("mlx5_core",),
                interfaces=("ens2f0",),
                link_types=("ether",),
                pci_addresses=(PciAddress("0000:81:0a.1"),),
                acpi_indexes=(101,),
                physical=(FunctionRange("ens2f0", ((0, 3),)),),
                roots=(FunctionRange("0000:81:00.0", ((1, 1),)),),
                rdma_devices=("mlx5_0",),
                pkeys=(1,),
                rdma=False,
            ),
            Selector(first.selectors[1].source, rdma=True),
        ),
        shares=4,
        bind=Bind.PER_CARD,
        attach=Attach.REQUIRED,
        prefer=Preference.PACK,
        numa_hints=False,
        extra_info=(ExtraInfo("*", (("a", "b"),)),),
        fabric=FabricProfile(106, 3, 22, 7, 4, (("NCCL_IB_AR_THRESHOLD", "0"),)),
        limits=RdmaLimits(16, 20000),
        device_files=(CharKind.UVERBS, CharKind.UMAD),
    )
    assert first.source.endswith(": spec.pools[0]")
    assert first.selectors[1].source.endswith(": spec.pools[0].selectors[1]")
    assert second == PoolSpec(
        "rdma/hca", Mode.HCA, second.source, bind=Bind.POOL, host_network=True, serve=Serving.CLAIMS
    )


def test_rails_are_listed_by_address_or_interface_each_card_once():
    """In the document's order; an address is one card, however its letters are written."""
    assert read(POLICY).rails == ("0000:1A:00.0", "ens2f0")
    twice = {**POLICY, "spec": {**POLICY["spec"], "rails": ["0000:1A:00.0", "0000:1a:00.0"]}}
    with pytest.raises(Refused, match=r"spec.rails\[1\].*has a rail already"):
        read(twice)
    odd = {**POLICY, "spec": {**POLICY["spec"], "rails": ["1a:00.0"]}}
    with pytest.raises(Refused, match="is not the PCI address or the interface"):
        read(odd)


def test_hca_says_that_its_pods_use_the_node_s_network():
    (pool,) = read({"mode": "hca", "hostNetwork": True}).pools
    assert pool.host_network
    (pool,) = read({"mode": "hca"}).pools
    assert not pool.host_network


def test_virtual_functions_word_for_word():
    first, second = read(POLICY).functions
    place = first.source
    assert place.endswith(": spec.virtualFunctions[0]")
    (selector,) = first.selectors
    assert selector.source.endswith(": spec.virtualFunctions[0].selectors[0]")
    chosen = Selector(selector.source, vendors=("15b3",), interfaces=("ens2f0",))
    assert first == FunctionsSpec((chosen,), 8, place, autoprobe=False, force=True)
    assert [one.pci_addresses for one in second.selectors] == [("0000:81:0a.1",), ()]
    assert (second.count, second.autoprobe, second.force) == (0, True, False)


@pytest.mark.parametrize("mode", ["exclusive", "shared", "shared-multi"])
def test_the_node_label_is_one_pool(mode):
    (pool,) = label_pools(mode)
    assert pool == PoolSpec("vke.volcengine.com/rdma", Mode(mode), "label vke.node.rdma.mode")


def test_a_node_without_the_label_wishes_for_nothing():
    assert label_pools(None) == ()


@pytest.mark.parametrize("value", ["hca", "", "Exclusive", "sharedmulti", "none"])
def test_another_value_of_the_label_is_refused(value):
    with pytest.raises(Refused) as caught:
        label_pools(value)
    said = str(caught.value)
    assert said.startswith(f'label vke.node.rdma.mode: "{value}" is not a mode of nodes. ')
    assert said.endswith("Label the node with one of exclusive, shared, shared-multi.")
    assert ("Did you mean" in said) == (value in {"Exclusive", "sharedmulti"})
