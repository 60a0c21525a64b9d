"""Which containers are kube-rdma's: those of every example, and none of others."""

from pathlib import Path

import pytest
import yaml

from kube_rdma.model.reports import ProgramRole, ProgramTemplate
from kube_rdma.reports.rules.cluster import everybodys, program_role, says

EXAMPLES = Path(__file__).parents[4] / "examples"


def workloads():
    """Each DaemonSet and Deployment of the examples as a template, with its file."""
    for path in sorted(EXAMPLES.glob("*/*.y*ml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and document.get("kind") in {"DaemonSet", "Deployment"}:
                container = document["spec"]["template"]["spec"]["containers"][0]
                words = (*container.get("command", ()), *container.get("args", ()))
                name = document["metadata"]["name"]
                yield path, ProgramTemplate(name, container["image"], words)


@pytest.mark.parametrize(
    ("path", "template"), tuple(workloads()), ids=lambda value: getattr(value, "name", "")
)
def test_every_program_of_the_examples_is_recognized(path, template):
    role = program_role(template)
    if "verbs" in template.image or template.image.startswith("registry.example.com/"):
        assert role is None
    elif path.stem in {"controller", "operator"}:
        assert role is ProgramRole.CONTROLLER
    else:
        assert role is ProgramRole.AGENT


@pytest.mark.parametrize(
    ("template", "role"),
    [
        (ProgramTemplate("rdma", "own/rdma-agent:1", ("agent", "--role=node")), ProgramRole.AGENT),
        (ProgramTemplate("x", "own/y:1", ("/usr/bin/kube-rdma", "agent")), ProgramRole.AGENT),
        (ProgramTemplate("x", "kube-rdma:1", ("kube-rdma", "devices")), None),
        (ProgramTemplate("x", "kube-rdma:1", ("kube-rdma",)), None),
        (ProgramTemplate("logs", "fluent:1", ("agent",)), None),
        (ProgramTemplate("logs", "fluent:1"), None),
    ],
)
def test_it_goes_by_the_words_and_not_by_the_name_alone(template, role):
    assert program_role(template) is role


def test_an_option_is_seen_in_both_spellings():
    assert says(("agent", "--role=node"), "--role", "node")
    assert says(("agent", "--role", "node"), "--role", "node")
    assert not says(("agent", "--role", "plugin"), "--role", "node")
    assert says(("agent", "--networks"), "--networks")


@pytest.mark.parametrize(
    ("words", "namespaces"),
    [
        (("agent", "--networks"), None),
        (("agent", "--namespace-isolation"), ("default", "kube-system")),
        (("agent", "--namespace-isolation", "--networks"), ("default", "kube-system")),
        (("agent", "--namespace-isolation", "shared, team", "--networks"), ("shared", "team")),
        (("agent", "--namespace-isolation=shared"), ("shared",)),
        (("agent", "--namespace-isolation="), ()),
    ],
)
def test_whose_networks_all_pods_may_name_as_the_agent_reads_its_option(words, namespaces):
    assert everybodys(words) == namespaces
