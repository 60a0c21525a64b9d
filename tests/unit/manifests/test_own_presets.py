"""Presets of kube-rdma's own names: what they offer on constructed cards, what examples ask for."""

import json
import re
import shlex
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.attach.documents.network_definition import RESOURCE, load
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.cli.config import check
from kube_rdma.cli.output import ExitCode
from kube_rdma.cli.render import render
from kube_rdma.install.installation import assignment, read_values
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma.names.cluster import SERVICE, naming_service
from kube_rdma.names.rules import names_request
from kube_rdma.pools.config import parse_config
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma.pools.rules.pools import resolve
from kube_rdma_lab.installation import objects
from kube_rdma_lab.native.tree_text import unpack
from tests.kit.pod_networks import card, node, share, wish

ROOT = Path(__file__).parents[3]
TREES = ROOT / "tests/data/trees"
RAILS = ROOT / "examples/gpu-rails"
VALUES = RAILS / "values.yaml"
WHOLE_NODE = (
    *("nccl-tests.yaml", "training.yaml", "inference.yaml"),
    *("lws.yaml", "pytorchjob.yaml"),
)
POD_MAKERS = ("Pod", "Job", "MPIJob", "Deployment", "LeaderWorkerSet", "PyTorchJob")
PODS = (*WHOLE_NODE, "half-a-node.yaml")
NIC = "rdma/nic"


def pools(preset, tree, root):
    """What the preset's agents make of the cards of an example machine."""
    unpack((TREES / tree / "tree.txt").read_text(), root)
    survey = read_survey(root)
    wished = parse_config(PRESETS[preset]["agent"]["config"].encode(), preset).pools
    return resolve(wished, node_cards(survey), survey)[0]


@pytest.mark.parametrize(
    ("preset", "tree", "resource", "shares", "opens"),
    [
        ("default", "dgx-like", NIC, 8 * 16, 1),
        ("rails", "dgx-like", NIC, 8, 1),
        ("rdma-ib", "dgx-like", "rdma/ib", 1000, 8),
        ("rdma-ib", "mlx5-roce-pf-vfs", "rdma/ib", 1000, None),
        ("efa", "efa", "vpc.amazonaws.com/efa", 1, 1),
        ("efa", "dgx-like", "vpc.amazonaws.com/efa", 0, None),
    ],
)
def test_a_preset_offers_the_cards_of_its_kind_of_node(
    preset, tree, resource, shares, opens, tmp_path
):
    (pool,) = pools(preset, tree, tmp_path)
    assert (pool.spec.resource, len(pool.shares)) == (resource, shares)
    assert all(one.healthy for one in pool.shares)
    if opens is not None:
        per_share = [one for one in pool.cards if pool.shares[0].card in (None, one.id)]
        assert len(per_share) == opens


def rendered(*layers, kind):
    """Objects of preset rails with the example's values, by name."""
    made = objects([read_values(VALUES), *layers])
    return {one["metadata"]["name"]: one for one in made if one["kind"] == kind}


def networks(*layers):
    """What the networks mean, by their names."""
    made = rendered(*layers, kind="NetworkAttachmentDefinition")
    return {
        name: load(
            one["metadata"]["namespace"],
            name,
            one["spec"]["config"].encode(),
            one["metadata"]["annotations"][RESOURCE],
        )
        for name, one in made.items()
    }


def test_each_rail_has_a_network_and_a_pool():
    made, addresses = networks(), rendered(kind="IPPool")
    assert list(made) == [*(f"rail-{rail}" for rail in range(8)), "rails"]
    assert list(addresses) == [f"rail-{rail}" for rail in range(8)]
    for rail in range(8):
        assert made[f"rail-{rail}"].network.rails == (rail,)
        for name in (f"rail-{rail}", "rails"):
            assert made[name].ipam.pool_for(rail) == f"rail-{rail}"
    assert {one.network.resource for one in made.values()} == {NIC}
    assert not [warning for one in made.values() for warning in one.warnings]


def test_the_rails_of_the_example_reach_each_other_by_their_gateways():
    specs = [one["spec"] for one in rendered(kind="IPPool").values()]
    subnets = [ip_network(spec["ranges"][0]["subnet"]) for spec in specs]
    assert not any(one.overlaps(other) for one in subnets for other in subnets if one != other)
    for spec, subnet in zip(specs, subnets, strict=True):
        (route,) = spec["routes"]
        assert "gw" not in route
        assert spec["ranges"][0]["gateway"] == str(subnet[1])
        assert all(one.subnet_of(ip_network(route["dst"])) for one in subnets)


@pytest.mark.parametrize(("value", "mtu"), [(0, None), (4200, 4200)])
def test_the_mtu_of_the_networks_is_a_value(value, mtu):
    """0 is that of the card."""
    made = networks(assignment(f"networks.mtu={value}"))
    assert {one.network.mtu for one in made.values()} == {mtu}


