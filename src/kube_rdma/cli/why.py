"""`kube-rdma why`: one root cause for a symptom of a pod, a workload or a node.

It runs what explain, status and doctor run, in this order, and has no checks of its own.
"""

from __future__ import annotations

import asyncio
import sys
from shlex import quote
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import completion, options
from kube_rdma.cli.doctor import AGENT_NAMESPACE, NODES, seen_by_agent
from kube_rdma.cli.explain import pod_or_workload
from kube_rdma.cli.output import AS_JSON, TEXT_OUTPUT, ExitCode, command, show_result

if TYPE_CHECKING:
    from kube_rdma.model.finding import Finding

_SYMPTOMS = ("Pending", "ContainerCreating", "tcp", "slow", "fewer-shares")


@command(
    "kube-rdma why pod/train/worker-0",
    "kube-rdma why deployment/infer -n train",
    "kube-rdma why pod/worker-0 --symptom slow",
    "kube-rdma why node/node-17",
)
@click.argument(
    "target",
    metavar="[pod|KIND/[NAMESPACE/]NAME|node/NAME]",
    shell_complete=completion.node_and_pod_targets,
)
@click.option(
    "--symptom",
    type=click.Choice(_SYMPTOMS, case_sensitive=False),
    help="What is wrong. Default: what the object's state shows; of a pod that runs tcp.",
)
@options.cluster_options(namespace=True)
@AGENT_NAMESPACE
@TEXT_OUTPUT
@AS_JSON
@click.pass_obj
def why(
    opener: options.Opener | None,
    /,
    target: str,
    symptom: str | None,
    cluster: options.ClusterOptions,
    agent_namespace: str,
    output: str,
    *,
    as_json: bool,
) -> None:
    """Find the one cause of a symptom.

    Looks at Events, explain, status and doctor, in this order, and shows the root cause with its
    evidence and fix, then where the rest is to be found. It changes nothing.

    Exits with 1 when something was found, with 6 when nothing was and a part could not be asked.
    """
    from kube_base.errors import KubeError
    from kube_rdma.doctor.rules.diagnose import diagnose
    from kube_rdma.explain.rules import why as rules
    from kube_rdma.explain.rules.pod import explain
    from kube_rdma.explain.views import why_document, why_page
    from kube_rdma.model.explain import Symptom
    from kube_rdma.model.finding import NotSeen
    from kube_rdma.model.late_binding import PodName
    from kube_rdma.reports.gather import take
    from kube_rdma.reports.rules.cluster import findings

    kind, _, name = target.partition("/")
    pod = None
    node, look = name, target
    if kind not in NODES:
        pod = explain(pod_or_workload(target, None, opener, cluster))
        node, look = pod.node, f"pod/{pod.pod}"
    found: dict[str, list[Finding]] = {
        f"explain {quote(target)}": list(pod.findings) if pod else []
    }
    not_seen = []
    try:
        seen = findings(cluster.ask(take, opener, "Reading the cluster."))
        found["status"] = rules.concerned(seen, pod, node)
    except KubeError as error:
        not_seen.append(NotSeen("status", str(error)))
    if node and (pod is None or pod.phase):
        aim: str | PodName = PodName(*pod.pod.split("/")) if pod else node
        try:
            answer = asyncio.run(seen_by_agent(aim, cluster, agent_namespace, opener))
            judged = diagnose(answer)
            found[f"doctor {quote(look)}"] = [
                one for one in judged.findings if one.subject not in judged.elsewhere
            ]
        except KubeError as error:
            not_seen.append(NotSeen(f"doctor {look}", str(error)))
    shown = Symptom(symptom) if symptom else rules.symptom_of(pod)
    if shown is Symptom.PENDING:  # an agent that is missing is why its node offers nothing
        found = {"status": found.pop("status", [])} | found
    result = rules.why(look, shown, found, not_seen)
    show_result(why_page(result), why_document(result), "json" if as_json else output)
    if result.root:
        sys.exit(ExitCode.PROBLEM)
    if not_seen:
        sys.exit(ExitCode.UNKNOWN)
