"""Collects what `kube-rdma explain` tells of a pod: API server, the agent's records, the kernel.

    pod or file ─► documents it names ─► its node: report, or kernel and records ─► PodEvidence

cli/explain calls it. It changes nothing and asks the agent nothing. On the pod's own node,
where the agent's records lie, they are read and the kernel is asked; elsewhere the NodeReport.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.kinds import EVERYWHERE, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.claim_objects import (
    DEVICE_CLASS,
    WHOLE_CLAIM,
    WHOLE_SLICE,
    claim_of,
    device_class,
    listed_slice,
)
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import FullPod
from kube_rdma.adapters.journal.journal import glance, glances
from kube_rdma.adapters.kernel.netlink.rtnl_read import link_ways, open_rtnl, seen_links
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.admission.cluster import whole_pod
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents import network_status
from kube_rdma.attach.rules.host_links import host_network, with_ways
from kube_rdma.claims.cluster import allocated, claims_of_pod
from kube_rdma.claims.parameters import parameters_by_request
from kube_rdma.doctor.containers import with_containers
from kube_rdma.doctor.pod import (
    OpenCluster,
    observed_pod,
    present,
    recorded,
    with_namespace,
    with_reason,
)
from kube_rdma.explain.cluster import others_on
from kube_rdma.explain.networks import with_documents
from kube_rdma.explain.rules.node import basis
from kube_rdma.hardware.survey import take_survey, with_uses
from kube_rdma.lib.part_reader import PartReader, first_sentence
from kube_rdma.model.admission import AdmissionFacts, OfferedPool, PodTemplate
from kube_rdma.model.attach.attachment import Attachment, HostNetwork
from kube_rdma.model.claims.claim import ClaimName, ClaimNode, ClaimParameters, ClaimWorld
from kube_rdma.model.doctor import ObservedPod
from kube_rdma.model.explain import ClaimsEvidence, NodeBasis, PodEvidence
from kube_rdma.model.finding import Finding, NotSeen, Stage
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import Binding, PodName
from kube_rdma.model.pools import AppliedPools, PoolSpec
from kube_rdma.model.reports import NodeReport
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.pools.rules.health import NodeFacts, evaluate, node_cards
from kube_rdma.pools.rules.modes import terms

_RUNNING = "Running"


class ExplainPlaces(Frozen):
    """Where to look. `here` is the name of this machine's node, `state` the agent's records."""

    here: str = ""
    state: Path = Path("/var/lib/kube-rdma")
    host: Path = Path("/")


class _Records(Frozen):
    """What the agent of this machine has written down of a pod; None: no agent has a folder."""

    attachments: tuple[Attachment, ...] | None
    bindings: tuple[Binding, ...] | None

    @property
    def are_present(self) -> bool:
        """Whether there is a word of the pod."""
        return bool(self.attachments or self.bindings)


class _PodReader(PartReader):
    """Reads what a pod hangs on: its node and the documents that it names."""

    def __init__(self, places: ExplainPlaces) -> None:
        super().__init__(worded=first_sentence)
        self.places = places

    async def node(
        self, cluster: Cluster, name: str, pod: PodName | None = None
    ) -> NodeBasis | None:
        """The node as planning for `pod` needs it, with what the others on it have."""
        seen = await self._node(cluster, name)
        others = await self.asked("other pods", lambda: others_on(cluster, name, pod))
        if seen is None or others is None:
            return seen
        return replace(seen, held=others.held, used_cards=others.cards)

    async def _node(self, cluster: Cluster, name: str) -> NodeBasis | None:
        """By its kernel, if this is its machine, else by its report."""
        state = await self.asked("the Node object", lambda: _state(cluster, name))
        if name == self.places.here:
            exact = await asyncio.to_thread(node_here, name, self.places.state)
            if exact is not None:
                return replace(exact, state=state)
        report = await self.asked("the NodeReport", lambda: _report(cluster, name))
        if report is None:
            nothing = HostNetwork((), NamespaceMode.UNKNOWN)
            return NodeBasis(name, (), nothing, state, reported=False) if state else None
        specs = await self.asked("the NodePolicies", lambda: _specs(cluster, report))
        return basis(name, report, state, specs or ())

    async def documents(self, cluster: Cluster, evidence: PodEvidence) -> PodEvidence:
        """The evidence with what the pod's annotations and their networks mean."""
        exact = evidence.basis is not None and evidence.basis.exact
        host = self.places.host if exact else None
        return await with_documents(evidence, cluster, self, host)

    async def admission(self, cluster: Cluster, evidence: PodEvidence) -> tuple[Finding, ...]:
        """What the rules of admission say with all that the cluster has beside the pod.

        The pools are those of its node, else of the NodePolicies whose nodes it can come to. Of
        networks of other tenants the agents have their say, in the documents.
        """
        if evidence.basis is not None:
            pools = tuple(OfferedPool(one.spec) for one in evidence.basis.pools)
        else:
            pools = await self.asked("the NodePolicies", lambda: _offers(cluster)) or ()
        ip_pools = tuple(evidence.ip_pools) if evidence.pools_seen else None
        facts = AdmissionFacts(pools, evidence.networks, ip_pools)
        return findings(evidence.template, facts)


