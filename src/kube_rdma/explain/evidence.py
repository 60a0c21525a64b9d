"""Collects the PodEvidence of `kube-rdma explain`: API server, the agent's records, the kernel.

    pod or file ─► its node: report, or kernel and records ─► documents that it names ─► PodEvidence

cli/explain calls it. It changes nothing and asks the agent nothing. On the pod's own node,
where the agent's records lie, they are read and the kernel is asked; elsewhere the NodeReport is
read. Pod, records and processes are read by the functions of the doctor.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FullPod
from kube_rdma.adapters.journal.journal import glances
from kube_rdma.adapters.kernel.netlink.rtnl_read import link_ways, open_rtnl, seen_links
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.admission.cluster import whole_pod
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents import network_status
from kube_rdma.attach.rules.host_links import host_network, with_ways
from kube_rdma.claims.cluster import allocated, claims_of_pod
from kube_rdma.claims.parameters import parameters_by_request
from kube_rdma.doctor.api_pod import observed_pod
from kube_rdma.doctor.cluster import present
from kube_rdma.doctor.containers import with_containers
from kube_rdma.doctor.evidence import applied_pools
from kube_rdma.doctor.pod import OpenCluster, recorded, with_namespace
from kube_rdma.doctor.rules.waiting import text_of
from kube_rdma.explain import cluster as objects
from kube_rdma.explain.networks import with_documents
from kube_rdma.explain.rules.node import basis
from kube_rdma.hardware.survey import take_survey, with_uses
from kube_rdma.lib.part_reader import PartReader, first_sentence
from kube_rdma.model.admission import AdmissionFacts, OfferedPool, PodTemplate
from kube_rdma.model.attach.attachment import Attachment, HostNetwork
from kube_rdma.model.claims.claim import ClaimName, ClaimParameters, ClaimWorld
from kube_rdma.model.explain import ClaimsEvidence, NodeBasis, PodEvidence
from kube_rdma.model.finding import Finding, NotSeen, Stage
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import Binding, PodName
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.names.cluster import published_names
from kube_rdma.pools.rules.modes import pooled
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from kube_rdma.reports.cluster import events_of

Records = tuple[tuple[Attachment, ...] | None, tuple[Binding, ...] | None]

_RUNNING = "Running"
_MOST_EVENTS = 500  # of a namespace, besides those of its pods


class ExplainPlaces(Frozen):
    """The name of this machine's node, and the folders that `kube-rdma explain` reads."""

    here: str = ""  # the name of this machine's node
    state: Path = Path("/var/lib/kube-rdma")  # the agent's records
    host: Path = Path("/")


async def explain_pod(
    places: ExplainPlaces, pod: PodName, node: str | None, opener: OpenCluster
) -> PodEvidence:
    """Return the evidence about an existing pod.

    Raise Refused where the pod does not exist, or is not on `node`. Where the API server refuses or
    does not answer, the agent's records on this machine are used. Without records of the pod, the
    error of the API server is raised.
    """
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(opener())
            read = await whole_pod(cluster, pod.namespace, pod.name)
        except KubeError as error:
            attachments, bindings = await asyncio.to_thread(_records, places.state, pod)
            if not (attachments or bindings):
                raise
            return PodEvidence(
                PodTemplate(pod.namespace, pod.name),
                places.here,
                "by the records of this node",
                recorded=attachments,
                bindings=bindings,
                not_seen=(NotSeen("what the pod asks for", first_sentence(error)),),
            )
        template, whole = present(read, pod)
        where = whole.spec.node_name
        if node and node != where:
            raise Refused(
                f"pod {pod} is {f'on node {where}' if where else 'on no node yet'}, not on {node}",
                remedy=f"Leave --node out, or name {where}" if where else "Leave --node out",
                where="--node",
            )
        return await _EvidenceReader(cluster, places).pod(template, whole)


