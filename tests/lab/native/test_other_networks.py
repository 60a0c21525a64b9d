"""The real agent in the folder of other projects' networks, called by the runtime's own libcni.

The lists are those of tests/data/conflists. Of their plugins the first is the lab's bridge under
another name, and later ones pass on what came before, as portmap does; kubelet, containerd, libcni,
the shim and the agent are real. Flannel's and Cilium's plugins run themselves besides, and what of
Cilium's agent keeps the folder, for their modules are in reach (flannel/, cilium/).
tests/unit/adapters/cni/conf shows the same folders to the rules.
"""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_rdma.attach.rules.conflist import ENTRY, RDMA_CONF, plugins, type_of, unplan
from kube_rdma.model.attach.cni import PLUGIN, SET_ASIDE, ConfFile
from kube_rdma_lab import cluster
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native import node as native_node
from kube_rdma_lab.waiting import until
from kube_rdma_testing.cni import cilium
from tests.kit import cilium_agent, manifests
from tests.kit.helm import MODULES
from tests.kit.node_files import put_program, put_text

LISTS = Path(__file__).parents[2] / "data/conflists"
NETWORKS = (
    "flannel",
    "calico",
    "cilium",
    "azure",
    "aws",
    "terway",
    "cello",
    "ovn-kubernetes",
    "kindnet",
)
EXAMPLE, NAMESPACE = scc.examples() / "s3-network", "mlnx-network-operator"
NODE, FOLDER, BINARIES = "node-1", "/etc/cni/net.d", "/opt/cni/bin"
OWN = "10-lab.conflist"
REAL = ("bridge", "portmap", PLUGIN)  # plugins that the node has as they are
STAND_IN = f"""#!/bin/sh
type=${{0##*/}} given=$(cat)
echo "$CNI_COMMAND $CNI_CONTAINERID $type $given" >> /run/stand-in.calls
[ "$type" = "$(cat /run/stand-in.first)" ] && exec {BINARIES}/bridge < /run/stand-in.json
[ "$CNI_COMMAND" = ADD ] || exit 0
echo "$given" | awk '{{
  text = substr($0, index($0, "\\"prevResult\\":") + 13)
  for (i = 1; i <= length(text); i++) {{
    deep += (substr(text, i, 1) == "{{") - (substr(text, i, 1) == "}}")
    if (!deep) {{ print substr(text, 1, i); exit }}
  }}
}}'
"""
# Runs in the lab's namespaces, and sees the node's folder by its first process.
CILIUM = """
import asyncio, pathlib, sys
from kube_rdma_testing.cni.cilium import FakeCilium

async def main():
    agent, seen = FakeCilium(pathlib.Path(sys.argv[1])), 0
    running = asyncio.create_task(agent.run())
    while not running.done():
        await agent.until(seen + 1)
        seen = agent.undone
        print(seen, flush=True)

asyncio.run(main())
"""
REFUSALS = ("events.events.k8s.io", "-A", "--field-selector=reason=NetworkConfigurationRefused")
HELM_VALUE = "--set cni.exclusive=false"
PLAIN, ADDRESS = "plain", "192.168.115.7"
BUILT_LONG = pytest.mark.slow  # Go compiles Cilium for minutes
ASKING = {"k8s.v1.cni.cncf.io/networks": PLAIN}


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the agent and the controller of seed S3 and a network of plain macvlan."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    ipam = {"type": "static", "addresses": [{"address": f"{ADDRESS}/24"}]}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "ipam": ipam}
    cluster.apply(native, manifests.network(PLAIN, config, "default"))
    files = [word for name in ("agent", "controller") for word in ("-f", f"{EXAMPLE}/{name}.yaml")]
    cluster.kubectl(native, "apply", *files)
    cluster.rollout(native, "rdma-shared-dp-ds", NAMESPACE)
    cluster.wait(
        native, "-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available"
    )
    cluster.until_on_node(native, NODE, f"grep -q {PLUGIN} {FOLDER}/{OWN}")
    yield native
    cluster.kubectl(native, "delete", *files, "--cascade=foreground")
    cluster.kubectl(native, "delete", "network-attachment-definitions", PLAIN)


def built(name):
    """The folder of programs of a module beside this file."""
    with open_store() as store:
        return go.build_module(store, name, MODULES)


def node(lab, script):
    return cluster.shell(lab, NODE, script)


