"""The checks of both items: commands of users, and what has to be in their output.

Each check returns what it saw, or raises Unproven. The two pods of the first check run until the
end. Checks that need these pods are not run if the first check is not met.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.kubernetes import quantity
from kube_rdma_tools.conformance import pods
from kube_rdma_tools.conformance.evidence import (
    CheckVerdict,
    ConformanceCheck,
    ConformanceItem,
    Recorder,
    Runner,
    Unproven,
    examined,
)
from kube_rdma_tools.conformance.pods import DECODE, PREFILL, ConformanceOptions

_USUAL = {"lo", "eth0"}  # interfaces that a pod has without a second network
_STATUS = "kube-rdma.io/network-status"
_PORT, _BYTES, _ROUNDS = "13337", 1 << 20, 100
# UCX 1.13 writes "rma(rc_verbs/rxe0:1)" at the log level info (ucp/core/ucp_worker.c).
_TRANSPORT = re.compile(r"\b((?:rc|dc|ud)_\w+)/([^:\s)]+):\d+")
_MISSING = 127  # exit code of a shell that does not find a program
_NO_ENGINE = (
    "No inference engine was started: it needs GPUs and an image of its own. "
    "examples/gpu-rails/inference.yaml is prefill and decode of one: send it a request, and look "
    "for the request's id in the logs of both pods"
)


def items(options: ConformanceOptions, run: Runner) -> Iterator[ConformanceItem]:
    """Yield both conformance items with their checks; delete the pods and template at the end."""
    kubectl = partial(_words, options)
    try:
        begun = examined("A pod has several network interfaces", run, partial(_interfaces, options))
        ready = begun.verdict is CheckVerdict.MET

        def inside(
            title: str, check: Callable[[ConformanceOptions, Recorder], str]
        ) -> ConformanceCheck:
            made = partial(check, options) if ready else _without_pods
            return examined(title, run, made)

        yield ConformanceItem(
            "high_performance_networking",
            10,
            "High-performance communication from pod to pod",
            (
                begun,
                examined("What cards can do is published", run, partial(_published, options)),
                inside("Pods go where the resource is, and nowhere else", _placed),
                inside("Pods move data over their cards", _transfers),
                examined("A card comes by a claim (DRA)", run, partial(_claimed, options)),
            ),
        )
        yield ConformanceItem(
            "disaggregated_inference",
            41,
            "Disaggregated inference",
            (
                inside("Prefill and decode are pods on two nodes", _apart),
                inside("Decode reads memory of prefill by RDMA, as for a KV cache", _reads_cache),
                ConformanceCheck(
                    "A request passes through an inference engine", CheckVerdict.NOT_RUN, _NO_ENGINE
                ),
            ),
        )
    finally:
        run(kubectl("delete", "pod", *pods.PODS, "--ignore-not-found", "--wait"), "")
        template = ("resourceclaimtemplate", pods.CLAIMING, "--ignore-not-found")
        run(kubectl("delete", *template), "")


def _words(options: ConformanceOptions, *words: str) -> tuple[str, ...]:
    return ("kubectl", "-n", options.namespace, *words)


def _without_pods(recorder: Recorder) -> str:
    raise Unproven(CheckVerdict.NOT_RUN, "The two pods of the first check did not start")


def _json(recorder: Recorder, *words: str) -> Any:
    """Return kubectl's answer as parsed JSON; raise Unproven if it fails or prints none."""
    text = recorder.asked(*words, "-o", "json")
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unproven(CheckVerdict.NOT_MET, f"the answer of {words[0]} is no JSON") from error


