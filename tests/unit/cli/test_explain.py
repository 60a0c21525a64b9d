"""`kube-rdma explain` from the outside: pods of a cluster in memory, and files of pods."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.attach.executor import AttachmentJournal
from kube_rdma.cli.explain import explain
from kube_rdma.explain.cluster import reported_specs
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey, Plan, Sandbox
from kube_rdma.model.attach.steps import SetLink
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import PolicyAtNode, PolicyOutcome
from kube_rdma.names.cluster import ENDPOINT_SLICE
from kube_rdma.pools.kind import NODE_POLICY
from tests.kit import explained as kit
from tests.kit.names import endpoint_slice

OWN = "kube-rdma.io/network-status"


def run(server, *words, state="/nonexistent", node="laptop"):
    """What the command prints; an error of kube-rdma is raised."""
    return CliRunner().invoke(
        explain,
        [*map(str, words), "--state-dir", str(state)],
        obj=kit.opener(server),
        env={"NODE_NAME": node},
        catch_exceptions=False,
    )


def written(folder, document, name="pod.yaml"):
    """A file of a pod."""
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_a_pod_that_runs_is_told_from_asking_to_seeing():
    server = kit.server()
    kit.put_pod(server, kit.attached())
    result = run(server, "pod/worker-0")
    assert result.exit_code == 0
    titles = [line for line in result.stdout.splitlines() if line[:2].isupper()]
    assert titles == [
        "ASKED",
        "GRANTED",
        "STEPS, as the agent's rules plan them",
        "WHAT PROGRAMS SEE",
        "NOTES",
    ]
    assert "make net1, macvlan (bridge) on ens1f0" in result.stdout
    assert "GID ::ffff:10.20.0.5, index 5" in result.stdout
    assert "NCCL_IB_GID_INDEX=5" in result.stdout
    document = json.loads(run(server, "pod/default/worker-0", "--json").stdout)
    assert (document["refused"], document["stepsFrom"]) == (False, "rules")
    assert [one["card"] for one in document["granted"]] == ["0000:81:00.0"]
    assert document["seen"]["interfaces"][0]["gidIndex"] == 5
    assert document["interfaces"][0]["steps"][0] == "make net1, macvlan (bridge) on ens1f0"


def test_names_of_a_pods_addresses_are_shown_as_dns_has_them():
    server = kit.server(kinds=(*kit.KINDS, ENDPOINT_SLICE))
    kit.put_pod(server, kit.attached())
    server.put(ENDPOINT_SLICE, endpoint_slice(("worker-0", True), ("worker-1", True)))
    line = "  worker-0.ring.default.svc is 10.20.0.5\n"
    assert line in run(server, "pod/worker-0").stdout
    server.put(ENDPOINT_SLICE, endpoint_slice(("worker-0", False)))
    assert f"{line[:-1]}, not ready, so DNS leaves it out\n" in run(server, "pod/worker-0").stdout
    (name,) = json.loads(run(server, "pod/worker-0", "--json").stdout)["seen"]["names"]
    assert name == {"dns": "worker-0.ring.default.svc", "address": "10.20.0.5", "ready": False}


def test_keys_are_those_of_the_page(tmp_path):
    """docs/status.md lists them for programs, which go on reading what they read once."""
    pod = kit.pod("new", node="", count=2, **{kit.NETWORKS: "rail-net,rail-nett"})
    path = written(tmp_path, pod)
    document = json.loads(run(kit.server(), "-f", path, "--node", kit.NODE_NAME, "--json").stdout)
    assert document.keys() >= {
        *("pod", "node", "phase", "why", "refused", "asked", "granted", "stepsFrom"),
        *("interfaces", "seen", "obstacles", "notes"),
    }
    seen = {"interfaces", "deviceNodes", "settings", "rdmaCm", "pinnedBytes", "names", "from"}
    assert document["seen"].keys() == seen
    told = {"stage", "where", "problem", "remedy", "fatal"}
    assert document["obstacles"]
    assert all(obstacle.keys() >= told for obstacle in document["obstacles"])


def test_what_the_agent_would_refuse_is_told_with_its_remedy(tmp_path):
    pod = kit.pod("new", node="", count=2, **{kit.NETWORKS: "rail-net,rail-nett"})
    result = run(kit.server(), "-f", written(tmp_path, pod), "--node", kit.NODE_NAME)
    assert result.exit_code == 1
    assert "✗ The agent, at networks[1]" in result.stdout
    assert "Did you mean default/rail-net?" in result.stdout
    assert result.stdout.endswith("The agent would refuse it.\n")
    lines = result.stdout.splitlines()
    assert lines[1].startswith("✗ The agent, at"), "the first lines name the cause"
    assert "ASKED" in lines


def test_what_the_node_does_not_have_is_the_schedulers_word(tmp_path):
    document = kit.pod("new", node="", count=3)
    document["spec"]["nodeSelector"] = {"zone": "b"}
    result = run(kit.server(), "-f", written(tmp_path, document), "--node", kit.NODE_NAME, "--json")
    told = json.loads(result.stdout)["obstacles"]
    problems = [one["problem"] for one in told if one["stage"] == "scheduler"]
    assert problems == [
        "the pod wants zone=b, and the node has zone=a",
        "the pod asks for 3, and the node offers 2",
    ]
    assert result.exit_code == 1


def blocks(count, shares):
    """A pod that asks by the other annotation, for networks of no configuration."""
    text = json.dumps([{"cniConf": {"name": "rdma"}}] * count)
    pod = kit.pod("new", node="", **{"k8s.volcengine.com/pod-networks": text})
    limits = {"vke.volcengine.com/rdma": str(shares)}
    pod["spec"]["containers"][0]["resources"]["limits"] = limits
    return pod


def test_the_other_annotation_is_explained_too(tmp_path):
    """Its built-in network, of cards that the node has none of; and one block too many."""
    server = kit.server(resource="vke.volcengine.com/rdma")
    kit.add_pool(server, "rdma")
    path = written(tmp_path, blocks(2, 2))
    result = run(server, "-f", path, "--node", kit.NODE_NAME, "--json")
    document = json.loads(result.stdout)
    assert [one["network"] for one in document["interfaces"]] == ["default/rdma"] * 2
    path = written(tmp_path, blocks(1, 2))
    document = json.loads(run(server, "-f", path, "--node", kit.NODE_NAME, "--json").stdout)
    stages = {one["stage"] for one in document["obstacles"] if one["fatal"]}
    assert stages == {"admission", "agent"}


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (kit.NETWORKS, "other/storage"),
        ("k8s.volcengine.com/pod-networks", '[{"cniConf": {"name": "storage"}}]'),
    ],
)
def test_networks_of_other_tenants_are_refused_as_by_the_agents_of_the_cluster(
    annotation, text, tmp_path
):
    server = kit.server()
    for space in ("other", "kube-system"):
        document = kit.definition("storage", type="kube-rdma")
        document["metadata"]["namespace"] = space
        server.put(DEFINITION, document)
    path = written(tmp_path, kit.pod("new", node="", **{annotation: text}))
    words = ("-f", path, "--node", kit.NODE_NAME)
    assert "is for pods of" not in run(server, *words).stdout
    container = {"image": "kube-rdma:1", "args": ["agent", "--namespace-isolation=shared"]}
    spec = {"template": {"spec": {"containers": [container]}}}
    server.put(DAEMON_SETS, {"metadata": {"name": "agent", "namespace": "kr"}, "spec": spec})
    told = run(server, *words)
    assert told.exit_code == 1
    whose = "other" if annotation == kit.NETWORKS else "kube-system"
    assert f"the network {whose}/storage is for pods of {whose}" in told.stdout


def test_without_a_report_the_scheduler_has_its_say(tmp_path):
    """And no Step is made up: where an agent speaks with nobody, its cards are not known."""
    server = kit.server()
    server.forbidden.add(("get", "nodereports"))
    path = written(tmp_path, kit.pod("new", node="", count=3, **{kit.NETWORKS: "rail-net"}))
    document = json.loads(run(server, "-f", path, "--node", kit.NODE_NAME, "--json").stdout)
    assert document["interfaces"] == []
    assert {one["stage"] for one in document["obstacles"] if one["fatal"]} == {"scheduler"}
    assert any("the NodeReport" in note for note in document["notes"])


def test_a_job_is_explained_by_its_template(tmp_path):
    template = {key: kit.pod(node="")[key] for key in ("metadata", "spec")}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    path = written(tmp_path, {**job, "spec": {"template": template}})
    assert run(kit.server(), "-f", path, "--node", kit.NODE_NAME).exit_code == 0


@pytest.mark.parametrize(
    ("documents", "words", "problem"),
    [
        ([], (), "it describes no pod"),
        ([{"apiVersion": "v1", "kind": "ConfigMap"}], (), "it describes no pod"),
        ([{"hello": "world"}], (), "it describes no pod"),
        ([kit.pod("a"), kit.pod("b")], ("pod/c",), "no pod of pod/c is in it"),
    ],
)
def test_a_file_without_the_pod_is_refused_in_a_sentence(documents, words, problem, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    with pytest.raises(Refused, match=problem) as error:
        run(kit.server(), "-f", path, *words, "--node", kit.NODE_NAME)
    assert error.value.where == str(path)
    assert error.value.remedy
    assert not words or "Pod/a, Pod/b" in error.value.remedy


def mpi_job(name="ring"):
    """A job of two kinds of pods; the launcher asks for more than there is."""
    parts = {word: kit.pod(node="", count=n) for word, n in (("Launcher", 9), ("Worker", 1))}
    specs = {word: {"template": {"spec": one["spec"]}} for word, one in parts.items()}
    metadata = {"name": name, "annotations": {kit.NETWORKS: "rail-net"}}
    spec = {"mpiReplicaSpecs": specs}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata} | {
        "spec": spec
    }


def test_each_pod_of_a_file_has_its_verdict_and_one_is_chosen_by_name(tmp_path):
    path = tmp_path / "all.yaml"
    documents = (kit.pod("alone", node=""), mpi_job(), {"apiVersion": "v1", "kind": "ConfigMap"})
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    words = ("-f", path, "--node", kit.NODE_NAME)
    result = run(kit.server(), *words)
    heads = [line for line in result.stdout.splitlines() if line[:1] not in ("", " ", "✗", "!")]
    assert heads[:3] == [
        "Pod/alone: Nothing stands against it in what was seen.",
        "MPIJob/ring:Launcher: The scheduler would refuse it.",
        "MPIJob/ring:Worker: Nothing stands against it in what was seen.",
    ]
    assert heads[3] == f"All of one: kube-rdma explain -f {path} Pod/alone"
    assert "the annotation stands at the MPIJob" in result.stdout, "and no pod gets it"
    assert result.exit_code == 1
    pods = json.loads(run(kit.server(), *words, "--json").stdout)["pods"]
    assert [one["object"] for one in pods] == [line.partition(": ")[0] for line in heads[:3]]
    one = run(kit.server(), *words, "mpijob/ring:worker")
    assert one.exit_code == 0
    assert "ASKED" in one.stdout


def test_findings_of_a_file_have_line_and_column(tmp_path):
    path = written(tmp_path, mpi_job())
    result = run(kit.server(), "-f", path, "mpijob/ring:worker", "--node", kit.NODE_NAME)
    assert f"! Admission, at {path}:1:" in result.stdout


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Refused, match="there is no such file"):
        run(kit.server(), "-f", tmp_path / "none.yaml")


def test_unknown_pods_nodes_and_pods_of_other_nodes_are_refused(tmp_path):
    server = kit.server()
    kit.put_pod(server, kit.attached())
    kit.put_pod(server, kit.pod("waits", "Pending", node=""))
    path = written(tmp_path, kit.pod(node=""))
    for words, problem in (
        (("pod/none",), "there is no pod none in namespace default"),
        (("pod/worker-0", "--node", "node-2"), "is on node node-1, not on node-2"),
        (("pod/waits", "--node", "node-1"), "is on no node yet, not on node-1"),
        (("-f", path, "--node", "node-9"), "there is no node node-9"),
    ):
        with pytest.raises(Refused, match=problem):
            run(server, *words)


@pytest.mark.parametrize("words", [(), ("node",), ("pod/",), ("node/a",), ("pod/a/",)])
def test_what_names_no_pod_is_a_usage_error(words):
    assert run(kit.server(), *words).exit_code == 2


def attachment(uid):
    """What the agent has recorded of the pod."""
    sandbox = Sandbox(ContainerId("c1"), PodName("default", "worker-0"), uid, "/run/netns/1", 7)
    plan = Plan(InterfaceName("net1"), "default/rail-net", None, (SetLink(InterfaceName("net1")),))
    return Attachment(sandbox, (plan,))


def uid_of(server):
    """The only pod's."""
    (document,) = server.documents("pods")
    return document["metadata"]["uid"]


