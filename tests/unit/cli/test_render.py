"""`kube-rdma render` from the outside: what it prints, and how it refuses."""

import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli.render import render
from kube_rdma.install.rules import notes
from kube_rdma.install.rules.presets import PRESETS

IMAGE = ("--set", "image.repository=registry.example.com/rdma/kube-rdma")


def run(*arguments):
    return CliRunner().invoke(render, (*IMAGE, *arguments), catch_exceptions=True)


def printed(*arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return list(yaml.load_all(outcome.stdout, yaml.CSafeLoader))


def refusal(*arguments):
    outcome = run(*arguments)
    assert isinstance(outcome.exception, Refused)
    return str(outcome.exception)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_and_an_image_are_all_that_is_needed(preset):
    objects = printed("--preset", preset)
    assert all(each["apiVersion"] and each["metadata"]["name"] for each in objects)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("words", [(), ("--part", "workloads"), ("--set", "image.tag=mine")])
def test_without_an_image_nothing_is_printed(preset, words):
    """Not even where nodes have it already: whoever installs names it."""
    words = ("--preset", preset, "--set", "image.pullPolicy=Never", *words)
    outcome = CliRunner().invoke(render, words)
    assert "no image of kube-rdma is named" in str(outcome.exception)
    assert outcome.stdout == ""
    assert CliRunner().invoke(render, ["--preset", preset, "--part", "namespace"]).exit_code == 0


def test_without_a_preset_it_is_default():
    assert run().stdout == run("--preset", "default").stdout
    assert "kube-rdma-agent" in run().stdout


def test_what_is_left_to_do_stands_first(tmp_path):
    """Preset vke has no addresses; whoever gives some, in any of the layers, is told nothing."""
    path = tmp_path / "values.yaml"
    path.write_text("preset: vke\npools: [{name: rdma, spec: {ranges: [{subnet: 10.0.0.0/24}]}}]\n")
    with_pool = ("--values", str(path))
    comments = [line for line in run("--preset", "vke").stdout.splitlines() if line.startswith("#")]
    assert comments == [f"# {notes.NO_POOL}", f"# {notes.VKE_VERSIONS}"]
    assert "no addresses" not in run(*with_pool).stdout
    assert "no addresses" in run(*with_pool, "--set", "pools=[]").stdout
    assert "no addresses" not in run("--preset", "ack").stdout
    assert run("--preset", "rails").stdout.splitlines()[:2] == [
        f"# {notes.NO_RAIL_POOL}",
        f"# {notes.NO_DEFINITION}",
    ]
    whole = ("--preset", "rails", "--set", "crds.networkAttachmentDefinitions=true")
    assert "which Multus brings" not in run(*whole).stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_left_to_do_is_told_beside_the_pipe(preset):
    """No pipe to kubectl and no file shows the comments; a part is often there to be deleted."""
    whole = run("--preset", preset)
    comments = [line[2:] for line in whole.stdout.splitlines() if line.startswith("# ")]
    assert whole.stderr.splitlines() == comments
    assert run("--preset", preset, "--part", "workloads").stderr == ""


def test_nothing_is_told_where_nothing_is_left_to_do():
    assert run("--preset", "default").stderr == ""


def test_a_value_without_effect_is_named():
    told = run("--preset", "vke", "--set", "agent.config='mode: hca'").stdout
    assert "# agent.config has no effect with preset vke" in told
    assert "# agent.config" not in run("--preset", "ib", "--set", "agent.config='mode: hca'").stdout


def test_everything_goes_into_the_namespace_of_the_option():
    """It wins over the preset and the values; nobody creates it."""
    made = printed("--preset", "ib", "-n", "mine", "--set", "namespace.name=other")
    assert {each["metadata"].get("namespace", "mine") for each in made} == {"mine"}
    assert "Namespace" not in {each["kind"] for each in made}
    assert printed("--preset", "ib", "-n", "mine", "--set", 'namespace.name=""') == made


def test_for_an_older_version_it_is_said_what_is_left_out():
    """On standard error, so that what is applied is the manifests alone."""
    outcome = run("--preset", "ib", "--kubernetes-version", "1.28")
    assert "has no ValidatingAdmissionPolicy" in outcome.stderr
    assert "ValidatingAdmissionPolicy" not in outcome.stdout
    (agent,) = [
        one for one in yaml.load_all(outcome.stdout, yaml.CSafeLoader) if one["kind"] == "DaemonSet"
    ]
    template = agent["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        "container.apparmor.security.beta.kubernetes.io/agent": "unconfined"
    }
    assert "appArmorProfile" not in template["spec"]["containers"][0]["securityContext"]
    by_value = run("--preset", "ib", "--set", "kubernetesVersion=v1.28.4")
    assert by_value.stdout == outcome.stdout
    newest = run("--preset", "ib", "--kubernetes-version", "v1.36.3")
    assert "has no" not in newest.stderr
    assert newest.stdout == run("--preset", "ib").stdout


def test_a_part_is_printed_alone():
    objects = printed("--preset", "vke", "--part", "definitions")
    assert {each["kind"] for each in objects} == {"CustomResourceDefinition"}


def test_a_fault_of_a_file_has_its_line(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text("agent:\n  confg: ''\nimage: {tag: 3}\n")
    text = refusal("--preset", "ack", "--values", str(path))
    assert f"{path}:2:3: agent.confg" in text
    assert f"{path}:3:14: image.tag" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--preset", "acs"), 'Did you mean "ack"'),
        (("--preset", "ack", "--set", "image"), "sets no value"),
        (("--preset", "ack", "--set", "image.=1"), "sets no value"),
        (("--preset", "ack", "--set", "image.tag=1"), "Put it in quotes"),
        (("--preset", "ack", "--set", "host.runtime=run"), "not a folder of the host"),
        (("--set", "agent.seccompProfile=/agent.json"), "not a file below the kubelet's folder"),
        (("--set", "agent.seccompProfile=../agent.json"), "not a file below the kubelet's folder"),
        (("--preset", "ack", "--set", "controller.replicas=0"), "too small"),
        (("--preset", "ack", "--set", 'namespace.name=""'), "Write --namespace NAME"),
        (("--preset", "ack", "--set", "fullnameOverride=Rdma"), "at most 40"),
        (("--preset", "ack", "--set", f"fullnameOverride={'a' * 41}"), "at most 40"),
        (("--preset", "ack", "--set", "nameOverride=a"), "nameOverride"),
        (("--preset", "ack", "--kubernetes-version", "2"), "not a version of Kubernetes"),
        (("--preset", "ack", "--values", "/nowhere.yaml"), "there is no such file"),
        (
            ("--preset", "vke", "--set", 'pools=[{"name": "a", "spec": {"ranges": []}}]'),
            "the list is empty",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused(arguments, words):
    assert words in refusal(*arguments)


def test_the_agent_s_configuration_is_checked(tmp_path):
    """Helm cannot do that; who renders learns it before a node does."""
    path = tmp_path / "values.yaml"
    path.write_text('agent:\n  config: |\n    {"mode": "hcb"}\n')
    assert "agent.config:1:10: mode" in refusal("--preset", "ack", "--values", str(path))


@pytest.mark.parametrize("preset", ["default", "rails", "rdma-ib", "nvidia", "ib"])
def test_agents_that_follow_policies_need_no_configuration(preset):
    """An empty one takes no file, so that the file does not overrule the policies."""
    (workload,) = (
        each
        for each in printed("--preset", preset, "--set", "agent.config=", "--part", "workloads")
        if each["kind"] == "DaemonSet"
    )
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert not [word for word in container["args"] if word.startswith("--config")]
    assert "the document is empty" in refusal("--preset", "ack", "--set", "agent.config=")
