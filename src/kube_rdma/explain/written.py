"""Finds the pods of files, or of a workload of the cluster, each by the name of its object.

cli/explain calls it with all documents of a file. The pods are found and read as `config check`
finds them, so what that takes can be explained too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.admission.documents import manifests, pod_manifest
from kube_rdma.admission.rules.findings import misplaced
from kube_rdma.lib.phrases import listed
from kube_rdma.lib.text.document import Document
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.explain import PodEvidence
from kube_rdma.model.finding import Finding


class WrittenPod(Frozen):
    """A pod of an object: its name as users write it, and what stands around it."""

    title: str  # Pod/worker, MPIJob/nccl-tests:Worker
    owner: str  # the name of the object
    template: PodTemplate
    section: manifests.PodSection
    around: tuple[Finding, ...] = ()  # about annotations that no pod gets

    def placed(self, evidence: PodEvidence) -> PodEvidence:
        """Return the evidence whose findings of admission name line and column."""
        own = (replace(one, subject=self.section.where(one.path)) for one in evidence.findings)
        return replace(evidence, findings=(*own, *self.around))


def written_pods(
    documents: Iterable[Document], namespace: str, usual: Callable[[], str]
) -> Iterator[WrittenPod]:
    """Yield all pods; without `namespace` and one of its own a pod is in the `usual` one.

    Raise Refused for one that Kubernetes would not take. Others may be completed by a controller.
    """
    for document in documents:
        for manifest in manifests.manifests(document):
            yield from _pods_of(manifest, namespace or manifest.namespace or usual())


def chosen(pods: Sequence[WrittenPod], name: str, where: str) -> tuple[WrittenPod, ...]:
    """Return the pods of an object KIND/NAME, or one KIND/NAME:PART; raise Refused without any."""
    wanted = name.lower()
    found = [one for one in pods if wanted in ("", *_names(one))]
    if not found:
        titles = listed([one.title for one in pods])
        what = f"no pod of {name} is in it" if pods else "it describes no pod"
        remedy = f"Name one of {titles}" if pods else "Give a Pod, or a Job, Deployment or the like"
        raise Refused(what, remedy=remedy, where=where)
    return tuple(found)


def _names(pod: WrittenPod) -> tuple[str, str]:
    title = pod.title.lower()
    return title, title.partition(":")[0]


def _pods_of(manifest: manifests.Manifest, space: str) -> Iterator[WrittenPod]:
    read = []
    for part in manifests.pods(manifest):
        try:
            read.append((part, pod_manifest.load(part, space, manifest.name)))
        except Refused:
            if manifests.is_own(manifest):
                raise
    parts = [part for part, _ in read]
    around: Iterable[Finding] = ()
    if not manifests.copies_annotations(manifest):
        above = manifests.annotations_above(manifest, parts)
        around = misplaced(above, [template for _, template in read])
    placed = tuple(
        replace(one, subject=manifest.document.where(one.path, key=True)) for one in around
    )
    for part, template in read:
        title = f"{manifest.kind}/{manifest.name}"
        title += f":{part.name}" if len(read) > 1 else ""
        yield WrittenPod(title, manifest.name, template, part, placed)