def recorded(folder, uid, *, complete=True):
    """The agent's folder with this record, as the agent itself writes it."""
    journals = [folder / name for name in ("attachments", "delegated")]
    for path in journals:
        path.mkdir(parents=True)
    with ExitStack() as stack:
        opened = [stack.enter_context(Journal(Folder(one), ATTACHMENTS)) for one in journals]
        journal = AttachmentJournal(*opened)
        key = AttachmentKey(ContainerId("c1"))
        journal.begin(key, attachment(uid))
        if complete:
            asyncio.run(journal.complete(key))
    return folder


def test_on_its_node_the_record_of_the_agent_counts(tmp_path):
    server = kit.server()
    kit.put_pod(server, kit.attached())
    result = run(
        server, "pod/worker-0", state=recorded(tmp_path, uid_of(server)), node=kit.NODE_NAME
    )
    assert "STEPS, as the agent has recorded them" in result.stdout
    assert "net1 · default/rail-net · all done\n     1  bring net1 up\n" in result.stdout
    elsewhere = run(server, "pod/worker-0", state=tmp_path)
    assert "as the agent's rules plan them" in elsewhere.stdout


def test_a_record_of_an_earlier_pod_of_the_name_is_none_of_this_one(tmp_path):
    server = kit.server()
    kit.put_pod(server, kit.attached())
    result = run(server, "pod/worker-0", state=recorded(tmp_path, "other"), node=kit.NODE_NAME)
    assert "as the agent's rules plan them" in result.stdout


