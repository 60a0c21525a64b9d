"""The labels that Kubernetes recommends, by which people and programs find objects of one part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.install.rules.release import recommended
from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.judged_pods import judged_pods
from kube_rdma_tools.judge.violation import Violation

_WANTED = tuple(recommended("", "", "", ""))
# Their values follow from the release, its version or its manager, all others from the code alone.
_CHANGING = {key for key, value in recommended("", "*", "*", "*").items() if value == "*"}


def unlabelled(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """An object or its pods lack a label that Kubernetes recommends."""
    del environment
    for made in objects:
        where = f"{made['kind']}/{made['metadata']['name']}"
        places = [("metadata.labels", made["metadata"].get("labels") or {})]
        places += [
            (f"{pod.path.removesuffix('.spec')}.metadata.labels", pod.labels)
            for pod in judged_pods([made])
        ]
        for field, labels in places:
            missing = [key for key in _WANTED if not labels.get(key)]
            if missing:
                problem = f"there is no {', no '.join(missing)}"
                yield Violation(where, "", field, problem, "give the object its component")


def selected_by_version(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """A selector that cannot be changed has a label that changes: an upgrade is refused."""
    del environment
    for made in objects:
        selector = (
            made.get("spec", {}).get("selector") if "template" in made.get("spec", {}) else {}
        )
        changing = sorted(_CHANGING & set((selector or {}).get("matchLabels") or {}))
        if changing:
            yield Violation(
                f"{made['kind']}/{made['metadata']['name']}",
                "",
                "spec.selector.matchLabels",
                f"it selects by {', '.join(changing)}, which an upgrade can change",
                "select by labels that stay",
            )
