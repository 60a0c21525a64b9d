"""What the agent of this node has in its journal of a pod, and CNI CHECK of it, without the agent.

Beside doctor/pod. The journal knows the pod's network namespace, also in a container that
sees no process of the pod, and what was made in it; attach/rules/undo compares the two. Records are
glanced at and nothing is run, so other CNI plugins are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.glance import glances
from kube_rdma.adapters.kernel.pod.namespaces import Namespace
from kube_rdma.adapters.kernel.pod.steps import PodNetwork, open_pod
from kube_rdma.attach.rules.records import as_read
from kube_rdma.attach.rules.undo import check, looked_at
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.doctor import ObservedAttachment
from kube_rdma.model.late_binding.binding import PodName

OpenPod = Callable[[Namespace], AbstractContextManager[PodNetwork]]

FOLDERS = ("attachments", "delegated")  # of the agent's state; format.py has what is in them


def recorded(state: Path, pod: PodName, uid: str = "") -> tuple[Attachment, ...] | None:
    """The attachments of a pod; a pod of that name and another uid is another pod.

    None where no agent with networks has written here. Raise Unavailable.
    """
    read = [glances(state / folder, "attachment", Attachment) for folder in FOLDERS]
    if all(records is None for records in read):
        return None
    return tuple(
        as_read(name, one)
        for records in read
        for name, one in records or ()
        if one.sandbox.pod == pod and uid in ("", one.sandbox.uid)
    )


def checked(
    attachments: Iterable[Attachment], opened: OpenPod = open_pod
) -> tuple[ObservedAttachment, ...]:
    """Each interface against the pod as it is; one that is being made is none yet.

    Raise Unavailable when the pod's namespace is gone, Refused when it may not be entered.
    """
    return tuple(
        interface
        for attachment in attachments
        if attachment.complete
        for interface in _checked(attachment, opened)
    )


def _checked(attachment: Attachment, opened: OpenPod) -> tuple[ObservedAttachment, ...]:
    sandbox = attachment.sandbox
    with opened(Path(sandbox.netns_path)) as pod:
        if pod.inode != sandbox.netns_inode:  # another one has come to its path
            raise Unavailable(f"the network namespace {sandbox.netns_path} is gone")
        view = pod.look(*looked_at(attachment.plans))
    return tuple(
        ObservedAttachment(plan.interface, plan.network, check(plan, view))
        for plan in attachment.plans
    )
