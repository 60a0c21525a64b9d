"""`kube-rdma verify` with --pairs ring or star, and without a manifest, on made-up figures."""

import asyncio
import json
import os
import signal

import pytest
from click.testing import CliRunner

from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.cli.verify import verify
from kube_rdma_testing.perftest import PerftestCluster

RESOURCE, IMAGE = "rdma/hca", "reg.example.com/perftest:1"


def rails(count):
    return tuple(f"mlx5_{rail}" for rail in range(count))


def pool(mode="hca", healthy=1000, cards=8, resource=RESOURCE):
    return {
        "resource": resource,
        "mode": mode,
        "shares": healthy,
        "healthy": healthy,
        "cards": cards,
    }


def card(name, *reasons, resource=RESOURCE):
    return {"id": f"pci-{name}", "name": name, "resources": [resource], "reasons": [*reasons]}


class World:
    """Nodes with eight cards and their reports, and the command in front of them."""

    def __init__(self):
        self.cluster = PerftestCluster()
        self.cluster.server.add(NODE_REPORT)

    def node(self, name, count=8, **more):
        self.cluster.node(name, **more)
        self.cluster.rails[name] = rails(count)
        self.cluster.report(name, [pool(cards=count)], [card(name) for name in rails(count)])

    def nodes(self, count, each=8):
        for number in range(count):
            self.node(f"node-{number}", each)

    def run(self, *words):
        return CliRunner().invoke(verify, words, obj=self.cluster.open)

    def ring(self, *words):
        return self.run("nodes", "--pairs", "ring", "--image", IMAGE, *words)


@pytest.fixture
def world():
    return World()


def document(result):
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return json.loads(result.stdout)


def pairs(result):
    return {(p["client"], p["server"], p["devices"][0]) for p in document(result)["pairs"]}


def test_a_bad_card_of_sixty_four_nodes_with_eight_is_named_in_one_line(world):
    """Through the command, its pods and their tables: 512 pairs, and one more for the suspect."""
    world.nodes(64)
    world.cluster.bad_cards["node-17", "mlx5_3"] = 48.75
    result = world.ring()
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "✗ node-17 mlx5_3: 3 of 3 pairs at ~48.8 Gb/s (due 80)."
    assert result.stdout.endswith(
        "✗ Not well: 3 of 513 pairs, 48.75 to 97.50 Gb/s; look at node-17 mlx5_3.\n"
    )
    assert len(lines) < 24
    assert world.cluster.pods == []


def test_an_odd_number_of_nodes_and_one_that_cannot_be_reached(world):
    """Its pod runs, and no card of it answers anybody."""
    world.nodes(5, each=2)
    for device in rails(2):
        world.cluster.bad_cards["node-3", device] = None
    result = world.ring()
    assert result.exit_code == 1
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("✗ node"))
    assert line.startswith("✗ node-3, all devices: 6 of 6 pairs failed: ")


def test_a_node_that_is_not_ready_takes_no_part_and_nobody_waits_for_it(world):
    world.nodes(3, each=1)
    world.node("node-3", 1, ready="Unknown")
    result = world.ring("--start-seconds", "100000")
    assert result.exit_code == 6
    text = " ".join(result.stdout.split())
    assert "! node-3 takes no part: the node is not Ready: kubelet stopped posting." in text
    assert "? Well as far as it goes: 3 pairs, " in text


def test_a_card_that_its_node_calls_unhealthy_is_told_with_the_reason(world):
    world.nodes(3)
    world.cluster.rails["node-1"] = rails(7)
    cards = [card(name) for name in rails(7)]
    cards.append(card("mlx5_7", "no port is ACTIVE; port 1 is DOWN (Disabled)"))
    world.cluster.report("node-1", [pool()], cards)
    result = world.ring("-o", "json")
    assert result.exit_code == 6
    assert document(result)["leftOut"] == [
        {"name": "node-1 mlx5_7", "why": "no port is ACTIVE; port 1 is DOWN (Disabled)"}
    ]


def test_a_star_measures_the_named_node_with_all_others(world):
    world.nodes(6, each=2)
    world.cluster.bad_cards["node-4", "mlx5_1"] = 10.0
    result = world.run("nodes", "node-2", "--pairs", "star", "--image", IMAGE, "-o", "json")
    first = {(client, server) for client, server, _ in pairs(result) if client == "node-2"}
    assert first == {("node-2", f"node-{n}") for n in (0, 1, 3, 4, 5)}
    (suspect,) = document(result)["suspects"]
    assert (suspect["kind"], suspect["node"], suspect["device"]) == ("card", "node-4", "mlx5_1")


