"""Every way in which the annotation that has a block for each card goes wrong, by name.

pod_networks_refusals.txt holds what we say to it.
"""

from kube_rdma.attach.documents import cni_conf, pod_networks

RDMA = '{"cniConf": {"name": "rdma"}}'
OPEN = RDMA[:-1]
ANNOTATIONS = {
    "blocks in one object": RDMA,
    "blocks in bare words": '["rdma"]',
    "blocks that are cut off": f"[{RDMA}",
    "blocks with a name twice": '[{"cniConf": {"name": "a", "name": "b"}}]',
    "blocks without cniConf or its name": f'[{{}}, {RDMA}, {{"cniConf": {{}}}}, {{"cniConf": []}}]',
    "blocks with names that cannot be": """[{"cniConf": {"name": ""}},
  {"cniConf": {"name": "default/rdma"}}]""",
    "blocks from elsewhere": '[{"cniConf": {"name": "rdma", "from": "crd"}}]',
    "blocks with slips of the pen": """[
  {"cniconf": {"name": "rdma"}, "name": "a"},
  {"cniConf": {"name": "rdma", "form": "local"}, "deviceConf": {"ifname": "eth5"}}
]""",
    "blocks with wrong addresses": f"""[{RDMA}, {OPEN},
    "deviceConf": {{"ips": ["10.0.0.256"], "mac": "01:00:5e:00:00:01"}},
    "traffic": {{"routes": {{"extraRoutes": [{{"dst": "10.0.0.0"}}, {{"gw": "x"}}]}}}}}}]""",
    "blocks with one interface twice": f"""[
  {OPEN}, "deviceConf": {{"ifName": "eth2"}}}}, {RDMA},
  {OPEN}, "deviceConf": {{"ifName": "eth0"}}}}]""",
    "blocks with two default routes": f"""[
  {OPEN}, "traffic": {{"routes": {{"default": true}}}}}},
  {OPEN}, "traffic": {{"routes": {{"default": true}}}}}}]""",
    "blocks that need the provider's cloud": f"""[{OPEN}, "deviceConf": {{"options": {{
    "trunkMac": "00:16:3e:00:00:01", "vlanID": "5"}}}}}}, {OPEN}, "vlanID": "6"}}]""",
    "blocks with old fields that contradict new ones": f"""[
  {OPEN}, "ipv4": "10.0.0.7", "deviceConf": {{"ips": ["10.0.0.8/24"]}}}},
  {OPEN}, "mac": "02:00:00:00:00:01", "deviceConf": {{"mac": "02:00:00:00:00:02"}}}},
  {OPEN}, "route": {{"dst": "10.0.0.0/8"}},
    "traffic": {{"routes": {{"extraRoutes": [{{"dst": "::/0"}}]}}}}}}]""",
    "master of another name": f'[{{"cniConf": {{"name": "vpc"}}, "master": true}}, {RDMA}]',
    "master that is not first": f'[{RDMA}, {{"cniConf": {{"name": "cbr0"}}, "master": true}}]',
    "master with wishes": """[{"cniConf": {"name": "cbr0"}, "master": true,
  "deviceConf": {"ips": ["10.0.0.7/24"], "ifName": "eth1"},
  "traffic": {"routes": {"extraRoutes": [{"dst": "10.0.0.0/8"}]}}}]""",
    "blocks without end": f"[{','.join([RDMA] * 200)}]",
}

CONFIGURATIONS = {
    "configuration with a wrong meta": b"""{"name": "rdma", "type": "host-device",
  "meta": {"resourceName": "rdma", "ipRangeSource": "netDeviceSelf"}}""",
    "configuration with ranges of something else": b"""{"name": "rdma", "type": "host-device",
  "meta": {"ipRangesSource": "netDevice"}}""",
    "configuration with the card's subnet": b"""{"name": "rdma", "plugins": [{"type": "macvlan"}],
  "meta": {"resourceName": "rdma/hca", "ipRangesSource": "netDeviceSubnet"}}""",
    "configuration with the card's address for another plugin": b"""{"name": "rdma",
  "type": "bridge", "meta": {"ipRangesSource": "netDeviceSelf"}}""",
    "configuration with a wrong plugin": b"""{"name": "rdma", "plugins": [
  {"type": "macvlan", "mtu": "9000"}]}""",
}

BLOCKS = ANNOTATIONS | CONFIGURATIONS


def load(name):
    """Read the text of this name, whatever it is."""
    if name in ANNOTATIONS:
        return pod_networks.load(ANNOTATIONS[name], "", "default", "cbr0")
    return cni_conf.load("default", "rdma", CONFIGURATIONS[name])
