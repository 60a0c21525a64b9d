"""AppArmor on the lab: containerd's profile confines what does not ask otherwise."""

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.kit.pods import sleeping_pod

CONFINED = "cri-containerd.apparmor.d (enforce)"


def test_apparmor_confines_all_that_does_not_ask_otherwise(lab, proof):
    """As on nodes of Ubuntu and Debian; what was measured here, plugin and pods did so."""
    asked = ("-n", "kube-system", "-l", "name=rdma-sriov-dp-ds")
    plugins = [
        (pod["metadata"]["name"], "kube-system")
        for pod in cluster.get(lab, "pods", *asked)["items"]
    ]
    assert plugins
    for name, namespace in (*plugins, *((pod.name, scc.NAMESPACE) for pod in proof.pods)):
        where = ("-n", namespace, "exec", name, "--", "cat", "/proc/1/attr/current")
        assert cluster.kubectl(lab, *where).strip() == CONFINED


def test_apparmor_forbids_what_an_agent_of_virtual_functions_writes(lab, proof):
    """So its manifest asks to be unconfined (examples/s4-infiniband/agent.yaml)."""
    node = lab.topology.nodes[0]
    path = f"/sys/class/net/{node.nics[0].name}/tx_queue_len"
    write = f"cat {path} > /tmp/was; cat /tmp/was > {path} && echo written || echo refused"
    outcomes = {}
    for kind in ("RuntimeDefault", "Unconfined"):
        name = f"writer-{kind.lower()}"
        cluster.apply(lab, writer(name, node.name, kind))
        cluster.ready(lab, name)
        outcomes[kind] = cluster.kubectl(lab, "exec", name, "--", "sh", "-c", write).split()[-1]
        cluster.kubectl(lab, "delete", "pod", name, "--grace-period=0", "--force")
    assert outcomes == {"RuntimeDefault": "refused", "Unconfined": "written"}


def writer(name, node, profile):
    """A pod that may do what AppArmor lets it, with the node's /sys."""
    pod = sleeping_pod(name, nodeName=node, hostNetwork=True)
    (container,) = pod["spec"]["containers"]
    container["securityContext"] = {
        "appArmorProfile": {"type": profile},
        "capabilities": {"add": ["NET_ADMIN"]},
    }
    container["volumeMounts"] = [{"name": "sys", "mountPath": "/sys"}]
    pod["spec"]["volumes"] = [{"name": "sys", "hostPath": {"path": "/sys"}}]
    return pod