async def explain_pod(
    places: ExplainPlaces, pod: PodName, node: str | None, opener: OpenCluster
) -> PodEvidence:
    """What there is to see of a pod; raise Refused for one that is not there or not on `node`.

    Without an API server the records of this node have to have it.
    """
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(opener())
            read = await whole_pod(cluster, pod.namespace, pod.name)
        except KubeError as error:
            records = await asyncio.to_thread(_records, places.state, pod)
            if not records.are_present:
                raise
            return _by_records(places, pod, records, first_sentence(error))
        template, whole = present(read, pod.namespace, pod.name)
        _refuse_elsewhere(pod, whole.spec.node_name, node)
        return await _by_api(_PodReader(places), cluster, template, whole)


async def explain_manifest(
    places: ExplainPlaces, template: PodTemplate, node: str | None, opener: OpenCluster
) -> PodEvidence:
    """The same of a pod that does not exist yet, for a node if one is named.

    Raise Refused for a node that is not there, Unavailable without an API server.
    """
    async with opener() as cluster:
        reader = _PodReader(places)
        seen = PodEvidence(template, node or "")
        if node:
            seen = replace(seen, basis=await reader.node(cluster, node))
            if seen.basis is None:
                await _refuse_unknown(cluster, node)
        offered = await reader.asked("the nodes' resources", lambda: _offered(cluster))
        full = await reader.documents(cluster, replace(seen, offered=offered))
        judged = await reader.admission(cluster, full)
    return replace(full, findings=judged, not_seen=tuple(reader.not_seen))


async def _by_api(
    reader: _PodReader, cluster: Cluster, template: PodTemplate, whole: FullPod
) -> PodEvidence:
    pod, where = PodName(template.namespace, template.name), whole.spec.node_name
    seen = await with_reason(cluster, observed_pod(template, whole), whole)
    attached = whole.annotation(network_status.OWN_ANNOTATION) or ""
    evidence = PodEvidence(
        template,
        where,
        seen.phase or "Pending",
        seen.why,
        attached=tuple(network_status.own_attached(attached)),
        basis=await reader.node(cluster, where, pod) if where else None,
        seen=seen,
        claims=await reader.asked("its claims", lambda: claims_evidence(cluster, pod)),
    )
    if not where:
        offered = await reader.asked("the nodes' resources", lambda: _offered(cluster))
        evidence = replace(evidence, offered=offered)
    if where == reader.places.here:
        records = await asyncio.to_thread(_records, reader.places.state, pod, whole.uid)
        evidence = replace(evidence, recorded=records.attachments, bindings=records.bindings)
        if seen.phase == _RUNNING:
            inside = reader.part("the pod's processes", lambda: _with_processes(seen, whole))
            evidence = replace(evidence, seen=inside or seen)
    full = await reader.documents(cluster, evidence)
    judged = await reader.admission(cluster, full)
    return replace(full, findings=judged, not_seen=tuple(reader.not_seen))


def _with_processes(seen: ObservedPod, whole: FullPod) -> ObservedPod:
    """What processes and network namespace show; raise Unavailable or Refused."""
    seen, namespace = with_containers(seen, whole)
    return with_namespace(seen, namespace)


async def _offered(cluster: Cluster) -> tuple[str, ...]:
    """The extended resources of all nodes, such as rdma/hca; also those of which none is left."""
    names = {name for node in await cluster.list(NODE) for name, _ in node_state(node).allocatable}
    return tuple(sorted(name for name in names if "/" in name))


def _by_records(places: ExplainPlaces, pod: PodName, records: _Records, why: str) -> PodEvidence:
    """Without a word of the API server: what the agent did, not what was asked."""
    return PodEvidence(
        PodTemplate(pod.namespace, pod.name),
        places.here,
        "by the records of this node",
        recorded=records.attachments,
        bindings=records.bindings,
        not_seen=(NotSeen("what the pod asks for", why),),
    )


def _records(state: Path, pod: PodName, uid: str = "") -> _Records:
    """The newest sandbox's; a pod of that name and another uid is another pod."""
    try:
        attachments = recorded(state, pod, uid)
        bindings = glances(state / "bindings", "binding", Binding)
    except Unavailable:
        return _Records(None, None)
    held = [one for _, one in bindings or () if one.pod == pod and uid in ("", one.uid)]
    return _Records(attachments or None, tuple(held) or None)


