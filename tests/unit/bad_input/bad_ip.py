"""Every way in which pools of addresses and ipam blocks go wrong, by name, with their readers.

Continues bad_dialects.py; refusals.txt holds what we say to it.
"""

from kube_rdma.ipam import ip_conf, ip_pool
from kube_rdma.lib.text.reader import read

HEAD = b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: IPPool
metadata: {name: rail-0}
spec:
"""

POOLS = {
    "IPPool without anything": b"kind: IPPool\n",
    "IPPool of another version": b"apiVersion: kube-rdma.io/v1\nkind: IPpool\n",
    "IPPool without ranges": HEAD + b"  ranges: []\n",
    "IPPool with wrong words": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: IPPool
metadata: {name: Rail.0}
spec:
  network: my_net
  ranges: [{subnet: 10.0.0.0, rail: 0}, {subnet: 10.0.0.7/24}, {subnet: 7, start: a, end: fe80::%e}]
  excludes: [10.0.0.256, 10.0.0.9-10.0.0.1, 10.0.0.1-fd00::1, 10.0.0.1/24]
  routes: [{dst: 10.0.0.0/33}, {gw: x}]
  blockSize: 0
  restSeconds: 100000
  dns: {}
""",
    "IPPool with ranges that contradict themselves": HEAD
    + b"""\
  ranges:
  - {subnet: 10.0.0.0/24, start: 10.0.1.1, end: 10.0.0.5}
  - {subnet: 10.0.1.0/24, start: 10.0.1.9, end: 10.0.1.5}
  - {subnet: 10.0.2.0/24, gateway: 10.0.3.1}
  - {subnet: 10.0.4.0/24, gateway: 10.0.4.0}
  - {subnet: 10.0.5.0/24, gateway: 10.0.5.255}
  - {subnet: 10.0.6.0/24, start: "fd00::1", rail: -1}
""",
    "IPPool with slices that cannot be": HEAD
    + b"""\
  ranges:
  - {subnet: 10.0.0.0/24, perNode: {prefix: 16}}
  - {subnet: 10.0.1.0/24, start: 10.0.1.9, gateway: 10.0.1.1, perNode: {prefix: 31}}
  - {subnet: 10.0.2.0/24, perNode: {prefix: 30, gatewayIndex: 3}}
  - {subnet: 10.0.3.0/24, perNode: {prefix: 32, gatewayIndex: 0}}
  - {subnet: 10.0.4.0/24, perNode: {prefix: 28, gatewayIndex: 1, oneSubnet: true}}
  - subnet: 10.0.5.0/24
    perNode:
      prefix: 31
      nodes:
      - {node: a, subnet: 10.0.6.0/31}
      - {node: a, subnet: 10.0.5.0/30}
      - {node: b, subnet: 10.0.5.4/31, gateway: 10.0.5.6}
      - {node: c, subnet: 10.0.5.4/31}
  - subnet: 10.0.7.0/24
    perNode: {prefix: 31, gateway: 1, nodes: [{node: B, subnet: 10.0.7.0/31}]}
""",
    "IPPool with ranges that overlap": HEAD
    + b"""\
  ranges:
  - {subnet: 10.0.0.0/24}
  - {subnet: 10.0.1.0/24}
  - {subnet: 10.0.0.0/16, start: 10.0.0.200, end: 10.0.1.5, rail: 1}
  - {subnet: "fd00::/64"}
  - {subnet: "fd00::/64", start: "fd00::5", end: "fd00::6"}
""",
    "IPPool with idle excludes and lost routes": HEAD
    + b"""\
  ranges:
  - {subnet: 10.0.0.0/24, end: 10.0.0.99}
  excludes: [10.0.0.1, 10.0.0.100, 10.1.0.0/16]
  routes:
  - {dst: 10.0.0.0/8, gw: 10.9.0.1}
  - {dst: 0.0.0.0/0}
  - {dst: "::/0"}
""",
    "IPPool with a route of two families": HEAD
    + b"""\
  ranges: [{subnet: 10.0.0.0/24}]
  routes: [{dst: 10.0.0.0/8, gw: "fd00::1"}]
""",
}

CONFS = {
    "ipam of an unknown kind": b'{"ipam": {"type": "whereabout"}}',
    "ipam without a type": b'{"ipam": {"range": "10.0.0.0/24"}}',
    "ipam whose type is a list": b'{"ipam": {"type": ["static"]}}',
    "ipam that is no object": b'{"ipam": "whereabouts"}',
    "whereabouts without ranges": b'{"ipam": {"type": "whereabouts"}}',
    "whereabouts with wrong words": b"""{"ipam": {"type": "whereabouts",
  "range": "10.0.0.0", "range_start": "10.0.0", "exclude": ["10.0.0.0/40"],
  "ipRanges": [{"range_end": "10.0.0.9"}], "network_name": "My Net", "gatewy": "10.0.0.1"}}""",
    "whereabouts with ranges that contradict themselves": b"""{"ipam": {"type": "whereabouts",
  "range": "10.1.0.1-10.0.0.9/24", "ipRanges": [{"range": "10.0.0.0/24"},
  {"range": "10.0.0.0/25"}]}}""",
    "whereabouts with ranges that overlap": b"""{"ipam": {"type": "whereabouts",
  "range": "10.0.0.0/24", "ipRanges": [{"range": "10.0.0.0/25"}]}}""",
    "host-local without ranges": b'{"ipam": {"type": "host-local"}}',
    "host-local with an empty range set": b'{"ipam": {"type": "host-local", "ranges": [[]]}}',
    "host-local with a range without a subnet": b"""{"ipam": {"type": "host-local",
  "ranges": [[{"rangeStart": "10.0.0.9"}]]}}""",
    "static with wrong addresses": b"""{"ipam": {"type": "static",
  "addresses": [{"address": "10.0.0.1"}, {"gateway": "10.0.0.1"}]}}""",
    "kube-rdma-ipam without a pool": b'{"ipam": {"type": "kube-rdma-ipam"}}',
    "kube-rdma-ipam with wrong rails": b"""{"ipam": {"type": "kube-rdma-ipam",
  "pools": {"0": "rail-0", "one": "rail-1"}}}""",
}

IP = POOLS | CONFS


def load(name, source):
    """Read the document of this name."""
    reader = ip_pool.load if name in POOLS else ip_conf.load
    return reader(read(IP[name], source))