def _interfaces(options: ConformanceOptions, recorder: Recorder) -> str:
    """Start two pods and prove that each has an interface beside eth0 for each network."""
    recorder.asked(*_words(options, "apply", "-f", "-"), stdin=pods.pair(options))
    named = [f"pod/{name}" for name in (PREFILL, DECODE)]
    wait = ("wait", *named, "--for=condition=Ready", f"--timeout={options.seconds}s")
    recorder.asked(*_words(options, *wait))
    names: set[str] = set()
    for pod in (PREFILL, DECODE):
        shown = recorder.asked(*_words(options, "exec", pod, "--", "cat", "/proc/net/dev"))
        own = set(re.findall(r"^\s*([^\s:|]+):", shown, re.MULTILINE)) - _USUAL
        if len(own) < len(options.networks):
            asked = f"{len(options.networks)} networks are asked for"
            raise Unproven(CheckVerdict.NOT_MET, f"{pod} has {sorted(own)} beside eth0; {asked}")
        names |= own
    return f"Beside eth0 both pods have {', '.join(sorted(names))}"


def _published(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that ResourceSlices have cards' attributes, or else that NodeReports have cards."""
    words = ("kubectl", "get", "resourceslices", f"--field-selector=spec.driver={DRIVER}")
    slices = recorder.tried(*words, "-o", "json")
    published = json.loads(slices.text).get("items", ()) if not slices.code else ()
    devices = [one for each in published for one in each["spec"].get("devices") or ()]
    if devices:
        names = sorted({name for one in devices for name in one.get("attributes", ())})
        return f"ResourceSlices have {len(devices)} devices with {', '.join(names)}"
    reports = _json(recorder, "kubectl", "get", "nodereports.kube-rdma.io")["items"]
    cards = [one for each in reports for one in each.get("status", {}).get("cards", ())]
    if not cards:
        raise Unproven(CheckVerdict.NOT_MET, "Neither ResourceSlices nor NodeReports have a card")
    return (
        f"NodeReports have {len(cards)} cards with their PCI address, NUMA node, ports, rate and "
        "health; the driver publishes no ResourceSlice in this cluster"
    )


def _placed(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that both pods run where shares are, and that a pod that asks for too many waits."""
    nodes = _json(recorder, "kubectl", "get", "nodes")["items"]
    free = {
        one["metadata"]["name"]: int(
            quantity(one["status"].get("allocatable", {}).get(options.resource, "0"))
        )
        for one in nodes
    }
    on = {pod: _node(options, recorder, pod) for pod in (PREFILL, DECODE)}
    for pod, node in on.items():
        if not free.get(node):
            raise Unproven(CheckVerdict.NOT_MET, f"{pod} is on {node}, which has no share")
    most = max(free.values())
    recorder.asked(*_words(options, "apply", "-f", "-"), stdin=pods.large(options, most + 1))
    wait = ("wait", f"pod/{pods.LARGE}", "--for=condition=PodScheduled=false", "--timeout=60s")
    recorder.asked(*_words(options, *wait))
    pod = _json(recorder, *_words(options, "get", "pod", pods.LARGE))
    (why,) = [c["message"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    if options.resource not in why:
        raise Unproven(CheckVerdict.NOT_MET, f"the pod that is too large waits for another: {why}")
    where = ", ".join(f"{pod} on {node}" for pod, node in on.items())
    return f"{where}; a pod that asks for {most + 1} shares waits: {why.rstrip('.')}"


def _node(options: ConformanceOptions, recorder: Recorder, pod: str) -> str:
    return str(_json(recorder, *_words(options, "get", "pod", pod))["spec"]["nodeName"])


def _transfers(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that RDMA writes work between the pods, in both directions."""
    words = ("kube-rdma", "verify", "pods", PREFILL, DECODE, "-n", options.namespace)
    outcome = recorder.tried(*words, "--both-ways", "--iterations", "100", "-o", "json")
    try:
        pairs = json.loads(outcome.text)["pairs"]
    except (ValueError, KeyError) as error:
        what = f"kube-rdma verify says: {outcome.last}"
        raise Unproven(CheckVerdict.NOT_MET, what) from error
    silent = [one for one in pairs if one["figure"] is None]
    if silent or not pairs:
        why = silent[0]["why"] if silent else "no pair was measured"
        raise Unproven(CheckVerdict.NOT_MET, f"a pair moved no data: {why}")
    ways = "; ".join(
        f"{one['client']} to {one['server']} by {' and '.join(one['devices'])}" for one in pairs
    )
    return f"{ways}. Whether the figures are good is not judged here"


def _claimed(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that a pod gets a card which the scheduler allocated from ResourceSlices."""
    listed = recorder.tried("kubectl", "get", "deviceclass", options.device_class)
    if listed.code:
        why = f"The cluster has no DeviceClass {options.device_class} (value claims.enabled)"
        raise Unproven(CheckVerdict.NOT_RUN, why)
    recorder.asked(*_words(options, "apply", "-f", "-"), stdin=pods.claiming(options))
    name = f"pod/{pods.CLAIMING}"
    wait = ("wait", name, "--for=condition=Ready", f"--timeout={options.seconds}s")
    recorder.asked(*_words(options, *wait))
    claims = _json(recorder, *_words(options, "get", "resourceclaims"))["items"]
    results = [
        one["device"]
        for claim in claims
        if claim["metadata"]["name"].startswith(pods.CLAIMING)
        for one in claim["status"]["allocation"]["devices"]["results"]
        if one["driver"] == DRIVER
    ]
    if not results:
        raise Unproven(CheckVerdict.NOT_MET, f"no claim has a device of {DRIVER}")
    return f"The scheduler allocated {', '.join(results)} of {DRIVER}"


def _apart(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that two pods of different roles are on two nodes."""
    nodes = {pod: _node(options, recorder, pod) for pod in (PREFILL, DECODE)}
    if len(set(nodes.values())) < len(nodes):
        raise Unproven(CheckVerdict.NOT_MET, "both pods are on one node")
    return ", ".join(f"{pod} is on {node}" for pod, node in nodes.items())


def _reads_cache(options: ConformanceOptions, recorder: Recorder) -> str:
    """Prove that `ucx_perftest` reads 1 MiB at a time over RDMA."""
    prefill = _json(recorder, *_words(options, "get", "pod", PREFILL))
    decode = _json(recorder, *_words(options, "get", "pod", DECODE))
    listen = f"ucx_perftest -p {_PORT} >/dev/null 2>&1 &"
    probe = recorder.tried(
        *_words(options, "exec", DECODE, "--", "sh", "-c", "command -v ucx_perftest")
    )
    if probe.code in (1, _MISSING):
        raise Unproven(CheckVerdict.NOT_RUN, f"Image {options.image} has no ucx_perftest")
    recorder.asked(*_words(options, "exec", PREFILL, "--", "sh", "-c", listen))
    test = f"-p {_PORT} -t ucp_get -s {_BYTES} -n {_ROUNDS}"
    # The server listens some time after it was started: what is refused is tried again.
    dial = (
        f"for try in 1 2 3 4 5 6 7 8 9; do UCX_LOG_LEVEL=info ucx_perftest "
        f"{prefill['status']['podIP']} {test} 2>&1 && exit 0; sleep 2; done; exit 1"
    )
    shown = recorder.asked(*_words(options, "exec", DECODE, "--", "sh", "-c", dial))
    used = set(_TRANSPORT.findall(shown))
    own = {one["rdmaDevice"] for one in _networks(decode) if one.get("rdmaDevice")}
    if not used:
        raise Unproven(CheckVerdict.NOT_MET, "UCX names no RDMA transport: it went another way")
    strange = {device for _, device in used} - own
    if own and strange:
        what = f"UCX used {', '.join(sorted(strange))}, and the pod has {', '.join(sorted(own))}"
        raise Unproven(CheckVerdict.NOT_MET, what)
    ways = ", ".join(sorted(f"{transport} on {device}" for transport, device in used))
    return f"{_ROUNDS} reads of 1 MiB went by {ways}; the pods' manifests set no variable"


def _networks(pod: Any) -> list[dict[str, Any]]:
    """Return the entries of the pod's network status annotation."""
    text = pod["metadata"].get("annotations", {}).get(_STATUS, "[]")
    listed: list[dict[str, Any]] = json.loads(text)
    return listed
