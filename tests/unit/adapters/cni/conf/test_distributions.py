"""A node of each distribution: what its runtime is told, what the agent sees of it, what it does.

The files are those that a distribution puts on its nodes (tests/data/conflists/SOURCE.md). The
agent sees what the manifests for that distribution mount, and nothing else of the node.
"""

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.cni.conf.folder import ConfFolder, FolderTiming, remove
from kube_rdma.adapters.cni.conf.places import find, inside
from kube_rdma.adapters.runtime.cri import SOCKETS
from kube_rdma.attach.rules.conflist import ENTRY, plugins, type_of, unplan
from kube_rdma.install.installation import blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import merged
from kube_rdma.model.attach.cni import PLUGIN, Wiring
from tests.unit.adapters.cni.conf.host import Host

LISTS = Path(__file__).parents[4] / "data/conflists"
QUICK = FolderTiming(settle=0.0, proof=0.0)

_CRI_2 = '[plugins."io.containerd.grpc.v1.cri".cni]'
_CRI_3 = "[plugins.'io.containerd.cri.v1.runtime'.cni]"
_CONTAINERD = "/etc/containerd/config.toml"
_RANCHER = "/var/lib/rancher"
_K3S_NET = f"{_RANCHER}/k3s/agent/etc/cni/net.d"
_K3S_BIN = f"{_RANCHER}/k3s/data/cni"
_SNAP = "/var/snap/microk8s"


@dataclass(frozen=True)
class Distribution:
    """A node of it: `config` and `text` are its runtime's file, `lists` its CNI configuration.

    `values` are what an installation is told; `silent` is a node of which only the runtime, asked
    by the agent, knows the folders: the mounts alone do not show them.
    """

    lists: str
    config: str
    text: str
    conf: str = "/etc/cni/net.d"
    binaries: str = "/opt/cni/bin"
    socket: str = "/run/containerd/containerd.sock"
    values: dict = field(default_factory=dict)
    wiring: Wiring = Wiring.CHAIN
    silent: bool = False


def _containerd(lists, cni="", **more):
    return Distribution(lists, _CONTAINERD, f"version = 2\n{cni}", **more)


_BOTH = 'bin_dir = "/opt/cni/bin"\nconf_dir = "/etc/cni/net.d"\n'
_GKE = {"binaries": "/home/kubernetes/bin", "values": {"distribution": "gke"}}
_GKE_CNI = f'{_CRI_2}\nbin_dir = "/home/kubernetes/bin"\nconf_dir = "/etc/cni/net.d"\n'

DISTRIBUTIONS = {
    "kubeadm": _containerd("flannel"),
    "eks": Distribution("aws", _CONTAINERD, f"version = 3\n{_CRI_3}\n{_BOTH}"),
    "aks": _containerd("azure"),
    "aks-overlay": _containerd("azure-overlay"),
    "aks-kubenet": _containerd(
        "aks-kubenet", f'{_CRI_2}\n{_BOTH}conf_template = "/etc/containerd/kubenet_template.conf"\n'
    ),
    "gke": _containerd("gke", _GKE_CNI, **_GKE),
    "gke-dataplane-v2": _containerd("gke-dataplane-v2", _GKE_CNI, **_GKE),
    "rke2": Distribution(
        "canal",
        f"{_RANCHER}/rke2/agent/etc/containerd/config.toml",
        f'version = 3\n{_CRI_3}\nbin_dirs = ["/opt/cni/bin"]\nconf_dir = "/etc/cni/net.d"\n',
        socket="/run/k3s/containerd/containerd.sock",
        values={"distribution": "rke2"},
    ),
    "k3s": Distribution(
        "flannel",
        f"{_RANCHER}/k3s/agent/etc/containerd/config.toml",
        f'version = 3\n{_CRI_3}\nbin_dirs = ["{_K3S_BIN}"]\nconf_dir = "{_K3S_NET}"\n',
        conf=_K3S_NET,
        binaries=_K3S_BIN,
        socket="/run/k3s/containerd/containerd.sock",
        values={"distribution": "k3s"},
        silent=True,
    ),
    "k0s": Distribution(
        "kube-router",
        "/etc/k0s/containerd.toml",
        "# k0s_managed=true\nversion = 3\n",
        socket="/run/k0s/containerd.sock",
        values={"distribution": "k0s"},
    ),
    # Its revision is in what containerd is told; the folders of all revisions are not mounted.
    "microk8s": Distribution(
        "calico",
        f"{_SNAP}/current/args/containerd.toml",
        f'version = 2\n{_CRI_2}\nbin_dir = "{_SNAP}/2060/opt/cni/bin"\n'
        f'conf_dir = "{_SNAP}/2060/args/cni-network"\n',
        conf=f"{_SNAP}/current/args/cni-network",
        binaries=f"{_SNAP}/current/opt/cni/bin",
        socket="/var/snap/microk8s/common/run/containerd.sock",
        values={"distribution": "microk8s"},
        silent=True,
    ),
    "crio": Distribution(
        "crio",
        "/etc/crio/crio.conf.d/10-crio.conf",
        '[crio.image]\nsignature_policy = "/etc/crio/policy.json"\n'
        '[crio.runtime]\ndefault_runtime = "crun"\n',
        socket="/run/crio/crio.sock",
        values={"host": {"runtime": "/run/crio"}},
    ),
    "openshift": Distribution(
        "openshift",
        "/etc/crio/crio.conf.d/00-default",
        '[crio.network]\nnetwork_dir = "/etc/kubernetes/cni/net.d/"\n'
        'plugin_dirs = ["/var/lib/cni/bin", "/usr/libexec/cni"]\n',
        conf="/etc/kubernetes/cni/net.d",
        binaries="/var/lib/cni/bin",
        socket="/run/crio/crio.sock",
        values={"distribution": "openshift"},
        wiring=Wiring.DELEGATE,
    ),
}


