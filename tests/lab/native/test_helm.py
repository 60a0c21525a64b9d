"""The chart in the hands of the real Helm, 4 and 3: it prints what `kube-rdma render` prints.

Both are built from their Go modules (helm/, helm-3/) as the lab builds Kubernetes. Only the last
tests need a cluster, where Helm 4 waits for a pool; test_install.py has releases of the chart.
"""

import asyncio
import functools
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.install import installation
from kube_rdma.install.rules.notes import NO_DEFINITION, NO_POOL, NO_RAIL_POOL
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS
from kube_rdma.install.rules.release import GROUP, MANAGER
from kube_rdma.ipam.pool_status_reporter import PoolStatusReporter
from kube_rdma.lib.text import reader
from kube_rdma_lab import cluster
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.installation import objects
from tests.kit import helm as kit
from tests.kit.helm import CHART

NAMELESS = ("rdma", str(CHART), "--kube-version", "1.36.0")
RELEASE = (*NAMELESS, "--values", str(Path(__file__).with_name("image.yaml")))
POLICY, HOOK = "helm.sh/resource-policy", "helm.sh/hook"
HOOKS = {"IPPool": "post-install", "NetworkAttachmentDefinition": "post-install,post-upgrade"}

switches = st.booleans()
resources = st.none() | st.fixed_dictionaries(
    {"limits": st.none() | st.fixed_dictionaries({"memory": st.just("1Gi")})}
)
texts = st.dictionaries(st.sampled_from(["a", "b/c"]), st.sampled_from(["true", "off", "1"]))


def some(**fields):
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


values = some(
    distribution=st.sampled_from(list(DISTRIBUTIONS)),
    kubernetesVersion=st.sampled_from(["", "1.24", "1.28", "v1.30.2", None]),
    fullnameOverride=st.sampled_from(["", "rdma-a", None]),
    image=some(
        repository=st.just("registry.example.com:5000/a/b"),
        tag=st.sampled_from(["0.1.0", "1", "_a-" * 30]),
        digest=st.sampled_from(["", None, f"sha256:{'0' * 64}"]),
        pullPolicy=st.sampled_from(["Always", "Never"]),
        pullSecrets=st.lists(st.just({"name": "secret"}), max_size=1),
        architectures=st.just(["amd64"]),
    ),
    namespace=some(name=st.just("elsewhere"), create=switches),
    agent=some(
        enabled=st.none() | switches,
        config=st.sampled_from([None, '{\n  "mode": "hca"\n}\n']),
        nodeSelector=st.none() | texts,
        tolerations=st.none()
        | st.lists(st.just({"operator": "Exists", "effect": "NoSchedule"}), max_size=2),
        affinity=st.none()
        | some(
            nodeAffinity=st.just({"requiredDuringSchedulingIgnoredDuringExecution": {}}),
            podAffinity=st.just({"preferredDuringSchedulingIgnoredDuringExecution": []}),
        ),
        priorityClassName=st.sampled_from(["", "system-cluster-critical", None]),
        resources=resources,
        otherPlugins=switches,
        deviceInfo=switches,
        virtualFunctions=switches,
        shareLimits=switches,
        lldp=switches,
        startupTaint=switches,
        nodeLabels=st.sampled_from(["write", "write-nfd", "leave", "remove"]),
        namespaceIsolation=st.sampled_from(["", "default,kube-system"]),
        seLinuxType=st.sampled_from(["", "spc_t", None]),
        seccompProfile=st.sampled_from(["", "kube-rdma/agent.json", None]),
        podLabels=texts | st.just({"name": "mine", "b": "c"}),
        podAnnotations=texts,
        extraArgs=st.lists(st.sampled_from(["--a", "--b={{ c }}"]), max_size=2),
    ),
    controller=some(
        enabled=switches,
        name=st.sampled_from(["", "operator", None]),
        replicas=st.integers(1, 3),
        resources=resources,
        nodeSelector=st.none() | texts,
        tolerations=st.none() | st.just([{"operator": "Exists"}]),
        affinity=st.none()
        | some(
            nodeAffinity=st.just({"preferredDuringSchedulingIgnoredDuringExecution": []}),
            podAntiAffinity=st.just({"preferredDuringSchedulingIgnoredDuringExecution": []}),
        ),
        priorityClassName=st.sampled_from(["", "system-cluster-critical"]),
        seccompProfile=st.sampled_from(["", "kube-rdma/controller.json"]),
        podLabels=texts | st.just({"name": "mine", "b": "c"}),
        podAnnotations=texts,
        extraArgs=st.lists(st.sampled_from(["--a", "--b={{ c }}"]), max_size=2),
    ),
    labeller=some(enabled=switches),
    claims=some(enabled=switches),
    networks=some(install=switches, mtu=st.sampled_from([0, 4200])),
    roles=st.none() | some(install=switches),
    pools=st.lists(
        st.sampled_from(["a", "b"]).map(
            lambda name: {"name": name, "spec": {"ranges": [{"subnet": "10.0.0.0/24", "rail": 0}]}}
        ),
        max_size=2,
        unique_by=lambda pool: pool["name"],
    ),
    metrics=some(
        port=st.sampled_from([0, 9879]),
        names=st.sampled_from(["vke", "none"]),
        dashboards=switches,
        labels=texts,
        rules=switches,
        podMonitor=switches,
    ),
    crds=some(install=switches, networkAttachmentDefinitions=switches),
    admission=some(
        install=switches,
        pods=some(
            check=switches,
            complete=switches,
            mgpuResources=st.just("a.example/part,b.example/*"),
            vepfsStorageClasses=st.sampled_from(["", "fast"]),
            shmSize=st.just("16Gi"),
        ),
        webhook=st.just({"certificate": "own", "secret": ""}),
    ),
    host=some(
        runtime=st.just("/run/crio"),
        kubelet=st.just("/var/lib/k0s/kubelet"),
        cdi=st.just("/var/cdi/dynamic"),
    ),
)


