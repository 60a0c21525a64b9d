"""The real shared RDMA device plugin of Mellanox on native nodes, and its DaemonSet.

Built from its Go module (tests/lab/native/shared-dev-plugin) as the lab builds Kubernetes. The
DaemonSet is the plugin's own (deployment/k8s/base of its repository) with three differences of the
lab. The program lies on the node, in no image. It is not privileged, so that it can have a seccomp
profile; and that lets RDMA netlink answer as old kernels do, for this machine's kernel has none and
the plugin gives up without it. Its PCI library reads `modalias`, which these trees lack, below a
folder of the node (GHW_CHROOT); cards, interfaces and device nodes it finds in the tree's /sys.
"""

import base64
import copy
import json

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from tests.kit.helm import MODULES

NAMESPACE, NAME, CONTAINER = "kube-system", "rdma-shared-dp-ds", "k8s-rdma-shared-dp-ds"
RESOURCE, SHARES = "rdma/hca_shared_devices_a", 12
PLACE, PROFILE = "/opt/shared-plugin", "shared-plugin.json"
PROGRAM = f"{PLACE}/k8s-rdma-shared-dp"
OURS = "localhost/kube-rdma:dev"
# What ghw, the library, reads of each function; and names of vendors, which it wants to have.
PCI = f"""
mkdir -p {PLACE}/usr/share/misc && cp /usr/share/misc/pci.ids {PLACE}/usr/share/misc
for card in /sys/bus/pci/devices/*; do
  copy={PLACE}$card class=$(cat $card/class)
  mkdir -p $copy
  printf 'pci:v%08Xd%08Xsv00000000sd00000000bc%02Xsc%02Xi%02X\\n' \
    $(cat $card/vendor) $(cat $card/device) \
    $((class >> 16)) $((class >> 8 & 255)) $((class & 255)) > $copy/modalias
done
"""
AF_NETLINK, NETLINK_RDMA, EINVAL = 16, 20, 22

SECCOMP = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [
        {
            "names": ["socket"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": EINVAL,
            "args": [
                {"index": 0, "value": AF_NETLINK, "op": "SCMP_CMP_EQ"},
                {"index": 2, "value": NETLINK_RDMA, "op": "SCMP_CMP_EQ"},
            ],
        }
    ],
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "rdma-devices", "namespace": NAMESPACE},
    "data": {
        "config.json": json.dumps(
            {
                "periodicUpdateInterval": 300,
                "configList": [
                    {
                        "resourceName": "hca_shared_devices_a",
                        "rdmaHcaMax": SHARES,
                        "selectors": {"vendors": ["15b3"]},
                    }
                ],
            }
        )
    },
}
FOLDERS = {
    "device-plugin": "/var/lib/kubelet/device-plugins",
    "plugins-registry": "/var/lib/kubelet/plugins_registry",
    "devs": "/dev/",
}


def daemon_set(container, *, folders=FOLDERS, security=None):
    """The plugin's own DaemonSet with a container of this image and these folders of the node."""
    labels = {"name": NAME}
    mounts = [{"name": name, "mountPath": path} for name, path in folders.items()]
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    config = {"name": "config", "configMap": {"name": CONFIG["metadata"]["name"]}}
    container = {
        "name": CONTAINER,
        "securityContext": security or {"privileged": True},
        "volumeMounts": [*mounts, {"name": "config", "mountPath": "/k8s-rdma-shared-dev-plugin"}],
        **container,
    }
    spec = {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [*volumes, config],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def vendors():
    """The DaemonSet that runs the plugin of Mellanox."""
    folders = {**FOLDERS, "program": PLACE}
    profile = {"type": "Localhost", "localhostProfile": PROFILE}
    container = {"image": "localhost/lab/verbs:1", "command": [PROGRAM]}
    container["env"] = [{"name": "GHW_CHROOT", "value": PLACE}]
    return daemon_set(container, folders=folders, security={"seccompProfile": profile})


def ours():
    """The same DaemonSet with the image of kube-rdma and nothing else of ours."""
    return daemon_set({"image": OURS})


def beside(document, name):
    """The same DaemonSet under another name, on nodes with the label of that name only."""
    document = copy.deepcopy(document)
    document["metadata"]["name"] = name
    document["spec"]["selector"]["matchLabels"] = {"name": name}
    document["spec"]["template"]["metadata"]["labels"] = {"name": name}
    document["spec"]["template"]["spec"]["nodeSelector"] = {name: "yes"}
    return document


def build(store):
    """The plugin's program."""
    return go.build_module(store, "shared-dev-plugin", MODULES) / "k8s-rdma-shared-dp"


def put_program(lab, nodes):
    """Put the plugin's program and its seccomp profile on nodes."""
    with open_store() as store:
        program = base64.b64encode(build(store).read_bytes()).decode()
    folder = "/var/lib/kubelet/seccomp"
    for node in nodes:
        new = f"{PROGRAM}~"  # a program that runs cannot be written to
        script = f"mkdir -p {PLACE} && base64 -d > {new} && chmod 755 {new} && mv {new} {PROGRAM}"
        waiting.run(lab, lab.on_node(node, "sh", "-c", script), stdin=program)
        cluster.shell(lab, node, PCI)
        script = f"mkdir -p {folder} && cat > {folder}/{PROFILE}"
        waiting.run(lab, lab.on_node(node, "sh", "-c", script), stdin=json.dumps(SECCOMP))


def held(lab, node, resource=RESOURCE):
    """By pod's UID the share ids that the kubelet's own checkpoint has of it."""
    text = cluster.shell(lab, node, "cat", cluster.CHECKPOINT)
    entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
    return {
        entry["PodUID"]: sorted(share for ids in entry["DeviceIDs"].values() for share in ids)
        for entry in entries
        if entry["ResourceName"] == resource
    }
