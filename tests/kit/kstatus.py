"""What kstatus says of a custom resource, as Helm 4 and Flux wait by it.

Read from fluxcd/cli-utils@v1.2.2 (Helm 4.3's own), pkg/kstatus/status: generic.go, and status.go
for objects that have no rules of their own. tests/lab/native/test_helm.py has the real one.
"""

from enum import Enum


class Kstatus(Enum):
    """What an object is; Helm waits while it is in progress, and gives up when it has failed."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"


def kstatus(document):
    """The verdict on an object as the API server returns it; TypeError where kstatus has an error.

    Its numbers and lists may be left out, but may not be null.
    """
    meta, status = document["metadata"], document.get("status", {})
    if meta.get("deletionTimestamp"):
        return Kstatus.TERMINATING
    if "generation" in meta and "observedGeneration" in status:
        seen = status["observedGeneration"]
        if type(seen) is not int:
            raise TypeError(f"status.observedGeneration is {seen!r}, no whole number")
        if seen != meta["generation"]:
            return Kstatus.IN_PROGRESS
    conditions = status.get("conditions", [])
    for each in conditions:  # in their order
        if (each["type"], each["status"]) == ("Reconciling", "True"):
            return Kstatus.IN_PROGRESS
        if (each["type"], each["status"]) == ("Stalled", "True"):
            return Kstatus.FAILED
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "True")
    return Kstatus.CURRENT if ready == "True" else Kstatus.IN_PROGRESS