# What differs by values is the same for presets of one kind: the others take their turn in the slow
# tests, for each call of Helm takes a second.
_OF_EACH_KIND = ("rails", "ack", "vke", "nvidia-operator")
BY_KIND = [
    preset if preset in _OF_EACH_KIND else pytest.param(preset, marks=pytest.mark.slow)
    for preset in PRESETS
]


@pytest.fixture(scope="module")
def helms():
    with kit.built(kit.NEWEST, kit.OLDER) as programs:
        yield programs


@pytest.fixture(params=[kit.NEWEST, kit.OLDER])
def helm(request, helms, tmp_path_factory):
    """A function that calls one of them; it has no cluster."""
    return functools.partial(kit.run, helms[request.param], tmp_path_factory.getbasetemp())


def key(made):
    return made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"]


def as_rendered(node, instance):
    """Objects of Helm's with the labels that render has: it knows no release, and is no Helm."""
    if isinstance(node, list):
        return [as_rendered(one, instance) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: as_rendered(value, instance) for key, value in node.items()}
    if f"{GROUP}instance" in made:
        assert (made[f"{GROUP}instance"], made[f"{GROUP}managed-by"]) == (RELEASE[0], "Helm")
        made |= {f"{GROUP}instance": instance, f"{GROUP}managed-by": MANAGER}
    return made


def templated(helm, preset, given, tmp_path):
    """What Helm prints, without what only Helm has: its notes, and its labels of the release."""
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"preset": preset, **given}))
    outcome = helm("template", *RELEASE, "--values", str(path))
    assert outcome.returncode == 0, outcome.stderr
    listed = []
    for made in filter(None, yaml.safe_load_all(outcome.stdout)):
        notes = made["metadata"].pop("annotations", {})
        kept = made["kind"] == "CustomResourceDefinition"
        assert notes.get(POLICY) == ("keep" if kept else None)
        assert notes.get(HOOK) in (HOOKS.get(made["kind"]), "pre-delete")
        if others := {name: note for name, note in notes.items() if "helm.sh/" not in name}:
            made["metadata"]["annotations"] = others
        if notes.get(HOOK) != "pre-delete":  # the uninstall's own
            listed.append(as_rendered(made, given.get("fullnameOverride") or preset))
    return sorted(listed, key=key)


def rendered(preset, given):
    layer = reader.read(json.dumps(given).encode(), "values")
    return sorted(objects([layer], preset), key=key)


@pytest.mark.parametrize("preset", PRESETS)
def test_helm_prints_what_render_prints(helm, preset, tmp_path):
    assert templated(helm, preset, {}, tmp_path) == rendered(preset, {})
    assert helm("lint", str(CHART), "--strict", "--set", f"preset={preset}").returncode == 0


def test_the_chart_is_well_written_for_whoever_names_no_preset(helm):
    """As pipelines look at charts."""
    outcome = helm("lint", str(CHART), "--strict", "--kube-version", "1.36.0")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def without_owner(made):
    """An object without the annotations that Helm writes when it installs, not when it prints."""
    notes = made["metadata"].get("annotations", {})
    kept = {name: note for name, note in notes.items() if not name.startswith("meta.helm.sh/")}
    rest = {name: value for name, value in made["metadata"].items() if name != "annotations"}
    return {**made, "metadata": rest | ({"annotations": kept} if kept else {})}


