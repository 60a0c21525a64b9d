"""Where a runtime looks for CNI, on the hosts of several distributions."""

from pathlib import Path, PurePosixPath

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.cni.conf.places import find, inside, places

CONTAINERD = "/etc/containerd/config.toml"
MICROK8S = "/var/snap/microk8s/current/args/containerd.toml"
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"


@pytest.fixture
def host(tmp_path):
    """The host's root, as a container sees it under a prefix."""
    return tmp_path / "host"


def put(host, path, text=""):
    file = host / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def folders(host, *paths):
    for path in paths:
        (host / path.lstrip("/")).mkdir(parents=True, exist_ok=True)


def found(host):
    places = find(host)
    return str(places.conf), str(places.binaries), places.source


def test_containerd_says_where(host):
    """All three names of its plugin, and a list of folders, of which the first one is ours."""
    folders(host, "/a/net.d", "/etc/cni/net.d")
    put(host, CONTAINERD, '[plugins.cri.cni]\nbin_dir = "/a/bin"\nconf_dir = "/a/net.d"')
    assert found(host) == ("/a/net.d", "/a/bin", CONTAINERD)
    put(host, CONTAINERD, 'version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/b"')
    assert found(host) == ("/etc/cni/net.d", "/b", CONTAINERD)
    put(host, CONTAINERD, '[plugins."io.containerd.cri.v1.runtime".cni]\nbin_dirs = ["/c", "/d"]')
    assert found(host) == ("/etc/cni/net.d", "/c", CONTAINERD)
    assert find(host).more == (PurePosixPath("/d"),)


@pytest.mark.parametrize("revision", ["2060", "x1", "current"])
def test_the_revision_of_a_snap_is_not_looked_at(host, revision):
    """MicroK8s names it, and pods mount the folder by the link that every revision has."""
    current = "/var/snap/microk8s/current"
    folders(host, f"{current}/args/cni-network")
    data = f"/var/snap/microk8s/{revision}"
    text = f'bin_dir = "{data}/opt/cni/bin"\nconf_dir = "{data}/args/cni-network"'
    put(host, MICROK8S, f"[plugins.cri.cni]\n{text}")
    assert found(host) == (f"{current}/args/cni-network", f"{current}/opt/cni/bin", MICROK8S)
    named = places(f"{data}/args/cni-network", [f"{data}/opt/cni/bin", "/opt/1/2"], "the runtime")
    assert (str(named.conf), str(named.binaries)) == found(host)[:2]
    assert named.more == (PurePosixPath("/opt/1/2"),)


@pytest.mark.parametrize("files", ["/etc/containerd/conf.d/*.toml", "conf.d/*.toml"])
def test_imported_files_of_containerd_have_the_last_word(host, files):
    """They are read in the order of their names; broken ones say nothing."""
    folders(host, "/etc/cni/net.d")
    put(host, CONTAINERD, f'imports = ["{files}"]\n[plugins.cri.cni]\nbin_dir="/a"')
    put(host, "/etc/containerd/conf.d/1.toml", '[plugins.cri.cni]\nbin_dir="/b"')
    put(host, "/etc/containerd/conf.d/2.toml", "broken = ")
    assert found(host)[1] == "/b"


@pytest.mark.parametrize(
    "text",
    [
        "plugins = 1",
        "plugins = [1]",
        "plugins.cri = 1",
        "plugins.cri.cni = 'x'",
        "plugins.cri.cni.bin_dirs = 1",
        "imports = 1",
        "imports = ['/', '/a**', 'a**', '', 1]",
        "a = " + "[" * 2000 + "]" * 2000,
    ],
)
def test_what_has_another_form_says_nothing(host, text):
    """The runtime would not run with it either, so the folders are the usual ones."""
    folders(host, "/etc/cni/net.d")
    put(host, CONTAINERD, text)
    assert found(host) == ("/etc/cni/net.d", "/opt/cni/bin", CONTAINERD)


@pytest.mark.parametrize("text", ["crio = 1", "crio.network = 1", "crio.network.plugin_dirs = 1"])
def test_crio_with_another_form_says_nothing(host, text):
    folders(host, "/etc/cni/net.d")
    put(host, "/etc/crio/crio.conf", text)
    assert found(host) == ("/etc/cni/net.d", "/opt/cni/bin", "/etc/crio/crio.conf")


def test_k3s_comes_before_a_containerd_of_the_host(host):
    """Its own containerd is told where; without flannel it is not, and looks where all do."""
    net = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
    folders(host, net, "/etc/cni/net.d")
    put(host, CONTAINERD)
    put(
        host,
        K3S,
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n"
        f'bin_dir = "/var/lib/rancher/k3s/data/cni"\nconf_dir = "{net}"',
    )
    assert found(host) == (net, "/var/lib/rancher/k3s/data/cni", K3S)
    put(host, K3S)
    assert found(host) == ("/etc/cni/net.d", "/opt/cni/bin", K3S)


def test_what_a_removed_runtime_left_does_not_count(host):
    """A configuration whose folder is gone is passed over."""
    put(host, K3S, '[plugins.cri.cni]\nconf_dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d"')
    put(host, CONTAINERD)
    folders(host, "/etc/cni/net.d")
    assert found(host) == ("/etc/cni/net.d", "/opt/cni/bin", CONTAINERD)


def test_crio_of_openshift(host):
    """The folder of parts has the last word, its first folder of plugins is ours."""
    folders(host, "/etc/kubernetes/cni/net.d", "/etc/cni/net.d")
    put(host, "/etc/crio/crio.conf", '[crio.network]\nnetwork_dir = "/old"')
    put(
        host,
        "/etc/crio/crio.conf.d/00-default",
        '[crio.network]\nnetwork_dir = "/etc/kubernetes/cni/net.d/"\n'
        'plugin_dirs = ["/var/lib/cni/bin", "/usr/libexec/cni"]',
    )
    assert found(host)[:2] == ("/etc/kubernetes/cni/net.d", "/var/lib/cni/bin")
    assert find(host).more == (PurePosixPath("/usr/libexec/cni"),)


def test_without_a_configuration_the_usual_folders_are_tried(host):
    """GKE keeps its binaries in a folder of its own."""
    folders(host, "/etc/cni/net.d", "/opt/cni/bin")
    assert found(host) == ("/etc/cni/net.d", "/opt/cni/bin", "the list of usual folders")
    gke = "/home/kubernetes/bin"
    folders(host, gke)
    assert found(host)[1] == gke


def test_an_empty_host_is_refused(host):
    """Nothing is guessed: the remedy is to mount the folders."""
    with pytest.raises(Refused, match=r"no container runtime says"):
        find(host)


def test_links_are_followed_as_the_host_would(host):
    """An absolute link leads to the host's root, not to ours; a circle ends."""
    folders(host, "/data/v1/bin", "/var")
    (host / "data/current").symlink_to("/data/v1")
    (host / "var/cni").symlink_to("../data/current/bin")
    (host / "circle").symlink_to("/circle")
    (host / "out").symlink_to("/../../..")
    assert inside(host, PurePosixPath("/data/current/bin")) == host / "data/v1/bin"
    assert inside(host, PurePosixPath("/var/cni/kube-rdma")) == host / "data/v1/bin/kube-rdma"
    assert inside(host, PurePosixPath("/var/none/x")) == host / "var/none/x"
    assert inside(host, PurePosixPath("/out/etc")) == host / "etc"
    assert Path(inside(host, PurePosixPath("/circle"))) == host / "circle"
