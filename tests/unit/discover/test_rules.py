"""What is proposed for nodes, and what differs from an installation."""

import json
from collections import Counter
from functools import cache

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.admission.manifest_check import check
from kube_rdma.discover.cluster import recorded_policy
from kube_rdma.discover.rules import deviations, differences, hardware, proposal
from kube_rdma.discover.views import policy, proposal_document, proposal_text
from kube_rdma.discover.written import recorded_node, written_installation
from kube_rdma.hardware.machines import machine, names
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.install import installation
from kube_rdma.lib.json_values import json_value
from kube_rdma.lib.text.reader import read, read_all
from kube_rdma.model.admission import AdmissionSettings
from kube_rdma.model.card import CardId
from kube_rdma.model.discover import Hardware, HardwareCard, Installed, SeenNode
from kube_rdma.model.pools import HARDWARE
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPort
from kube_rdma.pools.documents.config import of_document
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards

MACHINES = names("trees")
# What SOURCE.md of each says, in the words of a proposal: title, preset, cards that are offered.
TOLD = {
    "azure-gb300": ("4 × 800G InfiniBand + 1 × 100G RoCE, 4 GPUs", "rails", 4),
    "azure-hb": ("1 × 200G InfiniBand + 1 × 40G RoCE", "default", 1),
    "bf3-host": ("2 × 200G RoCE", "default", 2),
    "bnxt-re": ("1 × 100G RoCE, 1 without link", "default", 1),
    "cx5-dual": ("2 × 100G RoCE", "default", 3),
    "cx6-vpi": ("1 × 200G InfiniBand + 1 × 100G RoCE", "default", 1),
    "cx7-ib-and-storage": ("8 × 400G InfiniBand + 2 × 100G RoCE, 8 GPUs", "rails", 8),
    "cx8-xdr": ("2 × 800G InfiniBand", "default", 2),
    "cxgb4": ("1 × 100G iWARP", "default", 1),
    "dgx-like": ("8 × 400G InfiniBand, 8 GPUs", "rails", 8),
    "efa": ("1 × 100G EFA", "efa", 1),
    "efa-p4d": ("4 × 100G EFA, 8 GPUs", "efa", 4),
    "erdma": ("2 × 2.5G iWARP", "default", 2),
    "ionic": ("2 × 400G RoCE + 2 × 100G RoCE", "default", 2),
    "mlx5-subfunction": ("1 × 100G RoCE", "default", 0),
    "mlx5-vf-lag": ("1 × 100G RoCE", "default", 3),
}


@cache
def node(name, at=None):
    """A recorded machine, under another name if one is given."""
    return replace(recorded_node(machine(name)), name=at or name)


def made_node(name, *cards, gpus=0, **more):
    return SeenNode(name, NodeReport("1", cards), {}, gpus, **more)


def card(bus=0x81, rate="400G", link="Ethernet", state="ACTIVE", driver="mlx5_core", **more):
    name = f"0000:{bus:02x}:00.0"
    ports = (ReportedPort(f"mlx5_{bus}", 1, state, link, rate),)
    more = {"numa_node": 0, "ports": ports, **more}
    return ReportedCard(CardId(name), f"mlx5_{bus}", driver=driver, **more)


def cards(count, first=0x10, **more):
    return tuple(card(first + n, **more) for n in range(count))


def installed(proposed, values=True):
    """The installation that somebody makes of a proposal, as the files say it."""
    text = proposal_text(proposed) if values else proposal_text(proposed, "policies")
    return written_installation(read_all(text.encode(), "proposal.yaml"))


def changed(seen, what):
    """A node whose first offered card is another one."""
    first, *others = seen.report.cards
    other = ReportedPort("mlx5_9", 1, "ACTIVE", "Ethernet", "11G")
    every = {
        "slower": (replace(first, ports=(other,)), *others),
        "moved": (*others, replace(first, id=CardId("0000:fe:00.0"))),
        "gone": tuple(others),
        "added": (*seen.report.cards, replace(first, id=CardId("0000:fe:00.0"))),
        "driver": (replace(first, driver="other"), *others),
        "numa": (replace(first, numa_node=77), *others),
    }
    return replace(seen, report=replace(seen.report, cards=every[what]))


WAYS = ("slower", "moved", "gone", "added", "driver", "numa")