def test_without_an_api_server_the_records_tell_what_was_done(tmp_path):
    def silent(_):
        raise Unavailable("nobody answers")

    recorded(tmp_path, "any")
    words = ["pod/worker-0", "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(explain, words, obj=silent, env={"NODE_NAME": kit.NODE_NAME})
    assert result.exit_code == 0
    assert "bring net1 up" in result.stdout
    assert "nobody answers" in result.stdout
    gone = CliRunner().invoke(explain, ["pod/other", *words[1:]], obj=silent)
    assert isinstance(gone.exception, Unavailable)


def test_records_stand_in_where_pods_may_not_be_read(tmp_path):
    """And not for a pod that is somewhere else, or nowhere."""
    server = kit.server()
    kit.put_pod(server, kit.attached())
    state = recorded(tmp_path, uid_of(server))
    with pytest.raises(Refused, match="not on node-2"):
        run(server, "pod/worker-0", "--node", "node-2", state=state, node=kit.NODE_NAME)
    server.forbidden.add(("get", "pods"))
    result = run(server, "pod/worker-0", state=state, node=kit.NODE_NAME)
    assert "bring net1 up" in result.stdout
    server.forbidden.clear()
    kit.remove_pod(server, "worker-0")
    with pytest.raises(Refused, match="there is no pod worker-0"):
        run(server, "pod/worker-0", state=state, node=kit.NODE_NAME)


def test_a_right_that_is_missing_is_named_and_refuses_nobody(tmp_path):
    server = kit.server()
    kinds = ("nodereports", "network-attachment-definitions", "nodes")
    server.forbidden = {("list", "ippools"), *(("get", kind) for kind in kinds)}
    kit.put_pod(server, kit.attached())
    result = run(server, "pod/worker-0")
    assert result.exit_code == 0
    for part in ("the NodeReport", "the networks", "pools of addresses", "the Node object"):
        assert f"Not seen: {part}, for" in result.stdout
    assert "NCCL_IB_GID_INDEX=5" in result.stdout


def test_a_pod_that_waits_is_told_why():
    server = kit.server()
    waits = kit.pod("waits", "Pending", count=1, **{kit.NETWORKS: "rail-nett"})
    kit.put_pod(server, waits)
    result = run(server, "pod/waits")
    assert result.exit_code == 1
    assert "The agent refuses it." in result.stdout


def test_a_pod_that_was_ended_is_told_why():
    """By the kubelet, for which no container was ever made."""
    server = kit.server()
    ended = kit.pod("ended", "Failed")
    ended["status"] |= {"reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    kit.put_pod(server, ended)
    result = run(server, "pod/ended")
    assert "UnexpectedAdmissionError: Allocate failed" in result.stdout
    assert "Nothing of kube-rdma is in its way" not in result.stdout
    assert result.stdout.splitlines()[1] == "✗ The kubelet"
    assert result.exit_code == 1


def test_what_stands_in_a_status_by_others_hands_is_passed_over():
    server = kit.server()
    for number, text in enumerate(("{", "[1]", '[{"name": 1}]', '[{"name": "a", "interface": 2}]')):
        kit.put_pod(server, kit.pod(f"odd-{number}", **{OWN: text}))
        assert run(server, f"pod/odd-{number}").exit_code == 0


@pytest.mark.parametrize(
    "barred", ["*/network-attachment-definitions", "network-attachment-definitions"]
)
def test_who_may_not_list_the_clusters_networks_is_helped_in_the_namespace(barred, tmp_path):
    """And who may list none there is told that it is missing, without a guess."""
    server = kit.server()
    pod = kit.pod("new", node="", **{kit.NETWORKS: "rail-nett"})
    server.forbidden = {("list", barred)}
    result = run(server, "-f", written(tmp_path, pod), "--node", kit.NODE_NAME)
    assert result.exit_code == 1
    assert "there is no network default/rail-nett" in result.stdout
    assert ("Did you mean default/rail-net?" in result.stdout) is barred.startswith("*")


def test_a_pod_without_a_namespace_is_one_of_the_context():
    server = kit.server()
    document = kit.attached()
    document["metadata"]["namespace"] = "train"
    kit.put_pod(server, document)

    @asynccontextmanager
    async def of_context(_):
        yield Cluster(server.line(), namespace="train")

    words = ["pod/worker-0", "--state-dir", "/nonexistent"]
    result = CliRunner().invoke(explain, words, obj=of_context, catch_exceptions=False)
    assert "train/worker-0" in result.stdout


def test_what_is_only_begun_is_not_called_done(tmp_path):
    server = kit.server()
    kit.put_pod(server, kit.attached())
    state = recorded(tmp_path, uid_of(server), complete=False)
    result = run(server, "pod/worker-0", state=state, node=kit.NODE_NAME)
    assert "net1 · default/rail-net · begun, not answered yet" in result.stdout


# `kube-rdma explain` says what only a cluster knows of a pod: its policies, pools and tenants.

VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
SELECTED = {"pool": "a"}


def policy(server, mode):
    """Nodes of a label give their cards in a mode."""
    pools = [{"resource": kit.HCA, "mode": mode}]
    spec = {"nodeSelector": SELECTED, "pools": pools}
    server.put(NODE_POLICY, {"metadata": {"name": "a"}, "spec": spec})


def agents(server, *words):
    """A DaemonSet of agents with these options."""
    container = {"name": "agent", "image": "kube-rdma", "command": ["kube-rdma", "agent", *words]}
    spec = {"selector": {}, "template": {"spec": {"containers": [container]}}}
    server.put(DAEMON_SETS, {"metadata": {"name": "a", "namespace": "kube-rdma"}, "spec": spec})


def problems(server, folder, document, *words):
    """What stands in the way of a pod that does not exist yet, and of the same that waits."""
    kit.put_pod(server, document)
    name = document["metadata"]["name"]
    told = []
    for asked in (("-f", written(folder, document), *words), (f"pod/{name}",)):
        printed = json.loads(run(server, *asked, "--json").stdout)
        told.append([one["problem"] for one in printed["obstacles"]])
    return told


def waiting(**fields):
    """A pod that waits for a node."""
    made = kit.pod("new", "Pending", node="", **fields)
    made["metadata"]["namespace"] = "default"
    return made


@pytest.mark.parametrize(
    ("mode", "fields", "words"),
    [
        ("exclusive", {"volumes": [VEPFS]}, "vePFS, which cannot be used in mode exclusive"),
        ("shared-multi", {}, "mode shared-multi is not recommended for pods with GPUs"),
    ],
)
def test_a_mode_that_a_node_policy_sets_counts(tmp_path, mode, fields, words):
    """For the nodes that the pod selects; of another node's mode nothing is said."""
    server = kit.server()
    policy(server, mode)
    document = waiting()
    document["spec"] |= fields
    document["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    for told in problems(server, tmp_path, document):
        assert not [one for one in told if words in one]
    document["spec"]["nodeSelector"] = SELECTED
    for told in problems(server, tmp_path, document):
        assert [one for one in told if words in one]


def test_a_node_policy_with_faults_hides_no_other(tmp_path):
    """Neither of all policies, nor of those that a node's report names."""
    server = kit.server()
    policy(server, "exclusive")
    server.put(NODE_POLICY, {"metadata": {"name": "Z"}, "spec": {"pools": 7}})
    document = waiting()
    document["spec"] |= {"volumes": [VEPFS], "nodeSelector": SELECTED}
    printed = json.loads(run(server, "-f", written(tmp_path, document), "--json").stdout)
    told = [one["problem"] for one in printed["obstacles"]]
    assert [one for one in told if "vePFS, which cannot be used in mode exclusive" in one]
    assert [n for n in printed["notes"] if n.startswith("Not seen: the pools of NodePolicy Z, for")]
    named = tuple(PolicyAtNode(name, 1, PolicyOutcome.APPLIED) for name in "Za")
    report, kept = replace(kit.reported(), policies=named), []
    read = reported_specs(Cluster(server.line()), report, lambda name, _: kept.append(name))
    assert [spec.mode for spec in asyncio.run(read)] == ["exclusive"]
    assert kept == ["the pools of NodePolicy Z"]


def test_a_sidecar_of_another_pod_holds_its_shares(tmp_path):
    server = kit.server(shares=2)
    other = kit.pod("other", count=1)
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {kit.HCA: "1"}}}
    words = ("-f", written(tmp_path, kit.pod("new", node="")), "--node", kit.NODE_NAME, "--json")
    told = []
    for inits in ([], [sidecar]):
        other["spec"]["initContainers"] = inits
        kit.put_pod(server, other)
        found = json.loads(run(server, *words).stdout)["obstacles"]
        told.append([one["stage"] for one in found if one["fatal"]])
    assert told == [[], ["scheduler"]]


def test_who_writes_a_missing_report_is_named(tmp_path):
    server = kit.server()
    server.remove(NODE_REPORT, kit.NODE_NAME)
    path = written(tmp_path, waiting())
    told = run(server, "-f", path, "--node", kit.NODE_NAME).stdout
    assert "there is no NodeReport node-1, which an agent with role node writes" in " ".join(
        told.split()
    )


def test_a_pool_that_is_missing_is_named(tmp_path):
    server = kit.server()
    conf = {"ipam": {"type": "kube-rdma-ipam", "pool": "gone"}}
    server.put(DEFINITION, kit.definition("lost", type="kube-rdma", **conf))
    for told in problems(server, tmp_path, waiting(**{kit.NETWORKS: "lost"})):
        assert [one for one in told if "names IPPool gone, which is not here" in one]
    for told in problems(server, tmp_path, waiting(**{kit.NETWORKS: "rail-net"})):
        assert not [one for one in told if "IPPool" in one]


# `kube-rdma explain` of a pod whose cards come by claims: from the claim to the interface.

CLAIM = "worker-0-nic-x7"


def server(*results, parameters=None):
    """A cluster whose claim of the pod has these devices."""
    made = kit.server(mode="shared-multi", shares=8)
    made.add(RESOURCE_CLAIM)
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
    config = [
        {
            "source": "FromClaim",
            "opaque": {"driver": DRIVER, "parameters": {**document, **(parameters or {})}},
        }
    ]
    devices = {"results": list(results), "config": config if parameters else []}
    status = {"allocation": {"devices": devices}} if results else {}
    metadata = {"name": CLAIM, "namespace": "default"}
    made.put(RESOURCE_CLAIM, {"metadata": metadata, "spec": {}, "status": status})
    pod = kit.pod(phase="Pending")
    pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "nic"}]}
    pod["status"]["resourceClaimStatuses"] = [{"name": "nic", "resourceClaimName": CLAIM}]
    kit.put_pod(made, pod)
    return made