def test_the_services_of_the_example_name_workers_of_the_job_on_networks_of_the_preset():
    """The labels are those that mpi-operator writes to workers."""
    job = yaml.safe_load((RAILS / "nccl-tests.yaml").read_text())["metadata"]["name"]
    operator = "training.kubeflow.org"
    labels = {f"{operator}/job-name": job, f"{operator}/job-role": "worker"}
    text = (RAILS / "names.yaml").read_text()
    for document in yaml.load_all(text, yaml.CSafeLoader):
        meta = {"namespace": "default", **document["metadata"], "uid": "u"}
        stored = wire.stored(SERVICE, json.dumps({**document, "metadata": meta}).encode())
        asked = names_request(naming_service(stored))
        assert all(one.holds(labels) for one in asked.selector)
        assert not all(one.holds({}) for one in asked.selector)
        assert asked.network in ("", "kube-rdma/rail-0")
        assert asked.network.rpartition("/")[2] in ("", *networks())


def pods_of(document):
    """Annotations and spec of the pods with cards that a document makes."""
    if "metadata" in document and "containers" in document.get("spec", {}):
        limits = document["spec"]["containers"][0].get("resources")
        return [(document["metadata"]["annotations"], document["spec"])] if limits else []
    parts = document.values() if isinstance(document, dict) else ()
    return [one for part in parts if isinstance(part, dict) for one in pods_of(part)]


def asked(name):
    """The names of networks and the shares that the pods of a file ask for."""
    documents = yaml.load_all((RAILS / name).read_text(), yaml.CSafeLoader)
    pods = [pod for one in documents if one["kind"] in POD_MAKERS for pod in pods_of(one)]
    annotations, spec = pods[0]
    assert all(one == annotations for one, _ in pods)
    named = annotations["k8s.v1.cni.cncf.io/networks"].replace(" ", "").split(",")
    (limits,) = [one["resources"]["limits"] for one in spec["containers"]]
    assert all(one["containers"][0]["resources"]["limits"] == limits for _, one in pods)
    return [one.removeprefix("kube-rdma/") for one in named], limits


@pytest.mark.parametrize("name", PODS)
def test_pods_have_a_network_and_a_gpu_for_each_card(name):
    named, limits = asked(name)
    assert len(named) == limits[NIC] == limits["nvidia.com/gpu"]
    assert set(named) <= networks().keys()


@pytest.mark.parametrize("name", PODS)
def test_each_interface_has_an_address_of_its_card_s_rail(name):
    """The kubelet may give any cards in any order; by the agent's own rules."""
    eight = [card(number) for number in range(8)]
    host = replace(node(*eight), rails=tuple((one.id, rail) for rail, one in enumerate(eight)))
    named, limits = asked(name)
    made = networks()
    held = [share(one, resource=NIC) for one in reversed(eight)][: limits[NIC]]
    wishes = [wish(number, made[one].network) for number, one in enumerate(named)]
    rails = dict(host.rails)
    for one, nic in zip(named, pod_nics(wishes, held, host), strict=True):
        assert made[one].ipam.pool_for(rails[nic.card.id]) == f"rail-{rails[nic.card.id]}"


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """What `kube-rdma render` prints with the example's values."""
    path = tmp_path_factory.mktemp("rails") / "rendered.yaml"
    outcome = CliRunner().invoke(render, ["--values", str(VALUES)])
    assert outcome.exit_code == 0, outcome.output
    path.write_text(outcome.stdout)
    return path


def checked(*paths):
    outcome = CliRunner().invoke(check, [*map(str, paths), "-o", "json"])
    return outcome.exit_code, outcome.output


def test_the_example_s_pods_pass_the_check_beside_what_the_preset_prints(manifests):
    code, output = checked(manifests, *(RAILS / name for name in PODS))
    assert code == 0, output
    assert '"warning"' not in output


@pytest.mark.parametrize("name", PODS)
def test_a_share_too_few_would_be_seen(manifests, name, tmp_path):
    text = (RAILS / name).read_text()
    path = tmp_path / name
    path.write_text(
        text.replace("rdma/nic: 8", "rdma/nic: 7").replace("rdma/nic: 4", "rdma/nic: 3")
    )
    code, output = checked(manifests, path)
    assert code == ExitCode.REFUSED
    assert "shares of rdma/nic" in output


@pytest.mark.parametrize("folder", ["nics", "rdma-ib", "efa"])
def test_the_other_examples_pass_too(folder):
    code, output = checked(*sorted((ROOT / "examples" / folder).glob("*.yaml")))
    assert code == 0, output


def test_what_readme_installs_ends_with_a_pod_that_has_a_network(tmp_path):
    """On a cluster that had nothing: the kinds are there, and network, pool and pod fit."""
    readme = (ROOT / "README.md").read_text()
    install, applied = re.search(
        r"(?s)(helm install .*?)\.venv.*?(kubectl apply .*?)\n", readme
    ).groups()
    sets = [word for word in shlex.split(install) if "=" in word]
    words = [part for word in sets for part in ("--set", word)]
    path = tmp_path / "rendered.yaml"
    path.write_text(CliRunner().invoke(render, ["--preset", "default", *words]).stdout)
    files = [ROOT / word for word in shlex.split(applied) if word.endswith(".yaml")]
    code, output = checked(path, *files)
    assert code == 0, output
    assert '"warning"' not in output
    documents = [one for file in (path, *files) for one in yaml.safe_load_all(file.read_text())]
    defined = {one["spec"]["names"]["kind"] for one in documents if "names" in one.get("spec", {})}
    network, pod = documents[-2:]
    assert {one["kind"] for one in documents[-3:-1]} <= defined
    annotation = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    assert annotation == network["metadata"]["name"]