@pytest.mark.parametrize("name", TOLD)
def test_a_machine_is_what_its_source_says(name):
    proposed = proposal([node(name)])
    (group,) = proposed.groups
    assert (group.title, proposed.values["preset"], group.offered) == TOLD[name]


@pytest.mark.parametrize("name", MACHINES)
def test_the_proposed_pool_has_just_the_cards_that_are_offered(name):
    (group,) = proposal([node(name)]).groups
    survey = survey_at(machine(name))
    if group.pool is None:
        assert not group.offered
        return
    spec = {"pools": [group.pool]}
    meta = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy", "metadata": {"name": "a"}}
    config = of_document(read(json.dumps({**meta, "spec": spec}).encode(), "policy"))
    (pool,) = evaluate(NodeFacts(survey, node_cards(survey), config.pools)).pools
    assert len(pool.cards) == group.offered
    assert not [one.id for one in pool.cards if one.reasons and not one.id.startswith("7870:")]
    assert {one.card.split()[0] for one in group.left_out}.isdisjoint(c.name for c in pool.cards)


def accepted(proposed):
    """The objects that `render` makes of the values, after `config check` has seen all."""
    text = proposal_text(proposed, "values").encode()
    image = installation.assignment("image.repository=registry.example.com/rdma/kube-rdma")
    objects = installation.objects([read(text, "values.yaml"), image])
    stream = yaml.safe_dump_all(json.loads(json.dumps(objects)))
    parts = read_all(f"{stream}---\n{proposal_text(proposed, 'policies')}".encode(), "all.yaml")
    assert not check(parts, AdmissionSettings()).errors
    return objects


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_proposed_can_be_rendered_and_passes_the_check(name):
    assert accepted(proposal([node(name)]))


def test_what_is_proposed_for_all_machines_together_can_be_installed():
    proposed = proposal([node(name) for name in MACHINES])
    made = [policy(proposed, group) for group in proposed.groups if group.pool]
    assert len({one["metadata"]["name"] for one in made}) == len(made) > 20
    assert accepted(proposed)


@given(st.permutations([*MACHINES[:12], "dgx-cable-out", "dgx-like", "dgx-2"]))
def test_the_order_of_the_nodes_changes_nothing(order):
    seen = {name: node("dgx-like" if name == "dgx-2" else name, name) for name in order}
    proposed = proposal([seen[name] for name in order], order[:2])
    expected = proposal([seen[name] for name in sorted(order)], order[1::-1])
    assert proposal_document(proposed) == proposal_document(expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["dgx-like", "xe9680-like", "bf3-host", "ionic"])
def test_a_node_with_another_card_is_named_in_its_group_once(name, way):
    nodes = [node(name, f"node-{n}") for n in range(3)]
    proposed = proposal([changed(nodes[0], way), *nodes[1:]])
    (group,) = proposed.groups
    (deviation,) = group.deviations
    assert deviation.nodes == ("node-0",)
    assert deviation.sentence in "\n".join(
        deviations(hardware(nodes[0]), hardware(changed(nodes[0], way)))
    )
    assert group.pool == proposal(nodes).groups[0].pool


def test_an_unchanged_cluster_has_nothing_to_change():
    nodes = [node(name) for name in MACHINES]
    proposed = proposal(nodes)
    assert differences(nodes, proposed, installed(proposed)) == ()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [one for one in MACHINES if "efa" not in one])
def test_the_exchange_of_a_card_is_one_line(name, way):
    """Also of the only card, and of one that made the preset what it is."""
    before, first = proposal([node(name)]), node(name).report.cards[:1]
    if before.groups[0].pool is None or first[0].part_of:
        return
    if (way, first[0].numa_node) == ("numa", None) or (way, first[0].driver) == ("driver", ""):
        return  # nobody can tell what it was
    now = changed(node(name), way)
    (difference,) = differences([now], proposal([now]), installed(before))
    assert difference.sentence


def test_a_port_without_link_and_a_card_inside_a_pod_are_no_other_hardware():
    nodes = [node("dgx-like"), node("dgx-cable-out", "dgx-2")]
    assert [group.deviations for group in proposal(nodes).groups] == [()]
    assert differences(nodes[1:], proposal(nodes[1:]), installed(proposal(nodes[:1]))) == ()
    held = made_node("a", *cards(1), card(0x22, ports=(), resources=("rdma/nic",)))
    whole = made_node("a", *cards(1), card(0x22))
    assert differences([held], proposal([held]), installed(proposal([whole]))) == ()


