"""The real Prometheus answers each panel of the dashboards; the answer is drawn as the panel says.

No lab is booted: Prometheus is Debian's, as in test_prometheus, over recorded series of three
nodes. A card of node-2 is ill and loses packets, a card of node-1 has half of its PCIe lanes,
node-3's agent is away, a second controller is gone, and a pool is nearly full.
"""

import contextlib
import re
from pathlib import Path

import pytest

from kube_rdma.install.installation import dashboards
from kube_rdma.metrics.rules import families
from kube_rdma.model.metrics import MetricKind
from tests.kit import prometheus as kit

DRAWN = Path(__file__).with_name("dashboards.txt")
BEGIN, MINUTES = 1_700_000_000, 60
NODES, DEVICES, ILL, SLOW, AWAY = (1, 2, 3), (0, 1), (2, 1), (1, 0), 3
PANELS = {
    f"{name}: {panel['title']}": panel
    for name, board in dashboards().items()
    for panel in board["panels"]
}
OF_CONTROLLER = {family.name for family in families.CONTROLLER_FAMILIES}
BUCKETS = {"0.01": 0, "0.05": 8, "0.1": 10, "+Inf": 10}  # of ten acts in a minute
LOST = families.OF_NODE["packet_seq_err"].name
VALUES = {
    families.STATE.name: lambda at: 1 if at == ILL else 4,
    families.POD_STATE.name: lambda at: 4,
    families.RATE.name: lambda at: 50e9,
    families.PCIE_LANES.name: lambda at: 8 if at == SLOW else 16,
    families.PCIE_MOST_LANES.name: lambda at: 16,
    families.PCIE_SPEED.name: lambda at: 32e9,
    families.PCIE_MOST_SPEED.name: lambda at: 32e9,
    families.SHARES.name: lambda at: 16,
    families.USED_SHARES.name: lambda at: 12,
    families.CARD_HEALTHY.name: lambda at: at != ILL,
    families.GIDS.name: lambda at: 6,
    families.MEMORY.name: lambda at: 48e6,
    families.SCRAPE_SECONDS.name: lambda at: 0.05,
}
SPEEDS = {  # of counters, in a second
    families.OF_NODE["port_rcv_data"].name: 40e9,
    families.OF_NODE["port_xmit_data"].name: 25e9,
    families.OF_POD["port_rcv_data"].name: 40e9,
    families.OF_POD["port_xmit_data"].name: 25e9,
}
ERRORS = {LOST, families.HEALTH_CHANGES.name, families.HW_COUNTER.name}


def labels_of(family, node, device):
    """Labels of a series of a card of a node."""
    every = {
        "device": f"mlx5_{device}",
        "port": "1",
        "card": f"0000:{0x18 + device:02x}:00.0",
        "name": f"mlx5_{device}",
        "resource": "rdma/nic",
        "namespace": "train",
        "pod": f"worker-{node}",
        "container": "main",
        "access": "own",
        "counter": "rx_icrc_err",
        "healthy": "false",
        "operation": "add",
        "outcome": "ok",
        "part": "CNI call",
        "version": "0.1.0",
    }
    chosen = {label: every.get(label, "x") for label in family.labels}
    return chosen | {"instance": f"10.0.0.{node}:9879", "node": f"node-{node}", "job": "kube-rdma"}


def pace(family, at):
    """How much a counter counts in a second."""
    if family.name in ERRORS:
        quick = 12.0 if family.name == LOST else 1 / 600
        return quick if at == ILL else 0.0
    return SPEEDS.get(family.name, 0.0)


def of_agents():
    """Name, labels, and the value at a minute, of all that agents say."""
    for family in families.FAMILIES:
        if family.name in OF_CONTROLLER:
            continue
        by_device = {"device", "card"} & set(family.labels)
        for node in NODES:
            for device in DEVICES if by_device else DEVICES[:1]:
                at = (node, device)
                labels = labels_of(family, *at)
                if family.kind is MetricKind.HISTOGRAM:
                    for bound, count in BUCKETS.items():
                        name = f"{family.name}_bucket"
                        yield name, labels | {"le": bound}, lambda m, c=count: c * m
                elif family.kind is MetricKind.COUNTER or family.name in ERRORS:
                    quick = pace(family, at)
                    yield family.name, labels, lambda m, p=quick: p * 60 * m
                else:
                    value = VALUES.get(family.name, lambda at: 1)(at)
                    yield family.name, labels, lambda m, v=value: v


def of_others():
    """What controllers and Prometheus itself say; None where a series has ended."""
    for node in NODES:
        labels = {"instance": f"10.0.0.{node}:9879", "job": "kube-rdma", "node": f"node-{node}"}
        yield "up", labels, lambda m, n=node: int(n != AWAY or m < MINUTES / 2)
    leads = families.CONTROLLER_LEADS.name
    at = {"job": "kube-rdma-controller", "namespace": "kube-rdma"}
    yield leads, at | {"instance": "10.244.0.8:9879"}, lambda m: 1
    yield leads, at | {"instance": "10.244.0.9:9879"}, lambda m: 0
    gone = {"job": "vke-controller", "namespace": "vke", "instance": "10.244.0.7:9879"}
    yield leads, gone, lambda m: 1 if m < MINUTES / 2 else None
    for rail, held in ((0, 410), (1, 960)):
        pool = at | {"instance": "10.244.0.8:9879", "pool": "rails", "family": "4"}
        labels = pool | {"rail": str(rail)}
        yield families.POOL_HELD.name, labels, lambda m, h=held: h
        yield families.POOL_ADDRESSES.name, labels, lambda m: 1024


