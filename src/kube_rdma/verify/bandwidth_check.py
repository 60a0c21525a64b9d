"""Defines the object ``kind: BandwidthCheck``: RDMA from pod to pod, measured by the controller.

Its spec says what the options of `kube-rdma verify` say, for pods of the check's own namespace.
Fields that contradict each other are refused here, and by the API server in CEL. Its status, whose
shapes are in model/verify, is written run by run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import ConfigDict, Field, JsonValue, Strict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.lib.text.document import Document, of_json
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import Many, OfPrograms, Typed
from kube_rdma.lib.text.words import Labels, LabelValue, ObjectName, TextForm
from kube_rdma.model import kubernetes, measures, verify
from kube_rdma.model.measures import figure_text, gbps, microseconds

# The worst pairs stand first in a status.
_WORST_FIRST = (verify.Rating.FAILED, verify.Rating.SLOW, verify.Rating.WELL)


def begun(
    old: verify.BandwidthCheckStatus | None, generation: int, now: datetime
) -> verify.BandwidthCheckStatus:
    """Return the status of a run that begins; figures of the previous run stay."""
    kept = old or verify.BandwidthCheckStatus(observed_generation=generation, state="Measuring")
    words = ("Measuring", "the pairs are being measured")
    before = kept.conditions
    return replace(
        kept,
        observed_generation=generation,
        measured_generation=kept.figures_generation,
        state="Measuring",
        result="",
        start_time=kubernetes.moment(now),
        completion_time=None,
        conditions=(
            *kubernetes.observed(
                (kubernetes.condition(before, kubernetes.moment(now), "Complete", False, words),),
                generation,
            ),
            *(each for each in before if each.type == "Well"),
        ),
    )


def measured(
    running: verify.BandwidthCheckStatus, proof: verify.PairProof, result: str, now: datetime
) -> verify.BandwidthCheckStatus:
    """Return the status of a finished run; `result` describes its figures in one sentence."""
    figures = [pair.figure for pair in proof.rated if pair.figure is not None]
    latency = proof.run.latency
    worst = sorted(proof.rated, key=lambda pair: _WORST_FIRST.index(pair.rating))
    ratings = [pair.rating for pair in proof.rated]
    state: verify.State = "Well" if proof.is_well else "NotWell"
    return verify.BandwidthCheckStatus(
        observed_generation=running.observed_generation,
        measured_generation=running.observed_generation,
        state=state,
        result=kubernetes.cut(result),
        start_time=running.start_time,
        completion_time=kubernetes.moment(now),
        pairs_measured=len(ratings),
        pairs_slow=ratings.count(verify.Rating.SLOW),
        pairs_failed=ratings.count(verify.Rating.FAILED),
        lowest_measured=figure_text(min(figures, default=None), latency=latency),
        highest_measured=figure_text(max(figures, default=None), latency=latency),
        pairs_unmeasured=proof.unmeasured,
        suspects=tuple(
            _suspect(each, latency=latency) for each in proof.suspects[: verify.MOST_NAMES]
        ),
        left_out=tuple(
            verify.LeftOutEntry(name=name, why=kubernetes.cut(why))
            for name, why in proof.left_out[: verify.MOST_NAMES]
        ),
        pairs=tuple(_entry(pair, latency=latency) for pair in worst[: verify.MOST_PAIRS]),
        conditions=_ended(running, now, (state, kubernetes.cut(result)), well=proof.is_well),
    )


def not_measured(
    running: verify.BandwidthCheckStatus, why: str, now: datetime, *, refused: bool = False
) -> verify.BandwidthCheckStatus:
    """Return the status after a run without figures, with those of the run before.

    `refused` says that only a new spec helps.
    """
    reason = verify.REFUSED if refused else "NotMeasured"
    return replace(
        running,
        state="NotMeasured",
        result=kubernetes.cut(why),
        completion_time=kubernetes.moment(now),
        conditions=_ended(running, now, (reason, kubernetes.cut(why)), well=False),
    )


def decode(data: bytes) -> verify.BandwidthCheckStatus:
    """Decode a status from JSON; raise ValueError if it has another structure."""
    document = decoded(data)
    if isinstance(document, dict) and isinstance(suspects := document.get("suspects"), list):
        # Older releases wrote suspects as names; the next run writes them anew.
        document["suspects"] = [each for each in suspects if not isinstance(each, str)]
    return decoded(msgspec.json.encode(document), verify.BandwidthCheckStatus)


def encode(status: verify.BandwidthCheckStatus) -> bytes:
    """Encode a status as JSON, without unset fields."""
    return msgspec.json.encode(_without_nulls(msgspec.to_builtins(status)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


def _ended(
    running: verify.BandwidthCheckStatus, now: datetime, words: tuple[str, str], *, well: bool
) -> tuple[kubernetes.Condition, ...]:
    before, at = running.conditions, kubernetes.moment(now)
    ended = (
        kubernetes.condition(before, at, "Complete", True, ("Ended", "the run has ended")),
        kubernetes.condition(before, at, "Well", well, words),
    )
    return kubernetes.observed(ended, running.observed_generation)


def _suspect(suspect: verify.Suspect, *, latency: bool) -> verify.SuspectEntry:
    return verify.SuspectEntry(
        kind=suspect.kind,
        node=suspect.node,
        device=suspect.device,
        rail=suspect.rail,
        peer=suspect.peer,
        pairs=suspect.pairs,
        of=suspect.of,
        median_measured=figure_text(suspect.median, latency=latency),
        median_due=figure_text(suspect.due, latency=latency),
        why=kubernetes.cut(suspect.why or ""),
    )


def _entry(pair: verify.RatedPair, *, latency: bool) -> verify.PairEntry:
    outcome = pair.outcome
    return verify.PairEntry(
        client=outcome.client,
        server=outcome.server,
        rail=outcome.rail,
        devices=outcome.devices,
        measured=figure_text(pair.figure, latency=latency),
        rating=pair.rating,
        why=kubernetes.cut(pair.why),
    )


# The spec: first the pod that is copied to nodes, of which only some fields are looked at.

# As the API server takes them: 256 KiB in all.
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=1 << 18)]], Field(max_length=256)]


class PodPart(Typed):
    """A part of a pod; fields that are not known here are accepted."""

    model_config = ConfigDict(extra="allow")


class TemplateResources(PodPart):
    """The resources of a container."""

    limits: dict[str, Any] | None = None
    """limits are the resource limits of the container. A node gets a copy only if it offers each
    extended resource in any container's limits, as shares or by claims of a DeviceClass. Example:
    rdma/hca: 1.
    """


class TemplateContainer(PodPart):
    """A container of the pod."""

    resources: TemplateResources | None = None
    """resources are the resources of the container, as in any Pod. Left out: the container asks for
    nothing.
    """


class TemplateClaim(PodPart):
    """A claim of the pod."""

    name: str = Field(max_length=253)
    """name is what containers call the claim, as in any Pod. Example: nics."""
    resource_claim_name: str | None = Field(None, max_length=253)
    """resourceClaimName is refused: a claim is allocated on one node, so copies cannot share it."""
    resource_claim_template_name: str | None = Field(None, max_length=253)
    """resourceClaimTemplateName is the ResourceClaimTemplate of each copy's claim, in the namespace
    of the check. Example: nics.
    """


class TemplateSpec(PodPart):
    """The spec of the pod that is copied."""

    containers: Many[TemplateContainer] = Field(
        min_length=1, max_length=64, examples=[[{"name": "c", "image": "IMAGE"}]]
    )
    """containers are the containers of the pod. A copy has the first one alone, which waits instead
    of its own command. Its image needs perftest and a shell.
    """
    resource_claims: Many[TemplateClaim] | None = Field(default=None, max_length=64)
    """resourceClaims are the claims of the pod, as in any Pod. A node whose devices cannot meet
    these claims gets no copy. Left out: the pod has none.
    """
    node_selector: Labels | None = None
    """nodeSelector has labels that a node needs, as in any Pod. The label kubernetes.io/hostname in
    it is ignored. A copy on a node without these labels does not start, and the node takes no part.
    """


class TemplateMetadata(PodPart):
    """The metadata of the pod, as far as copies keep it."""

    labels: Labels | None = None
    """labels are the labels of each copy; labels of kube-rdma come on top. Left out: only labels of
    kube-rdma.
    """
    annotations: Annotations | None = None
    """annotations are the annotations of each copy, such as those that name its networks. Left out:
    none. Example: k8s.v1.cni.cncf.io/networks: rdma-net.
    """


class BandwidthTemplate(Typed):
    """The pod that is copied, without a name."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """metadata has the labels and annotations of each copy. Its other fields are ignored. Left out:
    none.
    """
    spec: TemplateSpec = Field(examples=[{"containers": [{"name": "c", "image": "IMAGE"}]}])
    """spec is the specification of the pod, as in any Pod. A copy has no probes, lifecycle hooks
    and init containers. kube-rdma sets its affinity, restartPolicy and
    terminationGracePeriodSeconds, and ignores nodeName.
    """


T = TypeVar("T")

_ONE_OF, _NO_NODES = "Leave one of them out", "Give a template, or leave nodes out"
MOST_NODES = 1000
MOST_MEASUREMENTS = 100_000
HOUR, DAY, YEAR = 3600, 86_400, 365 * 86_400
_RULES: list[JsonValue] = [
    {
        "rule": "[has(self.selector) && size(self.selector) > 0, has(self.template), "
        "has(self.preflight)].filter(one, one).size() == 1",
        "message": "say which pods run already (selector), or of which pod copies are made "
        "(template): one of the two",
    },
    {
        "rule": "!has(self.nodes) || size(self.nodes) == 0 || has(self.template)",
        "message": "nodes are for copies: give a template, or leave nodes out",
    },
    {
        "rule": "!has(self.size) || !self.allSizes",
        "message": "size and allSizes exclude each other: leave one out",
    },
    {
        "rule": "self.latency ? !has(self.minBandwidth) && !has(self.minGbps) : "
        "!has(self.maxLatency) && !has(self.maxMicroseconds)",
        "message": "minBandwidth is for bandwidths, maxLatency for latencies",
    },
    {
        "rule": "(!has(self.minBandwidth) || !has(self.minGbps)) && "
        "(!has(self.maxLatency) || !has(self.maxMicroseconds))",
        "message": "minGbps is the old form of minBandwidth, maxMicroseconds that of maxLatency: "
        "leave the old one out",
    },
]
LeastBandwidth = Annotated[  # 180 alone would be 180 bit/s, which nobody means
    str,
    Field(max_length=measures.LONGEST),
    TextForm(
        f"{measures.NUMBER}(?:{measures.SUFFIX})",
        "a bandwidth, a quantity of bit/s with a suffix: k, M, G, T",
        "180G",
    ),
]
Latency = Annotated[
    str,
    Field(max_length=measures.LONGEST),
    TextForm(
        f"{measures.NUMBER}(?:{measures.UNIT})",
        "a latency, a number with one unit: ns, us, ms, s",
        "5us",
    ),
]


class BandwidthCheckSpec(Typed):
    """The spec of a check: who is measured, how, and which figures are good enough."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _RULES})

    selector: dict[str, LabelValue] = Field(
        default_factory=dict, max_length=16, examples=[{"app": "train"}]
    )
    """selector chooses pods of the check's namespace by their labels; a pod needs all of them. Give
    either selector or template. Example: app: train.
    """
    template: BandwidthTemplate | None = None
    """template is the manifest of a pod as jobs have it: its image, networks and resource limits.
    Each chosen node gets a copy of it, which is deleted at the end of the run. Give either selector
    or template.
    """
    nodes: Annotated[Many[ObjectName], Field(max_length=MOST_NODES)] = ()
    """nodes are the names of the nodes that may get a copy of template. A node gets a copy only if
    it is Ready, not cordoned, and offers the resources and claims of template. Left out: all nodes.
    Example: [node-1, node-2].
    """
    start_seconds: int = Field(300, ge=1, le=HOUR)
    """startSeconds is how long the copies of template may take to become Ready, in seconds. A copy
    that is not Ready then takes no part. Left out: 300.
    """
    preflight: str | None = Field(None, max_length=253)
    """preflight is the gang of pods whose own preflight gave the figures: the controller wrote the
    check and measures nothing. It excludes selector and template. Example: Job/train.
    """
    pairs: Annotated[verify.Pairing, Strict(strict=False)] = verify.Pairing.ALL
    """pairs are the pairs to measure. all: each pair, one rail at a time. ring: each card with two
    neighbours, all rails at once. star: the first of nodes with each other one; without nodes the
    first pod by name. In ring and star a card without a good pair is measured once more. Left out:
    all.
    """
    test: Annotated[verify.Operation, Strict(strict=False)] = verify.Operation.WRITE
    """test is the RDMA operation that perftest measures: write, read or send. Left out: write."""
    latency: bool = False
    """latency is true to measure latencies, false to measure bandwidths. Left out: false."""
    size: int | None = Field(None, ge=1)
    """size is the size of a message in bytes. It excludes allSizes. Left out: the default of
    perftest. Example: 65536.
    """
    all_sizes: bool = False
    """allSizes is true to measure all powers of two from 2 bytes to 8 MiB. The best figure of a
    pair counts. It excludes size. Left out: false.
    """
    iterations: int | None = Field(None, ge=5)
    """iterations is how many messages perftest exchanges for each size. Left out: the default of
    perftest. Example: 5000.
    """
    queue_pairs: int = Field(1, ge=1)
    """queuePairs is how many queue pairs a measurement of bandwidth uses; one alone may not fill a
    fast card. It has no effect on latencies. Left out: 1.
    """
    rdma_cm: bool = Field(False, alias="rdmaCM")
    """rdmaCM is true to connect the two ends by the RDMA connection manager (RDMA_CM). The pods
    then need a network of kube-rdma with addresses. Left out: false, the ends exchange their
    connection data by TCP.
    """
    cuda: int | None = Field(None, ge=0)
    """cuda is the index of the GPU whose memory both ends use; the perftest in the image has to
    support CUDA. Left out: memory of the host. Example: 0.
    """
    pair_seconds: int = Field(300, ge=1, le=HOUR)
    """pairSeconds is how long one measurement may take, in seconds. A measurement that takes longer
    counts as failed. Left out: 300.
    """
    run_seconds: int = Field(21_600, ge=1, le=DAY)
    """runSeconds is for how many seconds a run begins measurements. If some are left then, the run
    ends as NotWell with the figures that it has. Waiting for other checks does not count. Left out:
    21600 (6 hours).
    """
    max_pairs: int = Field(20_000, ge=1, le=MOST_MEASUREMENTS)
    """maxPairs is how many measurements a run may need. A check above this limit measures nothing.
    The next try is within five minutes, or, if the field nodes is set, after a change of the spec.
    A pair of pods needs one measurement for each rail that both have, two with bothWays. Repeats do
    not count. Left out: 20000.
    """
    both_ways: bool = False
    """bothWays is true to measure each pair a second time with client and server exchanged. Left
    out: false.
    """
    min_bandwidth: LeastBandwidth | None = None
    """minBandwidth is the lowest bandwidth of a good pair in bit/s, a quantity with a suffix. It
    is not allowed with latency: true. Left out: no such limit. Example: 180G.
    """
    max_latency: Latency | None = None
    """maxLatency is the highest average latency of a good pair, a number with the unit ns, us, ms
    or s. It needs latency: true. Left out: no such limit. Example: 5us.
    """
    min_gbps: float | None = Field(None, ge=0)
    """minGbps is the old form of minBandwidth, in Gbit/s; it is removed in the next release. It
    excludes minBandwidth.
    """
    max_microseconds: float | None = Field(None, ge=0)
    """maxMicroseconds is the old form of maxLatency, in microseconds; it is removed in the next
    release. It excludes maxLatency.
    """
    line_share_percent: int = Field(80, ge=0, le=100)
    """lineSharePercent is how much of the line rate of the slower card a good pair reaches, in
    percent. It has no effect on latencies and on soft devices, such as Soft-RoCE. Left out: 80.
    """
    tolerance_percent: int = Field(20, ge=0, le=100)
    """tolerancePercent is how much worse than the median of its rail a good pair may be, in
    percent. A rail with fewer than three figures has no median. Left out: 20.
    """
    against_last: bool = False
    """againstLast is true to compare each pair also with its figure of the last run of the same
    spec. A changed spec begins a new comparison. A pair that is worse by more than
    tolerancePercent is slow. Pairs that status.pairs does not list are not compared. Left out:
    false.
    """
    every_seconds: int | None = Field(None, ge=60, le=YEAR)
    """everySeconds is how many seconds after the start of one run the next is due. Left out: the
    check runs once, and again when its spec changes. A run that ends without figures is due again
    after at most five minutes, unless its spec is at fault. Example: 86400.
    """

    @field_validator("template", "nodes", "all_sizes")
    @classmethod
    def _has_room(cls, given: T, info: ValidationInfo) -> T:
        """Return the value; raise ValueError if an earlier field of the spec excludes it."""
        before = info.data
        wrong, problem, remedy = {
            "template": (before.get("selector"), "selector chooses running pods already", _ONE_OF),
            "nodes": (before.get("template", 0) is None, "nodes are for copies", _NO_NODES),
            "all_sizes": (before.get("size") is not None, "size says one size already", _ONE_OF),
        }[str(info.field_name)]
        if given and wrong:
            raise slips(Slip(problem, remedy))
        return given

    @field_validator("min_bandwidth", "min_gbps", "max_latency", "max_microseconds")
    @classmethod
    def _is_fitting(cls, limit: T, info: ValidationInfo) -> T:
        """Return the limit; raise ValueError if `latency` excludes it, or both forms are given."""
        if limit is None:
            return limit
        name, is_latency = str(info.field_name), bool(info.data.get("latency"))
        if name.startswith("min") and is_latency:
            raise slips(Slip("this is no latency", "Write maxLatency"))
        if name.startswith("max") and not is_latency:
            raise slips(Slip("this is for latencies", "Write latency: true, or minBandwidth"))
        new = {"min_gbps": "min_bandwidth", "max_microseconds": "max_latency"}.get(name, "")
        if info.data.get(new) is not None:
            problem = f"it is the old form of {to_camel(new)}, which is given too"
            raise slips(Slip(problem, "Leave the old one out"))
        return limit

    @property
    def limit(self) -> float | None:
        """Return the limit in Gbit/s or microseconds, from its new or its old field."""
        if self.latency:
            return microseconds(self.max_latency) if self.max_latency else self.max_microseconds
        return gbps(self.min_bandwidth) if self.min_bandwidth else self.min_gbps


