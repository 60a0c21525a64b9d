"""The rules that judge a pod: limits in the documents of ACK (S0) and VKE (S1), and others.

`kube-rdma explain`, `config check`, `doctor` and the agent ask here; install/rules/pod_policies
says in CEL what CEL can say. Rules about networks, claims and variables stand in files of these
names; near_misses has typing errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kube_rdma.admission.rules import near_misses, networks
from kube_rdma.admission.rules import shares as share_rules
from kube_rdma.admission.rules.claims import pod_claims
from kube_rdma.admission.rules.completions import SHM, completions, wanted, wrong_words
from kube_rdma.admission.rules.shares import PodReview
from kube_rdma.admission.rules.variables import variables
from kube_rdma.attach.rules import requests as pod_requests
from kube_rdma.model.admission import (
    NOTHING_KNOWN,
    USUAL,
    AdmissionFacts,
    AdmissionSettings,
    AnnotationAbove,
    Completes,
    ContainerRole,
    OfferedPool,
    PodTemplate,
    VolumeTemplate,
)
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.preflight import AWAITS, MEASURES, REQUEST

# Rules about shares or networks that are void, although each is written right.

_MACHINES = ("kata", "firecracker", "peer-pods")  # in names of classes, and in handlers
_SANDBOXES = ("gvisor", "runsc")
# Kinds whose controllers mount memory at /dev/shm: KubeRay (common/pod.go, addEmptyDir), Dynamo.
_SHARING = ("Ray", "Dynamo")
_FILES = ("/dev", "/dev/infiniband")
_FOR_PODS = (
    pod_requests.ANNOTATION,
    pod_requests.POD_NETWORKS,
    pod_requests.POD_NETWORKS_DEFINITION,
)


def networks_on_host(review: PodReview) -> Iterator[Finding]:
    """Warn of networks of a pod with hostNetwork, which gets none of them.

    attach/rules/requests refuses such networks where the agent is asked nevertheless.
    """
    if not review.pod.host_network or not pod_requests.names_networks(review.pod.annotations):
        return
    path = (
        networks.NETWORKS
        if dict(review.pod.annotations).get(pod_requests.ANNOTATION, "").strip()
        else networks.BLOCKS
    )
    problem = "the pod has hostNetwork: true, so none of these networks is attached: it sees the "
    problem += "node's own interfaces"
    remedy = "Remove hostNetwork: true, or the annotation"
    yield Finding.of("networks-on-host", path, problem, remedy, Severity.WARNING)


def sandboxed(review: PodReview) -> Iterator[Finding]:
    """Warn of shares or networks of a pod that runs in a virtual machine or on its own kernel.

    Kata gives a guest PCI devices by VFIO (kata-containers docs/use-cases/using-SRIOV-and-kata.md);
    gVisor passes verbs on where runsc runs with --rdmaproxy (google/gvisor#13779, 2026-07).
    """
    shares = [ask.resource for _, ask in review.shares]
    named = pod_requests.names_networks(review.pod.annotations)
    name = review.pod.runtime_class
    if not name or not (shares or named):
        return
    words = f"{name} {dict(review.facts.handlers).get(name, '')}".lower()
    wanted = shares[0] if shares else "networks"
    if any(word in words for word in _MACHINES):
        why = "runs the pod in a virtual machine, which has no RDMA device of the node"
        remedy = "Leave runtimeClassName out, or give the machine a card by vfio-pci"
    elif any(word in words for word in _SANDBOXES):
        why = "runs the pod above gVisor, which keeps RDMA devices away unless it has --rdmaproxy"
        remedy = "Leave runtimeClassName out, or run runsc with --rdmaproxy"
    else:
        return
    path = ("spec", "runtimeClassName")
    problem = f"the pod asks for {wanted}, and runtime class {name} {why}"
    yield Finding.of("runtime-class", path, problem, remedy, Severity.WARNING)


def requests(review: PodReview) -> Iterator[Finding]:
    """Refuse a request for shares that differs from its limit, or has no limit.

    See kubernetes@v1.34 pkg/apis/core/validation, ValidateContainerResourceRequirements.
    """
    for container, ask in review.shares:
        asks = f"container {container.name} requests"
        if not ask.limited:
            problem = f"{asks} {ask.resource} without a limit"
            remedy = f"Write limits with {ask.resource}: {ask.count}"
        elif ask.request not in (None, ask.count):
            problem = f"{asks} {ask.request} of {ask.resource} with a limit of {ask.count}"
            remedy = "Write one number into both, or leave requests out"
        else:
            continue
        yield Finding.of("requests", ask.path, f"{problem}, which Kubernetes refuses", remedy)


def init_alone(review: PodReview) -> Iterator[Finding]:
    """Warn of shares that only an init container asks for: no other container gets a device.

    The kubelet's device manager gives devices to containers, not to pods; a privileged one has all.
    """
    asks = list(review.shares)
    others = [one for one in review.pod.containers if one.role is not ContainerRole.INIT]
    lasting = any(one in others for one, _ in asks) or any(one.privileged for one in others)
    if asks and others and not lasting and review.pod.whole:
        container, ask = asks[0]
        problem = f"only init container {container.name} asks for {ask.resource}, so container "
        problem += f"{others[0].name} has no share and no RDMA device"
        remedy = f"Write {ask.resource}: {ask.count} into the limits of {others[0].name} too"
        yield Finding.of("init-alone", ask.path, problem, remedy, Severity.WARNING)


def hiding_volume(review: PodReview) -> Iterator[Finding]:
    """Warn of a volume of the host's device files beside a share, which opens only some of them."""
    at_host = {one.name: one for one in review.pod.volumes if one.host_path.rstrip("/") in _FILES}
    for container, ask in review.shares:
        for name, place in container.mounts if not container.privileged else ():
            if name in at_host and place.rstrip("/") in _FILES:
                volume = at_host[name]
                problem = f"container {container.name} has a share of {ask.resource}, and "
                problem += f"{volume.host_path} shows all cards, of which it may open only its own"
                remedy = f"Remove volume {name} and its mount: the share brings the device files"
                yield Finding.of("device-volume", volume.path, problem, remedy, Severity.WARNING)


def inert_lock(review: PodReview) -> Iterator[Finding]:
    """Warn of IPC_LOCK for a user other than root, for whom the capability has no effect.

    Runtimes set no ambient capabilities (KEP-2763), so exec drops it: capabilities(7),
    "Transformation of capabilities during execve()". Those of a program's file count without
    no_new_privs.
    """
    for container in dict.fromkeys(each for each, _ in review.shares):
        added = {*container.added} & {"IPC_LOCK", "CAP_IPC_LOCK"}
        if added and container.own_user and not container.privileged:
            user = f"user {container.user}" if container.user else "another user than root"
            problem = f"IPC_LOCK has no effect in container {container.name}, which runs as "
            problem += f"{user}: the memory that it may lock stays limited"
            remedy = "Run it as root, raise the limit (LimitMEMLOCK=infinity for the runtime)"
            remedy += ", or setcap cap_ipc_lock+ep its program" if container.escalates else ""
            path = (*container.path, "securityContext", "capabilities", "add")
            yield Finding.of("inert-lock", path, problem, remedy, Severity.WARNING)


def little_memory(review: PodReview) -> Iterator[Finding]:
    """Advise shared memory for several GPUs: NCCL and PyTorch share buffers at /dev/shm.

    A runtime gives a container 64 MiB there (containerd oci.WithDefaultSpec).
    """
    pod, sharing = review.pod, {container.path for container, _ in review.shares}
    added = Completes.SHM in wanted(pod, review.settings).parts or pod.kind.startswith(_SHARING)
    for container, ask in share_rules.asked(pod, review.settings.gpus):
        mounted = any(place.rstrip("/") in ("/dev", SHM) for _, place in container.mounts)
        has_memory = mounted or added or pod.host_ipc or not pod.whole
        if ask.count > 1 and container.path in sharing and not has_memory:
            problem = f"container {container.name} has {ask.count} GPUs and nothing mounted at "
            problem += f"{SHM}, so NCCL has the runtime's 64 MiB of shared memory"
            remedy = f"Mount an emptyDir with medium: Memory at {SHM}"
            path = (*container.path, "volumeMounts")
            yield Finding.of("little-memory", path, problem, remedy, Severity.ADVICE)


def unmeasured(review: PodReview) -> Iterator[Finding]:
    """Advise the lines of a preflight to a pod that asks for one, for old releases of Kubernetes.

    attach/rules/requests refuses a pod that runs without them.
    """
    if pod_requests.lacks_preflight(review.pod.annotations, review.pod.init_containers):
        problem = f"its init containers {MEASURES} and {AWAITS} are added from Kubernetes 1.36 on"
        remedy = "Before 1.36 write into it what kube-rdma preflight lines --image IMAGE prints"
        path = ("metadata", "annotations", REQUEST)
        yield Finding.of("preflight", path, problem, remedy, Severity.ADVICE)


def misplaced(
    above: Iterable[AnnotationAbove], templates: Iterable[PodTemplate]
) -> Iterator[Finding]:
    """Warn of pod annotations on the object around a template, from where no pod gets them."""
    made = [dict(template.annotations) for template in templates]
    for annotation in above:
        key = annotation.key
        meant = dict(near_misses.misspelt([key])).get(key, key)
        if meant in _FOR_PODS and not all(meant in annotations for annotations in made):
            problem = f"the annotation stands at the {annotation.owner}, from where no pod gets it"
            remedy = f"Write {meant} into the metadata of the pods' template"
            yield Finding.of("annotation-place", annotation.path, problem, remedy, Severity.WARNING)


Rule = Callable[[PodReview], Iterator[Finding]]


def findings(
    template: PodTemplate,
    facts: AdmissionFacts = NOTHING_KNOWN,
    settings: AdmissionSettings = USUAL,
) -> tuple[Finding, ...]:
    """Return what is wrong with a pod, refusals first.

    Of a pod that asks for no RDMA, only certain faults are reported, such as a misspelt annotation.
    """
    named = (*share_rules.offered(facts), *settings.network_resources)
    settings = share_rules.with_shares(settings, named)
    review = PodReview(template, facts, settings)
    shares = any(True for _ in review.shares)
    rules = (*RULES, *OF_ANY_POD) if shares or template.blocks or template.faults else OF_ANY_POD
    every = [*networks.unreadable(template)]
    every += [finding for rule in rules for finding in rule(review)]
    if any(one.path == networks.BLOCKS for one in completions(template, settings)):
        every = [one for one in every if one.path != networks.BLOCKS]  # they are yet to be written
    return tuple(sorted(every, key=lambda one: not one.is_error))


def of_mode(template: PodTemplate, spec: PoolSpec) -> Iterator[Finding]:
    """Yield what in a pod does not suit the mode of the pool whose cards it has."""
    review = PodReview(template, AdmissionFacts((OfferedPool(spec),)), USUAL)
    for rule in (_vepfs, _gpu_in_shared_multi):
        yield from rule(review)


def _host_network(review: PodReview) -> Iterator[Finding]:
    """Warn (S0) of a pod without hostNetwork that asks for cards of the node's own network."""
    if review.pod.host_network or not review.pod.whole:
        return
    for _, ask in review.shares:
        pools = share_rules.candidates(review.pod, ask.resource, review.facts)
        on_host = bool(pools) and all(pool.spec.host_network for pool in pools)
        if on_host or share_rules.matches(ask.resource, review.settings.on_host):
            path = ("spec", "hostNetwork")
            problem = f"{ask.resource} is for pods with hostNetwork: true, which this pod lacks"
            remedy = "Add hostNetwork: true to the pod's spec"
            yield Finding.of("host-network", path, problem, remedy, Severity.WARNING)
            return


def _mgpu(review: PodReview) -> Iterator[Finding]:
    """Refuse (S1) RDMA together with mGPU, which cannot be used together."""
    rdma = [ask.resource for _, ask in review.shares]
    for _, ask in share_rules.asked(review.pod, review.settings.mgpu) if rdma else ():
        yield Finding.of(
            "mgpu",
            ask.path,
            f"RDMA ({rdma[0]}) and mGPU ({ask.resource}) cannot be used together",
            f"Ask for whole GPUs ({review.settings.gpus[0]}), or for no {rdma[0]}"
            if review.settings.gpus
            else "Remove one of the two from the pod's limits",
        )
        return


def _vepfs(review: PodReview) -> Iterator[Finding]:
    """Refuse (S1) a vePFS volume in a mode that is not supported beside it, such as exclusive."""
    mode = _mode_in(review.settings.without_vepfs, review)
    for volume in review.pod.volumes if mode else ():
        if _is_vepfs(volume, review):
            problem = f"volume {volume.name} is vePFS, which cannot be used in mode {mode}"
            remedy = "Select nodes of another mode, or remove the volume"
            yield Finding.of("vepfs", volume.path, problem, remedy)


def _gpu_in_shared_multi(review: PodReview) -> Iterator[Finding]:
    """Warn (S1) of a GPU in a mode that is not recommended for it, such as shared-multi."""
    mode = _mode_in(review.settings.without_gpus, review)
    for _, ask in share_rules.asked(review.pod, review.settings.gpus) if mode else ():
        problem = f"mode {mode} is not recommended for pods with GPUs"
        remedy = "Select nodes of another mode"
        yield Finding.of("gpu-in-shared-multi", ask.path, problem, remedy, Severity.WARNING)
        return


def _card_count(review: PodReview) -> Iterator[Finding]:
    """Advise (S1) the recommended numbers of cards, unless a container has one for each GPU."""
    advised, gpus = review.settings.advised, share_rules.asked(review.pod, review.settings.gpus)
    right = {(container.path, ask.count) for container, ask in gpus}
    for container, ask in share_rules.asked(review.pod, (review.settings.counted,)):
        fits = ask.count in advised or (container.path, ask.count) in right
        if ask.known and advised and not fits:
            counts, asks = " or ".join(map(str, advised)), f"container {container.name} asks for"
            problem = f"{asks} {ask.count} of {ask.resource}, and {counts} are recommended"
            remedy = f"Ask for {counts}, and for as many networks, where the work allows it"
            yield Finding.of("card-count", ask.path, problem, remedy, Severity.ADVICE)


def _mode_in(modes: Sequence[Mode], review: PodReview) -> Mode | None:
    """Return one of `modes` that a share of the pod surely has, wherever it runs.

    Return None without one.
    """
    for _, ask in review.shares:
        mode = share_rules.fixed_mode(review.pod, ask.resource, review.facts)
        if mode in modes:
            return mode
    return None


def _is_vepfs(volume: VolumeTemplate, review: PodReview) -> bool:
    """Decide whether a volume is vePFS, by driver, class and folder, or those of its claim."""
    drivers, classes = [volume.driver], [volume.storage_class]
    for claim in review.facts.claims if volume.claim else ():
        if (claim.namespace, claim.name) == (review.pod.namespace, volume.claim):
            drivers.append(claim.driver)
            classes.append(claim.storage_class)
    return (
        any(driver in review.settings.vepfs_drivers for driver in drivers)
        or any(name in review.settings.vepfs_classes for name in classes)
        or any(_inside(volume.host_path, folder) for folder in review.settings.vepfs_folders)
    )


def _inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


RULES: tuple[Rule, ...] = (
    _mgpu,
    networks.block_count,
    _vepfs,
    requests,
    networks.isolation,
    networks.unfit_entries,
    _host_network,
    _gpu_in_shared_multi,
    _card_count,
    networks.no_address,
    networks.shares_without_network,
    networks.costly_entries,
    init_alone,
    hiding_volume,
    inert_lock,
    little_memory,
    variables,
    wrong_words,
)
OF_ANY_POD: tuple[Rule, ...] = (
    networks.network_shares,
    networks_on_host,
    sandboxed,
    pod_claims,
    near_misses.unknown_resource,
    near_misses.unknown_network,
    near_misses.unread_annotation,
    unmeasured,
)
