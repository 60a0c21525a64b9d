"""Decides what gang a pod is of, who measures with whom, and what the figures say of the gang.

preflight/rounds calls it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_base.plain_text import plain
from kube_rdma.attach.rules.requests import ANNOTATION, refuse_unmeasured
from kube_rdma.lib.phrases import listed
from kube_rdma.model import preflight as model
from kube_rdma.model.card import CardId
from kube_rdma.model.measures import gbps, microseconds
from kube_rdma.model.verify import (
    PairedPod,
    Pairing,
    PairOutcome,
    PairProof,
    PairStandard,
    PerftestRow,
    PerftestRun,
    PodDevice,
    RatedPair,
)
from kube_rdma.verify.rules.pairs import turns_of
from kube_rdma.verify.rules.pods import lonely
from kube_rdma.verify.rules.suspects import rate, suspects

SECONDS = 60
"""The seconds that a client tries to reach its server, and then that perftest may take."""

HEAD_START = 60
"""The seconds by which plans may reach the pods of a gang later than the first of them."""

SLOT = 12
"""The seconds between the begins of two turns where pods of a gang share a card."""

LONGEST = 3600
"""The seconds that the turns of a round may take."""

FIRST_PORT = 18_515  # perftest's own; verify uses the thousand from there on
_PORTS = 32  # of a pod on its node: no pod of a ring is the server of more runs
MOST_RESULT = 80  # characters of a reason in a pod's result

# What a pod asks for.

_SHARE = re.compile(r"[0-9]{1,2}%")
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_JOBSET, _LWS = "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/"
_KUBEFLOW, _RAY = "training.kubeflow.org/job-name", "ray.io/cluster"
_ROLE, _RESTART = "training.kubeflow.org/job-role", "restart-attempt"

_NO_DEVICE = (
    "which RDMA devices it reaches is not known: kube-rdma made no interface for it, and its "
    f"container {model.MEASURES} has no share of a whole pool of cards, as in mode hca. Name a "
    f"network in {ANNOTATION}, or in the parameters of its claim; with RoCE cards in mode hca "
    "write hostNetwork: true."
)

Metadata = Mapping[str, str]
"""The labels or the annotations of a pod."""


def asked(pod: model.PreflightPod) -> model.PreflightPod:
    """Return a pod with its gang and standard, or with the reason if nobody can measure it."""
    try:
        refuse_unmeasured(pod)
        annotations = dict(pod.annotations)
        gang = gang_of(pod.namespace, dict(pod.labels), annotations, pod.controller)
        return replace(pod, gang=gang, standard=standard_of(annotations))
    except Refused as error:
        return replace(pod, refusal=str(error))


def standard_of(annotations: Metadata) -> model.Standard:
    """Return what a pod's annotations ask for; raise Refused for what nobody can measure."""
    pairing = annotations.get(model.REQUEST, "")
    if pairing not in model.PAIRINGS:
        raise _wrong(model.REQUEST, pairing, "Write ring or star")
    least, most = (annotations.get(key) for key in (model.MIN_BANDWIDTH, model.MAX_LATENCY))
    try:
        bandwidth = None if least is None else gbps(least)
    except ValueError:
        raise _wrong(model.MIN_BANDWIDTH, least, "Write bit/s with a suffix: 80G") from None
    try:
        latency = None if most is None else microseconds(most)
    except ValueError:
        raise _wrong(model.MAX_LATENCY, most, "Write a number with a unit: 5us") from None
    share = annotations.get(model.TOLERANCE, "20%")
    if not _SHARE.fullmatch(share):
        raise _wrong(model.TOLERANCE, share, "Write a number of percent: 20%")
    return model.Standard(Pairing(pairing), bandwidth, latency, int(share[:-1]) / 100)


