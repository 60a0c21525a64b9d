"""Every way in which an annotation of networks or the configuration of one goes wrong, by name.

network_refusals.txt holds what we say to it.
"""

from kube_rdma.attach.documents import network_definition, networks

ANNOTATIONS = {
    "networks with nothing between commas": "rdma-net,,b@net2,",
    "networks with a namespace but no name": "default/",
    "networks with two slashes and two signs": "a/b/c, b@c@d",
    "networks with names that cannot be": "Rdma_net, Default/b, a@net0123456789abc, c@a/b",
    "networks with one interface twice": "a@net2, b",
    "networks with an interface that is there": "a@eth0, b@lo",
    "networks in one object": '{"name": "a"}',
    "networks in bare words": '["a"]',
    "networks without a name": '[{"namespace": "a"}, {"nmae": "b"}]',
    "networks that are cut off": '[{"name": "a"',
    "networks with a name twice": '[{"name": "a", "name": "b"}]',
    "networks with wrong addresses": """[{"name": "a", "ips": ["10.0.0.256", "10.0.0.1/33", 7],
  "default-route": ["10.0.0.1/24", "fe80::1%eth0"],
  "mac": "01:00:5e:00:00:01", "infiniband-guid": "02:00:00:00:00:01"},
 {"name": "b", "mac": "00:00:00:00:00:00", "ips": "10.0.0.1"}]""",
    "networks with wrong types": """[{"name": "a", "deviceID": 5, "cni-args": [],
  "portMappings": [{"hostPort": 70000}], "bandwidth": {"ingressRate": "1G"}}]""",
    "networks with two names for an interface": """[
  {"name": "a", "interface": "net5", "interfaceRequest": "net6"}]""",
    "networks without end": ",".join(["a"] * 200),
}

DEFINITIONS = {
    "definition without a configuration": b" ",
    "definition that is a list": b'[{"type": "macvlan"}]',
    "definition without a type": b'{"name": "a"}',
    "definition with no plugins": b'{"plugins": []}',
    "definition with plugins that are words": b'{"plugins": ["macvlan"]}',
    "definition that begins with rdma": b'{"plugins": [{"type": "rdma"}, {"type": "macvlan"}]}',
    "definition with wrong values": b"""{"plugins": [
  {"type": "macvlan", "master": "ens2f0 ", "mode": "brigde", "mtu": "9000", "mac": "02"},
  {"type": "tuning", "sysctl": []}]}""",
    "definition with an MTU that cannot be": b'{"type": "ipvlan", "mtu": 65536, "mode": 2}',
    "definition of a device that is none": b"""{"type": "host-device",
  "pciBusID": "81:00.0", "kernelpath": "/sys/class/net/ens2f0", "hwaddr": "ens2f0"}""",
    "definition of a virtual function with wrong values": b"""{
  "type": "sriov", "deviceID": "81:00.1", "vlan": 4095,
  "vlanQoS": 8, "vlanProto": "802.1x", "mac": "01:00:5e:00:00:01", "spoofchk": true,
  "trust": "yes", "link_state": "up", "min_tx_rate": -1, "max_tx_rate": "1G"}""",
    "definition of a virtual function with values that contradict": b"""{"type": "sriov",
  "vlanQoS": 3, "vlanProto": "802.1ad", "min_tx_rate": 200, "max_tx_rate": 100}""",
    "definition of a function of InfiniBand with wrong values": b"""{"type": "ib-sriov",
  "deviceID": "x", "pkey": "8001", "link_state": "up", "rdmaIsolation": "yes",
  "ibKubernetesEnabled": 1, "args": {"cni": {"guid": "02:00"}}}""",
    "definition with an unknown ipam": b'{"type": "ipoib", "ipam": {"type": "whereabout"}}',
    "definition with a wrong partition key": b'{"type": "ipoib", "pkey": "8001"}',
    "definition with a wrong ipam": b"""{"plugins": [
  {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0"}}]}""",
    "definition that is cut off": b'{"type": "macvlan"',
}

NETWORKS = ANNOTATIONS | DEFINITIONS


def load_bad(name):
    """Read the text of this name, whatever it is."""
    if name in ANNOTATIONS:
        return networks.asks(ANNOTATIONS[name], "default")
    return network_definition.load("default", "rdma-net", DEFINITIONS[name], None)
