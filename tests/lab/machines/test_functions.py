"""Virtual functions by NodePolicy on a real card of the lab: found, made again, changed, kept.

The agent is an unprivileged container with the host's /sys mounted for writing. At the end the
card has the functions that the lab made at boot.
"""

import json

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # the kernel's part runs in the bare VM every time
NODE = "node-2"
CARD = "ens4f0"
RESOURCE = "example.com/made-vf"
AGENT = "vf-maker"
FOLDER = "/run/vf-maker"  # of the node: the kubelet takes a minute to bring a changed ConfigMap
MADE = 4  # by the lab

# As the lab makes them at boot: MACs first, then the driver, then the names of /lab/vfs.
RESTORE = """\
set -e
card=/sys/class/net/{card}/device
echo 0 >$card/sriov_numvfs
echo 0 >$card/sriov_drivers_autoprobe
echo {count} >$card/sriov_numvfs
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
    return cluster.shell(lab, NODE, script)


def wish_for(lab, count):
    """Give the agent's file another number; it is replaced in one step."""
    policy = manifests.node_policy(
        AGENT,
        {
            "resource": RESOURCE,
            "mode": "sriov",
            # With the range: without it the card itself is meant while it has none.
            "selectors": [{"physicalFunctions": [f"{CARD}#0-7"]}],
        },
        virtualFunctions=[{"selectors": [{"interfaces": [CARD]}], "count": count}],
    )
    new = f"{FOLDER}/new"
    text = json.dumps(policy)
    shell(lab, f"mkdir -p {FOLDER} && echo '{text}' >{new} && mv {new} {FOLDER}/policy.json")


def manifest():
    """Seed S1's DaemonSet as a plain device plugin on one node, with a file and /sys to write."""
    documents = yaml.safe_load_all((scc.examples() / "s1-vke" / "daemonset.yaml").read_text())
    (daemonset,) = (each for each in documents if each["kind"] == "DaemonSet")
    labels = {"name": AGENT}
    daemonset["metadata"] = {"name": AGENT, "namespace": "kube-system"}
    daemonset["spec"]["selector"] = {"matchLabels": labels}
    template = daemonset["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"].pop("serviceAccountName")
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    (container,) = template["spec"]["containers"]
    container["args"] = ["agent", "--config", "/config/policy.json"]
    for name, inside, outside in (("config", "/config", FOLDER), ("sys", "/sys", "/sys")):
        container["volumeMounts"].append({"name": name, "mountPath": inside})
        template["spec"]["volumes"].append({"name": name, "hostPath": {"path": outside}})
    return daemonset


def wait_for(lab, count):
    """Wait until the node's allocatable shows so many functions."""
    cluster.wait_for_resource(lab, RESOURCE, count, node=NODE)


def functions(lab):
    """The card's virtual functions, as addresses."""
    script = f"for f in /sys/class/net/{CARD}/device/virtfn*; do basename $(readlink $f); done"
    return shell(lab, script).split()


def until_said(lab, words):
    """Wait until the agent's log has these words."""

    def log():
        return cluster.kubectl(lab, "logs", f"daemonset/{AGENT}", "-n", "kube-system")

    until(lab, f"a line of the agent with {words!r}", lambda: words in log())


@pytest.fixture(scope="module")
def maker(lab, proof, tmp_path_factory):
    """The lab with an agent that wishes for what the card has already."""
    path = tmp_path_factory.mktemp("vf") / "agent.json"
    path.write_text(json.dumps(manifest()))
    wish_for(lab, MADE)
    cluster.kubectl(lab, "apply", "-f", str(path))
    try:
        wait_for(lab, MADE)
        yield lab
    finally:
        # With its pods: an agent that still runs would give the card its own number again.
        words = ("delete", "-f", str(path), "--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(lab, *words)
        shell(lab, f"rm -r {FOLDER}; {RESTORE.format(card=CARD, count=MADE)}")


def test_functions_of_the_right_number_are_kept(maker):
    """They have the MACs that the lab gave them, which new ones would not have."""
    macs = f"grep '^{CARD} ' /lab/vfs | cut -d' ' -f3"
    script = f"cat /sys/class/net/{CARD}/device/virtfn*/net/*/address; {macs}"
    addresses = shell(maker, script).split()
    assert addresses[:MADE] == addresses[MADE:]


def test_functions_that_are_lost_are_made_again_with_the_same_addresses(maker):
    before = functions(maker)
    shell(maker, f"echo 0 >/sys/class/net/{CARD}/device/sriov_numvfs")
    made = f"/sys/class/net/{CARD}/device/virtfn{MADE - 1}/net"
    cluster.until_on_node(maker, NODE, f"[ -e {made} ]")
    wait_for(maker, MADE)
    assert functions(maker) == before


def test_another_number_is_made_when_no_pod_holds_a_function(maker):
    wish_for(maker, 7)
    wait_for(maker, 7)
    pod = sleeping_pod("holds-vf", limits={RESOURCE: 1}, nodeName=NODE)
    cluster.apply(maker, pod)
    try:
        cluster.ready(maker, "holds-vf")
        wish_for(maker, 2)
        until_said(maker, "have ended: default/holds-vf")
        assert len(functions(maker)) == 7
    finally:
        cluster.kubectl(maker, "delete", "pod", "holds-vf", "--ignore-not-found")
    wait_for(maker, 2)