def gang_of(
    namespace: str, labels: Metadata, annotations: Metadata, owner: model.GangOwner | None
) -> model.Gang:
    """Return the gang of a pod; raise Refused if nothing says which pods belong to it.

    The labels are those of JobSet, LeaderWorkerSet, Kubeflow's trainer and KubeRay. What the pod
    says itself goes first. A gang never reaches beyond its namespace.
    """
    size = annotations.get(model.SIZE)
    if size is not None and (not _SIZE.fullmatch(size) or int(size) > model.MOST_PODS):
        raise _wrong(model.SIZE, size, f"Write the number of pods, 1 to {model.MOST_PODS}")
    number = int(size) if size else None
    if name := labels.get(model.GANG):
        if number is None:
            raise _wrong(model.GANG, name, f"Say how many pods it has by {model.SIZE}")
        gang = model.Gang(namespace, name, "gang", number)
    elif name := labels.get(f"{_LWS}name"):
        group = f"{name}-{labels.get(f'{_LWS}group-index', '0')}"
        of_set = model.GangOwner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name)
        gang = model.Gang(namespace, group, of_set.kind, number, of_set)
    elif name := labels.get(f"{_JOBSET}jobset-name"):
        of_set = model.GangOwner("jobset.x-k8s.io/v1alpha2", "JobSet", name)
        attempt = " ".join(labels.get(_JOBSET + key, "") for key in ("jobset-uid", _RESTART))
        gang = model.Gang(namespace, name, of_set.kind, number, of_set, attempt)
    elif owner is None or model.OWNERS.get(owner.kind, ("",))[0] != owner.group:
        raise _unlike(
            "nothing says which pods start together",
            f"Write the label {model.GANG} and the annotation {model.SIZE}",
        )
    elif labels.get(_ROLE) == "launcher":
        raise _unlike(
            "the launcher of an MPIJob starts when its workers run",
            "Write the annotation into the template of the Worker alone",
        )
    else:
        name = labels.get(_KUBEFLOW) or labels.get(_RAY) or owner.name
        gang = model.Gang(namespace, name, owner.kind, number, owner, owner.uid)
    for name in (gang.name, gang.owner.name if gang.owner else gang.name):
        if not _NAME.fullmatch(name):
            raise _wrong("the name of the gang", name, "Write a name as of an object: llama-8b")
    return gang


def _unlike(problem: str, remedy: str) -> Refused:
    where = f"metadata.annotations[{model.REQUEST}]"
    return Refused(problem, remedy=remedy, where=where)


def _wrong(key: str, value: str | None, remedy: str) -> Refused:
    shown = plain(value or "")[:64]
    return Refused(f"“{shown}” is not allowed", remedy=remedy, where=f"metadata: {key}")


# How many pods an owner makes that ask for a preflight.


def size_by_owner(kind: str, spec: Mapping[str, Any]) -> int:
    """Return how many pods of a gang the spec of its owner asks for.

    Of an owner with several templates, those count that have the annotation. Raise Refused if the
    pods do not start together, or the spec has another form than that of its kind.
    """
    try:
        number = _SIZES[kind](spec)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        number = 0
    if type(number) is int and 0 < number <= model.MOST_PODS:
        return number
    raise Refused(
        f"its spec asks for no pods with the annotation, or for more than {model.MOST_PODS}",
        remedy=f"Write the number of pods into the annotation {model.SIZE}",
        where=kind,
    )


def _job(spec: Mapping[str, Any]) -> int:
    parallelism = _count(spec, "parallelism", 1)
    completions = _count(spec, "completions", parallelism)
    if completions > parallelism:
        raise _unlike(
            f"the Job runs {parallelism} of {completions} pods at a time",
            "Give completions and parallelism one number",
        )
    return completions


def _jobset(spec: Mapping[str, Any]) -> int:
    asking = [one for one in spec["replicatedJobs"] if _asks(one["template"]["spec"])]
    order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder")
    if len(asking) > 1 and (order == "InOrder" or any(one.get("dependsOn") for one in asking)):
        raise _unlike(
            "the JobSet starts its jobs one after the other",
            "Write the annotation into the templates of one job alone",
        )
    return sum(_count(one, "replicas", 1) * _job(one["template"]["spec"]) for one in asking)


