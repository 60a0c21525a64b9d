"""Takes the survey of this node, of a recording, or of a machine that comes with kube-rdma.

For commands of people with the option --sysfs. A machine in memory needs nothing of Linux, so what
asks the kernel is imported for the others alone: these commands run on any system
(tests/unit/cli/test_any_laptop.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
from kube_rdma.model.survey import Survey


def survey_at(
    sysfs: SysfsRoot | None, own: Callable[[], Mapping[str, str]] | None = None
) -> Survey:
    """Return the survey of `sysfs`, None for this node; raise Refused if it is no sysfs.

    `own` are this node's addresses, as take_survey has them.
    """
    if isinstance(sysfs, RecordedText):
        return read_survey(sysfs)
    from kube_rdma.hardware.survey import nobody, take_survey

    return take_survey(sysfs, own=own or nobody)


def called(sysfs: SysfsRoot) -> str:
    """Return the name of a node of files: its machine's, or its folder."""
    return sysfs.name if isinstance(sysfs, RecordedText) else str(sysfs)
