"""What an attachment is called on disk, by its key, and what its name alone says.

For attach/executor, which writes the records, and for
explain/evidence, which glances at them. What the runtime's call made for a pod stands in
the folder `attachments` under its container; what a call for one interface made stands in
`delegated` under ``container@interface``, and calls its sandbox so. Other versions read both, so
this spelling stays, here and nowhere else (docs/decisions/0017, 0019).
"""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding.binding import ContainerId

_BEGUN, _COMPLETE = "attachment", "attached"  # what a record's name begins with


def begun_name(key: AttachmentKey) -> str:
    """The name of a record whose ADD has not answered yet."""
    return f"{_BEGUN}-{_spelled(key)}"


def complete_name(key: AttachmentKey) -> str:
    """The name of a record that only DEL ends."""
    return f"{_COMPLETE}-{_spelled(key)}"


def key_of(record: Attachment, *, split: bool) -> AttachmentKey:
    """The key of a record; `split`: it stands in the folder of single interfaces."""
    return _read(record.sandbox.container, split=split)


def key_named(name: str, *, split: bool) -> AttachmentKey:
    """The key of a record of which only the name is understood."""
    return _read(name.partition("-")[2], split=split)


def written(key: AttachmentKey, attachment: Attachment) -> Attachment:
    """An attachment as the record has it."""
    return replace(attachment, sandbox=replace(attachment.sandbox, container=_spelled(key)))


def plain(key: AttachmentKey, record: Attachment) -> Attachment:
    """A record with the container's own id."""
    if key.interface is None:
        return record
    return replace(record, sandbox=replace(record.sandbox, container=key.container))


def as_read(name: str, record: Attachment) -> Attachment:
    """A record as it was read; that it is complete, its name may say alone."""
    complete = record.complete or name == f"{_COMPLETE}-{record.sandbox.container}"
    return replace(record, complete=complete)


def _spelled(key: AttachmentKey) -> ContainerId:
    """What the disk calls the sandbox of this key; a container's id has no @."""
    if key.interface is None:
        return key.container
    return ContainerId(f"{key.container}@{key.interface}")


def _read(text: str, *, split: bool) -> AttachmentKey:
    if not split:
        return AttachmentKey(ContainerId(text))
    container, _, interface = text.partition("@")
    return AttachmentKey(ContainerId(container), InterfaceName(interface))
