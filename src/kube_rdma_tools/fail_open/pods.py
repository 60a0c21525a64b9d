"""A pod that asks for a NIC, many times, with the check in the place of its program.

What the pod asks for, and by which driver, is the reader's own document: resources, claims,
annotations and image stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kube_base.errors import Refused

LABEL = "fail-open"
EXPECTATIONS = ("netdev", "rdma", "verbs")
CHECK = Path(__file__).with_name("check.sh").read_text()

Document = dict[str, Any]


def probes(
    pod: Mapping[str, Any], count: int, expect: Sequence[str], late: int
) -> Iterator[Document]:
    """Yield `count` pods like this one, whose program checks that `expect` is there.

    For `late` seconds a pod that lacks something goes on looking. Raise Refused for a document that
    is no pod with one container.
    """
    spec, name = pod.get("spec") or {}, (pod.get("metadata") or {}).get("name")
    if pod.get("kind") != "Pod" or not name:
        raise Refused("the document is no Pod with a name", remedy="Give a Pod with metadata.name")
    if len(spec.get("containers") or ()) != 1:
        raise Refused(
            f"the pod {name} has {len(spec.get('containers') or ())} containers",
            remedy="Give a pod with one container, the one that has the NIC",
        )
    for number in range(1, count + 1):
        yield _probe(pod, f"{name}-{number}", expect, late)


def _probe(pod: Mapping[str, Any], name: str, expect: Sequence[str], late: int) -> Document:
    made: Document = copy.deepcopy(dict(pod))
    metadata, spec = made["metadata"], made["spec"]
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: metadata["name"]}
    metadata["name"] = name
    spec["restartPolicy"] = "Never"
    (container,) = spec["containers"]
    container["command"] = ["sh", "-c", CHECK]
    for field in ("args", "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"):
        container.pop(field, None)
    given = {"EXPECT": " ".join(expect), "LATE": str(late)}
    others = [one for one in container.get("env") or () if one["name"] not in given]
    container["env"] = [*others, *({"name": key, "value": given[key]} for key in given)]
    return made
