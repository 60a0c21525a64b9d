"""`kube-rdma why`: one root cause for a symptom of a pod, a workload or a node.

It runs what explain, status and doctor run, in this order, and has no checks of its own.
"""

from __future__ import annotations

import asyncio
import sys
from shlex import quote

import click

from kube_rdma.cli import completion, options
from kube_rdma.cli.doctor import AGENT_NAMESPACE, NODES, seen_by_agent
from kube_rdma.cli.explain import pod_or_workload
from kube_rdma.cli.output import AS_JSON, TEXT_OUTPUT, ExitCode, command, show_result


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
    type=click.Choice(("Pending", "ContainerCreating", "tcp", "slow", "fewer-shares")),
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

    Looks at Events, explain, status and doctor, in this order. It shows the root cause with its
    evidence and fix, then where the rest is to be found, and changes nothing.

    Exits with 1 when something was found, with 6 when nothing was and a part could not be asked.
    """
    from kube_base.errors import KubeError
    from kube_rdma.doctor.rules.diagnose import diagnose
    from kube_rdma.explain.rules import why as rules
    from kube_rdma.explain.rules.pod import explain
    from kube_rdma.explain.views import why_document, why_page
    from kube_rdma.model.finding import NotSeen
    from kube_rdma.model.late_binding import PodName
    from kube_rdma.reports.gather import take
    from kube_rdma.reports.rules.cluster import findings

    kind, _, node = target.partition("/")
    pod = None
    if kind not in NODES:
        pod = explain(pod_or_workload(target, None, opener, cluster))
        node, target = pod.node, pod.title
    clues = [(f"explain {quote(target)}", one) for one in (pod.findings if pod else ())]
    not_seen = []
    symptom = symptom or rules.symptom_of(pod)
    try:
        seen = rules.concerned(findings(cluster.ask(take, opener, "Reading.")), pod, node)
        told = [("status", one) for one in seen]
        # An agent that is missing is why its node offers nothing.
        clues = [*told, *clues] if symptom == rules.PENDING else [*clues, *told]
        if node and (pod is None or pod.phase):
            aim = PodName(*pod.pod.split("/")) if pod else node
            judged = diagnose(asyncio.run(seen_by_agent(aim, cluster, agent_namespace, opener)))
            own = [one for one in judged.findings if one.subject not in judged.elsewhere]
            clues += ((f"doctor {quote(target)}", one) for one in own)
    except KubeError as error:
        not_seen.append(NotSeen("all that status and doctor know", str(error)))
    causes = rules.causes(symptom, clues)
    answer = (target, symptom, causes, not_seen)
    show_result(why_page(*answer), why_document(*answer), "json" if as_json else output)
    if causes or not_seen:
        sys.exit(ExitCode.PROBLEM if causes else ExitCode.UNKNOWN)