def _stateful_set(spec: Mapping[str, Any]) -> int:
    if spec.get("podManagementPolicy") != "Parallel":
        raise _unlike(
            "the StatefulSet starts a pod when the one before is ready",
            "Create it again with podManagementPolicy: Parallel",
        )
    return _count(spec, "replicas", 1)


def _leader_worker_set(spec: Mapping[str, Any]) -> int:
    group = spec["leaderWorkerTemplate"]
    worker = group["workerTemplate"]
    leader = _asks({"template": group.get("leaderTemplate") or worker})
    workers = (_count(group, "size", 1) - 1) * _asks({"template": worker})
    if workers and leader and spec.get("startupPolicy") == "LeaderReady":
        raise _unlike(
            "the LeaderWorkerSet starts its workers when their leader is ready",
            "Write startupPolicy: LeaderCreated, or the annotation into the workerTemplate alone",
        )
    return workers + leader


def _roles(field: str) -> Any:
    def size(spec: Mapping[str, Any]) -> int:
        return sum(_count(role, "replicas", 1) for role in spec[field].values() if _asks(role))

    return size


def _ray(spec: Mapping[str, Any]) -> int:
    groups = (one for one in spec.get("workerGroupSpecs") or () if _asks(one))
    workers = sum(_count(one, "replicas", 1) * _count(one, "numOfHosts", 1) for one in groups)
    return workers + bool(_asks(spec["headGroupSpec"]))


def _count(spec: Mapping[str, Any], field: str, default: int) -> int:
    number = spec.get(field, default)
    if type(number) is not int or number < 0:
        raise ValueError(field)
    return number


def _asks(of_template: Mapping[str, Any]) -> bool:
    metadata = of_template["template"].get("metadata") or {}
    return model.REQUEST in (metadata.get("annotations") or {})


_SIZES: Mapping[str, Any] = {
    "Job": _job,
    "JobSet": _jobset,
    "LeaderWorkerSet": _leader_worker_set,
    "MPIJob": _roles("mpiReplicaSpecs"),
    "PyTorchJob": _roles("pytorchReplicaSpecs"),
    "RayCluster": _ray,
    "StatefulSet": _stateful_set,
}

# Who measures with whom.


def plans(
    pods: Sequence[model.PreflightPod], standard: model.Standard
) -> Mapping[str, model.GangPlan]:
    """Return the plan of each pod of a gang, by its uid; raise Refused for what cannot be measured.

    In a ring pods of one node are no neighbours if the gang has another node, so that each pair
    uses a cable; a card is not measured with itself then. A plan does not depend on the order of
    the pods.
    """
    ordered = in_turns(pods)
    by_title, paired = {pod.title: pod for pod in ordered}, [*map(_paired, ordered)]
    nodes = defaultdict[int, set[str]](set)
    for one in paired:
        for rail in one.by_rail:
            nodes[rail].add(one.node)
    of_pod: dict[str, list[model.Run]] = {pod.uid: [] for pod in ordered}
    on_node, first, served = Counter[str](), dict[str, int](), Counter[str]()
    for pod in ordered:
        first[pod.uid] = FIRST_PORT + _PORTS * on_node[pod.node]
        on_node[pod.node] += 1
    for turn, pairs in enumerate(turns_of(standard.pairing, paired)):
        for one, other, rail in pairs:
            # The centre of a star is the server: a client has to report each of its pairs.
            near, far = (other, one) if standard.pairing is Pairing.STAR else (one, other)
            client, server = by_title[near.title], by_title[far.title]
            if near.card(rail) == far.card(rail) and len(nodes[rail]) > 1:
                continue
            ends = near.by_rail[rail], far.by_rail[rail]
            for latency in standard.kinds:
                port = first[server.uid] + served[server.uid]
                served[server.uid] += 1
                there, back = _dialled(server, ends[1]), _dialled(client, ends[0])
                run = model.Run(turn, rail, latency, True, ends[0], there, port)
                of_pod[client.uid].append(run)
                run = replace(run, client=False, device=ends[1], peer=back)
                of_pod[server.uid].append(run)
    every = [run for runs in of_pod.values() for run in runs]
    if six := next((run.peer for run in every if ":" in run.peer), ""):
        on_rail = any(run.peer == six for run in every if run.device.address)
        raise _unlike(
            f"the ends of perftest meet by IPv4, and one of them has only {six}",
            "Give the network a pool with IPv4 addresses too"
            if on_rail
            else "Use nodes with IPv4 addresses",
        )
    turns = 1 + max((run.turn for run in every), default=-1)
    if turns * window(every) > LONGEST:
        star = standard.pairing is Pairing.STAR
        raise _unlike(
            f"{turns} turns, one after the other, take longer than {LONGEST} s",
            f"Write {model.REQUEST}: ring" if star else "Have fewer of its pods share a card",
        )
    cards = Counter(one.card(rail) for one in paired for rail in one.by_rail)
    slot = SLOT if max(cards.values(), default=0) > 1 else 0
    number = hashlib.sha256(msgspec.json.encode(sorted(of_pod.items()))).hexdigest()[:16]
    return {
        uid: model.GangPlan(number, len(ordered), tuple(runs), slot) for uid, runs in of_pod.items()
    }


