"""What VKE's component leaves in a node's CNI configuration when it is uninstalled.

Cello calls a network by its name, and the first file with the name `rdma` is then the component's,
whose plugin serves nobody any more. kube-rdma never overwrites it. `kube-rdma network clear-vke`
sets it aside, on a person's word.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_rdma.attach.rules.cni_conf.files import documents, first_type
from kube_rdma.attach.rules.cni_conf.meta_plugins import CELLO_RDMA, RDMA
from kube_rdma.model.cni_conf import ConfFile

SAVED = ".kube-rdma-saved"  # the end of a name that no runtime and no Cello reads


def left_by_vke(files: Iterable[ConfFile]) -> tuple[str, ...]:
    """The names of the files that hold the component's own network."""
    return tuple(
        file.name
        for file, document in documents(files)
        if document.get("name") == RDMA and first_type(document) == CELLO_RDMA
    )
