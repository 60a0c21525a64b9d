"""What the tests and READMEs of other projects show, as documents of our own with that property.

Each row names its source: project, file, test. A document is what such a user brings; `expected` is
what becomes of it here, by the names that tests/unit/bad_input/test_rivals reads them under.
"notes" and "refused" are parts of sentences; what is not named is not there.
"""

from dataclasses import dataclass, field
from typing import Any

PLUGINS = "containernetworking/plugins"
HOST_LOCAL = f"{PLUGINS} plugins/ipam/host-local/backend/allocator/config_test.go"
STATIC = f"{PLUGINS} plugins/ipam/static/static_test.go"
TUNING = f"{PLUGINS} plugins/meta/tuning/tuning_test.go"
WHEREABOUTS = "k8snetworkplumbingwg/whereabouts"
WHEREABOUTS_CONFIG = f"{WHEREABOUTS} pkg/config/config_test.go"
MULTUS = "k8snetworkplumbingwg/multus-cni"
MULTUS_CLIENT = f"{MULTUS} pkg/k8sclient/k8sclient_test.go"
CLIENT = "k8snetworkplumbingwg/network-attachment-definition-client"
CLIENT_STATUS = f"{CLIENT} pkg/utils/net-attach-def_test.go"
SRIOV = "k8snetworkplumbingwg/sriov-cni pkg/config/config_test.go"
IB_SRIOV = "k8snetworkplumbingwg/ib-sriov-cni"
SRIOV_PLUGIN = "k8snetworkplumbingwg/sriov-network-device-plugin"
SHARED_PLUGIN = "Mellanox/k8s-rdma-shared-dev-plugin pkg/resources/resources_manager_test.go"
NV_IPAM = "Mellanox/nvidia-k8s-ipam"


@dataclass(frozen=True)
class Case:
    """A document, and what becomes of it; `more` are the caller's words beside it."""

    source: str
    document: Any
    expected: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)


def _sets(*sets: list[str], **more: Any) -> dict[str, Any]:
    made = [[{"subnet": subnet} for subnet in group] for group in sets]
    return {"type": "host-local", "ranges": made, **more}


CLUSTER = "from one pool for the cluster"
ONE_OF_EACH = "one address of each family"
FREE = "kube-rdma does not check that these addresses are free"