def placed(
    pods: Sequence[model.PreflightPod], reports: Mapping[str, Mapping[CardId, model.CardPlace]]
) -> list[model.PreflightPod]:
    """Return the pods of a gang with rails and physical cards, by the reports of their nodes.

    A pod without interfaces gets its devices too, or has no gang if it can have none. The devices
    of all pods count by their places if a report lacks a card, two devices of a pod have one rail,
    or a pod shares no rail with another.
    """
    found, shared, is_known = [], Counter[int](), True
    every = [place for pod in pods for place in reports.get(pod.node, {}).values()]
    up = {place.rail for place in every if place.is_up}
    for pod in pods:
        of_node = reports.get(pod.node, {})
        pod = _with_devices(pod, of_node, up)  # noqa: PLW2901
        if pod.gang is None:
            found.append(pod)
            continue
        cards = pod.cards or (None,) * len(pod.devices)
        places = [of_node.get(card, model.NOWHERE) if card else model.NOWHERE for card in cards]
        devices = (replace(one, card=at.card) for one, at in zip(pod.devices, places, strict=True))
        rails = tuple(at.rail for at in places if at.rail is not None)
        is_known &= len(rails) == len(pod.devices) == len({*rails})
        shared.update(rails)
        found.append(replace(pod, devices=tuple(devices), rails=rails))
    is_known &= all(any(shared[rail] > 1 for rail in pod.rails) for pod in found)
    return found if is_known else [replace(pod, rails=()) for pod in found]


def _with_devices(
    pod: model.PreflightPod, of_node: Mapping[CardId, model.CardPlace], up: Collection[int | None]
) -> model.PreflightPod:
    """Return a pod without interfaces with the ports of all cards of its pools, else as it is.

    A card that is down is measured, and fails, if its rail is up on another node of the gang. A
    virtual function beside its card is left out. A pod that can have no device has no gang.
    """
    if pod.devices or not of_node or not (pod.is_measuring or pod.plan):
        return pod  # the agent writes interfaces before any container starts
    of_pools = {
        card: place
        for card, place in sorted(of_node.items())
        if {*place.pools} & {*pod.resources}
        if place.ports and (pod.host_network or place.is_infiniband)
    }
    if not of_pools:
        return pod if pod.plan else replace(pod, gang=None, refusal=pod.refusal or _NO_DEVICE)
    physical = [one for one in of_pools.items() if one[1].card not in of_pools.keys() - {one[0]}]
    chosen = [one for one in physical if one[1].rail in up] or physical
    reached = [(card, port) for card, place in chosen for port in place.ports][: model.MOST_DEVICES]
    cards, ports = zip(*reached, strict=True)
    return replace(pod, devices=ports, cards=cards)


