"""The values of an installation below `admission`: policies of the API server."""

from __future__ import annotations

from pydantic import Field

from kube_rdma.install.documents.words import Names, Object, Resources, Size
from kube_rdma.lib.text.typed import Typed


class PodPolicies(Typed):
    """The settings of policies for pods. Lists are texts with commas between their entries."""

    check: bool = True
    """
    check is whether policies refuse faulty pods and warn of doubtful ones. They need Kubernetes
    1.30. Leave it false where a pool of vke.volcengine.com/rdma has bind: pool.
    """
    complete: bool = True
    """
    complete is whether a policy adds to pods what RDMA needs, such as the capability IPC_LOCK. It
    needs Kubernetes 1.36.
    """
    share_resources: Resources = ""
    """
    shareResources lists the names of RDMA resources, with commas between them. rdma/* means all
    names that begin with rdma/.
    """
    mgpu_resources: Resources = ""
    """
    mgpuResources lists the resource names of mGPU, Volcengine's parts of GPUs, with commas between
    them. A pod that asks for RDMA and for one of these is refused.
    """
    gpu_resources: Resources = ""
    """
    gpuResources lists the resource names of GPUs, with commas between them. A pod that asks for one
    of these and for RDMA in mode shared-multi gets a warning.
    """
    vepfs_drivers: Names = ""
    """
    vepfsDrivers lists the CSI drivers of vePFS, Volcengine's parallel file system, with commas
    between them. A pod with a volume of these and RDMA in mode exclusive is refused.
    """
    vepfs_storage_classes: Names = ""
    """
    vepfsStorageClasses lists the StorageClasses whose volumes are vePFS too, with commas between
    them.
    """
    host_network_resources: Resources = ""
    """
    hostNetworkResources lists the resource names, with commas between them, whose pods need
    hostNetwork: true. A pod without it gets a warning.
    """
    shm_size: Size = "8Gi"
    """
    shmSize is the size of the memory at /dev/shm, where a pod asks for it without a size by the
    annotation kube-rdma.io/complete: shm.
    """


class InstalledPolicy(Typed):
    """The settings of admission policies."""

    install: bool = True
    """
    install is whether a policy of the API server limits each agent to its own node. With preset
    nvidia-operator a second one limits what the operator changes of nodes. They need Kubernetes
    1.30.
    """
    pods: PodPolicies = PodPolicies()
    """
    pods has the settings of policies for pods that ask for RDMA. See docs/admission.md.
    """
    webhook: Object = Field(default_factory=dict)
    """
    webhook has no effect. It was for an admission webhook, which kube-rdma no longer has, and is
    read so that `helm upgrade --reuse-values` works.
    """