async def explain_manifest(
    places: ExplainPlaces,
    template: PodTemplate,
    node: str | None,
    opener: OpenCluster,
    owner: str = "",
) -> PodEvidence:
    """Return the evidence about a pod that does not exist yet, planned for `node` if one is named.

    Events of its `owner`, a workload, say why its pods could not be created. Raise Refused for a
    node that does not exist, Unavailable without an API server.
    """
    async with opener() as cluster:
        reader = _EvidenceReader(cluster, places)
        why = await not_created(cluster, template.namespace, owner) if owner else ""
        seen = PodEvidence(template, node or "", why=why)
        if node:
            seen = replace(seen, basis=await reader.node(node))
            if seen.basis is None and await objects.read_node(cluster, node) is None:
                raise objects.unknown_node(node)
        return await reader.judged(replace(seen, nodes=await reader.nodes()))


async def not_created(cluster: Cluster, namespace: str, owner: str) -> str:
    """Return the last Event that says why pods of a workload cannot be created.

    The Event is of the workload, or of a ReplicaSet or Job whose name begins with the workload's.
    Return "" where a pod was created since, and where Events may not be read.
    """
    reasons = ("FailedCreate", "SuccessfulCreate")
    with suppress(Refused):
        every = await events_of(cluster, "involvedObject.kind!=Pod", namespace, _MOST_EVENTS)
        own = (one for one in every if f"{one.name}-".startswith(f"{owner}-"))
        told = [one for one in own if one.reason in reasons]
        last = max(told, key=lambda one: (one.last, one.is_warning), default=None)
        return text_of(last) if last and last.is_warning else ""
    return ""


async def read_claim(
    namespace: str, name: str, node: str | None, opener: OpenCluster
) -> ClaimWorld:
    """Return a claim and all that its allocation depends on, for one node or all nodes.

    Raise Refused as `claim_world` of explain/cluster does.
    """
    async with opener() as cluster:
        return await objects.claim_world(cluster, namespace, name, node)


class _EvidenceReader:
    """Reads evidence from a cluster, and from this machine if it is the node in question."""

    def __init__(self, cluster: Cluster, places: ExplainPlaces) -> None:
        self._cluster, self._places = cluster, places
        self._reader = PartReader(worded=first_sentence)

    async def pod(self, template: PodTemplate, whole: FullPod) -> PodEvidence:
        """Return the evidence about a pod; raise Unavailable if the API server does not answer."""
        pod, where = PodName(template.namespace, template.name), whole.spec.node_name
        seen = await observed_pod(self._cluster, template, whole)
        attached = whole.annotation(network_status.OWN_ANNOTATION) or ""
        claims = partial(_claims_evidence, self._cluster, pod)
        published = partial(published_names, self._cluster, pod.namespace)
        names = await self._reader.asked("names of its addresses", published) if attached else ()
        evidence = PodEvidence(
            template,
            where,
            seen.phase or "Pending",
            seen.why,
            attached=tuple(network_status.own_attached(attached)),
            basis=await self.node(where, pod) if where else None,
            seen=seen,
            claims=await self._reader.asked("its claims", claims),
            nodes=() if where else await self.nodes(),
            names=tuple(one for one in names or () if one.pod == pod.name),
        )
        if where == self._places.here:
            records = partial(_records, self._places.state, pod, whole.uid)
            attachments, bindings = await asyncio.to_thread(records)
            evidence = replace(evidence, recorded=attachments, bindings=bindings)
            if seen.phase == _RUNNING:
                inside = self._reader.part(
                    "the pod's processes", lambda: with_namespace(*with_containers(seen, whole))
                )
                evidence = replace(evidence, seen=inside or seen)
        return await self.judged(evidence)

    async def nodes(self) -> tuple[NodeState, ...]:
        """Return all nodes of the cluster; () where they may not be read."""
        read = partial(objects.all_nodes, self._cluster)
        return await self._reader.asked("the nodes", read) or ()

    async def judged(self, evidence: PodEvidence) -> PodEvidence:
        """Add the meaning of annotations and networks, and the Findings of the admission rules.

        The admission rules get the node's pools, or without a node those of all NodePolicies.
        """
        cluster, reader = self._cluster, self._reader
        exact = evidence.basis is not None and evidence.basis.exact
        host = self._places.host if exact else None
        full = await with_documents(evidence, cluster, reader, host)
        if full.basis is not None:
            pools = tuple(OfferedPool(one.spec, cards=one.cards) for one in full.basis.pools)
        else:
            read = partial(objects.offered_pools, cluster, reader.keep)
            pools = await reader.asked("the NodePolicies", read) or ()
        ip_pools = tuple(full.ip_pools) if full.pools_seen else None
        judged = findings(full.template, AdmissionFacts(pools, full.networks, ip_pools))
        return replace(full, findings=judged, not_seen=tuple(reader.not_seen))

    async def node(self, name: str, pod: PodName | None = None) -> NodeBasis | None:
        """Return the node to plan `pod` for, with what other pods hold; None if unknown."""
        seen = await self._alone(name)
        others_on = partial(objects.others_on, self._cluster, name, pod)
        others = await self._reader.asked("other pods", others_on)
        if seen is None or others is None:
            return seen
        return replace(seen, held=others.held, used_cards=others.cards)

    async def _alone(self, name: str) -> NodeBasis | None:
        """Return a node without its pods; None where nothing is known of it.

        This machine's node comes from the kernel where that can be asked, others from a NodeReport,
        else from the Node object.
        """
        cluster, reader = self._cluster, self._reader
        state = await reader.asked("the Node object", lambda: objects.read_node(cluster, name))
        if name == self._places.here:
            exact = await asyncio.to_thread(node_here, name, self._places.state)
            if exact is not None:
                return replace(exact, state=state)
        report = await reader.asked("the NodeReport", lambda: objects.read_report(cluster, name))
        if report is None:
            nothing = HostNetwork((), NamespaceMode.UNKNOWN)
            return NodeBasis(name, (), nothing, state, reported=False) if state else None
        specs = partial(objects.reported_specs, cluster, report, reader.keep)
        return basis(name, report, state, await reader.asked("the NodePolicies", specs) or ())


