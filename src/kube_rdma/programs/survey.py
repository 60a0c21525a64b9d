"""Takes the Survey: joins what sysfs shows with what RDMA netlink says.

The agent takes one whenever the kernel announces a change, `kube-rdma devices` takes one and shows
it. Taking one reads some thousand small files: call it in a thread from async code.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kube_rdma.adapters.kernel.rdma_netlink import merge, read_links
from kube_rdma.adapters.kernel.record import recorded_links
from kube_rdma.adapters.kernel.sysfs import read_survey
from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma.model.survey import Fault, Survey

_SYSFS = Path("/sys")


def take_survey(sysfs: Path | None = None) -> Survey:
    """The RDMA devices of this node, or of the recorded tree `sysfs`.

    With a tree nothing of the running kernel is asked; what netlink said then is in the tree. A
    kernel without RDMA netlink is a fault in the Survey, for that is how the node is. Raise Refused
    when `sysfs` is no sysfs tree.
    """
    if sysfs is not None and not (sysfs / "class").is_dir():
        raise Refused(
            f"{sysfs} is not a sysfs tree: it has no folder named class",
            remedy="Give the folder that holds class/infiniband, class/net and bus/pci",
            where="--sysfs",
        )
    survey = read_survey(sysfs or _SYSFS)
    try:
        links = recorded_links(sysfs) if sysfs else read_links()
        return merge(survey, links) if links else survey
    except Unavailable as error:
        return replace(survey, faults=(*survey.faults, Fault("RDMA netlink", str(error))))
