"""`kube-rdma explain`: what a pod asked for, what it got, by which Steps, and what it sees.

Of a pod that does not exist yet: what would become of it on a node. Of a claim: why it waits. It
changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_rdma.cli import completion, options
from kube_rdma.cli.output import AS_JSON, TEXT_OUTPUT, ExitCode, ProgressLine, command, show_result
from kube_rdma.cli.recorded import sysfs_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kube_rdma.doctor.pod import OpenCluster
    from kube_rdma.explain.evidence import ExplainPlaces
    from kube_rdma.model.admission import PodTemplate
    from kube_rdma.model.explain import PodEvidence

_STATE = Path("/var/lib/kube-rdma")
_CLAIMS = ("claim", "claims", "resourceclaim", "resourceclaims")


@command(
    "kube-rdma explain pod/train/worker-0",
    "kube-rdma explain -f pod.yaml --node node-1",
    "kube-rdma explain -f pod.yaml --sysfs dgx-like --config pools.yaml",
    "kube-rdma explain claim/train/two-cards",
)
@click.argument(
    "target",
    metavar="[pod|claim/[NAMESPACE/]NAME]",
    default="",
    shell_complete=completion.pod_targets,
)
@options.path_option(
    "-f",
    "--filename",
    help="Manifest of a pod that does not exist yet, or of a Job, Deployment or the like; - is "
    "stdin.",
)
@click.option(
    "--node",
    metavar="NAME",
    shell_complete=completion.nodes,
    help="Node that the pod of -f would run on. Without it, only admission and the pod's networks "
    "are checked. An existing pod has to be on this node. Of a claim only this node is judged.",
)
@sysfs_option("Recorded node that the pod of -f would run on. No cluster is asked.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="FILE",
    help="File with the pools of the recorded node, in any format of `kube-rdma config`, or with "
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
    nothing.

    claim/NAME shows why a ResourceClaim waits: for each node and device, of any driver, what keeps
    the scheduler from giving it.

    Exits with 1 when something refuses the pod or no node can meet the claim, else with 0.
    """
    if bool(target) == bool(filename):
        raise click.UsageError("Name a pod (pod/NAME), a claim (claim/NAME), or a file (-f).")
    output = "json" if more["as_json"] else more["output"]
    if more["sysfs"] is not None or more["configs"]:
        _show(_of_recorded(filename, node, cluster.namespace, more), output)
        return
    from kube_rdma.explain.evidence import explain_manifest, explain_pod
    from kube_rdma.model.late_binding import PodName

    places, connect = _places(more["state_dir"]), partial(cluster.open, opener)
    kind, _, claim = target.partition("/")
    if kind in _CLAIMS:
        _explain_claim(claim, node, lambda: cluster.usual_namespace(opener), connect, output)
        return
    if filename:
        template = _template(filename, cluster.namespace, lambda: cluster.usual_namespace(opener))
        with ProgressLine("Reading the cluster."):
            evidence = asyncio.run(explain_manifest(places, template, node, connect))
    else:
        pod = options.named_pod(target, lambda: cluster.usual_namespace(opener))
        if pod is None:
            raise click.UsageError("Name a pod: pod/NAME or pod/NAMESPACE/NAME.")
        with ProgressLine("Reading the cluster, and the pod."):
            evidence = asyncio.run(explain_pod(places, PodName(*pod), node, connect))
    _show(evidence, output)


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


def _of_recorded(
    file: Path | None, node: str | None, namespace: str, chosen: Mapping[str, Any]
) -> PodEvidence:
    """Return the pod of a file on a recorded node, with what files say of its cluster."""
    from kube_rdma.cli.config import read_parts
    from kube_rdma.explain.recorded import explain_recorded

    sysfs, configs = chosen["sysfs"], chosen["configs"]
    if sysfs is None:
        raise click.UsageError("--sysfs is missing: --config says what a recorded node has.")
    if file is None or node:
        raise click.UsageError("--sysfs takes a pod from a file: give -f, and no --node.")
    if not configs:
        raise click.UsageError("--config is missing: give a file with the pools of the node.")
    template = _template(file, namespace, lambda: "default")
    parts = [part for name in configs for part in read_parts(name)]
    return asyncio.run(explain_recorded(template, sysfs, parts))


def _template(file: Path, namespace: str, usual: Callable[[], str]) -> PodTemplate:
    """Return the pod of a file, or what a Job and its like make pods of; raise Refused.

    Without `namespace` and one of its own it is in the `usual` one.
    """
    from kube_base.errors import Refused
    from kube_rdma.admission.documents import manifests, pod_manifest
    from kube_rdma.cli.config import read_documents

    name = "stdin" if file == Path("-") else str(file)
    documents = read_documents(str(file))
    if len(documents) != 1:
        raise Refused(
            f"it holds {len(documents)} documents, and exactly 1 is needed",
            remedy="Give a file of one pod; kube-rdma config check reads files of many objects",
            where=name,
        )
    objects = manifests.manifests(documents[0])
    parts = [(one, part) for one in objects for part in manifests.pods(one)]
    if len(parts) != 1:
        kinds = ", ".join(one.kind for one in objects) or "no object of Kubernetes"
        what = (
            f"it describes {len(parts)} kinds of pods" if parts else f"it is not a pod, but {kinds}"
        )
        raise Refused(what, remedy="Give a Pod, or a Job or Deployment of one", where=name)
    manifest, part = parts[0]
    space = namespace or manifest.namespace or usual()
    return pod_manifest.load(part, space, manifest.name)


def _show(evidence: PodEvidence, output: str) -> None:
    from kube_rdma.explain.rules.pod import explain as explained
    from kube_rdma.explain.views import explain_document, explain_page

    explanation = explained(evidence)
    show_result(explain_page(explanation), explain_document(explanation), output)
    if explanation.is_refused:
        sys.exit(ExitCode.PROBLEM)
