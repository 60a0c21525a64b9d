"""Machines with something wrong: nothing raises, and advice names only what it is about.

What people see of a node is taken of each: the survey with its tables, the doctor, pools in three
modes, the settings of containers. A finding or a reason about a device names interfaces, devices
and functions of its own, its bond and its physical function (tests/kit/machine_mutants.Owners).
"""

from __future__ import annotations

import random
import re
from contextlib import suppress

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of
from kube_rdma.attach.rules import settings
from kube_rdma.doctor.recorded import observe_recorded
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.views import doctor_document, doctor_page
from kube_rdma.hardware import machines
from kube_rdma.hardware.rules.node_picture import matrix, node_topology
from kube_rdma.hardware.views.documents import document
from kube_rdma.hardware.views.table import devices_page, ibdev2netdev
from kube_rdma.hardware.views.topology import topology_svg, topology_text
from kube_rdma.model.doctor import ObservedErrors, ObservedFlowControl
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.settings import PlacedNet
from kube_rdma.pools.rules.discovery import judge, notes
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from tests.kit.machine_mutants import Owners, mutant

QUICK, MANY = 500, 10_000
SPECS = tuple(
    PoolSpec(f"rdma/{mode}", mode, "") for mode in (Mode.HCA, Mode.SHARED, Mode.EXCLUSIVE)
)
# About several cards, or about none: overlaps of pools, GPUs, rails.
NOBODY = {"", "rails", "gpu", "rdma_cm", *(spec.resource for spec in SPECS)}
_PORT = re.compile(r"port (\d+) (?:is|has)[^;]*")


def watched(seen, seed):
    """With what is no file of a recorded node: flow control, and counters that rise."""
    dice = random.Random(seed)  # noqa: S311  it chooses faults
    ports = [(device.name, port) for device in seen.survey.devices for port in device.ports]
    rises = (("link_downed", 2),), (("rx_discards_phy", 9),), (("out_of_sequence", 5),)
    return replace(
        seen,
        errors=tuple(ObservedErrors(d, p.number, 2.0, dice.choice(rises)) for d, p in ports),
        flow_control=tuple(
            ObservedFlowControl(p.netdev, dice.choice(((3,), ())), dice.choice(("dscp", "pcp")))
            for _, p in ports
            if p.netdev
        ),
        virtual_machine=False,
    )


def shown(survey, root):
    """All pages of the devices, made and thrown away."""
    verdicts, remarks = judge(survey), notes(survey)
    devices_page(verdicts, survey, remarks, wide=True)
    document(verdicts, survey, remarks)
    ibdev2netdev(survey)
    topology_text(survey, matrix(survey))
    topology_svg(node_topology(survey), "x")
    nets = [PlacedNet(one.name, one.position, one.numa_node) for one in survey.devices]
    settings.topology_file(nets, facts_of(nets, root))


def said(name, root, seed):
    """Each sentence of advice, with what it is about and where it comes from."""
    seen = watched(observe_recorded(name, root), seed)
    shown(seen.survey, root)
    for verdict in judge(seen.survey):
        yield from ((verdict.device.name, "devices", reason) for reason in verdict.reasons)
    whole = replace(seen, specs=(SPECS[seed % len(SPECS)],), refusals=())
    diagnosis = diagnose(whole)
    doctor_page(whole, diagnosis, verbose=True)
    doctor_document(whole, diagnosis)
    for one in diagnosis.findings:
        yield one.subject, one.code, f"{one.problem}: {one.remedy}"
    for spec in SPECS:
        node = evaluate(NodeFacts(seen.survey, node_cards(seen.survey), (spec,)))
        for card in node.cards:
            yield from ((card.name, f"card {spec.mode}", reason) for reason in card.reasons)
        for pool in node.pools:
            used = settings.known_devices(pool.cards)
            for text in (settings.pool_files(used, None, alone=True) if used else {}).values():
                assert settings.settings_files(used)
                yield ", ".join(card.name for card in pool.cards), f"settings {spec.mode}", text


def foreign(owners, about, text, where=""):
    """The names in a sentence that are no names of what it is about, or of another port of it."""
    names = owners.named(text) - {about}
    names = names and names - owners.of(about)
    if where == "KR134":  # what the node uses: a representor in a bond or bridge is a use, too
        names = {name for name in names if not owners.is_behind(name)}
    for port in _PORT.finditer(text) if about in owners.devices else ():
        names |= owners.named(port[0]) & owners.of_other_ports(about, int(port[1]))
    return sorted(names)


def wrong(name, root, seed):
    """What advice about a machine names of others. One that is refused gets no advice."""
    owners = Owners(root)
    with suppress(Refused):
        for about, where, text in dict.fromkeys(said(name, root, seed)):
            if about not in NOBODY and (names := foreign(owners, about, text, where)):
                yield f"{seed} {name}: {where} about {about} names {names}: {text}"


def wrong_of_mutants(seeds):
    for seed in seeds:
        dice = random.Random(seed)  # noqa: S311  it chooses faults
        name = dice.choice(machines.names())
        yield from wrong(name, mutant(dice, name), seed)


@pytest.mark.parametrize("name", machines.names())
def test_advice_about_a_machine_names_nothing_of_others(name):
    assert list(wrong(name, machines.machine(name), seed=1)) == []


def test_advice_about_mutated_machines_names_nothing_of_others():
    assert list(wrong_of_mutants(range(QUICK))) == []


@pytest.mark.slow
def test_advice_about_ten_thousand_mutated_machines_names_nothing_of_others():
    assert list(wrong_of_mutants(range(QUICK, MANY))) == []


def test_an_interface_of_another_port_function_or_representor_is_found():
    """Else nothing above could fail."""
    owners = Owners(machines.machine("cx5-dual"))
    ours, others = "ip link set ens1f0np0 up", "ip link set ens1f1np1 up"
    assert foreign(owners, "mlx5_0", ours) == []
    assert foreign(owners, "mlx5_0", others) == ["ens1f1np1"]
    assert foreign(owners, "mlx5_0", "behind ens1f0np0r0") == ["ens1f0np0r0"]
    assert foreign(owners, "mlx5_2", "on 0000:81:00.0") == []  # its physical function
    assert foreign(owners, "mlx5_0", "Ens1f0np0 is enslaved") == ["Ens1f0np0"]
    two, advice = Owners(machines.machine("cx3-vpi")), "port {} is DOWN: ip link set enp130s0d1 up"
    assert foreign(two, "mlx4_0", advice.format(1)) == ["enp130s0d1"]
    assert foreign(two, "mlx4_0", advice.format(2)) == []
