"""A recorded machine answers the doctor as the live one does, check by check.

The live one is a made-up tree with all that is to be read, planted with each fault in turn, and
with fakes for what is no file. The recording is what `kube-rdma devices --record` makes of it.
"""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.dcb import decode_flow_control
from kube_rdma.adapters.kernel.proc import read_hypervisor
from kube_rdma.adapters.kernel.sysfs.record import record
from kube_rdma.doctor.beside_sysfs import (
    KernelReaders,
    read_beside_sysfs,
    recorded_beside_sysfs,
    watched_errors,
    with_beside_sysfs,
    write_beside_sysfs,
)
from kube_rdma.doctor.evidence import DoctorPlaces, observe
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.model.doctor import Observation
from kube_rdma_lab.native.tree_text import unpack, write
from kube_rdma_testing.kernel.tree_counters import write_counters
from tests.kit.dcb import answer
from tests.unit.doctor.test_faults_of_threads import (
    CARD,
    COUNTERS,
    DSCP,
    FAULTS,
    HARDWARE,
    TREES,
    WELL,
    nobody,
    plant,
)

CODES = {fault.code for fault in FAULTS} - {"KR128"}  # which takes several nodes
BY_THE_DOCTOR = {*CODES, "KR125", "KR126"}


def nothing():
    return None


def doors(root, fault, statistics):
    """What stands for the kernel: netlink's bytes, counters that rise, statistics, /proc."""

    def flow_control(interfaces):
        return tuple(
            decode_flow_control(answer(interface, pfc=1 << 5, dscp=DSCP), interface, driver)
            for interface, driver in interfaces
        )

    async def watch(seconds, read):
        async def pause(_seconds):
            for folder, counter, more in fault.rises:
                was = (COUNTERS | HARDWARE)[counter]
                write_counters(root, f"{fault.device}/ports/1", folder, {counter: was + more})

        return await watched_errors(seconds, read, root=root, pause=pause)

    return KernelReaders(flow_control, watch, statistics, lambda: read_hypervisor(root))


async def live_and_recorded(tmp_path, fault, statistics=None):
    """What the doctor sees of the machine, and of its recording."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    plant(live, fault)
    narrow(live)
    seen = await observe(DoctorPlaces("node-1", sysfs=live), nobody)
    kernel = doors(live, fault, statistics or (lambda _interface: {}))
    beside = await read_beside_sysfs(seen.survey, 2.0, kernel)
    _, faults = record(live, nothing, nothing, copy)
    assert faults == ()
    write_beside_sysfs(beside, copy)
    return with_beside_sysfs(seen, beside), await observe(
        DoctorPlaces("node-1", sysfs=copy), nobody
    )


def narrow(root):
    """The card's PCIe link has half of its lanes."""
    (folder,) = root.glob(f"devices/**/{CARD}")
    for name, value in (("current", "8"), ("max", "16")):
        for place in (folder, folder.parent):
            where = str(place.relative_to(root))
            write(root, f"{where}/{name}_link_width", value)
            write(root, f"{where}/{name}_link_speed", "32.0 GT/s PCIe")


@pytest.mark.parametrize("fault", [*FAULTS, WELL], ids=lambda fault: fault.thread or "well")
async def test_a_recorded_machine_has_the_findings_of_the_live_one(tmp_path, fault):
    live, recorded = await live_and_recorded(tmp_path, fault)
    assert diagnose(recorded) == diagnose(live)
    judged = {*diagnose(live).passed, *(one.code for one in diagnose(live).findings)}
    assert judged >= BY_THE_DOCTOR, "a check was not made, so its recording was not tried"
    assert "KR125" in {one.code for one in diagnose(live).findings}
    if fault.code in CODES:
        assert fault.code in {one.code for one in diagnose(recorded).findings}


async def test_what_could_not_be_read_is_not_seen_in_the_recording_either(tmp_path):
    def refuses(interface):
        raise Unavailable(f"the driver of {interface} tells no statistics")

    live, recorded = await live_and_recorded(tmp_path, WELL, refuses)
    assert recorded.not_seen == live.not_seen
    assert "statistics of interfaces" in {one.part for one in recorded.not_seen}


async def test_a_recording_of_an_older_release_lacks_these_parts_alone(tmp_path):
    unpack((TREES / "xe9680-like/tree.txt").read_text(), tmp_path)
    assert recorded_beside_sysfs(tmp_path) is None
    seen = await observe(DoctorPlaces("node-1", sysfs=tmp_path), nobody)
    assert (seen.errors, seen.flow_control, seen.virtual_machine) == (None, None, None)


async def test_a_recording_of_a_recording_is_the_same(tmp_path):
    _, recorded = await live_and_recorded(tmp_path, FAULTS[0])
    again = tmp_path / "again"
    record(tmp_path / "copy", nothing, nothing, again)
    write_beside_sysfs(recorded_beside_sysfs(tmp_path / "copy"), again)
    assert await observe(DoctorPlaces("node-1", sysfs=again), nobody) == recorded


async def test_the_file_beside_the_tree_has_these_parts_alone(tmp_path):
    """Whoever sends a recording sends no name of a pod or a node."""
    _, recorded = await live_and_recorded(tmp_path, FAULTS[0])
    alone = Observation(
        "",
        errors=recorded.errors,
        flow_control=recorded.flow_control,
        virtual_machine=recorded.virtual_machine,
        not_seen=recorded_beside_sysfs(tmp_path / "copy").not_seen,
    )
    assert recorded_beside_sysfs(tmp_path / "copy") == alone
