"""Every way in which the pools of a configuration go wrong, dialect by dialect, by name.

Continues bad_documents.py; refusals.txt holds what we say to it.
"""

DIALECTS = {
    "no format": b'{"pools": []}',
    "two formats": b'{"mode": "hca",\n "configList": [],\n "resourceList": []}',
    "format misspelt": b'{"configlist": []}',
    "configList empty": b'{"configList": []}',
    "configList is an object": b'{"configList": {"resourceName": "a"}}',
    "configList with an entry that is no object": b'{"configList": [7]}',
    "configList with an empty entry": b'{"configList": [{}]}',
    "configList with wrong numbers": b"""{"periodicUpdateInterval": -1, "configList": [
  {"resourceName": "a", "rdmaHcaMax": 0, "devices": ["a"]},
  {"resourceName": "b", "rdmaHcaMax": 100001, "devices": ["a"]},
  {"resourceName": "c", "rdmaHcaMax": "10", "devices": ["a"]},
  {"resourceName": "d", "rdmaHcaMax": 1.5, "devices": ["a"]},
  {"resourceName": "e", "rdmaHcaMax": null, "devices": ["a"]}]}""",
    "configList with wrong names": b"""{"configList": [
  {"resourceName": "a b", "rdmaHcaMax": 1, "devices": ["a"]},
  {"resourceName": "", "rdmaHcaMax": 1, "devices": ["a"]},
  {"resourceName": "a", "resourcePrefix": "Rdma", "rdmaHcaMax": 1, "devices": ["a"]},
  {"resourceName": "b", "resourcePrefix": "kubernetes.io", "rdmaHcaMax": 1, "devices": ["a"]},
  {"resourceName": "c", "resourcePrefix": "", "rdmaHcaMax": 1, "devices": ["a"]}]}""",
    "configList without a choice of cards": b"""{"configList": [
  {"resourceName": "a", "rdmaHcaMax": 1},
  {"resourceName": "b", "rdmaHcaMax": 1, "selectors": {}},
  {"resourceName": "c", "rdmaHcaMax": 1, "devices": []}]}""",
    "configList with two choices of cards": b"""{"configList": [
  {"resourceName": "a", "rdmaHcaMax": 1, "devices": ["a"], "selectors": {"vendors": ["15b3"]}}]}""",
    "configList with wrong selectors": b"""{"configList": [{"resourceName": "a", "rdmaHcaMax": 1,
  "selectors": {
    "vendor": ["15b3"],
    "vendors": [5555, "0x15b3"],
    "deviceIDs": "1017",
    "drivers": [""],
    "ifNames": ["ens2f0np0-and-more", null],
    "linkTypes": ["eth", "ib"]}}]}""",
    "configList with a choice that is no list": b"""{"configList": [
  {"resourceName": "a", "rdmaHcaMax": 1, "devices": null},
  {"resourceName": "b", "rdmaHcaMax": 1, "selectors": ["a"]}]}""",
    "resourceList empty": b'{"resourceList": []}',
    "resourceList without selectors": b"""{"resourceList": [
  {"resourceName": "a"},
  {"resourceName": "b", "selectors": {}},
  {"resourceName": "c", "selectors": []},
  {"resourceName": "d", "selectors": [{"vendors": ["15b3"]}, {"needVhostNet": true}]}]}""",
    "resourceList with wrong selectors": b"""{"resourceList": [{"resourceName": "a",
  "selectors": {
    "pciAddresses": ["81:00.0"],
    "acpiIndexes": [101, "x"],
    "pfNames": ["ens2f0#", "ens2f0#7-2", "ens2f0#1,x"],
    "rootDevices": ["ens2f0"],
    "pKeys": ["8001"],
    "isRdma": "yes"}}]}""",
    "resourceList with what is not supported": b"""{"resourceList": [
  {"resourceName": "a", "deviceType": "accelerator", "selectors": {"vendors": ["8086"]}},
  {"resourceName": "b", "selectors": {"ddpProfiles": ["GTPv1"]}},
  {"resourceName": "c", "selectors": {"vdpaType": "vhost"}},
  {"resourceName": "d", "deviceType": "netdevice", "selectors": {"vendors": ["8086"]}}]}""",
    "resourceList with fields of another type": b"""{"resourceList": [
  {"resourceName": "a", "selectors": {"auxTypes": ["sf"]}},
  {"resourceName": "b", "deviceType": "auxNetDevice", "selectors": [
    {"auxTypes": ["sf"], "pKeys": ["0x1"]},
    {"pfNames": ["ens2f0", "ens3f0#0-1"]}]},
  {"resourceName": "c", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["eth"]}}]}""",
    "resourceList with wrong facts": b"""{"resourceList": [
  {"resourceName": "a", "selectors": {"vendors": ["15b3"]}, "additionalInfo": ["a"]},
  {"resourceName": "b", "selectors": {"vendors": ["15b3"]}, "additionalInfo": {"*": 1}},
  {"resourceName": "c", "selectors": {"vendors": ["15b3"]}, "additionalInfo": {"*": {"a": 1}}},
  {"resourceName": "d", "selectors": {"vendors": ["15b3"]}, "additionalInfo": {"ens2f0": {}}}]}""",
    "ConfigMap around a configuration": b"""\
apiVersion: v1
kind: ConfigMap
data:
  config.json: |
    {"mode": "hca"}
""",
    "policy of the Network Operator": b"""\
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: example-nicclusterpolicy, namespace: mlnx-network-operator}
spec:
  devicePlugin: {image: k8s-rdma-shared-dev-plugin, repository: mellanox, version: v1.0.0}
""",
    "network of pods": b"apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n",
    "manifest of a workload": b"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\n",
    "wishes that cannot stand beside each other": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools:
  - {resource: rdma/a, mode: shared-multi, shares: 1001, selectors: [{interfaces: [ens2f0]}]}
  - {resource: rdma/a, mode: shared, selectors: [{interfaces: [ens3f0]}]}
  - {resource: rdma/b, mode: exclusive, selectors: [{interfaces: [ens3f0, ens2f0]}]}
""",
    "NodePolicy of another kind": b"apiVersion: kube-rdma.io/v1\nkind: NodePolice\n",
    "NodePolicy without pools": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {}
spec: {pools: []}
""",
    "NodePolicy with wrong pools": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a, labels: {a: b}}
