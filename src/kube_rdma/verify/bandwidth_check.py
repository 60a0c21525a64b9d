"""The object ``kind: BandwidthCheck``: RDMA from pod to pod, measured by the controller.

It says what the options of `kube-rdma verify` say, in the namespace whose pods are measured. What
several fields say together is checked here, and by the API server in CEL.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, Strict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from kube_base.errors import Refused
from kube_rdma.lib.text.document import of_json
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import Many, OfPrograms, Typed
from kube_rdma.lib.text.words import LabelValue, ObjectName, TextForm
from kube_rdma.model import measures
from kube_rdma.model.measures import gbps, microseconds
from kube_rdma.model.verify.bandwidth import Operation, Pairing, PairStandard, PerftestRun
from kube_rdma.model.verify.bandwidth_check import BandwidthPlan
from kube_rdma.verify.status import BandwidthCheckStatus
from kube_rdma.verify.template import BandwidthTemplate

T = TypeVar("T")

MOST_NODES = 1000
MOST_PAIRS = 100_000
HOUR, DAY, YEAR = 3600, 86_400, 365 * 86_400
_RULES = [
    {
        "rule": "(has(self.selector) && size(self.selector) > 0) != has(self.template)",
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


def _ruled(schema: dict[str, Any]) -> None:
    schema["x-kubernetes-validations"] = _RULES


class BandwidthCheckSpec(Typed):
    """Who is measured, how, and what is good enough."""

    model_config = ConfigDict(json_schema_extra=_ruled)

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
    """nodes are the names of the nodes that get a copy of template; cordoned nodes get none. Left
    out: all nodes that offer the extended resources of template, as shares or by claims, and
    devices for its claim templates. Example: [node-1, node-2].
    """
    start_seconds: int = Field(300, ge=1, le=HOUR)
    """startSeconds is how long the copies of template may take to become Ready, in seconds. A copy
    that is not Ready then takes no part. Left out: 300.
    """
    pairs: Annotated[Pairing, Strict(strict=False)] = Pairing.ALL
    """pairs are the pairs to measure. all: each pair, one rail at a time. ring: each card with two
    neighbours, all rails at once. star: the first of nodes with each other one; without nodes the
    first pod by name. ring and star measure each suspect once more, with a good card. Left out:
    all.
    """
    test: Annotated[Operation, Strict(strict=False)] = Operation.WRITE
    """test is the RDMA operation that perftest measures: write, read or send. Left out: write."""
    latency: bool = False
    """latency is true to measure latencies in microseconds, false to measure bandwidths in Gbit/s.
    Left out: false.
    """
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
    """runSeconds is how long all measurements of a run may take together, in seconds. Then the run
    ends with the figures that it has, as NotWell. Waiting for other checks does not count. Left
    out: 21600 (6 hours).
    """
    max_pairs: int = Field(20_000, ge=1, le=MOST_PAIRS)
    """maxPairs is how many measurements a run may need. A run that needs more measures nothing; it
    is tried again after five minutes, with nodes only after a change of the spec. Two pods need
    one for each rail that both have, with bothWays two. Repeated measurements of suspects do not
    count. Left out: 20000.
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
    """minGbps is the old form of minBandwidth, in Gbit/s; it goes with the next release. It
    excludes minBandwidth.
    """
    max_microseconds: float | None = Field(None, ge=0)
    """maxMicroseconds is the old form of maxLatency, in microseconds; it goes with the next
    release. It excludes maxLatency.
    """
    line_share_percent: int = Field(80, ge=0, le=100)
    """lineSharePercent is how much of the line rate of the slower card a good pair reaches, in
    percent. It has no effect on latencies and on soft devices, such as Soft-RoCE. Left out: 80.
    """
    tolerance_percent: int = Field(20, ge=0, le=100)
    """tolerancePercent is how much worse than the median of its rail a good pair may be, in
    percent. The median counts where a rail has at least three figures. Left out: 20.
    """
    against_last: bool = False
    """againstLast is true to compare each pair also with its figure of the last run of the same
    spec; a changed spec begins a new comparison. A pair that is worse by more than
    tolerancePercent is slow. Pairs that status.pairs does not list are not compared. Left out:
    false.
    """
    every_seconds: int | None = Field(None, ge=60, le=YEAR)
    """everySeconds is the time from the start of one run to the start of the next, in seconds. Left
    out: the check runs once, and again when its spec changes. A run that ends without figures is
    tried again after five minutes, unless its spec is at fault. Example: 86400.
    """

    @field_validator("template")
    @classmethod
    def _chooses_once(
        cls, template: BandwidthTemplate | None, info: ValidationInfo
    ) -> BandwidthTemplate | None:
        if template is not None and info.data.get("selector"):
            raise slips(Slip("selector chooses running pods already", "Leave one of them out"))
        return template

    @field_validator("nodes")
    @classmethod
    def _of_copies(cls, nodes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if nodes and info.data.get("template", 0) is None:
            raise slips(Slip("nodes are for copies", "Give a template, or leave nodes out"))
        return nodes

    @field_validator("all_sizes")
    @classmethod
    def _sizes(cls, every: bool, info: ValidationInfo) -> bool:
        if every and info.data.get("size") is not None:
            raise slips(Slip("size says one size already", "Leave one of them out"))
        return every

    @field_validator("min_bandwidth", "min_gbps")
    @classmethod
    def _of_bandwidths(cls, limit: T, info: ValidationInfo) -> T:
        if limit is not None and info.data.get("latency"):
            raise slips(Slip("this is no latency", "Write maxLatency"))
        return limit

    @field_validator("max_latency", "max_microseconds")
    @classmethod
    def _of_latencies(cls, limit: T, info: ValidationInfo) -> T:
        if limit is not None and not info.data.get("latency"):
            raise slips(Slip("this is for latencies", "Write latency: true, or minBandwidth"))
        return limit

    @field_validator("min_gbps", "max_microseconds")
    @classmethod
    def _once(cls, limit: float | None, info: ValidationInfo) -> float | None:
        new = {"min_gbps": "min_bandwidth", "max_microseconds": "max_latency"}
        name = new[str(info.field_name)]
        if limit is not None and info.data.get(name) is not None:
            problem = f"it is the old form of {to_camel(name)}, which is given too"
            raise slips(Slip(problem, "Leave the old one out"))
        return limit

    @property
    def limit(self) -> float | None:
        """What was asked for, in Gbit/s or microseconds, in whichever form."""
        if self.latency:
            return microseconds(self.max_latency) if self.max_latency else self.max_microseconds
        return gbps(self.min_bandwidth) if self.min_bandwidth else self.min_gbps


class BandwidthCheck(Typed):
    """BandwidthCheck measures RDMA bandwidth or latency from pod to pod, and names slow pairs.

    The controller does it in namespaces that give it the rights to do so.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["BandwidthCheck"]
    spec: BandwidthCheckSpec
    """spec says which pods are measured, how, and which figures are good. A change of it starts a
    new run.
    """
    status: OfPrograms[BandwidthCheckStatus] | None = None
    """status is the result of the last run, and whether one is under way. The controller writes it.
    """


def load_plan(data: bytes, title: str) -> BandwidthPlan:
    """What the JSON of a check's spec means; raise Refused with all of its faults."""
    document = of_json(data, f"BandwidthCheck {title}", ("spec",))
    spec = validate(BandwidthCheckSpec, document)
    if not spec.selector and spec.template is None:
        raise Refused(
            "it chooses no pods",
            remedy="Give a selector of running pods, or the template of a pod",
            where=document.where(()),
        )
    return BandwidthPlan(
        _run(spec),
        PairStandard(
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


def _run(spec: BandwidthCheckSpec) -> PerftestRun:
    return PerftestRun(
        operation=spec.test,
        latency=spec.latency,
        size=spec.size,
        all_sizes=spec.all_sizes,
        iterations=spec.iterations,
        queue_pairs=spec.queue_pairs,
        rdma_cm=spec.rdma_cm,
        cuda=spec.cuda,
        seconds=spec.pair_seconds,
    )


def _pod(value: Any) -> dict[str, Any]:
    """The pod of a valid spec as it was written, for the models know few of its fields."""
    template = value["template"]
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": template["spec"]}