def in_turns(pods: Iterable[model.PreflightPod]) -> list[model.PreflightPod]:
    """Return pods in the order of a ring: the first of each node, then the second of each node."""
    of_node: dict[str, list[model.PreflightPod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: one.title):
        of_node[pod.node].append(pod)
    placed = [
        (place, node, pod) for node, those in of_node.items() for place, pod in enumerate(those)
    ]
    return [pod for _, _, pod in sorted(placed, key=lambda one: one[:2])]


def _paired(pod: model.PreflightPod) -> PairedPod:
    title, place = pod.title, (pod.namespace, pod.name)
    return PairedPod(title, *place, pod.address, pod.devices, pod.rails, pod.node)


def _dialled(pod: model.PreflightPod, device: PodDevice) -> str:
    """Return the address at which perftest's ends exchange their numbers: on the rail, if any."""
    return device.address or pod.address


def window(runs: Iterable[model.Run], seconds: float = SECONDS) -> float:
    """Return how many seconds a turn of these runs may take, in all pods of the gang."""
    return 2.0 * seconds * len({run.latency for run in runs})


# Results: what the first container of a pod reports of the pairs of which it is the client.

_FIGURE = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)"
_RESULT = re.compile(
    rf"([0-9]{{1,5}}) ([0-9]{{1,3}}) (bw|lat) (?:{_FIGURE}(?: of {_FIGURE})?|failed: (.{{0,80}}));"
)
RunKey = tuple[int, int, bool]
"""Turn, rail and latency, which tell the runs of a client from each other."""


def key_of(run: model.Run) -> RunKey:
    """Return what tells a run from the other runs of its client."""
    return run.turn, run.rail, run.latency


class Result(Frozen):
    """The report of a client on a run: a figure in Gbit/s or microseconds, or why it has none."""

    figure: float | None = None
    line_gbps: float | None = None  # the rate of its port; None of soft devices
    why: str = ""


def result_line(run: model.Run, result: Result) -> str:
    """Return a line of a client's termination message; the kubelet may cut the last one."""
    said = f"failed: {plain(result.why)[:MOST_RESULT]}"
    if result.figure is not None:
        rate = "" if result.line_gbps is None else f" of {result.line_gbps:.6f}"
        said = f"{result.figure:.6f}{rate}"
    return f"{run.turn} {run.rail} {'lat' if run.latency else 'bw'} {said};"


def results(text: str) -> Mapping[RunKey, Result]:
    """Return what a pod reports of each of its runs.

    The pod may have written anything: only lines of the right form count, and of two lines about
    one run the first.
    """
    found: dict[RunKey, Result] = {}
    for match in map(_RESULT.fullmatch, text[: model.MOST_MESSAGE].split("\n")):
        if match:
            turn, rail, what, figure, line, why = match.groups()
            result = Result(
                float(figure) if figure else None, float(line) if line else None, plain(why or "")
            )
            found.setdefault((int(turn), int(rail), what == "lat"), result)
    return found


def progress(pod: model.PreflightPod) -> Iterator[str]:
    """Yield in sentences what a pod measures, what it awaits, and what was found."""
    plan, verdict = pod.plan, pod.verdict
    gang = pod.gang.words if pod.gang else "its gang"
    if plan:
        pairs = {(run.rail, run.peer) for run in plan.runs}
        rails = [str(rail) for rail in sorted({rail for rail, _ in pairs})]
        on = f"on rails {listed(rails, 8)}"
        yield f"{plan.pods} pods of {gang} measure; it is in {len(pairs)} pairs, {on}"
    if verdict:
        yield verdict.why
    elif pod.refusal or pod.failed:
        yield pod.refusal or pod.failed
    elif pod.result is not None:
        yield f"It has measured, and awaits the verdict on {gang}"
    elif not pod.is_measuring:
        why = f": {pod.pending}" if pod.pending else ""
        yield f"Its container {model.MEASURES} has not started{why}"
    else:
        yield "It measures now" if plan else f"It awaits other pods of {gang}, which Events name"