@pytest.mark.parametrize(
    ("words", "met"),
    [
        (("--pairs", "ring"), {("p1", "p2"), ("p3", "p4"), ("p2", "p3"), ("p4", "p1")}),
        (("--pairs", "star"), {("p1", "p2"), ("p1", "p3"), ("p1", "p4")}),
    ],
)
def test_pods_that_run_are_measured_so_too(world, words, met):
    """The first one named is the centre of a star."""
    for number in range(1, 5):
        world.cluster.pod(f"p{number}", number)
    result = world.run("pods", "p1", "p2", "p3", "p4", *words, "-o", "json")
    pods = {tuple(end.rpartition("/")[2] for end in (a, b)) for a, b, _ in pairs(result)}
    assert pods == met


def test_a_star_whose_centre_takes_no_part_is_refused_and_leaves_nothing(world):
    world.nodes(3, each=1)
    world.node("node-3", 1, ready="False")
    result = world.run("nodes", "node-3", "--pairs", "star", "--image", IMAGE)
    assert "the centre of the star takes no part: the node is not Ready" in str(result.exception)
    assert world.cluster.pods == []


def test_an_image_that_no_node_can_pull_ends_the_wait(world):
    world.nodes(3, each=1)
    world.cluster.without_image = {f"node-{number}" for number in range(3)}
    result = world.ring("--start-seconds", "100000")
    assert result.exit_code == 3
    text = " ".join(result.stdout.split())
    assert f"! 3 take no part: ErrImagePull: {IMAGE}: not found" in text
    assert world.cluster.pods == []


def test_without_a_manifest_an_image_is_needed(world):
    result = world.run("nodes", "--pairs", "ring")
    assert result.exit_code == 2
    assert "No image with perftest is named" in result.stderr


def test_an_image_that_some_nodes_can_pull_is_waited_for_and_told(world):
    world.nodes(3, each=1)
    world.cluster.without_image = {"node-1"}
    result = world.ring("--start-seconds", "1")
    assert result.exit_code == 6
    assert "! node-1 takes no part: ErrImagePull: " in result.stdout


@pytest.mark.parametrize("words", [("--image", "x"), ("--resource", "x")])
def test_what_a_manifest_says_is_not_said_twice(world, tmp_path, words):
    (tmp_path / "pod.yaml").write_text("kind: Pod\nspec: {containers: [{name: c}]}\n")
    assert world.run("nodes", "-f", str(tmp_path / "pod.yaml"), *words).exit_code == 2


def interrupts(after, number=signal.SIGINT):
    """What happens during a measurement: it and those behind it have no end, once asked to end."""

    async def meanwhile(count):
        if count == after:
            os.kill(os.getpid(), number)
        if count >= after:
            await asyncio.Event().wait()

    return meanwhile


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_prints_what_it_has_and_leaves_nothing(world, number):
    """In the second of two rounds."""
    world.nodes(8, each=2)
    world.cluster.bad_cards["node-0", "mlx5_0"] = 12.5

    world.cluster.meanwhile = interrupts(12, number)
    result = world.ring("-o", "json")
    assert result.exit_code == 130
    shown = document(result)
    assert (shown["interrupted"], shown["well"]) == (True, False)
    assert (len(shown["pairs"]), shown["unmeasured"]) == (11, 5)
    assert world.cluster.pods == []


def test_the_page_of_an_interrupted_run_says_so(world):
    world.nodes(4, each=1)
    world.cluster.meanwhile = interrupts(4)
    result = world.ring()
    assert result.exit_code == 130
    assert "; 1 pair not measured, as it was interrupted." in " ".join(result.stdout.split())


def test_a_run_that_is_interrupted_before_it_has_anything_says_only_that(world):
    """In the first measurement, which has no figure yet."""
    world.nodes(2, each=1)
    world.cluster.meanwhile = interrupts(1)
    result = world.ring()
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith("Interrupted.\n")
    assert world.cluster.pods == []


def test_runs_before_and_after_are_compared(world, tmp_path):
    world.nodes(4, each=2)
    before = tmp_path / "before.json"
    before.write_text(world.ring("-o", "json").stdout)
    world.cluster.figure = 88.0
    world.cluster.rails["node-3"] = rails(1)
    result = world.ring("--against", str(before), "-o", "json")
    assert document(result)["against"] == {
        "pairs": 6,
        "missing": 2,
        "medianBefore": 97.5,
        "medianNow": 88.0,
    }
    shown = " ".join(world.ring("--against", str(before)).stdout.split())
    assert "Beside the earlier run: 6 pairs, median 97.50 → 88.00 Gb/s; 2 pairs of it not" in shown
