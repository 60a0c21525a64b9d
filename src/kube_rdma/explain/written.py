"""Finds the pods of files, or of a workload of the cluster, each by the name of its object.

cli/explain calls it with all documents of a file. The pods are found and read as `config check`
finds them, so each pod that `config check` judges can be explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.admission.documents import manifests, pod_manifest
from kube_rdma.admission.manifest_check import around
from kube_rdma.lib.phrases import listed
from kube_rdma.lib.text.document import Document
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.explain import PodEvidence
from kube_rdma.model.finding import Finding


class WrittenPod(Frozen):
    """A pod that a document describes, with its title and its place in the document."""

    title: str  # Pod/worker, MPIJob/nccl-tests:Worker
    owner: str  # the name of the object
    template: PodTemplate
    section: manifests.PodSection
    around: tuple[Finding, ...] = ()  # about annotations that no pod gets

    def placed(self, evidence: PodEvidence) -> PodEvidence:
        """Return the evidence with line and column of the document in its admission Findings.

        Findings about annotations that no pod gets are added.
        """
        own = (replace(one, subject=self.section.where(one.path)) for one in evidence.findings)
        return replace(evidence, findings=(*own, *self.around))


def written_pods(
    documents: Iterable[Document], namespace: str, usual: Callable[[], str]
) -> Iterator[WrittenPod]:
    """Yield all pods that documents describe.

    A pod is in `namespace`, else in its own namespace, else in the `usual` one. Raise Refused for a
    faulty pod of Kubernetes' own kinds. A faulty pod that another project's controller may complete
    is left out.
    """
    for document in documents:
        for manifest in manifests.manifests(document):
            space = namespace or manifest.namespace or usual()
            every = [(part, _loaded(part, space, manifest)) for part in manifests.pods(manifest)]
            read = [(part, template) for part, template in every if template]
            beside = around(manifest, read)
            for part, template in read:
                title = f"{manifest.kind}/{manifest.name}" + (f":{part.name}" if read[1:] else "")
                yield WrittenPod(title, manifest.name, template, part, beside)


def chosen(pods: Sequence[WrittenPod], name: str, where: str) -> tuple[WrittenPod, ...]:
    """Return the pods of KIND/NAME, one KIND/NAME:PART, or all for ""; raise Refused if none."""
    keys = ((one, one.title.lower()) for one in pods)
    found = [one for one, key in keys if name.lower() in ("", key, key.partition(":")[0])]
    if not found:
        what = f"no pod of {name} is in it" if pods else "it describes no pod"
        names = listed([one.title for one in pods]) or "a Pod, or a Job, Deployment or the like"
        raise Refused(what, remedy=f"Name {'one of ' if pods else ''}{names}", where=where)
    return tuple(found)


def _loaded(
    part: manifests.PodSection, space: str, manifest: manifests.Manifest
) -> PodTemplate | None:
    """Return a pod's template; None if it is faulty but another project may complete it.

    Raise Refused for a faulty pod of Kubernetes' own kinds.
    """
    try:
        return pod_manifest.load(part, space, manifest.name)
    except Refused:
        if manifests.is_own(manifest):
            raise
        return None