def put(lab, path, text, mode=644):
    put_text(lab, NODE, path, text, mode)


def renew_agent(lab):
    """Let the node's agent begin anew: after other files it would take its time (folder.py)."""
    chosen = ("-l", "name=rdma-shared-dp-ds", f"--field-selector=spec.nodeName={NODE}")
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "pod", *chosen)
    cluster.rollout(lab, "rdma-shared-dp-ds", NAMESPACE)


@contextmanager
def folder(lab, name, programs=None, *, apart=False):
    """The node's network is that of a folder of LISTS; yields its files.

    `programs`: plugins that run themselves, by type. `apart`: they lie in the folder of the list's
    name, which libcni reads since 1.3.
    """
    files = [ConfFile(path.name, path.read_text()) for path in sorted((LISTS / name).iterdir())]
    default = json.loads(files[0].text)
    types = [type_of(plugin) for plugin in plugins(default)]
    for kind in {*types} - {*REAL}:
        if program := (programs or {}).get(kind):
            put_program(lab, NODE, f"{BINARIES}/{kind}", program)
        else:
            put(lab, f"{BINARIES}/{kind}", STAND_IN, 755)
    bridge = json.loads(node(lab, f"cat {FOLDER}/{OWN}"))["plugins"][0]
    version = {"cniVersion": default["cniVersion"], "name": "lab"}
    if apart:
        listed, place = default.pop("plugins"), default["name"]
        files = [
            ConfFile(f"{place}/{at:02}.conf", json.dumps(one)) for at, one in enumerate(listed)
        ]
        files.append(ConfFile(f"{place}.conflist", json.dumps(default)))  # the runtime reads it now
    put(lab, "/run/stand-in.json", json.dumps({**bridge, **version}))
    put(lab, "/run/stand-in.first", types[0])
    node(lab, f"mv {FOLDER}/{OWN} /run/{OWN}; rm -f /run/stand-in.calls")
    try:
        for file in files:
            node(lab, f"mkdir -p $(dirname {FOLDER}/{file.name})")
            put(lab, f"{FOLDER}/{file.name}", file.text)
        renew_agent(lab)
        yield tuple(files)
    finally:
        node(lab, f"rm -rf {FOLDER}/*; mv /run/{OWN} {FOLDER}/{OWN}")
        node(lab, f"cd {BINARIES} && rm -f {' '.join({*types} - {*REAL})}")


@contextmanager
def pod(lab, name, **annotations):
    """A Ready pod on the node, while it is needed; yields it as it is when it is Ready."""
    container = {
        "name": "c",
        "image": "localhost/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": NODE, "containers": [container]},
    }
    cluster.apply(lab, document)
    try:
        cluster.ready(lab, name)
        yield cluster.get(lab, f"pod/{name}")
    finally:
        cluster.kubectl(lab, "delete", "pod", name, "--grace-period=1", "--ignore-not-found")


def calls(lab):
    """What libcni gave to the stand-ins: verb, container, type and configuration."""
    lines = node(lab, "touch /run/stand-in.calls; cat /run/stand-in.calls").splitlines()
    split = [line.split(" ", 3) for line in lines]
    return [(verb, container, kind, json.loads(given)) for verb, container, kind, given in split]


def shown(lab):
    """The node's files of configuration."""
    names = node(lab, f"ls {FOLDER}").split()
    return tuple(ConfFile(name, node(lab, f"cat {FOLDER}/{name}")) for name in names)


def in_node(lab, path):
    """A path of the node, for programs in the lab's namespaces."""
    first = native_node.first_process(lab.home, lab.node(NODE))
    return f"/proc/{first}/root{path}"


@contextmanager
def beside(lab, log, *words):
    """A program in the lab's namespaces; it ends with nsenter. What it prints is in `log`."""
    mortal = ("setpriv", "--pdeathsig", "KILL", "--")
    with (
        log.open("w") as out,
        subprocess.Popen([*lab.enter(), *mortal, *words], stdout=out, stderr=out) as program,
    ):
        try:
            yield
        finally:
            program.kill()


def stand_in(lab):
    """A program that does to the folder what Cilium's agent does; it prints a line per undoing."""
    return (sys.executable, "-c", CILIUM, in_node(lab, FOLDER))


def its_own(lab):
    """Cilium's agent, as far as it keeps the folder; it tells each undoing in its log."""
    path = in_node(lab, f"{FOLDER}/{cilium.FILE}")
    return (built("cilium") / "cilium", f"--write-cni-conf-when-ready={path}", "--cni-exclusive")


