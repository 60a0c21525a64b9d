"""`kube-rdma explain`: what a pod asked for, what it got, by which Steps, and what it sees.

Of a pod that does not exist yet it shows what would become of it on a node, of a claim why it
waits. It changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.frozen import replace
from kube_rdma.cli import completion, options
from kube_rdma.cli.output import AS_JSON, TEXT_OUTPUT, ExitCode, ProgressLine, command, show_result
from kube_rdma.cli.recorded import sysfs_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kube_rdma.doctor.pod import OpenCluster
    from kube_rdma.explain.evidence import ExplainPlaces
    from kube_rdma.model.explain import PodEvidence

_STATE = Path("/var/lib/kube-rdma")
_CLAIMS = ("claim", "claims", "resourceclaim", "resourceclaims")
_PODS = ("pod", "pods", "po")


@command(
    "kube-rdma explain pod/train/worker-0",
    "kube-rdma explain deployment/infer -n train",
    "kube-rdma explain -f pod.yaml --node node-1",
    "kube-rdma explain -f inference.yaml Deployment/prefill",
    "kube-rdma explain -f pod.yaml --sysfs dgx-like --config pools.yaml",
    "kube-rdma explain claim/train/two-cards",
)
@click.argument(
    "target",
    metavar="[pod|KIND|claim/[NAMESPACE/]NAME]",
    default="",
    shell_complete=completion.pod_targets,
)
@options.path_option(
    "-f",
    "--filename",
    help="File of pods that do not exist yet, as `kube-rdma config check` takes it; KIND/NAME "
    "chooses one. - is stdin.",
)
@click.option(
    "--node",
    metavar="NAME",
    shell_complete=completion.nodes,
    help="Node that the pod of -f would run on. Without it, only admission, the pod's networks and "
    "whether any node fits are checked. An existing pod has to be on this node. Of a claim only "
    "this node is judged.",
)
@sysfs_option("Node that the pod of -f would run on. No cluster is asked.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="FILE",
    help="File with the pools of the node of --sysfs, in any format of `kube-rdma config`, or with "
    "networks and IPPools. May be repeated.",
)
@options.cluster_options(namespace=True)
@TEXT_OUTPUT
@AS_JSON
@options.path_option(
    "--state-dir",
    metavar="DIR",
    help="Folder of the agent's records, if this machine is the pod's node. Default: "
    "/var/lib/kube-rdma.",
)
@click.pass_obj
def explain(
    opener: options.Opener | None,
    /,
    target: str,
    filename: Path | None,
    node: str | None,
    cluster: options.ClusterOptions,
    **more: Any,
) -> None:
    """Show what a pod asked for and got.

    It also shows the steps by which the agent makes the pod's networks. With -f it shows what a pod
    that does not exist yet would get on a node, or what would refuse it and why. It changes
    nothing. A workload, such as deployment/NAME, stands for the pod of it that waits; without pods
    the Events say why.

    claim/NAME shows why a ResourceClaim waits: for each node and device, of any driver, what keeps
    the scheduler from giving it.

    Exits with 1 when something refuses the pod or no node is found for the claim.
    """
    if not (target or filename):
        raise click.UsageError("Name a pod (pod/NAME), a workload, a claim, or a file (-f).")
    output = "json" if more["as_json"] else more["output"]
    if filename:
        _show_written(_written(filename, target, node, opener, cluster, more), filename, output)
        return
    if more["sysfs"] is not None or more["configs"]:
        raise click.UsageError("--sysfs and --config are for a pod of a file: give -f.")
    kind, _, name = target.partition("/")
    if kind in _CLAIMS:
        usual, connect = partial(cluster.usual_namespace, opener), partial(cluster.open, opener)
        _explain_claim(name, node, usual, connect, output)
        return
    _show(pod_or_workload(target, node, opener, cluster, more["state_dir"]), output)


def pod_or_workload(
    target: str,
    node: str | None,
    opener: options.Opener | None,
    at: options.ClusterOptions,
    state: Path | None = None,
) -> PodEvidence:
    """Return the evidence about pod/NAME, or about the pod of a workload KIND/NAME."""
    from kube_rdma.explain.evidence import explain_manifest, explain_pod
    from kube_rdma.explain.workloads import kinds, read_workload
    from kube_rdma.explain.written import chosen, written_pods
    from kube_rdma.model.late_binding import PodName
    from kube_rdma.model.preflight import REQUEST
    from kube_rdma.preflight.cluster import read_pod
    from kube_rdma.preflight.rules import asked, progress

    word, _, rest = target.partition("/")
    kind = kinds().get(word.lower())
    if not rest or not (kind or word in _PODS):
        known = ", ".join(dict.fromkeys(one.plural for one in kinds().values()))
        raise click.UsageError(
            f"{target!r} is no pod/NAME, claim/NAME or workload KIND/NAME. Kinds of workloads are "
            f"{known}; of other kinds give the file (-f), or name a pod."
        )
    key = options.named_pod(f"pod/{rest}", partial(at.usual_namespace, opener))
    assert key is not None
    places, connect = _places(state), partial(at.open, opener)

    async def seen() -> PodEvidence:
        pod = PodName(*key)
        if kind:
            async with connect() as cluster:
                document, found = await read_workload(cluster, kind, *key)
            if found is None:
                written = chosen(tuple(written_pods([document], key[0], str)), "", target)
                # The part that asks for most, such as the workers and not their launcher.
                most = max(written, key=lambda w: sum(len(c.asks) for c in w.template.containers))
                return await explain_manifest(places, most.template, node, connect, most.owner)
            pod = found
        evidence = await explain_pod(places, pod, node, connect)
        if REQUEST in dict(evidence.template.annotations):
            async with connect() as cluster:
                asking = await read_pod(cluster, pod.namespace, pod.name)
            return replace(evidence, preflight=tuple(progress(asked(asking))) if asking else ())
        return evidence

    with ProgressLine("Reading the cluster, and the pod."):
        return asyncio.run(seen())


def _explain_claim(
    name: str, node: str | None, usual: Callable[[], str], connect: OpenCluster, output: str
) -> None:
    from kube_rdma.claims.rules.verdicts import explain_claim
    from kube_rdma.claims.views import claim_document, claim_page
    from kube_rdma.explain.evidence import read_claim

    namespace, slash, bare = name.partition("/")
    if not name or (slash and not (namespace and bare)):
        raise click.UsageError("Name a claim: claim/NAME or claim/NAMESPACE/NAME.")
    key = (namespace, bare) if slash else (usual(), name)
    with ProgressLine("Reading the cluster."):
        explanation = explain_claim(asyncio.run(read_claim(*key, node, connect)))
    show_result(claim_page(explanation), claim_document(explanation), output)
    if not explanation.is_met:
        sys.exit(ExitCode.PROBLEM)


def _places(state: Path | None) -> ExplainPlaces:
    from kube_rdma.explain.evidence import ExplainPlaces

    return ExplainPlaces(
        here=os.environ.get("NODE_NAME") or os.uname().nodename,
        state=state or _STATE,
        host=options.root_of_host(),
    )


def _written(
    file: Path,
    target: str,
    node: str | None,
    opener: options.Opener | None,
    at: options.ClusterOptions,
    more: Mapping[str, Any],
) -> dict[str, PodEvidence]:
    """Return evidence about the pods in a file, in the cluster or on a recorded node."""
    from kube_rdma.cli.config import read_documents, read_parts
    from kube_rdma.explain.recorded import explain_recorded
    from kube_rdma.explain.written import chosen, written_pods

    sysfs, configs = more["sysfs"], more["configs"]
    if sysfs is None and configs:
        raise click.UsageError("--sysfs is missing: --config says what the node of --sysfs has.")
    if sysfs is not None and node:
        raise click.UsageError("--sysfs and --node exclude each other: leave one out.")
    documents = read_documents(str(file))

    def usual() -> str:
        return "default" if sysfs is not None else at.usual_namespace(opener)

    name = "stdin" if file == Path("-") else str(file)
    pods = chosen(tuple(written_pods(documents, at.namespace, usual)), target, name)
    if sysfs is not None:
        others = [part for one in configs if one != str(file) for part in read_parts(one)]
        asked = [explain_recorded(one.template, sysfs, [*others, *documents]) for one in pods]
    else:
        from kube_rdma.explain.evidence import explain_manifest

        places, connect = _places(more["state_dir"]), partial(at.open, opener)
        asked = [explain_manifest(places, p.template, node, connect, p.owner) for p in pods]
    with ProgressLine("Reading the cluster."):
        return {
            pod.title: pod.placed(asyncio.run(one)) for pod, one in zip(pods, asked, strict=True)
        }


def _show_written(seen: Mapping[str, PodEvidence], file: Path, output: str) -> None:
    """Print the explanation of one pod, or a verdict on each of several; exit with its code."""
    from kube_rdma.explain.rules.pod import explain as explained
    from kube_rdma.explain.views import explain_document, verdicts_page

    if len(seen) == 1:
        _show(next(iter(seen.values())), output)
        return
    pods = [(title, explained(evidence)) for title, evidence in seen.items()]
    documents = [{"object": title} | explain_document(one) for title, one in pods]
    show_result(verdicts_page(pods, str(file)), {"pods": documents}, output)
    if any(one.is_refused for _, one in pods):
        sys.exit(ExitCode.PROBLEM)


def _show(evidence: PodEvidence, output: str) -> None:
    from kube_rdma.explain.rules.pod import explain as explained
    from kube_rdma.explain.views import explain_document, explain_page

    explanation = explained(evidence)
    show_result(explain_page(explanation), explain_document(explanation), output)
    if explanation.is_refused:
        sys.exit(ExitCode.PROBLEM)