spec:
  nodeSelector: {a: 1}
  priority: high
  pools:
  - {resource: hca, mode: hca}
  - {resource: rdma/a, mode: multi, bind: pool}
  - {resource: rdma/b, mode: shared-multi, bind: pool, shares: 0}
  - {resource: rdma/c, mode: exclusive, attach: never, prefer: packed, selectors: [{}]}
  - resource: rdma/d
    mode: sriov
    selectors:
    - {pciAddresses: [ens2f0], acpiIndexes: [-1], rdma: maybe}
""",
    "NodePolicy with wrong virtual functions": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools: [{resource: rdma/a, mode: sriov}]
  virtualFunctions:
  - {count: 8}
  - {selectors: [], count: 8}
  - {selectors: [{}], count: -1}
  - {selectors: [{physicalFunctions: [ens2f0]}], count: 65536, autoprobe: 1}
""",
    "NodePolicy with two numbers of virtual functions": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools: [{resource: rdma/a, mode: sriov}]
  virtualFunctions:
  - {selectors: [{interfaces: [ens2f0, ens3f0]}], count: 8}
  - {selectors: [{interfaces: [ens3f0], vendors: [15b3]}], count: 4}
  - {selectors: [{interfaces: [ens2f0]}], count: 8, autoprobe: false}
""",
    "NodePolicy with ranges beyond its virtual functions": b"""\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  pools:
  - {resource: rdma/a, mode: sriov, selectors: [{physicalFunctions: ["ens2f0#0-1,4-9"]}]}
  - {resource: rdma/b, mode: sriov, selectors: [{rootDevices: ["0000:81:00.0#0"]}]}
  virtualFunctions:
  - {selectors: [{interfaces: [ens2f0]}], count: 4}
  - {selectors: [{pciAddresses: ["0000:81:00.0"]}], count: 0}
""",
}
