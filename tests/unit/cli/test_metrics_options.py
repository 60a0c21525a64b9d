"""Options of agent and controller for metrics and for namespaces, as people write them."""

import click
import pytest
from click.testing import CliRunner

from kube_rdma.cli.agent import _namespaces, agent
from kube_rdma.cli.controller import controller
from kube_rdma.cli.options import listen_address


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
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "9879", ":", ":0", ":65536", "a:b", "a:b:80", ":٣"])
def test_what_is_no_address_is_refused_with_the_option(text):
    with pytest.raises(click.BadParameter, match="is not an address: write HOST:PORT"):
        listen_address(text)


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
