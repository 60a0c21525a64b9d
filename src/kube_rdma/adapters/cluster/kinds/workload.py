"""DaemonSets and Deployments, and the ConfigMaps that their pods read.

A DaemonSet is a document for whoever compares or shows all its fields (the operator, a plan of
migration), and has a few fields for who lists all of a cluster (`kube-rdma status`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from kube_base.foreign_json import decoded
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind
from kube_rdma.adapters.cluster.kinds.pod import Container

Json = dict[str, Any]


class _TemplateSpec(msgspec.Struct, frozen=True):
    containers: tuple[Container, ...] = ()


class _Template(msgspec.Struct, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}


class WorkloadSpec(msgspec.Struct, frozen=True):
    """The part of spec that is read of a DaemonSet and a Deployment."""

    template: _Template = _Template()
    selector: _Selector = _Selector()
    replicas: int = 1


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The counts of both kinds."""

    desired_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0


DOCUMENT: ObjectCodec[Json] = ObjectCodec(
    partial(decoded, what=dict[str, Any]), msgspec.json.encode
)
_SPEC = ObjectCodec.of(WorkloadSpec, writes=False)
_COUNTS = ObjectCodec.of(WorkloadStatus, writes=False)

DAEMON_SET = ObjectKind(
    "apps", "v1", "DaemonSet", "daemonsets", namespaced=True, spec=DOCUMENT, status=_COUNTS
)
DAEMON_SETS = DAEMON_SET.read_as(_SPEC, _COUNTS)
DEPLOYMENTS = ObjectKind(
    "apps", "v1", "Deployment", "deployments", namespaced=True, spec=_SPEC, status=_COUNTS
)
CONFIG_MAP: ObjectKind[Json, None] = ObjectKind(
    "",
    "v1",
    "ConfigMap",
    "configmaps",
    namespaced=True,
    spec=DOCUMENT,
    status=NOTHING,
    content="data",
)