async def _claims_evidence(cluster: Cluster, pod: PodName) -> ClaimsEvidence | None:
    """Return a pod's ResourceClaims and their devices; None if it has none.

    Raise KubeError where they cannot be read.
    """
    claims = await claims_of_pod(cluster, pod)
    if claims is None or not claims.claims:
        return None
    names = dict.fromkeys(name for _, name in claims.claims)
    read = {name: await allocated(cluster, ClaimName(pod.namespace, name, "")) for name in names}
    parameters: dict[str, dict[str, ClaimParameters]] = {}
    misread: dict[str, tuple[Finding, ...]] = {}
    present_claims = tuple(filter(None, read.values()))
    for claim in present_claims:
        try:
            parameters[claim.claim.uid] = parameters_by_request(claim)
        except Refused as error:
            misread[claim.claim.uid] = Finding.of_refused(error, Stage.AGENT)
    missing = tuple(name for name, claim in read.items() if claim is None)
    return ClaimsEvidence(claims, present_claims, parameters, misread, missing)


def _records(state: Path, pod: PodName, uid: str = "") -> Records:
    """Return the attachments and the bindings that the agent of this machine recorded for a pod.

    Each is None without a record of the pod; both are None if a folder cannot be read. With `uid`
    only records of the pod with that uid count.
    """
    try:
        attachments = recorded(state, pod, uid)
        bindings = glances(state / "bindings", "binding", Binding)
    except Unavailable:
        return None, None
    held = tuple(one for _, one in bindings or () if one.pod == pod and uid in ("", one.uid))
    return attachments or None, held or None


def node_here(name: str, state: Path) -> NodeBasis | None:
    """Return the node of this machine as its kernel shows it now.

    Return None where no agent has recorded which pools it serves, or the kernel cannot be asked.
    """
    try:
        record = applied_pools(state)
        survey = with_uses(take_survey())
        with open_rtnl() as netlink:
            seen = seen_links(netlink)
            host = with_ways(host_network(survey, seen), link_ways(netlink, seen))
            places = tuple(one.virtual for one in host.links if one.virtual)
            settings = dict(seen_functions(netlink, places)) if places else {}
    except (KubeError, OSError):
        return None
    facts = NodeFacts(survey, node_cards(survey), record.specs)
    pools = evaluate(facts).pools
    owned, shared = pooled(pools, owns=True), pooled(pools, owns=False)
    links = tuple(
        replace(one, settings=settings.get(one.virtual)) if one.virtual else one
        for one in host.links
    )
    whole: HostNetwork = replace(host, links=links, owned=owned, shared=shared)
    return NodeBasis(name, pools, whole, exact=True)
