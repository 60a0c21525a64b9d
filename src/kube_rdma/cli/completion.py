"""Completion behind Tab: presets, and names of nodes and pods that the cluster has.

click asks these functions with what stands on the line so far. A cluster that does not answer in
three seconds offers nothing, and no error is shown.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from click import Context, Parameter

from kube_rdma.cli.options import ClusterOptions

if TYPE_CHECKING:
    from kube_client.objects import Cluster

PATIENCE = 3.0  # seconds
_POD, _NODE = "pod/", "node/"


def presets(_: Context, __: Parameter, incomplete: str) -> list[str]:
    """Return the presets that complete the word."""
    from kube_rdma.install.rules.presets import PRESETS

    return _begun(PRESETS, incomplete)


def nodes(context: Context, _: Parameter, incomplete: str) -> list[str]:
    """Return the names of nodes that complete the word."""
    return _begun(_asked(context, _nodes), incomplete)


def pods(context: Context, _: Parameter, incomplete: str) -> list[str]:
    """Return the names of pods, in the namespace of -n or the context, that complete the word."""
    return _begun(_asked(context, lambda cluster: _pods(cluster, _namespace(context))), incomplete)


def pod_targets(context: Context, _: Parameter, incomplete: str) -> list[str]:
    """Return the completions pod/NAME, or pod/NAMESPACE/NAME if the word has a namespace."""
    space, slash, _rest = incomplete.removeprefix(_POD).partition("/")
    space = space if slash and incomplete.startswith(_POD) else ""
    names = _asked(context, lambda cluster: _pods(cluster, space or _namespace(context)))
    return _begun((f"{_POD}{space}{slash if space else ''}{name}" for name in names), incomplete)


def node_and_pod_targets(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Return the completions node/NAME, and the completions of pod_targets."""
    if incomplete.startswith(_POD):
        return pod_targets(context, parameter, incomplete)
    named = [f"{_NODE}{name}" for name in nodes(context, parameter, "")]
    if incomplete.startswith(_NODE):
        return _begun(named, incomplete)
    return [*_begun(named, incomplete), *pod_targets(context, parameter, incomplete)]


def of_kubectl() -> None:
    """Complete `kubectl rdma`: kubectl runs this as kubectl_complete-rdma.

    Print a line for each word, then what the shell shall do with them: 4 is "offer no files"
    (kubernetes/kubectl pkg/cmd/plugin/plugin_completion.go, cobra's ShellCompDirectiveNoFileComp).
    """
    from click import echo
    from click.shell_completion import ShellComplete

    from kube_rdma.cli.main import COMPLETE_VARIABLE, cli

    *before, incomplete = sys.argv[1:] or [""]
    shell = ShellComplete(cli, {}, "kubectl rdma", COMPLETE_VARIABLE)
    items = shell.get_completions(before, incomplete)
    for item in items:
        if item.type == "plain":
            echo(f"{item.value}\t{item.help}" if item.help else item.value)
    echo(":4" if all(item.type == "plain" for item in items) else ":0")


def _begun(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _namespace(context: Context) -> str:
    return context.params.get("namespace") or ""


def _asked(
    context: Context, read: Callable[[Cluster], Awaitable[Iterable[str]]]
) -> tuple[str, ...]:
    """Return names from the cluster of the command line, sorted; none if it does not answer."""
    from kube_base.errors import KubeError
    from kube_base.natural import natural

    given = {name: context.params.get(name) for name in ("kubeconfig", "context", "user")}
    options = ClusterOptions(
        **{name: value for name, value in given.items() if value}, timeout=PATIENCE
    )

    async def names() -> Iterable[str]:
        async with asyncio.timeout(PATIENCE), options.open(context.obj) as cluster:
            return await read(cluster)

    try:
        return tuple(sorted(asyncio.run(names()), key=natural))
    except (KubeError, OSError):  # TimeoutError is one of these
        return ()


async def _nodes(cluster: Cluster) -> Iterable[str]:
    from kube_rdma.adapters.cluster.kinds.node import NODE

    return [node.name for node in await cluster.list(NODE)]


async def _pods(cluster: Cluster, namespace: str) -> Iterable[str]:
    from kube_client.kinds import Where
    from kube_rdma.adapters.cluster.kinds.pod import POD

    pods_of = Where(namespace=namespace or cluster.namespace)
    return [pod.name for pod in await cluster.list(POD, pods_of)]