def away(labels, minute):
    """Whether its agent does not answer: Prometheus then ends its series at once."""
    return labels.get("node") == f"node-{AWAY}" and minute >= MINUTES / 2


def recorded():
    """All of it in the text of OpenMetrics, a sample each minute."""
    lines = []
    for name, labels, value in (*of_agents(), *of_others()):
        written = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
        for minute in range(MINUTES + 1):
            number = value(minute)
            silent = name != "up" and away(labels, minute)
            if number is not None and not silent:
                lines.append(f"{name}{{{written}}} {float(number):g} {BEGIN + 60 * minute}")
    return "\n".join((*lines, "# EOF\n"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Prometheus with these series, at the end of their hour."""
    folder = tmp_path_factory.mktemp("prometheus")
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(kit.programs())
        kit.fill(program, folder, recorded())
        yield stack.enter_context(kit.running_on_file(program, folder))


def asked(server, panel):
    """What Prometheus answers a panel with everything chosen, by the labels of each series."""
    (target,) = panel["targets"]
    query = target["expr"].replace("$__rate_interval", "5m")
    query = re.sub(r"\$\w+", lambda m: m[0] if m[0] == "$1" else ".*", query)
    return server.answer(query, BEGIN + 60 * MINUTES)


def shown(panel, value):
    """A value as the panel's JSON says: a word of its mappings, or a number and its level."""
    defaults = panel["fieldConfig"]["defaults"]
    for mapping in defaults.get("mappings", ()):
        if named := mapping["options"].get(f"{value:g}"):
            return named["text"]
    steps = defaults.get("thresholds", {}).get("steps", [])
    colours = [s["color"] for s in steps if s["value"] is None or value >= s["value"]]
    return f"{value:.4g}" + (f" ({colours[-1]})" if colours[1:] else "")


def as_grid(panel, answer, options):
    """Lines of the grid that groupingToMatrix makes."""
    row, column = options["rowField"], options["columnField"]
    cells = {(labels[row], labels[column]): shown(panel, value) for labels, value in answer}
    columns = sorted({place for _, place in cells})
    yield "".join(word.ljust(16) for word in (rf"{row}\{column}", *columns)).rstrip()
    for name in sorted({place for place, _ in cells}):
        words = (name, *(cells.get((name, other), "") for other in columns))
        yield "".join(word.ljust(16) for word in words).rstrip()


def drawn(panel, answer):
    """The panel with this answer, in text."""
    steps = {step["id"]: step["options"] for step in panel.get("transformations", ())}
    if "groupingToMatrix" in steps:
        return list(as_grid(panel, answer, steps["groupingToMatrix"]))
    legend, unit = panel["targets"][0]["legendFormat"], panel["fieldConfig"]["defaults"]["unit"]
    return sorted(
        re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), legend)  # noqa: B023  # at once
        + f"  {shown(panel, value)} {unit}"
        for labels, value in answer
    )


def page(server):
    parts = []
    for title, panel in PANELS.items():
        parts.append("\n".join((f"== {title}", *drawn(panel, asked(server, panel)))))
    return "\n\n".join((*parts, ""))


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_is_answered(server, title):
    """With at least one series, and each label of its legend."""
    answer = asked(server, PANELS[title])
    assert answer
    legend = re.findall(r"\{\{(\w+)\}\}", PANELS[title]["targets"][0]["legendFormat"])
    assert [labels for labels, _ in answer if not any(labels.get(one) for one in legend)] == (
        [] if legend else [labels for labels, _ in answer]
    )


def test_the_panels_are_those_that_were_looked_at(server):
    """Made anew by `python -m tests.lab.native.test_dashboards`."""
    assert DRAWN.read_text() == page(server)


def test_the_ill_card_is_one_cell_of_the_grid(server):
    title = "kube-rdma-fleet: Cards, node by card"
    lines = drawn(PANELS[title], asked(server, PANELS[title]))
    assert [line.split()[0] for line in lines if "✗" in line] == ["node-2"]


def test_a_scrape_without_a_node_has_the_address_in_the_grid(server):
    """Prometheus without the PodMonitor's relabelling."""
    bare = PANELS["kube-rdma-fleet: Cards, node by card"]["targets"][0]["expr"].replace(
        families.CARD_HEALTHY.name, f"sum without (node) ({families.CARD_HEALTHY.name})"
    )
    rows = {labels["node"] for labels, _ in server.answer(bare, BEGIN + 60 * MINUTES)}
    assert rows == {f"10.0.0.{node}:9879" for node in NODES if node != AWAY}


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name, kit.programs() as found_program:
        kit.fill(found_program, Path(name), recorded())
        with kit.running_on_file(found_program, Path(name)) as running:
            DRAWN.write_text(page(running))