def device(name, driver=DRIVER, request="nic", slots="1"):
    return {
        "request": request,
        "driver": driver,
        "pool": "node-1",
        "device": name,
        "shareID": "5b0e8b0a-1111-2222-3333-444455556666",
        "consumedCapacity": {"slots": slots},
    }


def document(made):
    return json.loads(run(made, "pod/worker-0", "--json").stdout)


def test_a_claims_device_is_followed_to_the_interface_and_its_steps():
    wanted = {"network": "rail-net", "interface": "rdma0"}
    gpu = device("gpu-0", "gpu.example.com", "gpu")
    made = server(device("0000-81-00-0"), gpu, parameters=wanted)
    whole = document(made)
    (claim,) = whole["asked"]["claims"]
    assert (claim["name"], claim["claim"]) == ("nic", CLAIM)
    assert claim["means"] == (
        "gpu: gpu-0 of gpu.example.com; "
        f"nic: 0000-81-00-0 of {DRIVER}, mlx5_1 (0000:81:00.0), interface rdma0 of the pod"
    )
    (granted,) = whole["granted"]
    assert (granted["card"], granted["container"]) == ("0000:81:00.0", "main")
    assert granted["sure"] is True
    (plan,) = whole["interfaces"]
    assert (plan["interface"], plan["network"]) == ("rdma0", "default/rail-net")
    assert any("ens1f0" in step for step in plan["steps"])
    assert whole["obstacles"] == []
    assert "claim nic" in run(made, "pod/worker-0").stdout