def _refuse_elsewhere(pod: PodName, where: str, node: str | None) -> None:
    """Raise Refused for a pod that is not on the node that somebody named."""
    if node and node != where:
        raise Refused(
            f"pod {pod} is {f'on node {where}' if where else 'on no node yet'}, not on {node}",
            remedy=f"Leave --node out, or name {where}" if where else "Leave --node out",
            where="--node",
        )


async def _state(cluster: Cluster, name: str) -> NodeState | None:
    stored = await cluster.get(NODE, name)
    return node_state(stored) if stored else None


async def _report(cluster: Cluster, name: str) -> NodeReport:
    stored = await cluster.get(NODE_REPORT, name)
    if stored is None or stored.status is None:
        raise Unavailable(f"there is no NodeReport {name}, which an agent with --networks writes")
    return stored.status


async def _offers(cluster: Cluster) -> tuple[OfferedPool, ...]:
    parsed = await cluster.see(NODE_POLICY)
    policies = map(policy_of, parsed.objects)
    return tuple(OfferedPool(spec, one.selector) for one in policies for spec in one.pools)


async def _specs(cluster: Cluster, report: NodeReport) -> tuple[PoolSpec, ...]:
    """The wishes of the policies that the node meets, for all that a report does not repeat."""
    specs: list[PoolSpec] = []
    for policy in report.policies:
        stored = await cluster.get(NODE_POLICY, policy.name)
        specs += policy_of(stored).pools if stored else ()
    return tuple(specs)


async def _refuse_unknown(cluster: Cluster, name: str) -> None:
    if await cluster.get(NODE, name) is None:
        raise Refused(
            f"there is no node {name}", remedy="Name one of kubectl get nodes", where="--node"
        )


def node_here(name: str, state: Path) -> NodeBasis | None:
    """Return the node of this machine now; None where no agent has written which pools it serves.

    What the rules plan of it is what the agent would do now.
    """
    try:
        record = glance(state / "pools", AppliedPools)
        if record is None:
            return None
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
    owned = tuple((c, p.spec.resource) for p in pools if terms(p.spec).owns for c in p.cards)
    links = tuple(
        replace(one, settings=settings.get(one.virtual)) if one.virtual else one
        for one in host.links
    )
    whole: HostNetwork = replace(host, links=links, owned=owned)
    return NodeBasis(name, pools, whole, exact=True)


async def claims_evidence(cluster: Cluster, pod: PodName) -> ClaimsEvidence | None:
    """What the pod has by claims, None for one without any; raise KubeError."""
    claims = await claims_of_pod(cluster, pod)
    if claims is None or not claims.claims:
        return None
    names = dict.fromkeys(name for _, name in claims.claims)
    read = {name: await allocated(cluster, ClaimName(pod.namespace, name, "")) for name in names}
    made: dict[str, dict[str, ClaimParameters]] = {}
    misread: dict[str, tuple[Finding, ...]] = {}
    for claim in filter(None, read.values()):
        try:
            made[claim.claim.uid] = parameters_by_request(claim)
        except Refused as error:
            misread[claim.claim.uid] = Finding.of_refused(error, Stage.AGENT)
    return ClaimsEvidence(
        claims,
        tuple(filter(None, read.values())),
        made,
        misread,
        tuple(name for name, claim in read.items() if claim is None),
    )


# Collects what decides about a ResourceClaim: it, slices, classes, nodes, and what others hold.


async def read_claim(
    namespace: str, name: str, node: str | None, opener: OpenCluster
) -> ClaimWorld:
    """The claim with all that decides about it, of all nodes or of one; raise Refused."""
    async with opener() as cluster:
        stored = await cluster.get(WHOLE_CLAIM, name, namespace)
        if stored is None:
            raise Refused(
                f"there is no claim {namespace}/{name}",
                remedy=f"Name one of kubectl -n {quote(namespace)} get resourceclaims",
            )
        claim = claim_of(stored)
        if claim.held is not None:
            return ClaimWorld(claim)
        slices = [listed_slice(one) for one in await cluster.list(WHOLE_SLICE)]
        classes = [device_class(one) for one in await cluster.list(DEVICE_CLASS)]
        others = [claim_of(one) for one in await cluster.list(WHOLE_CLAIM)]
        return ClaimWorld(
            claim=claim,
            nodes=await _nodes(cluster, node),
            classes=tuple(classes),
            slices=tuple(slices),
            others=tuple(one for one in others if one.held is not None),
        )


async def _nodes(cluster: Cluster, name: str | None) -> tuple[ClaimNode, ...]:
    where = Where(name=name) if name else EVERYWHERE
    nodes = await cluster.list(NODE, where)
    if name and not nodes:
        raise Refused(
            f"there is no node {name}", remedy="Name one of kubectl get nodes", where="--node"
        )
    return tuple(ClaimNode(one.name, dict(one.labels)) for one in nodes)