@pytest.mark.slow  # as long as the one above, for the same objects
@pytest.mark.parametrize("preset", PRESETS)
def test_helm_prints_what_install_applies(helm, preset):
    outcome = helm("template", *RELEASE, "--set", f"preset={preset}")
    printed = [
        made
        for made in filter(None, yaml.safe_load_all(outcome.stdout))
        if made["metadata"].get("annotations", {}).get(HOOK) != "pre-delete"
    ]
    image = installation.read_values(Path(__file__).with_name("image.yaml"))
    multus = {"metadata": {}}  # its definition, which Helm without a cluster leaves to it too
    made = installation.release([image], preset, "v1.36.0", multus).objects
    assert sorted(printed, key=key) == sorted(map(without_owner, made), key=key)


@pytest.mark.parametrize("preset", PRESETS)
def test_with_an_empty_name_the_namespace_is_helm_s(helm, preset, tmp_path):
    given_values = {"namespace": {"name": "", "create": False}}
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"preset": preset, **given_values}))
    outcome = helm("template", *RELEASE, "--namespace", "mine", "--values", str(path))
    assert outcome.returncode == 0, outcome.stderr
    made = list(filter(None, yaml.safe_load_all(outcome.stdout)))
    assert {one["metadata"].get("namespace", "mine") for one in made} == {"mine"}
    subjects = [subject for one in made for subject in one.get("subjects", ())]
    assert all(subject["namespace"] == "mine" for subject in subjects)


@pytest.mark.parametrize("version", ["1.22", "v1.28.4-gke.100", "1.30"])
@pytest.mark.parametrize("preset", BY_KIND)
def test_helm_leaves_out_what_the_cluster_does_not_have(helm, preset, version, tmp_path):
    """By the cluster's version, or by the value; both policies for pods are asked for."""
    asked = {"admission": {"pods": {"check": True, "complete": True}}}
    given_values = {"kubernetesVersion": version, **asked}
    wanted = rendered(preset, given_values)
    assert templated(helm, preset, given_values, tmp_path) == wanted
    older = functools.partial(_of_version, helm, version)
    assert templated(older, preset, asked, tmp_path) == wanted


def _of_version(helm, version, command, *options):
    """Helm for a cluster of another version."""
    return helm(command, *(version if option == "1.36.0" else option for option in options))


@pytest.mark.parametrize("preset", PRESETS)
def test_whoever_begins_with_a_copy_of_the_values_has_changed_nothing(helm, preset, tmp_path):
    """Of what `helm show values` prints; the preset decides what is null there."""
    values = yaml.safe_load(helm("show", "values", str(CHART)).stdout)
    values |= {"preset": preset, "image": values["image"] | {"repository": IMAGE}}
    assert templated(helm, preset, values, tmp_path) == rendered(preset, {})


@pytest.mark.parametrize("preset", PRESETS)
def test_an_upgrade_with_the_values_of_an_older_chart_has_the_defaults(helm, preset, tmp_path):
    """--reuse-values puts them in the place of this chart's; the first ones were empty."""
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    (older / "values.yaml").write_text("{}")
    printed = helm("template", "rdma", str(older), *RELEASE[2:], "--set", f"preset={preset}")
    usual = helm("template", *RELEASE, "--set", f"preset={preset}")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == usual.stdout


@pytest.fixture
def noted(helm, tmp_path):
    """A function of values, which returns what Helm prints behind an installation.

    `helm template` prints no notes and `helm install` needs a cluster: the chart's are those of a
    template here.
    """
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    written = chart / "templates/NOTES.txt"
    text = f'{{{{- define "notes" }}}}{written.read_text()}{{{{- end }}}}\n'
    (chart / "templates/notes.yaml").write_text(text + 'notes: {{ include "notes" . | toJson }}\n')
    written.unlink()

    def said(given):
        path = tmp_path / "values.json"
        path.write_text(json.dumps(given))
        options = (*RELEASE[2:], "--show-only", "templates/notes.yaml", "--values", str(path))
        outcome = helm("template", "rdma", str(chart), *options)
        assert outcome.returncode == 0, outcome.stderr
        return " ".join(yaml.safe_load(outcome.stdout)["notes"].split())

    return said


