"""One place for the options that say which cluster: whoever asks one has them from there."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli import options
from kube_rdma.cli.agent import _namespaces, agent
from kube_rdma.cli.controller import controller
from kube_rdma.cli.main import cli

OF_PEOPLE = ("kubeconfig", "context", "user", "timeout")
OF_PROGRAMS = ("kubeconfig", "context")


def commands(group=cli, path=()):
    """All commands that do something, by their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def shown(decorator):
    """The options that a decorator gives, by name, as their users see them."""

    @click.command()
    @decorator
    def command(**_):
        """Nothing."""

    return {one.name: described(one) for one in command.params}


def described(option):
    return sorted(option.opts), option.help, option.metavar


ASKING = {words: one for words, one in commands() if any(p.name == "context" for p in one.params)}


def test_programs_and_people_are_among_them():
    names = {" ".join(words) for words in ASKING}
    assert names >= {"agent", "controller", "network retire", "network retire-drivers", "status"}


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_whoever_takes_a_kubeconfig_takes_the_options_beside_it(words):
    """And in the same words: a second --kubeconfig would be another one."""
    own = {one.name: described(one) for one in dict(commands())[words].params}
    if "kubeconfig" not in own:
        return
    people = shown(options.cluster_options())
    assert {name: own.get(name) for name in OF_PROGRAMS} == {
        name: people[name] for name in OF_PROGRAMS
    }
    if "user" in own:
        assert {name: own[name] for name in OF_PEOPLE} == people


@pytest.mark.parametrize(
    ("words", "environment", "namespace"),
    [
        ((), {}, "usual"),
        ((), {"POD_NAMESPACE": "of-pod"}, "of-pod"),
        (("-n", "asked"), {"POD_NAMESPACE": "of-pod"}, "asked"),
    ],
)
def test_the_namespace_of_own_objects_is_no_contexts(words, environment, namespace):
    taken = []

    @click.command()
    @options.program_options(namespace="usual")
    def command(cluster):
        """Nothing."""
        taken.append(cluster)

    done = CliRunner().invoke(command, [*words, "--context", "c"], env=environment)
    assert done.exit_code == 0
    assert taken == [options.ClusterOptions(context="c", namespace=namespace)]


def test_who_ends_agents_names_their_namespace():
    """Of a namespace that was guessed it would be said that they have ended."""
    done = CliRunner().invoke(cli, ["network", "retire", "agents"])
    assert done.exit_code == 2
    assert "--namespace" in done.output


def test_a_program_takes_the_context_that_is_named(tmp_path):
    """An unknown one is refused before anything is asked."""
    path = tmp_path / "config"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": []}))
    words = ["network", "retire", "a", "-n", "b", "--kubeconfig", str(path), "--context", "nowhere"]
    with pytest.raises(Refused, match="nowhere"):
        CliRunner().invoke(cli, words, catch_exceptions=False)


@pytest.mark.parametrize(
    ("target", "pod"),
    [
        ("node", None),
        ("pod/worker-0", ("usual", "worker-0")),
        ("pods/train/worker-0", ("train", "worker-0")),
    ],
)
def test_a_pod_is_named_as_kubectl_has_it(target, pod):
    """The namespace may be left out; nobody asks for the usual one where it is not."""
    assert options.named_pod(target, lambda: "usual") == pod


@pytest.mark.parametrize("target", ["", "cluster", "pod", "pod/", "pod/train/", "deploy/x"])
def test_what_names_no_pod_is_a_usage_error(target):
    """With the forms that a target has."""
    with pytest.raises(click.UsageError, match="node, pod/NAME or pod/NAMESPACE/NAME"):
        options.named_pod(target, lambda: "usual")


# Options of agent and controller for metrics and for namespaces, as people write them.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, None),
        (":9879", (None, 9879)),
        ("10.0.0.5:1", ("10.0.0.5", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("node-1:9879", ("node-1", 9879)),
        ("fd00::1:9879", ("fd00::1", 9879)),  # as $(HOST_IP):9879 becomes
    ],
)
def test_an_address(text, address):
    assert options.listen_address(text) == address


@pytest.mark.parametrize("text", ["", "9879", ":", ":0", ":65536", "a:b", "a:b:80", ":٣"])
def test_what_is_no_address_is_refused_with_the_option(text):
    with pytest.raises(click.BadParameter, match="is not an address: write HOST:PORT"):
        options.listen_address(text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--metrics-address", "nine"], "--metrics-address: 'nine' is not an address"),
        (["--metrics-names", "mine"], "'mine' is not one of 'node-exporter', 'vke', 'none'"),
        (
            ["--role", "node", "--node-name", "a", "--metrics-address", ":9879"],
            "role node alone labels its node: give --role plugin too",
        ),
        (["--claims"], "--claims is what role node does: give --role node too"),
        (
            ["--role", "node", "--node-name", "a", "--claims"],
            "role node alone labels its node: give --role plugin too",
        ),
        (["--namespace-isolation"], "is about networks: give --networks too"),
        (
            [
                "--role=node",
                "--role=plugin",
                "--node-name=a",
                "--networks",
                "--namespace-isolation=B_",
            ],
            "--namespace-isolation: 'B_' is not a namespace: write them with commas",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(words, sentence):
    result = CliRunner().invoke(agent, words)
    assert result.exit_code == 2
    assert sentence in result.output


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        (None, None),
        ("", ()),
        ("default,kube-system", ("default", "kube-system")),
        ("a, b", ("a", "b")),
    ],
)
def test_namespaces_whose_networks_are_everybodys(text, namespaces):
    """An empty list leaves a pod those of its own namespace."""
    assert _namespaces(text) == namespaces


def test_the_controller_has_the_same_address():
    result = CliRunner().invoke(controller, ["--metrics-address", "nine"])
    assert result.exit_code == 2
    assert "'nine' is not an address: write HOST:PORT" in " ".join(result.output.split())
