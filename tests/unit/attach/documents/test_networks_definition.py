"""NetworkAttachmentDefinitions: what known plugins' configurations mean, and what is warned of."""

import json
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents.network_definition import LONGEST, load
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import InterfaceAddress, NetworkKind, NetworkRoute
from kube_rdma.model.pools import FunctionSettings, LinkState, VlanProtocol

RESOURCE = "rdma/hca_shared_devices_a"
OPERATOR = b"""{
  "cniVersion": "0.3.1",
  "name": "rdma-net-ipam",
  "plugins": [
    {
      "ipam": {
        "datastore": "kubernetes",
        "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
        "log_file": "/tmp/whereabouts.log",
        "log_level": "debug",
        "type": "whereabouts",
        "range": "192.168.111.0/24"
      },
      "type": "macvlan",
      "master": "ens2f0",
      "mtu": 9000
    },
    {"mtu": 9000, "type": "tuning"}
  ]
}"""


def of(*plugins, **more):
    """The definition of a list of plugins, or of a lone one."""
    config = {"plugins": list(plugins), **more} if len(plugins) > 1 else {**plugins[0], **more}
    return load("default", "net", json.dumps(config).encode(), RESOURCE)


def network(*plugins, **more):
    found = of(*plugins, **more)
    assert found.warnings == ()
    return found.network


def test_the_network_of_the_operator_document():
    """S3: macvlan on ens2f0 with MTU 9000 and addresses of 192.168.111.0/24."""
    found = load("default", "rdma-net-ipam", OPERATOR, RESOURCE)
    net = found.network
    assert (net.name, net.kind, net.resource) == (
        "default/rdma-net-ipam",
        NetworkKind.MACVLAN,
        RESOURCE,
    )
    assert (net.device, net.mode, net.mtu, net.rdma) == ("ens2f0", "bridge", 9000, True)
    (part,) = found.ipam.pool.ranges
    assert part.subnet == ip_network("192.168.111.0/24")
    assert net.pools == (found.ipam.pool.name,)
    assert all("plugins[0].ipam: " in warning for warning in found.warnings)


def test_an_empty_text_means_the_default():
    """As in Go, where what is not said is empty."""
    net = network({"type": "macvlan", "master": "", "mode": "", "mtu": 0})
    assert (net.device, net.mode, net.mtu) == (None, "bridge", None)
    assert network({"type": "ipvlan", "mode": ""}).mode == "l2"


@pytest.mark.parametrize(
    ("said", "device"),
    [
        ({"device": "ens3f0"}, "ens3f0"),
        ({"hwaddr": "02:00:0a:00:00:01"}, "02:00:0a:00:00:01"),
        ({"kernelpath": "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.1"}, "0000:81:00.1"),
        ({"pciBusID": "0000:81:00.1"}, "0000:81:00.1"),
        ({"deviceID": "0000:81:00.1"}, "0000:81:00.1"),
        ({}, None),
    ],
)
def test_the_ways_to_name_a_device(said, device):
    net = network({"type": "host-device", **said})
    assert (net.kind, net.device) == (NetworkKind.DEVICE, device)


def test_a_virtual_function_with_all_keys():
    """sriov: a VLAN says the whole of its tag, the MAC is the interface's too."""
    said = {
        "deviceID": "0000:03:02.0",
        "mac": "CA:FE:C0:FF:EE:00",
        "vlan": 1000,
        "vlanQoS": 4,
        "vlanProto": "802.1AD",
        "spoofchk": "off",
        "trust": "on",
        "link_state": "enable",
        "min_tx_rate": 100,
        "max_tx_rate": 200,
    }
    net = network({"type": "sriov", **said})
    assert (net.kind, net.device, net.mac) == (NetworkKind.DEVICE, "0000:03:02.0", said["mac"])
    assert net.function == FunctionSettings(
        None, 1000, 4, VlanProtocol.PROVIDER, False, True, LinkState.ENABLE, 100, 200
    )


