"""The objects for Prometheus and Grafana: by choice, and fitting the agents that they are about."""

import json
import re
from pathlib import Path

import pytest
import yaml

from kube_rdma.install.installation import dashboards
from kube_rdma.install.rules.presets import PRESETS, merged
from kube_rdma.lib.text import reader
from kube_rdma_lab.installation import objects

EVERYTHING = {
    "port": 9879,
    "names": "vke",
    "podMonitor": True,
    "rules": True,
    "dashboards": True,
    "labels": {"release": "prometheus"},
}
WITH_AGENT = [name for name in PRESETS if name != "nvidia-operator"]
OWN = ["default", "rails", "rdma-ib", "efa"]


def made(preset, metrics, part=""):
    values = json.dumps({"metrics": metrics}).encode()
    return objects([reader.read(values, "values.yaml")], preset, part)


def agent(preset, metrics):
    (daemon_set,) = [one for one in made(preset, metrics) if one["kind"] == "DaemonSet"]
    return daemon_set["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_is_made_unless_it_is_chosen(preset):
    assert made(preset, {}, "metrics") == ()
    without_port = {"port": 0, "podMonitor": True}
    assert made(preset, without_port, "metrics") == ()


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_presets_of_no_document_have_a_port_and_others_none(preset):
    """What a document's agents run with is the document's to say."""
    ports = [one["containerPort"] for one in agent(preset, {}).get("ports", ())]
    assert ports == ([9879] if preset in OWN else [])


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_without_a_port_the_agent_is_as_before(preset):
    container = agent(preset, {"port": 0})
    assert "ports" not in container
    assert not [word for word in container["args"] if "metrics" in word]


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_an_agent_with_a_port_listens_on_its_nodes_address(preset):
    container = agent(preset, {"port": 9879})
    asked = [word for word in container["args"] if word.startswith("--metrics-")]
    assert asked == ["--metrics-address=$(HOST_IP):9879", "--metrics-names=node-exporter"]
    (address,) = [one for one in container["env"] if one["name"] == "HOST_IP"]
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    assert container["ports"] == [{"name": "metrics", "containerPort": 9879}]


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_series_of_pods_are_chosen(preset):
    """Nobody has to show a credential to read them."""
    assert "--metrics-pods" not in agent(preset, {"port": 9879})["args"]
    assert "--metrics-pods" in agent(preset, {"port": 9879, "pods": True})["args"]
    assert "--metrics-pods" not in agent(preset, {"port": 0, "pods": True})["args"]


def listening():
    """Program, port and preset of each TCP port that something of a preset listens on."""
    for preset in PRESETS:
        for one in made(preset, {}):
            pod = one.get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("containers", ()):
                ports = {port["containerPort"] for port in container.get("ports", ())}
                words = [word for word in container["args"] if "metrics-address=" in word]
                ports |= {int(word.rpartition(":")[2]) for word in words}
                yield from ((f"{container['args'][0]}s", port, preset) for port in ports)


def test_security_md_has_every_port_of_every_preset():
    page = (Path(__file__).parents[3] / "SECURITY.md").read_text()
    rows = re.findall(
        r"^\| (\w+), TCP (\d+), metrics; in presets ([^|]+), in others none \|", page, re.MULTILINE
    )
    stated = {
        (program, int(port), preset)
        for program, port, presets in rows
        for preset in re.findall(r"`([\w-]+)`", presets)
    }
    assert stated == set(listening())
    ports = sorted(merged({"preset": preset})["agent"]["healthPort"] for preset in PRESETS)
    assert f"| agents, TCP {ports[0]} to {ports[-1]} by preset (`agent.healthPort`)" in page


def test_the_proxy_asks_whom_it_lets_through_and_agents_are_on_the_loopback_address():
    """What docs/metrics.md has people set agrees with the manifest beside it."""
    root = Path(__file__).parents[3]
    everything = list(
        yaml.safe_load_all((root / "config/metrics/kube-rbac-proxy.yaml").read_text())
    )
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in everything}
    pod = by_kind["DaemonSet", "kube-rdma-metrics-proxy"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostNetwork"]
    (upstream,) = [word for word in container["args"] if word.startswith("--upstream=")]
    assert upstream == "--upstream=http://127.0.0.1:9879/"
    assert "--metrics-address=127.0.0.1:9879" in (root / "docs/metrics.md").read_text()
    rules = by_kind["ClusterRole", "kube-rdma-metrics-proxy"]["rules"]
    asked = [(*one["resources"], *one["verbs"]) for one in rules]
    assert asked == [("tokenreviews", "create"), ("subjectaccessreviews", "create")]
    (rule,) = by_kind["ClusterRole", "kube-rdma-metrics"]["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_the_monitor_selects_the_agents_by_label_and_port(preset):
    everything = made(preset, EVERYTHING)
    (daemon_set,) = [one for one in everything if one["kind"] == "DaemonSet"]
    monitor = next(one for one in everything if one["kind"] == "PodMonitor")
    pod = daemon_set["spec"]["template"]
    assert monitor["spec"]["selector"] == daemon_set["spec"]["selector"]
    assert monitor["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["port"] == pod["spec"]["containers"][0]["ports"][0]["name"]


@pytest.mark.parametrize("preset", ["default", "vke", "nvidia-operator"])
def test_the_controller_has_a_monitor_of_its_own(preset):
    everything = made(preset, EVERYTHING)
    (deployment,) = [one for one in everything if one["kind"] == "Deployment"]
    monitor = [one for one in everything if one["kind"] == "PodMonitor"][-1]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--metrics-address=:9879" in container["args"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9879}]
    assert monitor["spec"]["selector"] == deployment["spec"]["selector"]
    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]


@pytest.mark.parametrize("page", ["", "https://wiki.example.com/rdma"])
def test_alerts_lead_to_the_runbook_that_is_chosen(page):
    """By default to none: nobody knows where its copy is."""
    runbook = {"runbook": page} if page else {}
    (rules,) = [
        one
        for one in made("vke", EVERYTHING | runbook, "metrics")
        if one["kind"] == "PrometheusRule"
    ]
    addresses = {
        rule["annotations"].get("runbook_url", "").partition("#")[0]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
    }
    assert addresses == {page}


def test_dashboards_come_as_grafana_reads_them():
    boards = [one for one in made("vke", EVERYTHING) if "kube-rdma-" in one["metadata"]["name"]]
    texts = {
        name: json.loads(text)
        for one in boards
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in one["data"].items()
    }
    assert texts == {f"{name}.json": board for name, board in dashboards().items()}
