"""Models an installation's values by part: image, agents, controller, pools, metrics, folders.

Below each field stands its sentence for the schema and the tables of the Helm chart
(lib/schema). The real defaults are those of install/rules/presets, which the sentences
do not repeat: the files of the chart say them behind each sentence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from kube_rdma.ipam.ip_pool import IPPoolSpec
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.lib.text.words import Label, Resource, TextForm

# The forms of texts among an installation's values: images, folders, names, lists, sizes.

Repository: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-z0-9][a-zA-Z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._-]+)+)?",
        "a registry with a repository, without a tag",
        "registry.example.com/rdma/kube-rdma",
    ),
]
Tag: TypeAlias = Annotated[
    str, TextForm(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}", "a tag of an image", "0.1.0")
]
Digest: TypeAlias = Annotated[
    str, TextForm(r"(sha256:[0-9a-f]{64})?", "a digest of an image", f"sha256:{'0' * 64}")
]
Folder: TypeAlias = Annotated[
    str, TextForm(r"/[^\s:]*[^\s:/]", "a folder of the host", "/opt/cni/bin")
]
Resources: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-zA-Z0-9./*-]+(,[a-zA-Z0-9./*-]+)*)?",
        "a list of resources, with commas between them",
        "rdma/*,vke.volcengine.com/rdma",
    ),
]
Names: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-zA-Z0-9.-]+(,[a-zA-Z0-9.-]+)*)?",
        "a list of names, with commas between them",
        "vepfs.csi.volcengine.com",
    ),
]
Size: TypeAlias = Annotated[
    str, TextForm(r"[1-9][0-9]{0,11}([kMGTP]|[KMGTP]i)?", "a size of memory", "8Gi")
]
KubernetesVersion: TypeAlias = Annotated[
    str, TextForm(r"(v?1\.[0-9]{1,2}(\.[0-9]{1,3}([+-].*)?)?)?", "a version of Kubernetes", "1.28")
]
ObjectName: TypeAlias = Annotated[
    str, TextForm(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", "the name of an object", "kube-rdma")
]
OptionalLabel: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?",
        "a name of lower-case letters, digits and dashes, at most 63",
        "kube-rdma",
    ),
]
# Suffixes such as -retirement-drivers stand behind it, and a label's value has 63 characters.
FullName: TypeAlias = Annotated[
    str,
    TextForm(
        r"([a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?",
        "a name of lower-case letters, digits and dashes, at most 40",
        "rdma-a",
    ),
]
SelinuxType: TypeAlias = Annotated[
    str, TextForm(r"([a-z][a-z0-9_]{0,62})?", "an SELinux type", "spc_t")
]
SeccompProfile: TypeAlias = Annotated[
    str,
    TextForm(
        r"([A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?",
        "a file below the kubelet's folder seccomp",
        "kube-rdma/agent.json",
    ),
]
Replicas: TypeAlias = Annotated[int, Field(ge=1, le=9)]
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
Object: TypeAlias = dict[str, Any]  # as Kubernetes has it, which checks it itself


class PullSecret(Typed):
    """A Secret with the password of a registry."""

    name: str = Field(examples=["registry"])
    """name is the name of a Secret of type kubernetes.io/dockerconfigjson."""


class InstalledImage(Typed):
    """The settings of the container image."""

    repository: Repository = ""
    """
    repository is the registry and the repository of the image, without a tag. You have to set it,
    for no registry has the image. Example: registry.example.com/rdma/kube-rdma.
    """
    tag: Tag = ""
    """tag is the tag of the image. It has no effect where digest is set. Example: 0.1.0."""
    digest: Digest = ""
    """
    digest is the digest of the image, which takes the place of tag. Its form is sha256: and 64
    hexadecimal digits.
    """
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """
    pullPolicy is when a node pulls the image. Always: at each start of a container. IfNotPresent:
    where the node does not have it. Never: the image is loaded by other means.
    """
    pull_secrets: Many[PullSecret] = ()
    """
    pullSecrets lists Secrets, in the installation's namespace, for a registry with a password.
    Example: [{name: registry}].
    """
    architectures: Annotated[Many[Literal["amd64", "arm64"]], Field(min_length=1)] = (
        "amd64",
        "arm64",
    )
    """
    architectures lists what the image was built for. Nodes of other architectures get no pod of
    kube-rdma. Example: [amd64].
    """


class InstalledNamespace(Typed):
    """The settings of the namespace."""

    name: OptionalLabel = ""
    """
    name is the namespace of all objects that have one. Empty: that of helm -n, or of render -n.
    With a name, helm -n only says where Helm keeps its record.
    """
    create: bool = False
    """
    create is whether the chart creates the namespace, with the label
    pod-security.kubernetes.io/enforce: privileged. Uninstalling deletes it, so helm -n has to name
    another one.
    """


class AgentAffinity(Typed):
    """The affinity of the agents' pods, as in a pod."""

    node_affinity: Object = Field(default_factory=dict)
    """
    nodeAffinity says which nodes get an agent. It takes the place of all rules of the chart: Linux,
    image.architectures, no virtual nodes, no kube-rdma.io/agent=off. Repeat those that you need.
    """
    pod_affinity: Object = Field(default_factory=dict)
    """podAffinity says which pods an agent runs beside."""
    pod_anti_affinity: Object = Field(default_factory=dict)
    """podAntiAffinity says which pods an agent does not run beside."""