def test_a_virtual_function_of_infiniband_with_all_keys():
    said = {
        "deviceID": "0000:03:02.0",
        "pkey": "0x8012",
        "link_state": "enable",
        "rdmaIsolation": True,
        "ibKubernetesEnabled": True,
        "args": {"cni": {"guid": "02:00:0a:00:00:00:00:01"}},
    }
    net = network({"type": "ib-sriov", **said})
    assert (type(net), net.device) == (kinds.IbSriovNetwork, "0000:03:02.0")
    assert (net.pkey, net.guid) == (0x12, "02:00:0a:00:00:00:00:01")
    assert (net.isolated, net.configured) == (True, True)
    assert net.function == FunctionSettings(link_state=LinkState.ENABLE)
    plain = network({"type": "ib-sriov", "pkey": "", "link_state": "", "deviceID": ""})
    assert (plain.pkey, plain.guid, plain.device) == (None, None, None)
    assert (plain.isolated, plain.configured, plain.function) == (False, False, FunctionSettings())


def test_what_ib_sriov_does_for_others_is_ignored():
    said = {"publishPfGuid": True, "kubeconfig": "/etc/x", "logLevel": "debug", "guid": "x"}
    found = [text.partition(": ")[2] for text in of({"type": "ib-sriov", **said}).warnings]
    assert found == [
        "logLevel: it is ignored, what is done is in the log of the agent",
        "publishPfGuid: kube-rdma ignores it and publishes no GUID",
        "kubeconfig: kube-rdma ignores it and publishes no GUID",
        "guid: ib-sriov knows no such field, it is ignored",
    ]


@pytest.mark.parametrize(
    ("said", "function"),
    [
        ({}, FunctionSettings()),
        ({"vlan": 0}, FunctionSettings(vlan=0, qos=0, protocol=VlanProtocol.CUSTOMER)),
        ({"vlanQoS": 0, "vlanProto": "802.1q"}, FunctionSettings()),
        ({"spoofchk": "on", "trust": "off"}, FunctionSettings(spoof_check=True, trust=False)),
        ({"min_tx_rate": 5}, FunctionSettings(min_rate=5)),
        ({"min_tx_rate": 5, "max_tx_rate": 0}, FunctionSettings(min_rate=5, max_rate=0)),
        (dict.fromkeys(["mac", "trust", "vlanProto", "link_state"], ""), FunctionSettings()),
    ],
)
def test_what_a_virtual_function_is_not_told_it_keeps(said, function):
    """An empty text is as nothing, and 0 is a value."""
    assert network({"type": "sriov", **said}).function == function


def test_the_log_of_another_plugin_is_not_written():
    (warning,) = of({"type": "sriov", "logLevel": "debug", "logFile": ""}).warnings
    assert warning.endswith("logLevel: it is ignored, what is done is in the log of the agent")


def test_our_own_type_and_ipoib():
    """With partition keys, and without RDMA where that is said."""
    net = network({"type": "kube-rdma", "rdma": False, "pkey": "0x8012", "mtu": 4200})
    assert (net.kind, net.rdma, net.pkey, net.mtu) == (NetworkKind.CARD, False, 0x12, 4200)
    net = network({"type": "ipoib", "master": "ib0"})
    assert (net.kind, net.device, net.pkey) == (NetworkKind.IPOIB, "ib0", None)


def test_plugins_behind_ours_change_it():
    """rdma and sbr say what we do anyway, tuning sets MAC, MTU and sysctls of the interface."""
    tuning = {
        "type": "tuning",
        "mac": "02:00:0a:00:00:01",
        "mtu": 4000,
        "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1", "net/ipv6/neigh/IFNAME/delay": "5"},
    }
    net = network({"type": "macvlan", "mtu": 9000}, {"type": "sbr"}, {"type": "rdma"}, tuning)
    assert (net.kind, net.mac, net.mtu) == (NetworkKind.MACVLAN, "02:00:0a:00:00:01", 4000)
    assert net.sysctls == (("ipv4/conf", "arp_notify", "1"), ("ipv6/neigh", "delay", "5"))


