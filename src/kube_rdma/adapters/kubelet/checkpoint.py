"""Reads what the kubelet itself wrote down of the shares that it gave away.

A kubelet that has just started tells of no pods by pod resources until the API server has named
them, and its record is on the disk all the time: in the folder of device plugins, which every agent
has. It is written before a container starts and replaced whole (kubernetes@v1.36.3
pkg/kubelet/cm/devicemanager/manager.go, writeCheckpoint; checkpoint/checkpoint.go has its form). It
names pods by uid, and those that ended stay until the next writing.
"""

from __future__ import annotations

from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, field
from kube_rdma.model.pools.holding import RecordedGrant
from kube_rdma.model.pools.pool import ShareId

NAME = "kubelet_internal_checkpoint"


class _CheckpointEntry(Frozen, rename="pascal"):
    """PodDevicesEntry; `device_ids` by NUMA node, -1 for none."""

    pod_uid: str = field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, tuple[str, ...] | None] | None = field(name="DeviceIDs", default=None)

    @property
    def shares(self) -> tuple[ShareId, ...]:
        names = {name for ids in (self.device_ids or {}).values() for name in ids or ()}
        return tuple(map(ShareId, sorted(names)))


class _CheckpointData(Frozen, rename="pascal"):
    pod_device_entries: tuple[_CheckpointEntry, ...] | None = None


class _Checkpoint(Frozen, rename="pascal"):
    data: _CheckpointData


class DeviceCheckpoint:
    """The record of the kubelet whose folder of device plugins this is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> tuple[RecordedGrant, ...]:
        """What was given away; nothing where no kubelet has written yet.

        It blocks. Raise Unavailable where the record cannot be read.
        """
        try:
            entries = decoded(self._path.read_bytes(), _Checkpoint).data.pod_device_entries or ()
        except FileNotFoundError:
            return ()
        except (OSError, Undecodable) as error:
            why = error.why if isinstance(error, Undecodable) else error.strerror
            raise Unavailable(
                f"The kubelet's record {self._path} of the shares that pods hold cannot be read "
                f"({why}); until it can, a kubelet that has just started is taken at its word."
            ) from error
        return tuple(
            RecordedGrant(entry.pod_uid, entry.container_name, entry.resource_name, entry.shares)
            for entry in entries
        )
