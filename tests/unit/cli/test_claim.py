"""`kube-rdma claim`: what it prints is written down, and fit to be applied."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.admission.manifest_check import check
from kube_rdma.cli.claim import claim
from kube_rdma.lib.text.reader import read_all
from tests.kit.golden import assert_golden

GOLDEN = Path(__file__).with_name("claims.txt")
CALLS = (
    "",
    "--rails 2 --network team-a/rdma-net",
    "--gpus 2 --near",
    "--gpus 1 --near --within root --kubernetes-version 1.34",
    "--gpus 1 --near --within numa-node --gpu-class gpu.amd.com",
    "--gpus 8",
    "--gpus 2 --near --shared",
    "--gpus 4 --near --cards 1",
    "--shared --kubernetes-version 1.34.2",
    "--shared --bandwidth 100G --cards 2 --name shares",
    "--bandwidth 400G --class rdma-vf",
)


def printed(call):
    result = CliRunner().invoke(claim, shlex.split(call))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_every_template_is_written_down():
    shown = "".join(f"### {f'kube-rdma claim {call}'.strip()}\n{printed(call)}\n" for call in CALLS)
    assert_golden(GOLDEN, shown)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_printed_passes_the_check(call):
    checked = check(read_all(printed(call).encode(), "claim.yaml"))
    assert not checked.findings
    kinds = {"ResourceClaimTemplate", "Pod"}
    assert {one.kind for one in checked.objects} == kinds
    assert all(one.meaning for one in checked.objects)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("--bandwidth 100", '--bandwidth: "100" is not a rate in whole gigabits per second. '),
        ("--bandwidth 1.5G", '--bandwidth: "1.5G" is not a rate in whole gigabits per second. '),
        ("--name Rdma", '--name: "Rdma" is not a DNS label'),
        ("--name ''", '--name: "" is not a DNS label'),
        ("--class a/b", '--class: "a/b" is not the name of an object'),
        ("--gpu-class ''", '--gpu-class: "" is not the name of an object'),
        ("--network a/b/c", '--network: "a/b/c" is not the name of a network'),
        ("--within root", "--within: it says how near a card has to be, and nothing asks for a"),
        ("--kubernetes-version 2", '--kubernetes-version: "2" is not a version of Kubernetes'),
        ("--kubernetes-version 1.33", "--kubernetes-version: Kubernetes 1.33 has no resource.k8"),
        ("--near", "--near: no GPU is asked for that a card could be near to. Add --gpus 1."),
        (
            "--rails 8 --kubernetes-version 1.35",
            "--rails: Kubernetes 1.35 cannot keep cards of a claim on different rails. Use --ca",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_in_a_sentence(call, sentence):
    result = CliRunner().invoke(claim, shlex.split(call))
    assert isinstance(result.exception, Refused), result.output
    assert str(result.exception).startswith(sentence)


def test_all_faults_come_at_once():
    result = CliRunner().invoke(claim, shlex.split("--bandwidth 1 --name A --network a/b/c"))
    assert isinstance(result.exception, Refused)
    assert len(result.exception.more) == 2
