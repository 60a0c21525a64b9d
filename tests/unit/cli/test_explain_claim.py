"""`kube-rdma explain claim/NAME` from the outside: pages at 80 columns, on a cluster in memory."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.claims.rules.verdicts import explain_claim
from kube_rdma.claims.views import claim_page
from kube_rdma.cli.explain import explain
from kube_rdma.explain.evidence import read_claim
from kube_rdma.lib.page import page_text
from tests.kit import claimed, explained

PAGES = Path(__file__).parent / "claim_pages"
PAGE = Path(__file__).parents[3] / "docs/status.md"


def run(server, *words):
    """What the command prints; an error of kube-rdma is raised."""
    return CliRunner().invoke(
        explain,
        ["claim/train/two-cards", *words],
        obj=explained.opener(server),
        catch_exceptions=False,
    )


def page(server):
    """What a terminal of 80 columns would show."""
    opened = partial(explained.opener(server), None)
    world = asyncio.run(read_claim("train", "two-cards", None, opened))
    return page_text(claim_page(explain_claim(world)), 80) + "\n"


def met():
    """The claim, and a node that has what it asks for."""
    server = claimed.server(claimed.slice_of("node-1", claimed.card("0000-1a-00-0")))
    server.put(RESOURCE_CLAIM, claimed.claim(claimed.request()))
    return server


def allocated():
    """The claim, with a card."""
    server = claimed.server()
    server.put(RESOURCE_CLAIM, claimed.held("two-cards", "node-1", "0000-1a-00-0"))
    return server


def refused():
    """A selector that has no value for a card: the scheduler gives the claim up everywhere."""
    server = claimed.server(claimed.slice_of("node-1", claimed.card("0000-1a-00-0")))
    text = f'device.attributes["{claimed.DRIVER}"].speed >= 400'
    server.put(RESOURCE_CLAIM, claimed.claim(claimed.request(selectors=[claimed.selector(text)])))
    return server


def beyond():
    """A selector that kube-rdma does not evaluate."""
    server = claimed.server(claimed.slice_of("node-1", claimed.card("0000-1a-00-0")))
    text = 'device.attributes.exists(name, name == "x")'
    server.put(RESOURCE_CLAIM, claimed.claim(claimed.request(selectors=[claimed.selector(text)])))
    return server


@pytest.mark.parametrize(
    ("make", "status"), [(claimed.waiting, 1), (met, 0), (allocated, 0), (refused, 1), (beyond, 1)]
)
def test_the_page_is_the_golden_one(make, status):
    text = page(make())
    assert text == (PAGES / f"{make.__name__}.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    result = run(make())
    assert result.stdout.split() == text.split()
    assert result.exit_code == status


def test_the_example_of_the_page_is_what_the_command_prints():
    shown, notes, _ = (PAGES / "waiting.txt").read_text().partition("NOTES")
    assert notes
    assert shown in PAGE.read_text()


def test_the_document_names_each_device_with_its_reason():
    document = json.loads(run(claimed.waiting(), "--json").stdout)
    assert not document["met"]
    nearest = document["nodes"][0]
    assert (nearest["node"], nearest["lacking"], nearest["wanted"]) == ("node-3", 1, 2)
    assert {one["device"]: one["reason"] for one in nearest["devices"]} == {
        "0000-1a-00-0": None,
        "0000-3b-00-0": "taint",
        "0000-5e-00-0": "inUse",
        "0000-81-00-0": "capacity",
        "0000-9a-00-0": "constraint",
    }
    others = {
        one["node"]: {device["reason"] for device in one["devices"]}
        for one in document["nodes"][1:]
    }
    assert others == {"node-1": {"selector"}, "node-2": {"poolIncomplete"}}


def test_one_node_is_judged_alone():
    document = json.loads(run(claimed.waiting(), "--json", "--node", "node-1").stdout)
    assert [one["node"] for one in document["nodes"]] == ["node-1"]


@pytest.mark.parametrize(
    ("words", "what"), [(("--node", "gone"), "no node gone"), ((), "no claim")]
)
def test_what_is_not_there_is_refused_in_a_sentence(words, what):
    server = claimed.waiting()
    if not words:
        server.remove(RESOURCE_CLAIM, "two-cards", "train")
    with pytest.raises(Refused, match=what):
        run(server, *words)


@pytest.mark.parametrize("kind", ["resourceslices", "resourceclaims", "deviceclasses", "nodes"])
def test_without_a_right_there_is_no_verdict_of_half_of_the_devices(kind):
    server = claimed.waiting()
    server.forbidden.add(("list", kind))
    with pytest.raises(Refused, match=kind):
        run(server)


def test_a_target_without_a_name_is_a_question_of_usage():
    result = CliRunner().invoke(explain, ["claim/"], obj=explained.opener(claimed.server()))
    assert result.exit_code == 2
    assert "claim/NAME" in result.stderr