@pytest.fixture(params=DISTRIBUTIONS)
def distribution(request):
    return DISTRIBUTIONS[request.param]


@pytest.fixture
def node(tmp_path, distribution):
    return made(tmp_path / "node", distribution)


def made(root, distribution):
    """The root of a node, with the plugins that its lists call."""
    conf, binaries = (below(root, each) for each in (distribution.conf, distribution.binaries))
    shutil.copytree(LISTS / distribution.lists, conf)
    binaries.mkdir(parents=True)
    for path in conf.iterdir():
        for plugin in plugins(json.loads(path.read_text())):
            (binaries / type_of(plugin)).touch()
    config = below(root, distribution.config)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(distribution.text)
    return root


def below(root, path):
    return root / path.lstrip("/")


def mounted(distribution):
    """Where the agent has which path of its node, as its installation says."""
    values = merged({"preset": "ib", **distribution.values})
    listed = [each for part in blueprints().values() for each in filled(part, values)]
    (daemon_set,) = [each for each in listed if each["kind"] == "DaemonSet"]
    spec = daemon_set["spec"]["template"]["spec"]
    paths = {
        each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each
    }
    (container,) = spec["containers"]
    return {
        each["mountPath"]: paths[each["name"]]
        for each in container["volumeMounts"]
        if each["name"] in paths
    }


@pytest.fixture
def view(tmp_path, node, distribution):
    return cut(node, tmp_path / "host", distribution)


def cut(node, root, distribution):
    """What is left of the node below /host; a folder that it has not is made empty."""
    for inner, outer in mounted(distribution).items():
        if inner.startswith("/host/"):
            target, source = below(root, inner.removeprefix("/host")), below(node, outer)
            assert inner == f"/host{outer}"
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            target.mkdir(parents=True, exist_ok=True)
    return root


def snapshot(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_its_own_files_say_where_it_looks(node, distribution):
    """And they say it to the agent too, as far as these are folders that it has mounted."""
    places = find(node)
    assert (str(places.conf), str(places.binaries)) == (distribution.conf, distribution.binaries)


def test_its_runtime_is_reached(distribution):
    """The socket's folder is mounted at its own path, and the socket is looked for there."""
    folder = str(Path(distribution.socket).parent)
    assert mounted(distribution)[folder] == folder
    assert Path(distribution.socket) in SOCKETS


def test_what_is_mounted_shows_it_as_well(view, distribution):
    """For a runtime that does not say it: CRI-O, and any that is too old."""
    if distribution.silent:
        with pytest.raises(Refused, match="no container runtime says"):
            find(view)
        return
    places = find(view)
    assert (str(places.conf), str(places.binaries)) == (distribution.conf, distribution.binaries)


async def test_the_agent_comes_and_leaves_no_trace(node, view, distribution):
    """With what is mounted alone: entry and binary lie where the runtime looks, and go again."""
    before = snapshot(view)
    host = Host(view)
    places = host.places = find(node)  # as the runtime says it
    host.folder = ConfFolder(inside(view, places.conf))
    host.binaries = inside(view, places.binaries)
    beside = snapshot(view).keys() - before.keys()  # the helper's own
    async with host.kept(pace=QUICK):
        await host.until(1)
        (kept,) = host.told
        assert (kept.error, kept.plan.wiring) == (None, distribution.wiring)
        assert (host.binaries / PLUGIN).read_bytes() == b"shim"
        if distribution.wiring is Wiring.CHAIN:
            assert json.loads(host.text(kept.plan.default))["plugins"][-1] == ENTRY
    assert snapshot(view) != before
    remove(host.folder, host.binaries, unplan)
    assert {path: text for path, text in snapshot(view).items() if path not in beside} == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("gke", "it calls ptp, portmap, bandwidth, not to be found"), ("k3s", ""), ("openshift", "")],
)
async def test_with_the_mounts_of_kubeadm_the_agent_stays_out(tmp_path, name, sentence):
    """No list is changed. One that is seen is named; a folder that is not seen is as if empty."""
    distribution = DISTRIBUTIONS[name]
    node = made(tmp_path / "node", distribution)
    view = cut(node, tmp_path / "host", replace(distribution, values={}))
    before = snapshot(view)
    host = Host(view)
    places = host.places = find(node)
    host.folder = ConfFolder(inside(view, places.conf))
    async with host.kept(pace=QUICK):
        await host.until(1)
    (kept,) = host.told
    assert kept.plan.wiring is Wiring.NONE
    assert bool(kept.error) == bool(sentence)
    assert sentence in str(kept.error)
    lists = {path: text for path, text in before.items() if path.suffix == ".conflist"}
    assert lists.items() <= snapshot(view).items()
