"""Addresses of another IPAM plugin, and the annotation that asks for another default network.

On native nodes, whose recorded cards have no interfaces: the pods' macvlan stands on the node's own
interface. The plugin is the real host-local by a name that kube-rdma does not take for its own.
"""

import json
import re

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network" / "agent.yaml"
NAMESPACE, DAEMONSET = "mlnx-network-operator", "rdma-shared-dp-ds"
NODE = "node-1"
LEASES = "/var/lib/cni/networks/site"
SITE = {
    "cniVersion": "1.0.0",
    "name": "site",
    "type": "macvlan",
    "master": "eth0",
    "ipam": {"type": "site-ipam", "subnet": "10.78.0.0/24", "routes": [{"dst": "10.79.0.0/16"}]},
}
NETWORKS, DEFAULT = "k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"


@pytest.fixture(scope="module")
def networks(native):
    """The native lab with an agent that puts networks into pods, and with the site's plugin."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.shell(native, NODE, "cp /opt/cni/bin/host-local /opt/cni/bin/site-ipam")
    cluster.kubectl(native, "apply", "-f", str(EXAMPLE))
    try:
        cluster.rollout(native, DAEMONSET, NAMESPACE)
        cluster.until_chained(native, NODE)
        cluster.apply(native, definition("site", SITE))
        yield native
    finally:
        gone = ("--ignore-not-found", "--wait")
        cluster.kubectl(native, "delete", "net-attach-def", "site", *ROUTED, *gone)
        cluster.kubectl(native, "delete", "ippools.kube-rdma.io", "--all")
        cluster.kubectl(native, "delete", "-f", str(EXAMPLE), *gone)
        cluster.shell(native, NODE, "rm -f /opt/cni/bin/site-ipam")


@pytest.fixture
def start(networks):
    """Start pods with annotations on the node; they are removed at the end."""
    names = []

    def run(name, **annotations):
        names.append(name)
        pod = sleeping_pod(name, annotations=annotations, nodeName=NODE, restartPolicy="Never")
        cluster.apply(networks, pod)

    yield run
    cluster.kubectl(networks, "delete", "pod", *names, "--ignore-not-found", "--grace-period=1")


def definition(name, config):
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps(config)},
    }


def test_a_real_ipam_plugin_gives_the_address_and_gets_it_back(networks, start):
    """It keeps its own record of what it gave, which goes with the pod."""
    start("with-site", **{NETWORKS: "site"})
    cluster.ready(networks, "with-site")
    shown = cluster.kubectl(networks, "exec", "with-site", "--", "ip", "-d", "addr", "show", "net1")
    (given,) = re.findall(r"inet (10\.78\.0\.\d+)/24", shown)
    assert "macvlan" in shown
    assert "alias kube-rdma " in shown  # the mark of kube-rdma's own links
    routes = cluster.kubectl(networks, "exec", "with-site", "--", "ip", "route")
    assert "10.79.0.0/16 via 10.78.0.1 dev net1" in routes
    assert given in cluster.shell(networks, NODE, f"ls {LEASES}").split()
    annotations = cluster.get(networks, "pod/with-site")["metadata"]["annotations"]
    status = json.loads(annotations["k8s.v1.cni.cncf.io/network-status"])
    assert [one["ips"] for one in status if one["interface"] == "net1"] == [[given]]
    cluster.kubectl(networks, "delete", "pod", "with-site")
    assert given not in cluster.shell(networks, NODE, f"ls {LEASES}").split()


EVERYWHERE = {"routes": [{"dst": "0.0.0.0/0"}]}
POOL = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "IPPool",
    "metadata": {"name": "routed"},
    "spec": {"ranges": [{"subnet": "10.78.4.0/24", "gateway": "10.78.4.1"}], **EVERYWHERE},
}
MACVLAN = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0"}
STATIC = {"type": "static", "addresses": [{"address": "10.78.1.7/24", "gateway": "10.78.1.1"}]}
LOCAL = {"type": "host-local", "subnet": "10.78.2.0/24", **EVERYWHERE}
BRIDGE = {"cniVersion": "1.0.0", "name": "routed-bridge", "type": "bridge", "bridge": "br-routed"}
ROUTED = {
    "routed-static": {**MACVLAN, "ipam": {**STATIC, **EVERYWHERE}},
    "routed-local": {**MACVLAN, "ipam": LOCAL},
    "routed-site": {**SITE, "ipam": {"type": "site-ipam", "subnet": "10.78.3.0/24", **EVERYWHERE}},
    "routed-pool": {**MACVLAN, "ipam": {"type": "kube-rdma-ipam", "pool": "routed"}},
    "routed-bridge": {
        **BRIDGE,
        "isDefaultGateway": True,
        "ipam": {**LOCAL, "subnet": "10.78.5.0/24"},
    },
}
API = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT"


def test_a_default_route_of_a_network_is_the_pod_s_where_it_asks_for_it(networks, start):
    """Of each source; without asking, the pod reaches services through the cluster's network."""
    cluster.apply(networks, POOL, *(definition(*one) for one in ROUTED.items()))

    def inside(pod, *words):
        return cluster.kubectl(networks, "exec", pod, "--", *words)

    def main(pod):
        routes = inside(pod, "ip", "route", "show", "default").splitlines()
        return [route.split()[2:5:2] for route in routes]

    start("unrouted", **{NETWORKS: ",".join(ROUTED)})
    cluster.ready(networks, "unrouted")
    ((_, interface),) = main("unrouted")
    assert interface == "eth0"
    inside("unrouted", "bash", "-c", API)
    for number in range(1, 5):  # the bridge is another plugin's, which makes no table
        (route,) = inside(
            "unrouted", "ip", "route", "show", "table", f"{100 + number}", "default"
        ).splitlines()
        assert f"via 10.78.{number}.1 dev net{number}" in route

    entry = [{"name": "routed-pool", "default-route": ["10.78.4.1"]}]
    start("routed", **{NETWORKS: json.dumps(entry)})
    cluster.ready(networks, "routed")
    assert main("routed") == [["10.78.4.1", "net1"]]
    until(
        networks,
        "the report of the pod whose default route is a network's",
        lambda: (
            cluster.get(networks, "nodereport", NODE)["status"].get("rerouted")
            == ["default/routed by net1"]
        ),
    )


def test_another_network_in_place_of_the_cluster_s_is_refused_with_a_sentence(networks, start):
    """The kubelet shows it in the pod's event, and the pod does not start."""
    start("elsewhere", **{DEFAULT: "default/site"})
    query = ("events", "--field-selector=involvedObject.name=elsewhere")

    def refused():
        events = cluster.get(networks, *query)["items"]
        return any("cannot put default/site in its place" in one["message"] for one in events)

    until(networks, "the refusal of the pod", refused)


def test_the_cluster_s_own_network_by_its_name_is_what_a_pod_has(networks, start):
    text = cluster.shell(networks, NODE, "cat $(grep -l kube-rdma /etc/cni/net.d/*.conflist)")
    start("at-home", **{DEFAULT: json.loads(text)["name"]})
    cluster.ready(networks, "at-home")