# Which lines of each are an undoing.
UNDOING = {
    stand_in: lambda line: line.isdecimal(),
    its_own: lambda line: "Wrote CNI configuration file" in line,
}


def refusals(lab):
    """What the agent told of the node's configuration, with how often."""
    told = [event for event in cluster.get(lab, *REFUSALS)["items"] if HELM_VALUE in event["note"]]
    return [(event["note"], event.get("series", {}).get("count", 1)) for event in told]


@pytest.mark.parametrize("agent", [stand_in, pytest.param(its_own, marks=BUILT_LONG)])
def test_an_exclusive_cilium_costs_no_running_and_no_plain_pod(lab, agent, tmp_path):
    """It takes every entry out again; the agent says once what to set, and leaves pods alone.

    First of the file: with each owner that rewrites its list, the agent waits longer.
    """
    with folder(lab, "cilium") as before, pod(lab, "running", **ASKING) as running:
        node(lab, f"printf '{{}}' > {FOLDER}/99-other.conf")
        cluster.kubectl(lab, "delete", *REFUSALS)
        log = tmp_path / "undone"

        def undone() -> int:
            return sum(map(UNDOING[agent], log.read_text().splitlines()))

        with beside(lab, log, *agent(lab)):
            until(lab, "the agent's words on cni.exclusive", lambda: refusals(lab))
            tries = undone()
            until(lab, "one try more, which is no news", lambda: undone() > tries)
            ((note, times),) = refusals(lab)
            assert (note.startswith(f"{cilium.FILE}: Cilium"), times) == (True, 1)
            with pod(lab, "asks-meanwhile", **ASKING) as asks, pod(lab, "plain") as plain:
                assert plain["status"]["podIP"]
                for one in (running, asks):
                    now = cluster.get(lab, f"pod/{one['metadata']['name']}")
                    assert now["metadata"]["uid"] == one["metadata"]["uid"]
                    assert now["status"]["phase"] == "Running"
                    assert "deletionTimestamp" not in now["metadata"]
            assert before[0].name in (names := node(lab, f"ls {FOLDER}").split())
            assert f"99-other.conf{SET_ASIDE}" in names
        put(lab, f"{FOLDER}/{cilium.FILE}", cilium.LIST + "\n")
        cluster.until_on_node(lab, NODE, f"grep -q '\"{PLUGIN}\"' {FOLDER}/{cilium.FILE}")


def network_of_pod(lab):
    """What net1 of a new pod is; again where containerd has not read the folder yet."""
    with pod(lab, "asking", **ASKING):
        seen = calls(lab)
        shown = ("exec", "asking", "--", "ip", "-d", "addr", "show", "dev", "net1")
        return seen and cluster.kubectl(lab, *shown)


def test_the_runtime_calls_the_chain_of_a_list_whose_plugins_lie_in_a_folder(lab):
    """The list itself has no plugins; the entry is the last file of the folder."""
    with folder(lab, "flannel", apart=True) as (*_, last):
        entry = f"{FOLDER}/{json.loads(last.text)['name']}/{RDMA_CONF}"
        cluster.until_on_node(lab, NODE, f"grep -qs '\"{PLUGIN}\"' {entry}")
        assert node(lab, f"cat {FOLDER}/{last.name}") == last.text
        text = until(lab, "a pod by a list without plugins", lambda: network_of_pod(lab))
        assert "macvlan" in text
        assert f"inet {ADDRESS}/24" in text


@pytest.mark.parametrize("name", NETWORKS)
def test_libcni_calls_the_chain_in_a_network_of_another_project(lab, name):
    """The entry goes in last, a pod gets its network through it, and what is taken out is exact."""
    with folder(lab, name) as before:
        listed = plugins(json.loads(before[0].text))
        kinds = [type_of(plugin) for plugin in listed]
        cluster.until_on_node(lab, NODE, f"grep -qs '\"{PLUGIN}\"' {FOLDER}/*")
        after = shown(lab)
        assert plugins(json.loads(after[0].text)) == [*listed, ENTRY]

        text = until(lab, f"a pod by the list of {name}", lambda: network_of_pod(lab))
        assert "macvlan" in text
        assert f"inet {ADDRESS}/24" in text
        added = [call for call in calls(lab) if call[0] == "ADD"]
        mine = [call for call in added if call[1] == added[-1][1]]
        assert [kind for _, _, kind, _ in mine] == [kind for kind in kinds if kind not in REAL]
        for _, _, kind, given in mine:
            (plugin,) = [one for one in listed if type_of(one) == kind]
            kept = {**plugin, "name": json.loads(before[0].text)["name"]}  # libcni puts the list's
            assert {key: given.get(key) for key in kept} == kept
        undone = unplan(after)
        left = {file.name: file for file in (*after, *undone.writes)}
        assert tuple(left[key] for key in left if key not in undone.removes) == before