POOLS = [{"name": "rdma", "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}]


@pytest.mark.parametrize(
    "given_values",
    [{}, {"pools": POOLS}, {"pools": []}, {"agent": {"config": '{"mode": "hca"}'}}],
    ids=["plain", "pools", "no-pools", "config"],
)
@pytest.mark.parametrize("preset", BY_KIND)
def test_helm_s_notes_tell_what_render_tells(noted, preset, given_values):
    """That nobody gives addresses, of presets vke and rails without pools; what has no effect.

    Helm itself looks for the definition of networks, which `render` cannot.
    """
    layer = reader.read(json.dumps(given_values).encode(), "values")
    every = installation.notes([layer], preset)
    told = [sentence for sentence in every if sentence != NO_DEFINITION]
    said = noted({"preset": preset, **given_values})
    without = not given_values.get("pools")
    assert (NO_POOL in told) is (preset == "vke" and without)
    assert (NO_RAIL_POOL in told) is (preset == "rails" and without)
    assert all(sentence in said for sentence in told)
    assert ("addresses" in said) is (NO_POOL in told or NO_RAIL_POOL in told)
    assert ("has no effect" in said) is any("has no effect" in sentence for sentence in told)


@pytest.mark.parametrize("preset", PRESETS)
def test_without_an_image_both_refuse_with_one_sentence(helm, preset):
    outcome = helm("template", *NAMELESS, "--set", f"preset={preset},image.pullPolicy=Never")
    assert outcome.returncode
    with pytest.raises(Refused, match="no image of kube-rdma is named") as refused:
        installation.objects((), preset)
    assert f": {refused.value}\n" in outcome.stderr


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(list(PRESETS)), values)
@example("vke", {"admission": {"webhook": {"certificate": "own"}}})
def test_helm_and_render_agree_on_any_values(helm, tmp_path, preset, given_values):
    assert templated(helm, preset, given_values, tmp_path) == rendered(preset, given_values)


@pytest.mark.parametrize(
    ("given_values", "words"),
    [
        ("preset=acs", "preset"),
        ("preset=ack,agent.confg=x", "confg"),
        ("preset=ack,agent.enabled=maybe", "want null or boolean"),
        ("preset=vke,agent.nodeLabels=all", "nodeLabels"),
        ("preset=vke,pools[0].name=A", "does not match pattern"),
        ("preset=ack,agent.nodeSelector.a=null", "nodeSelector"),
    ],
)
def test_helm_refuses_what_render_refuses(helm, given_values, words):
    outcome = helm("template", *RELEASE, "--set", given_values)
    assert outcome.returncode
    assert words in outcome.stderr


def test_helm_s_record_does_not_lie_in_a_namespace_that_goes_with_it(helm):
    options = ("--set", "preset=vke", "--namespace", "kube-rdma-vke")
    outcome = helm("template", *RELEASE, *options)
    assert outcome.returncode
    assert "cannot hold Helm's record" in outcome.stderr
    assert helm("template", *RELEASE, *options, "--set", "namespace.create=false").returncode == 0


POOL, PIECES = "waited-for", "192.168.149.0/24"


@pytest.fixture
def pool_chart(tmp_path):
    """A chart of somebody's own with one IPPool, of these subnets."""
    chart = tmp_path / "pools"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: pools\nversion: 0.1.0\n")

    def written(*subnets):
        meta = {"name": POOL}
        spec = {"ranges": [{"subnet": subnet} for subnet in subnets]}
        pool = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "IPPool"}
        whole = json.dumps({**pool, "metadata": meta, "spec": spec})
        (chart / "templates/pool.yaml").write_text(whole)
        return chart

    return written


@pytest.fixture
def waiting_helm(native, tmp_path):
    """A function that has Helm 4 upgrade a chart and wait; no controller of kube-rdma runs."""
    definitions = f"{kit.ROOT}/config/crds"
    cluster.kubectl(native, "apply", "-f", definitions)
    cluster.wait(native, "-f", definitions, "--for=condition=Established")
    with kit.on_lab(native, tmp_path, "kube-system") as call:

        def upgrade(chart, timeout):
            words = ("upgrade", "--install", "pools", str(chart), "--wait", "--timeout", timeout)
            return call(*words)

        yield upgrade
        call("uninstall", "pools", "--ignore-not-found", "--wait")


async def reported(lab, waiting):
    """What Helm says, while the part of the controller works that writes the status of pools."""
    async with connect(lab.kubeconfig) as client:
        events = Events(client, "test")
        task = asyncio.create_task(asyncio.to_thread(waiting))
        while not task.done():
            await PoolStatusReporter(client, events).report(datetime.now(UTC))
            await asyncio.wait((task,), timeout=0.2)
        return await task


def test_helm_4_waits_until_a_controller_has_looked_at_a_pool(native, waiting_helm, pool_chart):
    code, printed = waiting_helm(pool_chart(PIECES), "10s")
    assert code
    assert POOL in printed
    assert "InProgress" in printed
    assert "latest observed generation is -1" in printed
    code, printed = asyncio.run(
        reported(native, functools.partial(waiting_helm, pool_chart(PIECES), "5m"))
    )
    assert not code, printed
    document = cluster.get(native, f"ippool/{POOL}")
    assert document["status"]["observedGeneration"] == document["metadata"]["generation"]


def test_helm_4_gives_up_on_a_pool_that_is_refused(native, waiting_helm, pool_chart):
    """Long before its timeout; no webhook looks here, so the API server has taken it."""
    garbled = pool_chart(PIECES, "192.168.149.0/25")
    code, printed = asyncio.run(reported(native, functools.partial(waiting_helm, garbled, "5m")))
    assert code
    assert "Failed" in printed
    assert "have addresses in common" in printed