class InstalledAgent(Typed):
    """The settings of the agents. See docs/agent.md."""

    enabled: bool = True
    """
    enabled is whether the chart deploys agents. With preset nvidia-operator a NicClusterPolicy
    deploys them.
    """
    config: str = ""
    """
    config is the text of the agents' configuration file, in a format of docs/config.md. It replaces
    that of the preset. Empty: agents with role node follow NodePolicies. It has no effect with
    presets vke and nvidia-operator.
    """
    node_selector: dict[str, str] = Field(default_factory=dict, examples=[{"pool": "rdma"}])
    """
    nodeSelector has the labels of the nodes that get an agent, besides those of the preset. All
    presets but ack, scc and nvidia leave out nodes with kube-rdma.io/agent=off; a NicClusterPolicy
    does not. Example: {pool: rdma}.
    """
    tolerations: Many[Object] = ()
    """
    tolerations lists the taints of nodes that agents tolerate, as in a pod. A list of your own
    replaces the default, which tolerates all taints.
    """
    affinity: AgentAffinity = AgentAffinity()
    """affinity says on which nodes and beside which pods agents run, as in a pod."""
    priority_class_name: ObjectName = ""
    """
    priorityClassName is the PriorityClass of the agents' pods. Empty: none is named, and a node
    that runs short of memory may evict its agent. Example: system-node-critical.
    """
    resources: Object = Field(default_factory=dict)
    """
    resources has the requests and limits of an agent's container, as in a pod. What you leave out
    of it keeps its default.
    """
    other_plugins: bool = False
    """
    otherPlugins is whether agents can call other CNI plugins of the node, for networks that
    kube-rdma does not make itself. Agents then get hostPID, the capability SYS_CHROOT and more
    folders of the node. Not with presets ack, scc and efa.
    """
    device_info: bool = False
    """
    deviceInfo is whether agents write files below /var/run/k8s.cni.cncf.io. Multus reads
    there the device of each share that is a single card. Not with presets ack, scc and efa.
    """
    virtual_functions: bool = False
    """
    virtualFunctions is whether agents can create virtual functions (VFs), where the configuration
    or a NodePolicy asks for them. Agents then write to the node's /sys, without an AppArmor
    profile. Not with presets ack, scc and efa.
    """
    share_limits: bool = False
    """
    shareLimits is whether agents can have the kernel hold pods to the rdmaLimits of a NodePolicy's
    pool. Agents then write to the node's /sys/fs/cgroup. Not with presets ack, scc and efa.
    """
    lldp: bool = True
    """
    lldp is whether agents that attach networks receive LLDP on the ports of their pools, and report
    which switch port each is plugged into. See docs/nodes.md.
    """
    startup_taint: bool = False
    """
    startupTaint is whether an agent removes the taint kube-rdma.io/starting:NoSchedule, or the one
    for cluster-autoscaler, once all RDMA resources of its node are allocatable. Not with presets
    ack, scc and efa. See docs/nodes.md.
    """
    node_labels: Literal["write", "write-nfd", "leave", "remove"] = "write"
    """
    nodeLabels is what an agent does with labels of its node. write: labels below kube-rdma.io/.
    write-nfd: also those of Node Feature Discovery, by which operators start drivers. leave:
    nothing. remove: it removes what an agent wrote. See docs/config.md.
    """
    namespace_isolation: Names = ""
    """
    namespaceIsolation lists namespaces, with commas between them. A pod may then name networks of
    these and of its own namespace alone, and no CNI configuration of the node. Empty: networks of
    any namespace. Example: default,kube-system. See docs/tenancy.md.
    """
    se_linux_type: SelinuxType = ""
    """
    seLinuxType is the SELinux type of the agents' containers, which the policy of the nodes has to
    have. Empty: spc_t for agents that attach networks, else container_device_plugin_t. Example:
    spc_t.
    """
    seccomp_profile: SeccompProfile = ""
    """
    seccompProfile is the file of a seccomp profile on each node, below the folder seccomp of the
    kubelet, for the agents' containers. Without the file they do not start. Empty: the runtime's
    default profile. Example: kube-rdma/agent.json. See docs/least-privilege.md.
    """
    pod_labels: dict[str, str] = Field(default_factory=dict, examples=[{"team": "network"}])
    """
    podLabels has further labels of the agents' pods. The label name and those that begin with
    app.kubernetes.io/ stay the chart's own. Example: {team: network}.
    """
    pod_annotations: dict[str, str] = Field(
        default_factory=dict, examples=[{"sidecar.istio.io/inject": "false"}]
    )
    """
    podAnnotations has annotations of the agents' pods. Example: {sidecar.istio.io/inject: "false"}.
    """
    health_port: Port = 0
    """
    healthPort is the TCP port, at 127.0.0.1 of each node, where the kubelet asks an agent for
    /readyz. Two agents on one node need two ports. 0: no probes.
    """
    extra_args: Many[str] = ()
    """
    extraArgs lists further options of kube-rdma agent, which stand behind those of the chart. An
    option that the agent does not have keeps it from starting. Example:
    [--registry=plugins_registry].
    """


