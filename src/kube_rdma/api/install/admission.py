"""The values of an installation below `admission`: policies of the API server, and the webhook."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from kube_rdma.api.install.words import Base64, CertificateName, Names, ObjectName, Resources, Size
from kube_rdma.api.text.typed import Typed


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


# What a webhook with a certificate of its own does not have; rules/install/webhook says it.
_GIVEN = ("secret", "caBundle", "injectCaFrom")


class InstalledWebhook(Typed):
    """The settings of the admission webhook, see docs/admission.md."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"certificate": {"const": "own"}}, "required": ["certificate"]},
            "then": {"properties": {name: {"const": ""} for name in _GIVEN}},
        }
    )

    certificate: Literal["", "own"] = ""
    """
    certificate is where the webhook's certificate comes from. own: the controllers make and renew
    it; secret, caBundle and injectCaFrom have to be empty then. Empty: from secret.
    """
    secret: ObjectName = ""
    """
    secret is the name of the Secret of type kubernetes.io/tls with a certificate for
    kube-rdma-admission.NAMESPACE.svc. It is in the namespace of the installation.
    """
    ca_bundle: Base64 = ""
    """
    caBundle is the certificate of the authority that signed the certificate in secret, as PEM in
    base64.
    """
    inject_ca_from: CertificateName = ""
    """
    injectCaFrom is the Certificate of cert-manager, as NAMESPACE/NAME. cert-manager then writes the
    authority, and caBundle stays empty. Example: kube-rdma-vke/admission.
    """


class InstalledPolicy(Typed):
    """The settings of admission policies and of the admission webhook."""

    install: bool = True
    """
    install is whether a policy of the API server limits each agent to its own node. With preset
    nvidia-operator a second one limits what the operator changes of nodes. They need Kubernetes
    1.30.
    """
    pods: PodPolicies = PodPolicies()
    """
    pods has the settings of policies for pods that ask for RDMA. The webhook uses all but check and
    complete. See docs/admission.md.
    """
    webhook: InstalledWebhook = InstalledWebhook()
    """
    webhook has the settings of the admission webhook in the controller. It finds more than the
    policies, for it knows NodePolicies and IPPools. Without certificate and secret there is no
    webhook. See docs/admission.md.
    """