def test_other_values_are_named_if_the_nodes_are_as_recorded():
    proposed = proposal([node("dgx-like")])
    there = replace(installed(proposed), values={**installed(proposed).values, "preset": "ib"})
    (difference,) = differences([node("dgx-like")], proposed, there)
    assert (difference.sentence, difference.nodes) == ('value preset is "ib", not "rails"', ())


def test_of_the_cluster_nodes_without_the_label_and_policies_without_nodes_are_named():
    nodes = [made_node("a", *cards(2), in_cluster=True), made_node("b", *cards(4, 0x40))]
    proposed = proposal(nodes)
    (first, second) = (group.name for group in proposed.groups)
    found = differences(nodes[:1], proposed, installed(proposed, values=False))
    assert {one.sentence for one in found} == {
        f"NodePolicy {second if first == '2x400g-roce' else first} is for no node",
        f"NodePolicy 2x400g-roce is for nodes with {HARDWARE}=2x400g-roce",
    }


def test_hardware_that_no_policy_records_is_named_with_its_nodes():
    nodes = [made_node(f"n-{n}", *cards(2)) for n in range(3)]
    (difference,) = differences(nodes, proposal(nodes), Installed(()))
    assert difference.sentence == "no NodePolicy is for 2 × 400G RoCE"
    assert difference.nodes == ("n-0", "n-1", "n-2")


def test_what_the_node_needs_a_card_for_leaves_it_out():
    needs = card(0x11, carries=("the default route leads through eth0",))
    nodes = [made_node("a", needs, *cards(2, 0x20)), made_node("b", card(0x11), *cards(2, 0x20))]
    (group,) = proposal(nodes).groups
    (left,) = group.left_out
    assert left.why == "the default route leads through eth0, on a"
    assert group.pool["selectors"] == [{"pciAddresses": ["0000:20:00.0", "0000:21:00.0"]}]


def test_the_only_card_is_offered_though_the_node_needs_it():
    """A shared mode leaves it to the node."""
    (group,) = proposal([made_node("a", card(carries=("storage",)))]).groups
    assert (group.offered, group.pool["mode"], group.left_out) == (1, "shared-multi", ())


@pytest.mark.parametrize(
    ("others", "selector"),
    [
        (card(0x70, link="InfiniBand", rate="100G"), {"linkTypes": ["ether"]}),
        (card(0x70, driver="ice", rate="100G"), {"drivers": ["mlx5_core"]}),
        (card(0x70, rate="100G"), {"pciAddresses": ["0000:10:00.0", "0000:11:00.0"]}),
    ],
    ids=lambda one: str(next(iter(one))) if isinstance(one, dict) else "",
)
def test_cards_are_chosen_by_what_tells_them_from_others(others, selector):
    (group,) = proposal([made_node("a", *cards(2), others)]).groups
    assert group.pool["selectors"] == [selector]
    assert group.left_out[0].why == "it is slower than 2 × 400G RoCE"


@pytest.mark.parametrize(
    ("count", "gpus", "mode"), [(8, 8, "shared"), (8, 4, "shared-multi"), (3, 8, "shared-multi")]
)
def test_rails_are_for_nodes_with_a_card_for_each_gpu(count, gpus, mode):
    (group,) = proposal([made_node("a", *cards(count), gpus=gpus)]).groups
    assert group.pool["mode"] == mode


def test_nodes_are_selected_by_labels_that_a_card_cannot_take_away():
    fast = {"kube-rdma.io/link-layer": "ethernet", "kube-rdma.io/rate-gbps": "400"}
    slow = {**fast, "kube-rdma.io/rate-gbps": "100", "kube-rdma.io/ports": "2"}
    nodes = [
        replace(made_node("a", *cards(2)), labels=fast),
        replace(made_node("b", *cards(2, 0x40, rate="100G")), labels=slow),
    ]
    selectors = [group.selector for group in proposal(nodes).groups]
    assert [*map(dict, selectors)] == [
        {"kube-rdma.io/link-layer": "ethernet", "kube-rdma.io/rate-gbps": "400"},
        {"kube-rdma.io/link-layer": "ethernet", "kube-rdma.io/rate-gbps": "100"},
    ]
    nodes[1] = replace(nodes[1], labels={**fast, "kube-rdma.io/ports": "2"})
    first, second = proposal(nodes).groups
    assert (first.is_labelled, second.selector) == (False, {HARDWARE: "2x100g-roce"})
    assert f"kubectl label node b {HARDWARE}=2x100g-roce" in proposal_text(proposal(nodes))
    labelled = [replace(one, labels={HARDWARE: f"of-{one.name}"}) for one in nodes]
    assert [g.selector for g in proposal(labelled).groups] == [
        {HARDWARE: "of-a"},
        {HARDWARE: "of-b"},
    ]


