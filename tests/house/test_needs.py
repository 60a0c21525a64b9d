"""README's table of what the agent needs at least, held against what the sources use."""

import re

import pytest

from kube_rdma.attach.rules import late_binding

from .tree import ROOT

SOURCES = ROOT / "src/kube_rdma"
# Since when Kubernetes serves an API, as minor versions (API deprecation guide of Kubernetes).
SINCE = {
    ("apps", "v1"): 9,
    ("coordination.k8s.io", "v1"): 14,
    ("events.k8s.io", "v1"): 19,
    ("policy", "v1"): 22,
    ("resource.k8s.io", "v1"): 34,
}
SPARED = {("resource.k8s.io", "v1")}  # where it is not served, the agent works without it
DEVICE_PLUGIN, POD_RESOURCES = 10, 20  # v1beta1; v1 of the kubelet's pod-resources
CRI_V1 = "CRI v1: containerd 1.6, CRI-O 1.20"  # the first that serve runtime.v1
PIDFD = (5, 3)  # pidfd_open(2)
API = re.compile(r'"([a-z]+(?:\.k8s\.io)?)(?:", "|/)(v\d\w*)"')


def table():
    """The cells of README's table by the first one."""
    (part,) = re.findall(r"(?ms)^\| for \| Kubernetes .*?\n\n", (ROOT / "README.md").read_text())
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.split("\n")]
    return {cells[0]: cells[1:] for cells in rows[2:] if len(cells) == 4}


def sources():
    """What the adapters say, generated code excepted."""
    paths = (path for path in (SOURCES / "adapters").rglob("*.py") if "proto" not in path.parts)
    return "\n".join(path.read_text() for path in paths)


def version(text):
    major, minor = text.split(".")
    return int(major), int(minor)


@pytest.fixture(scope="module")
def needs():
    return table()


def test_every_api_of_kubernetes_has_a_version():
    """One that is used anew has to be looked up."""
    used = set(API.findall(sources()))
    own = {api for api in used if "." in api[0] or api[0] in ("policy", "apps", "batch")}
    assert own
    assert own <= SINCE.keys()


def test_networks_need_what_serves_every_api(needs):
    kubernetes, linux, _ = needs["networks of pods"]
    assert version(kubernetes) == (
        1,
        max(since for api, since in SINCE.items() if api not in SPARED),
    )
    assert "os.pidfd_open" in sources()
    assert version(linux) == PIDFD


def test_a_plugin_alone_needs_the_device_plugin_api(needs):
    assert version(needs["the device plugin alone"][0]) == (1, DEVICE_PLUGIN)


def test_role_node_needs_pod_resources_and_cri(needs):
    kubernetes, _, runtime = needs["Events, modes by label"]
    assert version(kubernetes) == (1, max(POD_RESOURCES, SINCE["events.k8s.io", "v1"]))
    assert runtime == CRI_V1
    protos = {path.name for path in (SOURCES / "adapters").rglob("*.proto")}
    assert {"cri_v1.proto", "podresources_v1.proto", "deviceplugin_v1beta1.proto"} <= protos


def test_late_binding_needs_what_the_agent_itself_asks_for(needs):
    kubernetes, _, runtime = needs[
        "devices given when the pod's network is there, not before; GUIDs"
    ]
    assert version(kubernetes) == late_binding.KUBELET
    versions = {name: version(text) for name, text in re.findall(r"([\w-]+) (\d+\.\d+)", runtime)}
    assert versions == {"containerd": late_binding.CONTAINERD, "CRI-O": late_binding.CRIO}
