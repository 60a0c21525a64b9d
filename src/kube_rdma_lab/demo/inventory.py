"""Lists the objects of the demo's lab when its table is printed, and those that were added since.

`kube-rdma lab demo` writes the list down. `kube-rdma lab down --if-only-demo`, with which `make
test` begins, ends the lab only where nothing was added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab import lab as labs
from kube_rdma_lab.cluster import kubectl
from kube_rdma_lab.lab import Lab

FILE = "demo.json"
# Programs make and remove these by themselves, to say what happens or what is alive.
PASSING = frozenset({"Event", "Lease", "Endpoints", "EndpointSlice", "ComponentStatus"})
COLUMNS = "{.kind} {.metadata.namespace} {.metadata.name} {.metadata.ownerReferences[*].kind}"
SHOWN = 3  # names in a sentence


def objects(lab: Lab) -> frozenset[str]:
    """Return the lab's objects, as `Kind namespace/name` or `Kind name`.

    Objects that have an owner, such as a Deployment's pods, and PASSING kinds are left out.
    """
    kinds = ",".join(kubectl(lab, "api-resources", "--verbs=list", "-o", "name").split())
    rows = f"jsonpath={{range .items[*]}}{COLUMNS}\n{{end}}"
    lines = kubectl(lab, "get", kinds, "-A", "-o", rows)
    return frozenset(_names(lines.splitlines()))


def _names(lines: Iterable[str]) -> Iterable[str]:
    """Yield the names for `objects` out of lines of COLUMNS, whose words may be empty."""
    for line in lines:
        kind, namespace, name, owners = line.split(" ", 3)
        if kind not in PASSING and not owners:
            yield f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def write(lab: Lab) -> None:
    """Write the names of the lab's ownerless objects into its folder."""
    (lab.home / FILE).write_text(json.dumps(sorted(objects(lab)), indent=1))


def end(name: str) -> str:
    """End the lab if it has only the demo's objects; return a sentence for users.

    The sentence is empty if no lab runs.
    """
    try:
        lab = labs.find(name)
        reason = why_not(lab)
    except Refused:
        return ""
    except Unavailable as error:
        reason = str(error).splitlines()[0]
    if reason:
        return f"The lab {name!r} stays up and takes its part of this machine: {reason}."
    labs.down(name)
    return f"The lab {name!r} held nothing but the demo and is down; `make demo` boots it again."


def why_not(lab: Lab) -> str:
    """Return why a lab has to stay: no demo has run in it, or it has more objects; else ""."""
    try:
        before = frozenset(json.loads((lab.home / FILE).read_text()))
    except FileNotFoundError:
        return "no demo has run in it"
    added = sorted(objects(lab) - before)
    more = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
    return f"somebody made {', '.join(added[:SHOWN])}{more}" if added else ""
