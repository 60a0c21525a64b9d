"""Names the records of attachments on disk: attachment-ID while ADD runs, attached-ID after it.

attach/executor writes and reads them (adapters/journal). A single interface, for which a
meta-plugin or another CNI plugin calls, has a record of its own, ID@INTERFACE, in another folder.
"""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId
from kube_rdma.model.pools import RebindFunction, SetFunction

# An IPoIB link returns to the node, too (netns_refund in ipoib_link_ops).
_LEFT = (steps.TakeLink, steps.MoveRdma, steps.CallPlugin, SetFunction, RebindFunction)
_BEGUN, _COMPLETE = "attachment", "attached"  # what a record's name begins with


def outlives(attachment: Attachment) -> bool:
    """Return whether an attachment changes more than the pod's network namespace.

    If not, a record that a power failure loses or brings back does no harm: the failure ends the
    namespace too. Addresses have records of their own.
    """
    planned = (step for plan in attachment.plans for step in plan.steps)
    return any(
        isinstance(step, _LEFT) or getattr(step, "kind", None) is steps.VirtualKind.IPOIB
        for step in planned
    )


def begun_name(key: AttachmentKey) -> str:
    """Return the record's name while its ADD is not answered."""
    return f"{_BEGUN}-{_spelled(key)}"


def complete_name(key: AttachmentKey) -> str:
    """Return the record's name after its ADD is answered, until DEL."""
    return f"{_COMPLETE}-{_spelled(key)}"


def key_of(record: Attachment, *, split: bool) -> AttachmentKey:
    """Return the key of a record; `split`: the record is in the folder of single interfaces."""
    return _read(record.sandbox.container, split=split)


def key_named(name: str, *, split: bool) -> AttachmentKey:
    """Return the key by a record's name, for a record that cannot be read."""
    return _read(name.partition("-")[2], split=split)


def written(key: AttachmentKey, attachment: Attachment) -> Attachment:
    """Return an attachment in the form of its record, where the id holds the interface too."""
    return replace(attachment, sandbox=replace(attachment.sandbox, container=_spelled(key)))


def plain(key: AttachmentKey, record: Attachment) -> Attachment:
    """Return a record's attachment with the container's id alone, without the interface."""
    if key.interface is None:
        return record
    return replace(record, sandbox=replace(record.sandbox, container=key.container))


def as_read(name: str, record: Attachment) -> Attachment:
    """Return a record as read, marked complete if its name says so."""
    complete = record.complete or name == f"{_COMPLETE}-{record.sandbox.container}"
    return replace(record, complete=complete)


def _spelled(key: AttachmentKey) -> ContainerId:
    """Return the container id of a key as records have it, with ``@interface`` behind if any."""
    if key.interface is None:
        return key.container
    return ContainerId(f"{key.container}@{key.interface}")


def _read(text: str, *, split: bool) -> AttachmentKey:
    if not split:
        return AttachmentKey(ContainerId(text))
    container, _, interface = text.partition("@")
    return AttachmentKey(ContainerId(container), InterfaceName(interface))