# Of what flanneld writes: the node's upper addresses, for the lab's own bridge has the lower ones.
SUBNET = """\
FLANNEL_NETWORK=10.244.0.0/16
FLANNEL_SUBNET=10.244.1.129/25
FLANNEL_MTU=1450
FLANNEL_IPMASQ=false
"""
BRIDGE = "flannel0"


def test_flannel_s_own_plugin_makes_the_network_that_the_chain_stands_behind(lab):
    """It takes back at the pod's end what it made, and kube-rdma its interface."""
    notes = "/var/lib/cni/flannel"
    node(lab, "mkdir -p /run/flannel")
    put(lab, "/run/flannel/subnet.env", SUBNET)
    with folder(lab, "flannel", {"flannel": built("flannel") / "flannel"}) as before:
        cluster.until_on_node(lab, NODE, f"grep -qs '\"{PLUGIN}\"' {FOLDER}/*")
        (name,) = [file.name for file in before]
        text = node(lab, f"cat {FOLDER}/{name}")
        # A bridge beside the lab's, which has another address.
        put(
            lab,
            f"{FOLDER}/{name}",
            text.replace('"delegate": {', f'"delegate": {{"bridge": "{BRIDGE}",'),
        )

        def attached():
            """Again where containerd has not read the folder yet."""
            with pod(lab, "asking", **ASKING) as asking:
                if BRIDGE not in node(lab, "ip -o link"):
                    return None
                shown = cluster.kubectl(lab, "exec", "asking", "--", "ip", "-d", "addr")
                return asking["status"]["podIP"], shown, node(lab, f"ls {notes}").split()

        address, shown, made = until(lab, "a pod by flannel's plugin", attached)
        assert int(address.rpartition(".")[2]) > 128
        assert f"inet {address}/25" in shown
        assert "mtu 1450" in shown
        assert "macvlan" in shown
        assert f"inet {ADDRESS}/24" in shown
        assert len(made) == 1
        cluster.until_on_node(lab, NODE, f'[ -z "$(ls {notes})" ]')
    node(lab, f"ip link delete {BRIDGE}")


# Of the node's part of the pods' network, which nobody else has.
HOST, POD = "10.244.1.190", "10.244.1.200"


@BUILT_LONG
def test_cilium_s_own_plugin_makes_the_network_that_the_chain_stands_behind(lab, tmp_path):
    """It tells its agent of the pod's end, and kube-rdma takes its interface back."""
    log = tmp_path / "calls"
    run = node(lab, "mkdir -p /var/run/cilium && readlink -f /var/run/cilium").strip()
    words = (cilium_agent.__file__, in_node(lab, f"{run}/cilium.sock"), HOST, POD)
    program = built("cilium") / "cilium-cni"
    with beside(lab, log, sys.executable, *words), folder(lab, "cilium", {"cilium-cni": program}):
        cluster.until_on_node(lab, NODE, f"grep -qs '\"{PLUGIN}\"' {FOLDER}/*")

        def attached():
            """Again where containerd has not read the folder yet."""
            with pod(lab, "asking", **ASKING) as asking:
                if "PUT /endpoint" not in log.read_text():
                    return None
                shown = cluster.kubectl(lab, "exec", "asking", "--", "ip", "-d", "addr")
                return asking["status"]["podIP"], shown, node(lab, "ip -o link")

        address, shown, links = until(lab, "a pod by Cilium's plugin", attached)
        assert f"inet {address}/32" in shown
        assert address.rpartition(".")[0] == POD.rpartition(".")[0]
        assert "macvlan" in shown
        assert f"inet {ADDRESS}/24" in shown
        assert "lxc" in links
        until(lab, "the end of the endpoint", lambda: "DELETE /endpoint" in log.read_text())
        cluster.until_on_node(lab, NODE, "! ip -o link | grep -q lxc")
