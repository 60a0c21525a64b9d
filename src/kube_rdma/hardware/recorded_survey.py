"""Takes the survey of this node, of a recording, or of a machine that comes with kube-rdma.

It is for commands of people with the option --sysfs. A machine in memory needs nothing of Linux, so
what asks the kernel is imported for this node alone. These commands run on any system
(tests/unit/cli/test_any_laptop.py). A Survey is what sysfs shows with what netlink said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
from kube_rdma.model.survey import Survey


def survey_at(sysfs: SysfsRoot | None, own: Callable[[], Mapping[str, str]] = dict) -> Survey:
    """Return the Survey of a sysfs tree, or of this node for None; raise Refused for any other.

    `own` returns this node's addresses, as take_survey takes them. For a tree the running kernel is
    not asked: the tree has what netlink said when it was recorded.
    """
    if sysfs is None:
        from kube_rdma.hardware.survey import take_survey

        return take_survey(own=own)
    if isinstance(sysfs, Path) and not (sysfs / "class").is_dir():
        raise Refused(
            f"{sysfs} is not a sysfs tree: it has no folder named class",
            remedy="Give the folder that holds class/infiniband, class/net and bus/pci",
            where="--sysfs",
        )
    survey = link_view.with_links(read_survey(sysfs), partial(link_view.recorded_links, sysfs))
    return link_view.with_routes(survey, sysfs, partial(link_view.recorded_routes, sysfs))


def called(sysfs: SysfsRoot) -> str:
    """Return the name of a recorded node: that of its machine, or the path of its folder."""
    return sysfs.name if isinstance(sysfs, RecordedText) else str(sysfs)