class InstalledAffinity(Typed):
    """The affinity of the controller's pods, as in a pod."""

    node_affinity: Object = Field(default_factory=dict)
    """
    nodeAffinity says which nodes take a controller. It counts for the hooks of an uninstall, too,
    and takes the place of image.architectures for both.
    """
    pod_affinity: Object = Field(default_factory=dict)
    """podAffinity says which pods a controller runs beside."""
    pod_anti_affinity: Object = Field(default_factory=dict)
    """
    podAntiAffinity says which pods a controller does not run beside. Replicas are spread over nodes
    without it.
    """


class InstalledController(Typed):
    """The settings of the controller."""

    enabled: bool = True
    """
    enabled is whether the chart deploys the controller. Without it the chart creates none of the
    ClusterRoles of roles.install.
    """
    name: OptionalLabel = ""
    """
    name is the name of the controller's Deployment, service account and Role. With preset
    nvidia-operator its ClusterRole has this name too. Empty: kube-rdma-controller, and
    kube-rdma-operator with preset nvidia-operator.
    """
    policy_scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    """
    policyScope is the scope of the CRD NicClusterPolicy, with preset nvidia-operator. Namespaced:
    as in NVIDIA's operator 0.1.0, policies in the operator's namespace count. Cluster: as in all
    later releases. The scope of a CRD that exists cannot change. See docs/drivers.md.
    """
    node_labels: Literal["write", "write-topograph", "write-ack", "leave", "remove"] = "write"
    """
    nodeLabels is what the controller does with labels of nodes by the switches that agents hear.
    write: it keeps kube-rdma.io/leaf and kube-rdma.io/block, and names wrong cables in Events.
    write-topograph: fabric.topograph.run/tier-0 too. write-ack: alibabacloud.com/asw-id too. leave:
    neither labels nor Events. remove: it removes what it wrote. See docs/config.md.
    """
    replicas: Replicas = 2
    """
    replicas is how many copies of the controller run, on different nodes where possible. One copy
    works, and another takes over when it fails.
    """
    resources: Object = Field(default_factory=dict)
    """
    resources has the requests and limits of the controller's container, as in a pod. What you leave
    out of it keeps its default.
    """
    node_selector: dict[str, str] = Field(default_factory=dict, examples=[{"pool": "system"}])
    """
    nodeSelector has the labels of the nodes that may run the controller and the hooks of an
    uninstall. Example: {pool: system}.
    """
    tolerations: Many[Object] = ()
    """
    tolerations lists the taints of nodes that the controller and the hooks of an uninstall
    tolerate, as in a pod. Where all nodes have taints, they start nowhere without tolerations.
    Example: [{key: CriticalAddonsOnly, operator: Exists}].
    """
    affinity: InstalledAffinity = InstalledAffinity()
    """affinity says on which nodes and beside which pods controllers run, as in a pod."""
    priority_class_name: ObjectName = ""
    """
    priorityClassName is the PriorityClass of the controller's pods and of the hooks' pods. Empty:
    none is named. Example: system-cluster-critical.
    """
    seccomp_profile: SeccompProfile = ""
    """
    seccompProfile is the file of a seccomp profile on each node, below the folder seccomp of the
    kubelet, for the controller's containers. Without the file they do not start. Empty: the
    runtime's default profile. Example: kube-rdma/controller.json. See docs/least-privilege.md.
    """
    pod_labels: dict[str, str] = Field(default_factory=dict, examples=[{"team": "network"}])
    """
    podLabels has further labels of the controller's pods and of the hooks' pods. The label name and
    those that begin with app.kubernetes.io/ stay the chart's own. Example: {team: network}.
    """
    pod_annotations: dict[str, str] = Field(
        default_factory=dict, examples=[{"sidecar.istio.io/inject": "false"}]
    )
    """
    podAnnotations has annotations of the controller's pods and of the hooks' pods. Example:
    {sidecar.istio.io/inject: "false"}.
    """
    health_port: Port = 0
    """
    healthPort is the TCP port, at its pod's address, where the kubelet asks each copy of the
    controller for /readyz. 0: no probe, so a copy is ready once its container runs.
    """
    names: bool = False
    """
    names is whether headless Services can give DNS names to the RDMA addresses of pods. The
    controller then watches Services, and may write EndpointSlices of all namespaces. See
    docs/pods.md.
    """
    preflight: bool = False
    """
    preflight is whether gangs of pods can measure their rails before they start. The controller
    then may write two annotations of pods, and reads the sizes of jobs. See docs/verify.md.
    """
    queue: bool = False
    """
    queue is whether the controller answers AdmissionChecks of Kueue with the controllerName
    kube-rdma.io/rails. It may then write the status of Workloads in all namespaces. See
    docs/nodes.md.
    """
    repair: bool = False
    """
    repair is whether the controller taints nodes whose cards are bad, and has new ones measured, as
    RepairPolicies say. It may then write the taint kube-rdma.io/repair of all nodes, remove
    kube-rdma.io/burn-in, and write receipts into NodeReports. See docs/repair.md.
    """
    extra_args: Many[str] = ()
    """
    extraArgs lists further options of kube-rdma controller, which stand behind those of the chart.
    An option that the controller does not have keeps it from starting. Example:
    [--metrics-address=:9879].
    """


