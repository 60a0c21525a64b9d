"""What an administrator sets about admission, one assignment each: ``mgpuResources=a/b,c/d``.

The names are those of the chart's values below admission.pods; `kube-rdma config check` takes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import near
from kube_rdma.model.admission.facts import USUAL, AdmissionSettings

FIELDS = {
    "shareResources": "shares",
    "mgpuResources": "mgpu",
    "gpuResources": "gpus",
    "vepfsDrivers": "vepfs_drivers",
    "vepfsStorageClasses": "vepfs_classes",
    "vepfsFolders": "vepfs_folders",
    "hostNetworkResources": "on_host",
    "namespaceIsolation": "everybodys",
    "shmSize": "shm_size",
}
SIZE = r"[1-9][0-9]{0,11}(?:[kMGTP]|[KMGTP]i)?"


def load(assignments: Iterable[str], where: str) -> AdmissionSettings:
    """The settings with these over the usual ones; `where` names the option in messages.

    Raise Refused for another name, or a size that is none.
    """
    settings = USUAL
    for text in assignments:
        name, equals, value = text.partition("=")
        if name not in FIELDS or not equals:
            meant = near(name, list(FIELDS))
            guess = f"Did you mean {meant}? " if meant else ""
            raise Refused(
                f"{shown(text)} sets nothing of admission",
                remedy=f"{guess}Write NAME=LIST with one of {', '.join(FIELDS)}",
                where=where,
            )
        change: dict[str, Any] = {FIELDS[name]: _value(name, value, where)}
        settings = replace(settings, **change)
    return settings


def _value(name: str, text: str, where: str) -> object:
    if name != "shmSize":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if not re.fullmatch(SIZE, text):
        raise Refused(
            f"{shown(text)} is not a size of memory",
            remedy="Write it like shmSize=8Gi",
            where=where,
        )
    return text