def test_nodes_without_cards_or_reports_are_counted_and_no_more():
    proposed = proposal([made_node("bare"), made_node("a", *cards(1))], ["late-10", "late-9"])
    assert (proposed.cardless, proposed.unreported) == (("bare",), ("late-9", "late-10"))
    assert "1 node (bare): has no RDMA card" in proposal_text(proposed)


numbers = st.none() | st.floats(0.1, 1600).map(lambda rate: round(rate, 1))
made_cards = st.builds(
    HardwareCard,
    st.integers(0, 255).map(lambda bus: CardId(f"0000:{bus:02x}:00.0")),
    numbers,
    driver=st.sampled_from(["", "mlx5_core", "bnxt_en"]),
    numa_node=st.none() | st.integers(-1, 7),
)
made_hardware = st.builds(
    Hardware,
    st.lists(made_cards, unique_by=lambda one: one.id, max_size=9).map(
        lambda some: tuple(sorted(some, key=lambda one: one.id))
    ),
    st.integers(0, 16),
)


@given(made_hardware)
def test_recorded_hardware_is_read_as_it_was_written(seen):
    record = json.dumps(json_value((seen,)))
    assert recorded_policy("a", {}, {HARDWARE: record}).layouts == (seen,)
    assert not [*deviations(seen, seen)]


@given(made_hardware, made_hardware)
def test_each_card_is_in_one_sentence_at_most(expected, seen):
    found = Counter(
        name for one in deviations(expected, seen) for name in one.split() if name.count(":") == 2
    )
    assert all(count == 1 for count in found.values())


HOSTILE = st.text(
    st.sampled_from("ab0:.-# \n\t\x1b\x07'\"{}[]|&*!%@`\u202e\u2028\u0085\ud7ff"), max_size=24
)


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE, HOSTILE), min_size=1, max_size=4), HOSTILE)
def test_nothing_that_an_agent_writes_breaks_the_proposal(texts, name):
    """Comments stay comments, documents stay documents, and no terminal obeys."""
    hostile = [
        ReportedCard(
            CardId(one),
            two,
            ports=(ReportedPort(one, 1, state, two, "400G"),),
            reasons=(three,) if state == "DOWN" else (),
            carries=(two,) if index % 2 else (),
            driver=four,
        )
        for index, (one, two, three, four) in enumerate(texts)
        for state in ("ACTIVE", "DOWN")
    ]
    seen = [
        made_node(name or "x", *hostile),
        made_node("b", *cards(2)),
        made_node("c", *hostile[:1]),
    ]
    proposed = proposal(seen, [name])
    text = proposal_text(proposed)
    assert text.replace("\n", "").isprintable()
    values, *policies = yaml.safe_load_all(text)
    assert set(values) == {"preset", "agent", "networks"}
    assert all(set(one) == {"apiVersion", "kind", "metadata", "spec"} for one in policies)
    parts = read_all(proposal_text(proposed, "policies").encode(), "policies.yaml")
    assert not check(parts, AdmissionSettings()).errors
    assert all(one.sentence for one in differences(seen, proposed, installed(proposed)))
    json.dumps(proposal_document(proposed))


def test_five_thousand_nodes_make_a_text_that_people_can_read():
    nodes = [made_node(f"node-{n}", *cards(8), gpus=8) for n in range(4990)]
    nodes += [made_node(f"odd-{n}", card(n + 0x20), *cards(7), gpus=8) for n in range(40)]
    text = proposal_text(proposal(nodes), "values") + proposal_text(proposal(nodes), "policies")
    assert "40" in text.splitlines()[1]
    assert "- 20 more: -o json has them." in text
    assert len(text.splitlines()) < 120
