"""The object ``kind: BandwidthCheck``: RDMA from pod to pod, measured by the controller.

It says what the options of `kube-rdma verify` say, in the namespace whose pods are measured. What
several fields say together is checked here, and by the API server in CEL.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict, ValidationInfo, field_validator

from kube_rdma.api.bandwidth_check_status import BandwidthCheckStatus
from kube_rdma.api.dialect import Many, Typed
from kube_rdma.api.faults import Slip, slips, validate
from kube_rdma.api.object_document import of_json
from kube_rdma.model.bandwidth import Operation, PairStandard, PerftestRun
from kube_rdma.model.bandwidth_check import BandwidthPlan
from kube_rdma.model.errors import Refused

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
        "rule": "self.latency ? !has(self.minGbps) : !has(self.maxMicroseconds)",
        "message": "minGbps is for bandwidths, maxMicroseconds for latencies",
    },
]


def _ruled(schema: dict[str, Any]) -> None:
    """The rules, and an end of what they count."""
    schema["x-kubernetes-validations"] = _RULES
    schema["properties"]["selector"]["maxProperties"] = 16


class PodPart(Typed):
    """A part of a pod: what is not looked at here goes to the API server as it is."""

    model_config = ConfigDict(extra="allow")


class TemplateResources(PodPart):
    """Of a container; the extended resources of `limits` choose the nodes."""

    limits: dict[str, Any] | None = None


class TemplateContainer(PodPart):
    """The first one needs perftest in its image, and runs it; others are left out."""

    resources: TemplateResources | None = None


class TemplateSpec(PodPart):
    """Of the pod."""

    containers: Many[TemplateContainer] = Field(
        min_length=1, max_length=64, examples=[[{"name": "c", "image": "IMAGE"}]]
    )
    node_selector: dict[str, str] | None = None


class TemplateMetadata(PodPart):
    """Its labels, and its annotations for networks."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class BandwidthTemplate(Typed):
    """A pod as the jobs have it: its image, its annotations for networks, its shares."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    spec: TemplateSpec = Field(examples=[{"containers": [{"name": "c", "image": "IMAGE"}]}])


class BandwidthCheckSpec(Typed):
    """Who is measured, how, and what is good enough; a change of it measures again."""

    model_config = ConfigDict(json_schema_extra=_ruled)

    selector: dict[str, str] = Field(
        default_factory=dict,
        description="Running pods with all of these labels are measured.",
        examples=[{"app": "train"}],
    )
    template: BandwidthTemplate | None = Field(
        None, description="Of this pod a copy on each node is measured, and deleted at the end."
    )
    nodes: Annotated[Many[str], Field(max_length=MOST_NODES)] = Field(
        (), description="Of copies; without names all nodes that offer what the pod asks for."
    )
    start_seconds: int = Field(
        300, ge=1, le=HOUR, description="How long copies may take to be Ready, in seconds."
    )
    test: Annotated[Operation, Strict(strict=False)] = Field(
        Operation.WRITE, description="What perftest posts."
    )
    latency: bool = Field(False, description="Measure latencies instead of bandwidths.")
    size: int | None = Field(None, ge=1, description="Of a message, in bytes.")
    all_sizes: bool = Field(False, description="All sizes from 2 bytes to 8 MiB.")
    iterations: int | None = Field(None, ge=5, description="Of each size.")
    queue_pairs: int = Field(1, ge=1, description="One alone may not fill a fast card.")
    rdma_cm: bool = Field(False, alias="rdmaCM", description="Connect by RDMA_CM.")
    cuda: int | None = Field(None, ge=0, description="Use the memory of this GPU.")
    pair_seconds: int = Field(
        300, ge=1, le=HOUR, description="How long one measurement may take, in seconds."
    )
    run_seconds: int = Field(
        21_600,
        ge=1,
        le=DAY,
        description="How long all may take, in seconds; then the run ends with what it has.",
    )
    max_pairs: int = Field(
        20_000,
        ge=1,
        le=MOST_PAIRS,
        description="How many measurements a run may need: two nodes need one for each rail.",
    )
    both_ways: bool = Field(False, description="Each two measure in both directions.")
    min_gbps: float | None = Field(None, ge=0, description="What each pair must reach.")
    max_microseconds: float | None = Field(None, ge=0, description="What a latency may be.")
    line_share_percent: int = Field(
        80, ge=0, le=100, description="Of the line rate that is due; soft devices have none."
    )
    tolerance_percent: int = Field(
        20, ge=0, le=100, description="By which a pair may be worse than the median of its rail."
    )
    against_last: bool = Field(
        False, description="Nor may a pair be so much worse than in the run before."
    )
    every_seconds: int | None = Field(
        None,
        ge=60,
        le=YEAR,
        description="Seconds between the begin of two runs; without it, once.",
    )

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

    @field_validator("min_gbps")
    @classmethod
    def _of_bandwidths(cls, limit: float | None, info: ValidationInfo) -> float | None:
        if limit is not None and info.data.get("latency"):
            raise slips(Slip("this is no latency", "Write maxMicroseconds"))
        return limit

    @field_validator("max_microseconds")
    @classmethod
    def _of_latencies(cls, limit: float | None, info: ValidationInfo) -> float | None:
        if limit is not None and not info.data.get("latency"):
            raise slips(Slip("this is for latencies", "Write latency: true, or minGbps"))
        return limit


class BandwidthCheck(Typed):
    """RDMA from pod to pod, measured by the controller where its namespace allows that."""

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["BandwidthCheck"]
    spec: BandwidthCheckSpec
    status: BandwidthCheckStatus | None = None


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
            limit=spec.max_microseconds if spec.latency else spec.min_gbps,
            line_share=spec.line_share_percent / 100,
            tolerance=spec.tolerance_percent / 100,
        ),
        selector=",".join(f"{label}={value}" for label, value in sorted(spec.selector.items())),
        template=_pod(document.value) if spec.template else None,
        nodes=spec.nodes,
        start_seconds=spec.start_seconds,
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