class InstalledLabeller(Typed):
    """The settings of the labeller."""

    enabled: bool = False
    """
    enabled is whether the chart deploys the labeller. It writes the labels of Node Feature
    Discovery, by which operators start drivers. It is for preset nvidia, whose agents run where
    such a label is. It needs an account, so presets ack, scc and efa have none.
    """


class InstalledClass(Typed):
    """A DeviceClass of the installation."""

    name: Label = Field(examples=["rdma-hca"])
    """name is the name of the DeviceClass, which the whole cluster has once. Example: rdma-hca."""
    resource: Resource = Field(examples=["rdma/hca"])
    """
    resource is the resource name that pods go on asking for (extendedResourceName). It is that of a
    pool, of at most 64 characters. Example: rdma/hca.
    """


class InstalledClaims(Typed):
    """The settings of dynamic resource allocation."""

    enabled: bool = False
    """
    enabled is whether agents can offer cards to ResourceClaims, as driver rdma.kube-rdma.io. Agents
    do so on nodes with the label kube-rdma.io/serve=claims, and for pools with serve: claims.
    Alpha. It needs Kubernetes 1.34. Not with presets ack, scc and efa.
    """
    dranet_attributes: bool = False
    """
    dranetAttributes is whether devices in ResourceSlices have DRANET's names of attributes, too:
    dra.net/encapsulation, ifName, isSriovVf, numaNode, pciAddress, rdma and rdmaDevice. Selectors
    and programs that read these then find the cards. See docs/claims.md.
    """
    template_classes: bool = True
    """
    templateClasses is whether the chart creates the DeviceClasses rdma and rdma-shared, which
    templates of kube-rdma claim name. The whole cluster has them once, so a second release needs
    false. See docs/claims.md.
    """
    classes: Many[InstalledClass] = ()
    """
    classes lists DeviceClasses by which claims serve a resource name: pods ask for the name as
    before. It needs Kubernetes 1.36. See docs/claims.md. Example:
    [{name: rdma-hca, resource: rdma/hca}].
    """


