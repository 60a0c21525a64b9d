"""Rules about names that another installation has, and labels by which others start pods.

Helm refuses to take over what another release made; `kubectl apply` overwrites it, and its owner
breaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.judged_pods import judged_pods
from kube_rdma_tools.judge.scheduling import WRITES_FEATURES
from kube_rdma_tools.judge.violation import Violation
from kube_rdma_tools.judge.written_commands import written_alone

_DEFINITION = "CustomResourceDefinition"
_FEATURES = "feature.node.kubernetes.io/"


def taken_name(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """Another installation has an object of this name."""
    owners = {
        (taken.kind, taken.namespace, taken.name): neighbour.name
        for neighbour in environment.neighbours
        for taken in neighbour.objects
    }
    for made in objects:
        name, namespace = made["metadata"]["name"], made["metadata"].get("namespace", "")
        owner = owners.get((made["kind"], namespace, name))
        if owner:
            yield Violation(
                f"{made['kind']}/{name}",
                "",
                "metadata.name",
                f"{owner} has this object{f' in {namespace}' if namespace else ''}: Helm "
                "refuses, kubectl apply overwrites it",
                "choose another name, or say how to take it over",
            )


def taken_definition(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """Another installation has the CustomResourceDefinition, perhaps with another scope."""
    owners = {
        definition.name: (neighbour.name, definition)
        for neighbour in environment.neighbours
        for definition in neighbour.definitions
    }
    for made in objects:
        name = made["metadata"]["name"]
        if made["kind"] != _DEFINITION or name not in owners:
            continue
        owner, taken = owners[name]
        differs = taken.cluster_wide != (made["spec"]["scope"] == "Cluster")
        yield Violation(
            f"{_DEFINITION}/{name}",
            "",
            "spec.scope" if differs else "metadata.name",
            f"{owner} owns it"
            + (", with another scope, which cannot be changed" if differs else ""),
            "leave the definition out, and serve the other's objects or none",
        )


def ambiguous_plural(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """A text has people type a kind's name, which another group has too, without the group."""
    definitions = [row for neighbour in environment.neighbours for row in neighbour.definitions]
    owned = {definition.name for definition in definitions}
    taken = {word: row.name for row in definitions for word in row.words}
    for made in objects:
        if made["kind"] != _DEFINITION or made["metadata"]["name"] in owned:
            continue
        names = made["spec"]["names"]
        for word in (names["plural"], names["kind"].lower(), *names.get("shortNames", ())):
            place = written_alone().get(word, "")
            if word in taken and place:
                yield Violation(
                    f"{_DEFINITION}/{made['metadata']['name']}",
                    "",
                    "spec.names",
                    f"kubectl may read {word} as {taken[word]}, and {place} writes it alone",
                    f"write {word}.{made['spec']['group']} there",
                )


def starts_others(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """Agents write a label by which DaemonSets of another installation select nodes."""
    selected = {
        neighbour.name: ", ".join(neighbour.selected)
        for neighbour in environment.neighbours
        if any(label.startswith(_FEATURES) for label in neighbour.selected)
    }
    for pod in judged_pods(objects):
        for container in pod.containers:
            if WRITES_FEATURES not in (container.body.get("args") or ()):
                continue
            for owner, labels in selected.items():
                yield pod.violation(
                    "args",
                    f"it writes labels that DaemonSets of {owner} select: {labels}",
                    "write no labels of Node Feature Discovery by default",
                    container,
                )