IPAM = {
    "host-local: a range beside the type": Case(
        f"{HOST_LOCAL}: Should parse an old-style config",
        {
            "type": "host-local",
            "subnet": "10.7.0.0/24",
            "rangeStart": "10.7.0.8",
            "rangeEnd": "10.7.0.19",
            "gateway": "10.7.0.40",
        },
        {"ranges": ["10.7.0.0/24 10.7.0.8 10.7.0.19 10.7.0.40"], "notes": [CLUSTER]},
    ),
    "host-local: two sets of a family": Case(
        f"{HOST_LOCAL}: Should parse a new-style config",
        _sets(["10.7.0.0/24", "10.7.4.0/24"], ["10.9.0.0/24"]),
        {
            "ranges": [
                "10.7.0.0/24 - - 10.7.0.1",
                "10.7.4.0/24 - - 10.7.4.1",
                "10.9.0.0/24 - - 10.9.0.1",
            ],
            "notes": [CLUSTER, ONE_OF_EACH],
        },
    ),
    "host-local: one set of each family": Case(
        f"{HOST_LOCAL}: Should allow one v4 and v6 range for 0.2.0",
        _sets(["10.7.0.0/24"], ["fd07::/64"]),
        {"ranges": ["10.7.0.0/24 - - 10.7.0.1", "fd07::/64 - - fd07::1"], "notes": [CLUSTER]},
    ),
    "host-local: a range of the caller, one beside the type, and a list": Case(
        f"{HOST_LOCAL}: Should parse a mixed config with runtime args",
        _sets(["10.9.0.0/24"], subnet="10.8.0.0/24", rangeStart="10.8.0.9"),
        {
            "ranges": [
                "10.7.0.0/24 - - 10.7.0.1",
                "10.8.0.0/24 10.8.0.9 - 10.8.0.1",
                "10.9.0.0/24 - - 10.9.0.1",
            ],
            "notes": [CLUSTER, ONE_OF_EACH],
        },
        {"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}},
    ),
    "host-local: ends of a range without its subnet, beside a list": Case(
        f"{PLUGINS} plugins/ipam/host-local/backend/allocator/config.go: LoadIPAMConfig",
        _sets(["10.7.0.0/24"], rangeStart="10.8.0.9"),
        {"ranges": ["10.7.0.0/24 - - 10.7.0.1"], "notes": [CLUSTER, "no subnet is beside them"]},
    ),
    "host-local: a gateway elsewhere": Case(
        f"{PLUGINS} plugins/ipam/host-local/backend/allocator/range.go: Canonicalize",
        {"type": "host-local", "subnet": "10.7.0.0/24", "gateway": "10.8.0.1"},
        {"ranges": ["10.7.0.0/24 - - -"], "notes": [CLUSTER, "10.8.0.1 is outside of 10.7.0.0/24"]},
    ),
    "host-local: ranges of a set that overlap": Case(
        f"{HOST_LOCAL}: Should detect overlap within rangeset",
        _sets(["10.8.0.0/22", "10.8.2.0/24"]),
        {"refused": "have addresses in common"},
    ),
    "host-local: bits behind the length": Case(
        f"{PLUGINS} plugins/ipam/host-local/backend/allocator/range_test.go: should reject ipv4 "
        "network with host bit set",
        {"type": "host-local", "subnet": "10.7.0.9/24"},
        {"refused": "has bits set behind its length"},
    ),
    "host-local: what Go leaves empty": Case(
        f"{PLUGINS} pkg/types: a config that encoding/json has written",
        {
            "type": "host-local",
            "subnet": "10.7.0.0/24",
            "rangeStart": "",
            "gateway": None,
            "routes": None,
            "ranges": None,
            "dataDir": "",
            "resolvConf": "",
        },
        {"ranges": ["10.7.0.0/24 - - 10.7.0.1"], "notes": [CLUSTER]},
    ),
    "static: of both families, with a gateway elsewhere": Case(
        f"{STATIC}: allocates and releases addresses with ADD/DEL",
        {
            "type": "static",
            "addresses": [
                {"address": "10.7.0.1/24", "gateway": "10.7.0.254"},
                {"address": "fd07:0:0:1::1/64", "gateway": "fd07::1"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd07:0:0:1::1/64"}],
        },
        {
            "addresses": ["10.7.0.1/24 10.7.0.254", "fd07:0:0:1::1/64 fd07::1"],
            "routes": ["0.0.0.0/0 -", "fd07:0:0:1::/64 -"],
            "notes": [FREE],
        },
    ),
    "static: two gateways to one destination": Case(
        f"{STATIC}: keeps multiple gateways for the same destination (ECMP)",
        {
            "type": "static",
            "addresses": [{"address": "10.7.0.1/24"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": f"10.7.0.{end}"} for end in (254, 253)],
        },
        {
            "addresses": ["10.7.0.1/24 -"],
            "routes": ["0.0.0.0/0 10.7.0.254", "0.0.0.0/0 10.7.0.253"],
            "notes": [FREE],
        },
    ),
}

_MACVLAN = {"cniVersion": "1.0.0", "type": "macvlan", "master": "ens2f0"}
_MAC = "02:00:0a:00:00:01"

DEFINITIONS = {
    "tuning: from args": Case(
        f"{TUNING}: configures and deconfigures mac address (from args) with ADD/DEL",
        {
            "plugins": [
                _MACVLAN,
                {
                    "type": "tuning",
                    "mtu": 1400,
                    "sysctl": {
                        "net.ipv4.conf.IFNAME.arp_notify": "0",
                        "net.ipv4.conf.IFNAME.rp_filter": "2",
                    },
                    "args": {
                        "cni": {
                            "mac": "02-00-0a-00-00-01",
                            "mtu": 1454,
                            "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"},
                        }
                    },
                },
            ]
        },
        {
            "kind": "macvlan",
            "mac": _MAC,
            "mtu": 1454,
            "sysctls": (("ipv4/conf", "arp_notify", "1"), ("ipv4/conf", "rp_filter", "2")),
        },
    ),
    "tuning: promiscuous mode from args": Case(
        f"{TUNING}: configures and deconfigures promiscuous mode from args with ADD/DEL",
        {"plugins": [_MACVLAN, {"type": "tuning", "args": {"cni": {"promisc": True}}}]},
        {"kind": "other", "warnings": ["promisc is set"]},
    ),
    "tuning: promiscuous mode taken back by args": Case(
        f"{PLUGINS} plugins/meta/tuning/tuning.go: parseConf",
        {
            "plugins": [
                _MACVLAN,
                {"type": "tuning", "promisc": True, "args": {"cni": {"promisc": False}}},
            ]
        },
        {"kind": "macvlan"},
    ),
    "tuning: queue length from args": Case(
        f"{TUNING}: configures and deconfigures tx queue len from args with ADD/DEL",
        {"plugins": [_MACVLAN, {"type": "tuning", "args": {"cni": {"txQLen": 2000}}}]},
        {"kind": "other", "warnings": ["txQLen is set"]},
    ),
    "tuning: a sysctl twice": Case(
        f"{TUNING}: does not allow duplicated sysctl values",
        '{"plugins": [{"type": "macvlan"}, {"type": "tuning", "sysctl": {"a": "1", "a": "2"}}]}',
        {"refused": "the field is given twice"},
    ),
    "sriov: what Go leaves empty": Case(
        f"{SRIOV}: Vlan ID, QoS and Proto, default values for vlan, qos and proto",
        {
            "type": "sriov",
            "deviceID": "0000:81:00.2",
            "vlan": None,
            "vlanQoS": None,
            "vlanProto": "",
            "mac": "",
            "spoofchk": "",
            "trust": None,
            "ipam": {"type": "", "subnet": None},
        },
        {"kind": "host-device"},
    ),
    "sriov: a number that is no number": Case(
        f"{SRIOV}: Vlan ID, QoS and Proto, invalid vlan ID",
        {"type": "sriov", "vlan": ""},
        {"refused": "is not a whole number"},
    ),
    "ib-sriov: a GUID with dashes in args": Case(
        f"{IB_SRIOV} pkg/sriov/sriov.go: ParseMAC",
        {"type": "ib-sriov", "args": {"cni": {"guid": "02-00-0a-00-00-00-00-01"}}},
        {"kind": "host-device", "guid": "02:00:0a:00:00:00:00:01"},
    ),
    "a document that begins with a tab": Case(
        f"{WHEREABOUTS_CONFIG}: documents indented with tabs",
        '\n\t{"type": "macvlan",\n\t\t"master": "ens2f0"}',
        {"kind": "macvlan"},
    ),
    "addresses of a plugin that kube-rdma does not read": Case(
        f"{NV_IPAM} README.md: a macvlan network with nv-ipam",
        {**_MACVLAN, "ipam": {"type": "nv-ipam", "poolName": "pool1"}},
        {"kind": "macvlan", "ipam_plugin": "nv-ipam"},
    ),
    "addresses of a DHCP server": Case(
        f"{PLUGINS} plugins/ipam/dhcp/dhcp_test.go: configures and deconfigures a link with "
        "ADD/DEL",
        {**_MACVLAN, "ipam": {"type": "dhcp"}},
        {"kind": "macvlan", "ipam_plugin": "dhcp"},
    ),
    "type kube-rdma with addresses of another plugin": Case(
        f"{NV_IPAM} README.md",
        {"type": "kube-rdma", "ipam": {"type": "nv-ipam", "poolName": "pool1"}},
        {"kind": "kube-rdma", "ipam_plugin": "nv-ipam"},
    ),
}

_STATIC = {"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]}

CALLS = {
    "static: addresses of CNI_ARGS are added": Case(
        f"{STATIC}: allocates and releases multiple addresses with ADD/DEL, with ENV variables",
        _STATIC,
        {"static": ["10.7.0.9/24 10.7.0.254", "10.7.0.2/24 10.7.0.254", "10.8.0.2/24 -"]},
        {"cni_args": (("IP", "10.7.0.2/24,10.8.0.2/24"), ("GATEWAY", "10.7.0.254"))},
    ),
    "static: addresses of args replace": Case(
        f"{STATIC}: allocates and releases multiple addresses with ADD/DEL, from args",
        _STATIC,
        {"asked": ["10.7.0.2/24", "fd07::2/64"]},
        {"args": {"cni": {"ips": ["10.7.0.2/24", "fd07::2/64"]}}},
    ),
    "static: addresses of runtimeConfig replace all": Case(
        f"{STATIC}: allocates and releases multiple addresses with ADD/DEL, from "
        "RuntimeConfig/ARGS/CNI_ARGS",
        _STATIC,
        {"asked": ["10.7.0.3/24"]},
        {
            "runtimeConfig": {"ips": ["10.7.0.3/24"]},
            "args": {"cni": {"ips": ["10.7.0.2/24"]}},
            "cni_args": (("IP", "10.7.0.4/24"), ("GATEWAY", "10.7.0.254")),
        },
    ),
    "static: an address without its length": Case(
        f"{STATIC}: errors when passed an invalid CIDR via Args",
        _STATIC,
        {"static": ["10.7.0.9/24 10.7.0.1"], "asked": ["10.7.0.2"]},  # which is refused later
        {"cni_args": (("IP", "10.7.0.2"),)},
    ),
    "host-local: addresses from everywhere are asked for": Case(
        f"{HOST_LOCAL}: Should parse config args, without prefix",
        _sets(["10.7.0.0/24"], ["fd07::/64"]),
        {"asked": ["10.7.0.8", "10.7.0.9", "fd07::9"]},
        {"args": {"cni": {"ips": ["10.7.0.9", "fd07::9"]}}, "cni_args": (("IP", "10.7.0.8"),)},
    ),
    "what the caller leaves empty": Case(
        f"{MULTUS} pkg/types/types.go: RuntimeConfig as encoding/json writes it",
        _STATIC,
        {"static": ["10.7.0.9/24 10.7.0.1"]},
        {"runtimeConfig": {"ips": None, "mac": "", "infinibandGUID": ""}, "args": {"cni": None}},
    ),
}

ANNOTATIONS = {
    "spaces in the form with commas": Case(
        f"{MULTUS} pkg/k8sclient/k8sclient.go: parsePodNetworkObjectName",
        " ns / net1 @ eth1 , net2 ",
        {"networks": ["ns/net1 eth1", "default/net2 net2"]},
    ),
    "keys that were never read": Case(
        f"{MULTUS_CLIENT}: retrieves delegates from kubernetes using JSON format annotation",
        [{"name": "a"}, {"name": "b", "ipRequest": "10.7.0.4", "macRequest": _MAC}],
        {
            "networks": ["default/a net1", "default/b net2"],
            "warnings": [
                "ipRequest: there is no such field, it is ignored; write ips",
                "write mac",
            ],
        },
    ),
    "a MAC with dashes": Case(
        f"{MULTUS} pkg/k8sclient/k8sclient.go: ParseMAC",
        [{"name": "a", "mac": "02-00-0A-00-00-01"}],
        {"networks": ["default/a net1"], "mac": _MAC},
    ),
    "a MAC with dots": Case(
        f"{MULTUS} pkg/k8sclient/k8sclient.go: ParseMAC",
        [{"name": "a", "mac": "0200.0a00.0001"}],
        {"networks": ["default/a net1"], "mac": _MAC},
    ),
    "a GUID with dots": Case(
        f"{MULTUS} pkg/k8sclient/k8sclient.go: ParseMAC",
        [{"name": "a", "infiniband-guid": "0200.0a00.0000.0001"}],
        {"networks": ["default/a net1"], "guid": "02:00:0a:00:00:00:00:01"},
    ),
    "letters of another size": Case(
        f"{CLIENT_STATUS}: encoding/json does not tell letters apart",
        [{"Name": "a", "Interface": "test1"}],
        {"networks": ["default/a test1"]},
    ),
    "a list that begins with a tab": Case(
        f"{CLIENT_STATUS}: parse network selection element in pod",
        '\n\t\t[{\n\t\t\t"name": "a",\n\t\t\t"interface": "test1"\n\t\t}]',
        {"networks": ["default/a test1"]},
    ),
    "no JSON at all": Case(
        f"{MULTUS_CLIENT}: fails when the JSON format annotation is invalid",
        "[adsf]",
        {"refused": "has no fields"},
    ),
}

CONFIGS = {
    "resourceList as an operator in Go writes it": Case(
        f"{SRIOV_PLUGIN} pkg/types/types.go: ResourceConfig as encoding/json writes it",
        {
            "resourceList": [
                {
                    "resourceName": "a",
                    "selectors": {"vendors": ["15b3"], "pfNames": ["ens2f0"], "IsRdma": True},
                    "SelectorObjs": None,
                }
            ]
        },
        {"pools": ["intel.com/a"]},
    ),
    "resourceList with two selectors": Case(
        f"{SRIOV_PLUGIN} cmd/sriovdp/manager_test.go: should load all selector objects",
        {
            "resourceList": [
                {
                    "resourceName": "a",
                    "selectors": [{"vendors": ["8086"]}, {"vendors": ["15b3"], "isRdma": True}],
                }
            ]
        },
        {"pools": ["intel.com/a"]},
    ),
    "resourceList with a name that is none": Case(
        f"{SRIOV_PLUGIN} cmd/sriovdp/manager_test.go: when resource name is invalid",
        {"resourceList": [{"resourceName": "a$b", "selectors": {"vendors": ["15b3"]}}]},
        {"refused": "is not what the kubelet takes"},
    ),
    "configList with a period": Case(
        f"{SHARED_PLUGIN}: Read valid config file with non default periodic update",
        {
            "periodicUpdateInterval": 30,
            "configList": [
                {"resourceName": "a", "rdmaHcaMax": 9, "devices": ["ib0"], "selectors": None},
                {"resourceName": "b", "rdmaHcaMax": 9, "selectors": {"ifNames": ["ib1"]}},
            ],
        },
        {"pools": ["rdma/a", "rdma/b"]},
    ),
    "configList without a share": Case(
        f"{SHARED_PLUGIN}: Valid config list with 0 number of resources",
        {"configList": [{"resourceName": "a", "rdmaHcaMax": 0, "devices": ["ib0"]}]},
        {"refused": "0 is too small"},
    ),
}

STATUSES = {
    "two links in the pod, the gateway on the second": Case(
        f"{CLIENT_STATUS}: matches default=true when gateway is present for an interface",
        (("host0", ""), ("eth0", "/n"), ("host1", ""), ("eth1", "/n")),
        {"entries": ["eth0 10.7.0.6 -", "eth1 10.8.0.3 default"]},
        {"addresses": (("10.7.0.6/24", None, 1), ("10.8.0.3/24", "10.8.0.1", 3))},
    ),
    "two links, addresses of both": Case(
        f"{CLIENT_STATUS}: for the cluster default network",
        (("host0", ""), ("eth0", "/n"), ("eth1", "/n")),
        {"entries": ["eth0 10.7.0.1,10.7.0.2 default", "eth1 10.7.0.3 -"]},
        {
            "addresses": (
                ("10.7.0.1/24", None, 1),
                ("10.7.0.2/24", None, 1),
                ("10.7.0.3/24", None, 2),
            )
        },
    ),
    "two links, an address of none": Case(
        f"{CLIENT_STATUS}: assigns the IPs to the last sandbox interface specified",
        (("host0", ""), ("eth0", "/n"), ("eth1", "/n")),
        {"entries": ["eth0  default", "eth1 10.7.0.1 -"]},
        {"addresses": (("10.7.0.1/24", None, None),)},
    ),
    "a link that is not said to be in the pod": Case(
        f"{CLIENT_STATUS}: creates network statuses with a single entry",
        (("foo", ""),),
        {"entries": [" 10.7.0.1,fd07::1 default"]},
        {"addresses": (("10.7.0.1/32", None, None), ("fd07::1/128", None, None))},
    ),
}