CARD = device("0000-81-00-0", slots="3")


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([device("0000-ff-00-0")], "device 0000-ff-00-0 has vanished from node node-1"),
        ([CARD, CARD | {"request": "b"}], "has 4 slots, of which its request nic hold 3"),
    ],
)
def test_what_the_agent_will_refuse_is_in_its_own_words(results, says):
    whole = document(server(*results))
    (obstacle,) = whole["obstacles"]
    assert obstacle["stage"] == "agent"
    assert says in json.dumps(obstacle)
    assert whole["refused"]


def test_what_a_claim_says_without_anybodys_leave_is_in_the_way():
    made = server(
        device("0000-81-00-0"), parameters={"type": "macvlan", "addresses": ["10.20.0.5/24"]}
    )
    told = run(made, "pod/worker-0")
    assert told.exit_code == 1
    assert "a claim can say addresses only beside network or pool" in " ".join(told.stdout.split())


def test_a_network_of_other_tenants_is_in_the_way_of_a_claim_too():
    made = server(device("0000-81-00-0"), parameters={"network": "other/storage"})
    container = {"image": "kube-rdma:1", "args": ["agent", "--namespace-isolation=shared"]}
    spec = {"template": {"spec": {"containers": [container]}}}
    made.put(DAEMON_SETS, {"metadata": {"name": "agent", "namespace": "kr"}, "spec": spec})
    told = " ".join(run(made, "pod/worker-0").stdout.split())
    assert "the network other/storage is for pods of other" in told


def test_a_claim_without_devices_is_the_schedulers_to_allocate():
    whole = document(server())
    (obstacle,) = whole["obstacles"]
    assert (obstacle["stage"], obstacle["fatal"]) == ("scheduler", False)
    assert f"kube-rdma explain claim/default/{CLAIM} says why" in json.dumps(obstacle)
    assert whole["asked"]["claims"][0]["means"] == "not allocated"


def test_a_claim_that_is_not_there_is_told():
    made = server()
    made.remove(RESOURCE_CLAIM, CLAIM, "default")
    assert "there is no such ResourceClaim" in json.dumps(document(made)["obstacles"])