def test_addresses_and_routes_of_the_document():
    ipam = {
        "type": "static",
        "addresses": [{"address": "10.0.0.7/24", "gateway": "10.0.0.1"}],
        "routes": [{"dst": "10.8.0.0/16"}],
    }
    net = of({"type": "macvlan", "master": "ens2f0", "ipam": ipam}).network
    assert net.static == (InterfaceAddress(ip_address("10.0.0.7"), 24, ip_address("10.0.0.1")),)
    assert net.routes == (NetworkRoute(ip_network("10.8.0.0/16")),)
    assert net.pools == ()


@pytest.mark.parametrize(
    ("plugins", "why"),
    [
        ([{"type": "macvlan"}, {"type": "bandwidth"}], "bandwidth is in the chain"),
        ([{"type": "macvlan", "linkInContainer": True}], "linkInContainer is true"),
        ([{"type": "host-device", "dpdkMode": True}], "dpdkMode is true"),
        ([{"type": "ib-sriov", "vfioPciMode": True}], "vfioPciMode is true"),
        ([{"type": "macvlan"}, {"type": "tuning", "promisc": True}], "promisc is set"),
        (
            [{"type": "ipvlan"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}],
            "net.core.somaxconn is not a sysctl of the interface",
        ),
        (
            [{"type": "ipvlan"}, {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.../x": "5"}}],
            "is not a sysctl of the interface",
        ),
    ],
)
def test_what_only_the_plugins_can_do_is_left_to_them(plugins, why):
    """With a warning, for then no RDMA device comes along; the document is kept as it is."""
    found = of(*plugins)
    assert (found.network.kind, found.network.plugin) == (NetworkKind.OTHER, plugins[0]["type"])
    assert why in found.warnings[0]
    kept = json.loads(found.network.config)
    assert kept == ({"plugins": plugins} if len(plugins) > 1 else plugins[0])


def test_other_plugins_are_called():
    found = of({"type": "ovs", "bridge": "br1", "ipam": {"type": "dhcp"}})
    assert (found.network.kind, found.network.plugin) == (NetworkKind.OTHER, "ovs")
    assert found.warnings == ()
    assert 'did you mean "macvlan"?' in of({"type": "macvaln"}).warnings[0]


def test_a_key_that_nobody_knows_is_told():
    """It is ignored as the plugin ignores it; a near one is proposed, what Multus adds is known."""
    found = of({"type": "macvlan", "mtuu": 9000, "vlan": 5, "deviceID": "0000:81:00.1"})
    source = "NetworkAttachmentDefinition default/net:1"
    assert found.warnings == (
        f'{source}:21: mtuu: macvlan knows no such field, it is ignored; did you mean "mtu"?',
        f"{source}:35: vlan: macvlan knows no such field, it is ignored",
    )
    assert found.network.mtu is None


def test_an_empty_config_stands_for_the_node_s_own():
    """The configuration of that name on the node is read in its place."""
    found = load("default", "net", b"", None, b'{"type": "macvlan", "master": "ens2f0", "x": 1}')
    assert (found.network.kind, found.network.device) == (NetworkKind.MACVLAN, "ens2f0")
    assert found.warnings[0].startswith("CNI configuration net:1:")


def test_a_long_configuration_is_refused_before_it_is_read():
    """Eight ADDs at once read it with the position of each value: a megabyte takes 40 of memory."""
    text = json.dumps({"type": "macvlan", "more": "x" * LONGEST})
    with pytest.raises(Refused, match=r"spec\.config has \d+ bytes, of which 65536 are read"):
        load("default", "long", text.encode(), None)
