"""A pool of virtual functions from the SR-IOV device plugin's document, on the real kernel.

Functions that vanish and return (sriov_numvfs) change the list within moments; a pod gets the
function by its address, with the variables and the device-info file that others look for.
"""

import json
import re

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc

NODE = "node-2"
CARD = "ens4f0"
RESOURCE = "intel.com/vf"
# With the range: without it the card itself is meant too, once it has no functions any more.
CONFIG = {"resourceList": [{"resourceName": "vf", "selectors": {"pfNames": [f"{CARD}#0-3"]}}]}
PLUGIN = "vf-plugin"


def manifest():
    """Seed S1's DaemonSet as a plain device plugin on one node, with a file, not the label."""
    documents = yaml.safe_load_all((scc.examples() / "s1-vke" / "daemonset.yaml").read_text())
    (daemonset,) = (each for each in documents if each["kind"] == "DaemonSet")
    daemonset["metadata"] = {"name": PLUGIN, "namespace": "kube-system"}
    labels = {"name": PLUGIN}
    daemonset["spec"]["selector"] = {"matchLabels": labels}
    template = daemonset["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"].pop("serviceAccountName")
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    (container,) = template["spec"]["containers"]
    container["args"] = ["agent", "--config", "/config/config.json"]
    mounts, volumes = container["volumeMounts"], template["spec"]["volumes"]
    mounts.append({"name": "config", "mountPath": "/config"})
    volumes.append({"name": "config", "configMap": {"name": PLUGIN}})
    mounts.append({"name": "devinfo", "mountPath": "/var/run/k8s.cni.cncf.io"})
    host = {"path": "/var/run/k8s.cni.cncf.io", "type": "DirectoryOrCreate"}
    volumes.append({"name": "devinfo", "hostPath": host})
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": daemonset["metadata"],
        "data": {"config.json": json.dumps(CONFIG)},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [config, daemonset]}


def wait_for(lab, count):
    """Wait until the node's allocatable shows so many functions."""
    cluster.wait_for_resource(lab, RESOURCE, count, node=NODE)


@pytest.fixture(scope="module")
def pool(lab, proof, tmp_path_factory):
    """The lab with a pool of the igb's four virtual functions on one node."""
    path = tmp_path_factory.mktemp("vf") / "plugin.json"
    path.write_text(json.dumps(manifest()))
    cluster.kubectl(lab, "apply", "-f", str(path))
    try:
        wait_for(lab, 4)
        yield lab
    finally:
        cluster.kubectl(lab, "delete", "-f", str(path), "--ignore-not-found")


# As the lab makes them at boot: MACs first, then the driver, then the names of /lab/vfs.
MAKE = """\
set -e
card=/sys/class/net/{card}/device
echo 0 >$card/sriov_drivers_autoprobe
echo 4 >$card/sriov_numvfs
while read -r of number mac vf; do ip link set $of vf $number mac $mac; done </lab/vfs
echo 1 >$card/sriov_drivers_autoprobe
while read -r of number mac vf; do
  function=$(readlink -f $card/virtfn$number)
  echo ${{function##*/}} >/sys/bus/pci/drivers_probe
  ip link set $(ls $function/net) name $vf mtu 9000
done </lab/vfs
"""


def shell(lab, script):
    """Run a shell script on the node."""
    cluster.shell(lab, NODE, script)


def test_functions_that_go_and_come_back_change_the_count(pool):
    shell(pool, f"echo 0 >/sys/class/net/{CARD}/device/sriov_numvfs")
    try:
        wait_for(pool, 0)
    finally:
        shell(pool, MAKE.format(card=CARD))
    wait_for(pool, 4)


def test_a_pod_gets_a_function_with_all_that_others_look_for(pool, tmp_path):
    container = {
        "name": "c",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["env"],
        "resources": {"limits": {RESOURCE: 1}},
    }
    spec = {"restartPolicy": "Never", "nodeName": NODE, "containers": [container]}
    path = tmp_path / "pod.json"
    meta = {"name": "has-vf"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
    cluster.kubectl(pool, "apply", "-f", str(path))
    try:
        done = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.wait(pool, "pod/has-vf", done)
        env = dict(
            line.split("=", 1) for line in cluster.kubectl(pool, "logs", "has-vf").splitlines()
        )
    finally:
        cluster.kubectl(pool, "delete", "pod", "has-vf", "--ignore-not-found")
    address = env["PCIDEVICE_INTEL_COM_VF"]
    assert re.fullmatch(r"0000:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
    assert json.loads(env["PCIDEVICE_INTEL_COM_VF_INFO"])[address]["generic"]["deviceID"] == address
    file = f"/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-{address}-device.json"
    info = json.loads(cluster.shell(pool, NODE, "cat", file))
    assert info["pci"]["pci-address"] == address
