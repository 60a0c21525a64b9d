"""The attachments of this node on disk, by key: which folder and which name a record has.

Below programs/agent/pod_networks/executor, which writes before it acts. What the runtime's call
made for a pod stands in the folder `attachments` under its container; what a call for one interface
made stands in `delegated` under ``container@interface``, and calls its sandbox so. Other versions
read both, so this spelling stays, here and nowhere else (docs/decisions/0017, 0019).
"""

from __future__ import annotations

from collections.abc import Callable

from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey
from kube_rdma.model.frozen import replace
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding.binding import ContainerId
from kube_rdma.programs.records import Records, in_the_log

_BEGUN, _COMPLETE = "attachment", "attached"  # what a record's name begins with


class AttachmentJournal:
    """`pods` and `interfaces` are the journals of the two folders.

    `tell` takes a sentence for each record that cannot be read.
    """

    def __init__(
        self,
        pods: Journal[Attachment],
        interfaces: Journal[Attachment],
        tell: Callable[[str], None] = in_the_log,
    ) -> None:
        """Read both, which blocks; raise Unavailable when the disk fails."""
        self._pods = Records(pods, tell, read=as_named)
        self._interfaces = Records(interfaces, tell, read=as_named)

    @property
    def attachments(self) -> dict[AttachmentKey, Attachment]:
        """Every attachment, those of whole pods first."""
        values = [(_key(one, split=False), one) for one in self._pods.values]
        values += [(_key(one, split=True), one) for one in self._interfaces.values]
        return {key: _plain(key, one) for key, one in values}

    @property
    def foreign(self) -> frozenset[AttachmentKey]:
        """Those with a record that this version of kube-rdma does not understand."""
        pods = (_named(name, split=False) for name in self._pods.foreign_names)
        interfaces = (_named(name, split=True) for name in self._interfaces.foreign_names)
        return frozenset((*pods, *interfaces))

    def get(self, key: AttachmentKey) -> Attachment | None:
        """The attachment of this key."""
        records = self._of(key)
        record = records.get(_name(_COMPLETE, key)) or records.get(_name(_BEGUN, key))
        return record and _plain(key, record)

    async def refuse_foreign(self, key: AttachmentKey) -> None:
        """Raise Unavailable for a key with such a record: half an undo would be worse than none."""
        await self._of(key).refuse_foreign(_name(_BEGUN, key), _name(_COMPLETE, key))

    def begin(self, key: AttachmentKey, attachment: Attachment) -> None:
        """Write an attachment that is not complete, from a thread; as Records.begin."""
        sandbox = replace(attachment.sandbox, container=_spelled(key))
        self._of(key).begin(_name(_BEGUN, key), replace(attachment, sandbox=sandbox))

    async def complete(self, key: AttachmentKey) -> None:
        """From now on it is; its name says so, which takes the disk a third of a new record."""
        records, begun = self._of(key), _name(_BEGUN, key)
        record = records.get(begun)
        assert record
        await records.rename(begun, _name(_COMPLETE, key), replace(record, complete=True))

    async def remove(self, key: AttachmentKey) -> None:
        """Forget it, complete or not; a disk that fails keeps it for the next process."""
        await self._of(key).forget(_name(_COMPLETE, key), _name(_BEGUN, key))

    def _of(self, key: AttachmentKey) -> Records[Attachment]:
        return self._pods if key.interface is None else self._interfaces


def _name(beginning: str, key: AttachmentKey) -> str:
    return f"{beginning}-{_spelled(key)}"


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


def _key(record: Attachment, *, split: bool) -> AttachmentKey:
    return _read(record.sandbox.container, split=split)


def _named(name: str, *, split: bool) -> AttachmentKey:
    return _read(name.partition("-")[2], split=split)


def _plain(key: AttachmentKey, record: Attachment) -> Attachment:
    """With the container's own id."""
    if key.interface is None:
        return record
    return replace(record, sandbox=replace(record.sandbox, container=key.container))


def as_named(name: str, record: Attachment) -> Attachment:
    """A record; that it is complete, its name may say alone."""
    complete = record.complete or name == f"{_COMPLETE}-{record.sandbox.container}"
    return replace(record, complete=complete)