class InstalledRoles(Typed):
    """The settings of the roles for people."""

    install: bool = True
    """
    install is whether the chart creates these ClusterRoles. Their names are the same in every
    release, so a second release in a cluster needs false.
    """
    doctor: bool = True
    """
    doctor is whether the chart creates the Role FULLNAME-doctor in the agents' namespace, by which
    kube-rdma doctor and kube-rdma bundle run in the agents' containers. See docs/doctor.md.
    """


class InstalledPool(Typed):
    """An IPPool of the installation."""

    name: Label = Field(examples=["rdma"])
    """name is the name of the IPPool, by which networks refer to it. Example: rdma."""
    spec: IPPoolSpec = Field(examples=[{"ranges": [{"subnet": "10.0.0.0/24"}]}])
    """spec is the spec of the IPPool, see docs/ip.md."""


class InstalledNetworks(Typed):
    """The settings of networks by rail."""

    install: bool = False
    """
    install is whether the chart creates networks for pods in its namespace: rail-0 to rail-7, each
    for the card of its rail, and rails, for a card of any. The networks are for rdma/nic, so for
    presets default and rails. Addresses come from the IPPools rail-0 to rail-7.
    """
    mtu: Annotated[int, Field(ge=0, le=65535)] = 0
    """
    mtu is the MTU of pods' interfaces in these networks, at most that of the card. 0: that of the
    card. Example: 4200.
    """