class BandwidthCheck(Typed):
    """BandwidthCheck measures RDMA bandwidth or latency from pod to pod, and names slow pairs.

    The controller measures in namespaces that give it the rights to do so.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["BandwidthCheck"]
    spec: BandwidthCheckSpec
    """spec says which pods are measured, how, and which figures are good. A change of it starts a
    new run.
    """
    status: OfPrograms[verify.BandwidthCheckStatus] | None = None
    """status is the result of the last run, and whether one is under way. The controller writes it.
    """


def load_plan(data: bytes, title: str) -> verify.BandwidthPlan:
    """Return the plan that a spec's JSON describes; raise Refused with all of its faults."""
    return plan_of(of_json(data, f"BandwidthCheck {title}", ("spec",)))


def plan_of(document: Document) -> verify.BandwidthPlan:
    """Return the plan that a spec describes; raise Refused with all of its faults."""
    spec = validate(BandwidthCheckSpec, document)
    if not spec.selector and spec.template is None:
        raise Refused(
            "it chooses no pods",
            remedy="Give a selector of running pods, or the template of a pod",
            where=document.where(()),
        )
    return verify.BandwidthPlan(
        verify.PerftestRun(
            operation=spec.test,
            latency=spec.latency,
            size=spec.size,
            all_sizes=spec.all_sizes,
            iterations=spec.iterations,
            queue_pairs=spec.queue_pairs,
            rdma_cm=spec.rdma_cm,
            cuda=spec.cuda,
            seconds=spec.pair_seconds,
        ),
        verify.PairStandard(
            latency=spec.latency,
            limit=spec.limit,
            line_share=spec.line_share_percent / 100,
            tolerance=spec.tolerance_percent / 100,
        ),
        selector=",".join(f"{label}={value}" for label, value in sorted(spec.selector.items())),
        template=_pod(document.value) if spec.template else None,
        nodes=spec.nodes,
        start_seconds=spec.start_seconds,
        pairing=spec.pairs,
        both_ways=spec.both_ways,
        against_last=spec.against_last,
        every=spec.every_seconds,
        most_pairs=spec.max_pairs,
        run_seconds=spec.run_seconds,
    )


def _pod(value: Any) -> dict[str, Any]:
    """Return the template of a valid spec as a pod, with fields that the models do not know."""
    template = value["template"]
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": template["spec"]}