# The verdict on a gang.


_FEW = 4  # figures of a rail whose median says nothing: two bad ones of three are usual there


def proofs(
    pods: Sequence[model.PreflightPod], count: int, standard: model.Standard
) -> tuple[PairProof, ...]:
    """Return what the bandwidths of a round come to, and the latencies if they are measured.

    `count` is how many pods the round began with. A suspect is named by its node: several pods of
    one node use the same card. A device that no other pod can be measured with is left out.
    """
    gone = count - len(pods)
    left_out = [*lonely([*map(_paired, pods)])]
    if gone > 0:
        left_out.append(("pods that are gone", f"{gone} of {count} ended or were deleted"))
    nodes, made = {pod.title: pod.node for pod in pods}, []
    for latency in standard.kinds:
        outcomes = tuple(_outcomes(pods, latency=latency))
        limit = standard.microseconds if latency else _limit(outcomes, standard)
        share = 0.0 if standard.gbps is not None else PairStandard().line_share
        asked = PairStandard(latency, limit, share, standard.tolerance)
        rated = rate(outcomes, asked)
        accused = suspects([_by_node(pair, nodes) for pair in rated])
        run = PerftestRun(latency=latency)
        made.append(PairProof(run, rated, accused, tuple(left_out), pairing=standard.pairing))
    return tuple(made)


def _limit(outcomes: Sequence[PairOutcome], standard: model.Standard) -> float | None:
    """Return the lowest bandwidth of a good pair, in Gbit/s; None without any limit.

    Where a rail has few figures, the best one of the gang is what its pairs are compared with, if
    all rails have one line rate.
    """
    figures = [outcome.rows[0].figure for outcome in outcomes if outcome.rows]
    per_rail = Counter(outcome.rail for outcome in outcomes)
    limits = [standard.gbps] if standard.gbps is not None else []
    is_even = len({outcome.line_gbps for outcome in outcomes if outcome.rows}) == 1
    if len(figures) > 1 and is_even and min(per_rail.values()) < _FEW:
        limits.append(max(figures) * (1 - standard.tolerance))
    return max(limits, default=None)


def _outcomes(pods: Sequence[model.PreflightPod], *, latency: bool) -> Iterator[PairOutcome]:
    """Yield what each client reports of its runs; a server is known by its address and port.

    Nothing is due by the line rate of a card that measures with itself.
    """
    cards = {
        (pod.title, device.name): (pod.node, device.card or device.name)
        for pod in pods
        for device in pod.devices
    }
    servers = {
        (address, run.port): (pod.title, run.device.name)
        for pod in pods
        if pod.plan
        for run in pod.plan.runs
        if not run.client
        for address in (pod.address, *(device.address for device in pod.devices))
    }
    for pod in pods:
        reported, plan = results(pod.result or ""), pod.plan
        silent = Result(why=pod.failed or "its pod reported nothing of it")
        for run in plan.runs if plan else ():
            if run.client and run.latency is latency:
                server, device = servers.get((run.peer, run.port), ("a pod that is gone", ""))
                result = reported.get(key_of(run), silent)
                rows = () if result.figure is None else (PerftestRow(0, 0, result.figure),)
                devices = run.device.name, device
                ends = (pod.title, run.device.name), (server, device)
                is_one = cards.get(ends[0]) == cards.get(ends[1])
                line = None if latency or is_one else result.line_gbps
                yield PairOutcome(
                    pod.title, server, run.rail, devices, line, rows, "" if rows else result.why
                )


def _by_node(pair: RatedPair, nodes: Mapping[str, str]) -> RatedPair:
    outcome = pair.outcome
    client, server = (nodes.get(one, one) for one in (outcome.client, outcome.server))
    return replace(pair, outcome=replace(outcome, client=client, server=server))