class InstalledDefinitions(Typed):
    """The settings of custom resource definitions (CRDs)."""

    install: bool = True
    """
    install is whether the chart creates the CRDs of kube-rdma, and with preset nvidia-operator that
    of NicClusterPolicy. A second release in a cluster needs false.
    """
    nic_cluster_policies: bool = True
    """
    nicClusterPolicies is whether install covers the CRD NicClusterPolicy too. Set false where
    NVIDIA's operator has left its own, and controller.policyScope to Cluster.
    """
    network_attachment_definitions: bool = False
    """
    networkAttachmentDefinitions is whether the chart creates the CRD NetworkAttachmentDefinition,
    in which networks of pods are written. Multus brings this CRD too; leave it false there. Where
    agents attach networks, helm install creates the CRD too if the cluster has none.
    """


class InstalledMetrics(Typed):
    """The settings of metrics. See docs/metrics.md."""

    port: Port = 0
    """
    port is the TCP port where each agent answers Prometheus, at its node's own address, and each
    copy of the controller, at its pod's. 0: they do not answer. Example: 9879.
    """
    pods: bool = False
    """
    pods is whether agents answer with the series of pods too: namespaces, names, containers and
    their traffic. The port asks for no credential: guard it first, as docs/metrics.md says.
    kube-rdma top shows pods without it.
    """
    names: Literal["node-exporter", "vke", "none"] = "node-exporter"
    """
    names says how the counters of ports are named. node-exporter: as node_exporter names them. vke:
    as VKE's exporter does. none: in neither way. Alerts and dashboards of ports need node-exporter.
    Beside another exporter with the same names each sum is double.
    """
    pod_monitor: bool = False
    """
    podMonitor is whether the chart creates PodMonitors for agents and controller. It needs port and
    the Prometheus operator.
    """
    rules: bool = False
    """
    rules is whether the chart creates a PrometheusRule with alerts. It needs the Prometheus
    operator.
    """
    dashboards: bool = False
    """
    dashboards is whether the chart creates ConfigMaps with dashboards. Grafana's sidecar finds them
    by the label grafana_dashboard.
    """
    runbook: str = ""
    """
    runbook is the address of a copy of docs/runbook.md, to whose sections the annotation
    runbook_url of each alert leads. Empty: alerts have none. Example:
    https://wiki.example.com/rdma-runbook.
    """
    labels: dict[str, str] = Field(default_factory=dict, examples=[{"release": "prometheus"}])
    """
    labels has the labels of PodMonitor and PrometheusRule, by which a Prometheus operator selects
    them. Labels that begin with app.kubernetes.io/ stay the chart's own. Example:
    {release: prometheus}.
    """


class HostFolders(Typed):
    """The folders of the nodes. See docs/agent.md for further distributions."""

    kubelet: Folder = "/var/lib/kubelet"
    """
    kubelet is the kubelet's root folder, in which pod-resources is. The folder device-plugins is in
    /var/lib/kubelet everywhere. Example: /var/lib/k0s/kubelet.
    """
    cni_conf: Folder = "/etc/cni/net.d"
    """cniConf is the folder of CNI configurations that the container runtime reads."""
    cni_binaries: Folder = "/opt/cni/bin"
    """
    cniBinaries is the folder of CNI plugins that the container runtime runs, or a folder above it.
    """
    runtime: Folder = "/run/containerd"
    """runtime is the folder of the container runtime's socket. Example: /run/crio."""
    cdi: Folder = "/var/run/cdi"
    """
    cdi is a folder in which the container runtime looks for CDI files. Agents write theirs there.
    Example: /var/cdi/dynamic.
    """


# The values of an installation below `admission`: policies of the API server.


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
    network_resources: Resources = ""
    """
    networkResources lists the resource names, with commas between them, of which each share needs a
    network. A pod with fewer entries in k8s.v1.cni.cncf.io/networks gets a warning.
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
    install is whether policies of the API server limit each agent to its own node, and what the
    controller or operator changes of nodes. Another lets only agents write the annotation
    kube-rdma.io/network-status of pods. They need Kubernetes 1.30, that of agents 1.31.
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
