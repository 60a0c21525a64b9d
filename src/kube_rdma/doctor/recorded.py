"""Collects the Observation of a recorded node, or of an example machine of kube-rdma.

evidence.py does it for this node, of which nothing is asked here. A machine in memory loads nothing
of Linux, so the doctor judges one on any system (tests/unit/cli/test_any_laptop.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.kernel.sysfs.pci import read_pcie
from kube_rdma.adapters.kernel.sysfs.pci_paths import read_bridges, read_domains
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
from kube_rdma.doctor.rules.cards import bridges_of, functions_of
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.doctor import Observation
from kube_rdma.model.pools import PoolSpec


def observe_recorded(node: str, sysfs: SysfsRoot, config: Path | None = None) -> Observation:
    """Return an Observation of a recorded node; raise Refused if the folder is no recording."""
    reader = PartReader()
    seen = Observation(node, survey=survey_at(sysfs), from_files=True)
    seen = of_cards(seen, reader, config, _no_record, sysfs)
    if (beside := recorded_beside_sysfs(sysfs)) is not None:
        seen = with_beside_sysfs(seen, beside)
    return replace(seen, not_seen=(*reader.not_seen, *seen.not_seen))


def of_cards(
    seen: Observation,
    reader: PartReader,
    config: Path | None,
    recorded: Callable[[], tuple[PoolSpec, ...]],
    sysfs: SysfsRoot | None = None,
) -> Observation:
    """Add PCIe links, bridges, IOMMU domains and the pools to an Observation.

    The pools are read from the file `config`, else `recorded` returns them. Without `sysfs` this
    node's own is read. Faults of the file become refusals in the Observation.
    """
    survey = seen.survey
    assert survey is not None
    seen = replace(
        seen,
        pcie=reader.part("pcie", lambda: read_pcie(survey, sysfs)),
        bridges=reader.part("bridges", lambda: read_bridges(bridges_of(survey), sysfs)),
        domains=reader.part("domains", lambda: read_domains(functions_of(survey), sysfs)),
    )
    if config is None:
        return replace(seen, specs=reader.part("specs", recorded))
    from kube_rdma.pools.config import read_config

    try:
        return replace(seen, specs=read_config(config).pools, refusals=())
    except Refused as error:
        return replace(seen, refusals=(str(error),))


def _no_record() -> tuple[PoolSpec, ...]:
    raise Unavailable("the node's files do not say which pools it has; name one with --config")


# What beside_sysfs reads of this node and `devices --record` writes into the tree.

FILE = "doctor.json"


def recorded_beside_sysfs(tree: SysfsRoot) -> Observation | None:
    """Return the counters, flow control and hypervisor that a recorded tree has beside sysfs.

    Return None if it has none. Raise Refused for a record that cannot be read.
    """
    if isinstance(tree, RecordedText):
        return bundle.decode(tree.read(FILE), FILE) if tree.holds(FILE) else None
    path = tree / FILE
    return bundle.read(path) if path.exists() else None


def with_beside_sysfs(seen: Observation, beside: Observation) -> Observation:
    """Return an Observation with the counters, flow control and hypervisor of another one."""
    return replace(
        seen,
        errors=beside.errors,
        flow_control=beside.flow_control,
        virtual_machine=beside.virtual_machine,
        not_seen=(*seen.not_seen, *beside.not_seen),
    )
