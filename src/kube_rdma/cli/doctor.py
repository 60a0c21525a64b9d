"""`kube-rdma doctor`: why RDMA does not work on a node, for a pod or on all nodes, causes first.

It looks at this machine, or runs itself in the containers of agents; it changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.frozen import replace
from kube_rdma.cli import completion, options
from kube_rdma.cli.output import AS_JSON, TEXT_OUTPUT, ExitCode, ProgressLine, command, show_result
from kube_rdma.cli.recorded import sysfs_option

if TYPE_CHECKING:
    from kube_rdma.model.doctor import NodeAnswer, Observation
    from kube_rdma.model.late_binding import PodName

# `doctor`, `bundle` and `top` reach nodes elsewhere through the agents of a namespace.

AGENT_NAMESPACE = options.text_option(
    "--agent-namespace",
    help="Namespace of the agents through which nodes are reached. Default: the namespaces that "
    "the presets install them in.",
)


async def every_node(
    at: options.ClusterOptions, agents: str, opener: options.Opener | None
) -> tuple[NodeAnswer, ...]:
    """Ask the agents of all nodes, and return what each node observed or why it did not answer."""
    from kube_rdma.doctor.agents import find_agents

    with ProgressLine("Asking the agents of all nodes.") as line:

        def tell(over: int, nodes: int) -> None:
            line.tell(f"Asking the agents of all nodes: {over} of {nodes} have answered.")

        async with at.open(opener) as cluster:
            return await (await find_agents(cluster, agent_namespaces(agents))).every_node(tell)


async def seen_by_agent(
    target: str | PodName, at: options.ClusterOptions, agents: str, opener: options.Opener | None
) -> Observation:
    """Return what the agent of a node, or of a pod's node, observed there."""
    from kube_rdma.doctor.agents import find_agents

    with ProgressLine("Asking the node's agent."):
        async with at.open(opener) as cluster:
            asked = await find_agents(cluster, agent_namespaces(agents))
            if isinstance(target, str):
                return await asked.node(target)
            return await asked.pod(target)


def agent_namespaces(agents: str) -> tuple[str, ...]:
    """Return the namespaces in which to look for agents."""
    from kube_rdma.install.rules.presets import namespaces

    return (agents,) if agents else namespaces()


_RECORDS = "/var/lib/kube-rdma"
NODES = ("node", "nodes", "no")  # as kubectl calls them


@command(
    "kube-rdma doctor",
    "kube-rdma doctor node/node-17",
    "kube-rdma doctor pod/worker-0 -n train",
    "kube-rdma doctor --all-nodes",
    "kube-rdma doctor --sysfs dgx-cable-out",
    "kube-rdma doctor --collect node-1.json",
    "kube-rdma doctor --bundle node-1.json",
)
@click.argument(
    "target",
    metavar="[node|node/NAME|pod/[NAMESPACE/]NAME]",
    default=options.THIS_NODE,
    shell_complete=completion.node_and_pod_targets,
)
@options.cluster_options(namespace=True)
@options.flag_option(
    "--all-nodes",
    "whole",
    help="Check all nodes that have an agent, and show each finding once with its nodes.",
)
@options.flag_option(
    "--verbose", help="Name each check that was not made, and say why what it needs was not seen."
)
@AGENT_NAMESPACE
@TEXT_OUTPUT
@AS_JSON
@options.path_option(
    "--collect", help="Write all that was seen to this file, for --bundle; - is stdout."
)
@options.path_option(
    "--bundle",
    help="Judge a file that --collect wrote, on any machine, instead of this node; with "
    "--all-nodes one that kube-rdma bundle wrote.",
)
@options.path_option(
    "--config",
    help="Configuration of the pools that this node should offer. Default: the agent's record.",
)
@sysfs_option("Node to judge instead of this one.")
@options.node_name_option(
    "Name of this node's Node object. Default: the host name, or that of --sysfs."
)
@options.path_option(
    "--host",
    metavar="DIR",
    help="Folder in which the host's root is mounted. Default: /host if it has /host/etc, else /.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0, max=60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two readings of the error counters of ports, up to 60. 0: they are not "
    "checked. Agents of nodes elsewhere take the default.",
)
@options.KUBELET_ROOT
@options.RUNTIME_SOCKET
@options.path_option(
    "--state-dir",
    metavar="DIR",
    help=f"Folder of the agent's records. Default: {_RECORDS}.",  # a default would be looked at
)
@click.pass_obj
def doctor(
    opener: options.Opener | None,
    /,
    target: str,
    output: str,
    cluster: options.ClusterOptions,
    *,
    as_json: bool,
    verbose: bool,
    whole: bool,
    **more: Any,
) -> None:
    """Find out why RDMA does not work here.

    Run it on the node or in the agent's container. It names root causes first, each with its fix,
    and changes nothing. With pod/NAME it also checks a pod of this node; its processes are visible
    only to root on the node.

    From elsewhere name what to check: node/NAME, pod/NAME or --all-nodes. The command then runs
    itself in the agents' containers by `kubectl exec`, which needs a Role in their namespace.

    Exits with 1 when something is in the way of RDMA. Else it exits with 6 when most checks could
    not be made or a node did not answer. --verbose names what could not be seen. docs/doctor.md
    explains the codes.
    """
    from kube_rdma.adapters.files import bundle

    output = "json" if as_json else output
    agents = more.pop("agent_namespace")
    if whole:
        _refuse_beside(target, more)
        _show_fleet(_answers(more["bundle"], cluster, agents, opener), output)
        return
    aim = _target(target, lambda: cluster.usual_namespace(opener))
    collect, source = more.pop("collect"), more.pop("bundle")
    sysfs = more.pop("sysfs")
    if sysfs and target != options.THIS_NODE:
        raise click.UsageError(f"--sysfs and {target} exclude each other: leave one out.")
    more["state_dir"] = more["state_dir"] or Path(_RECORDS)
    # This machine is a node if its name was given, or if its agent has records here.
    is_node = more["node_name"] or sysfs or more["state_dir"].is_dir()
    if source:
        seen = bundle.read(source)
    elif isinstance(aim, str) or (aim and not is_node):
        seen = asyncio.run(seen_by_agent(aim, cluster, agents, opener))
    elif sysfs:
        from kube_rdma.doctor.recorded import observe_recorded
        from kube_rdma.hardware.recorded_survey import called

        seen = observe_recorded(more["node_name"] or called(sysfs), sysfs, more["config"])
    else:
        seen = asyncio.run(_observed(more, aim, cluster, opener))
    if not source and not seen.taken:  # by another node
        seen = replace(seen, taken=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    if collect == Path("-"):
        click.echo(bundle.encode(seen), nl=False)
        return
    if collect:
        bundle.write(seen, collect)
    _show(seen, output, verbose=verbose)


def _show(seen: Observation, output: str, *, verbose: bool) -> None:
    """Print the diagnosis of a node, and exit with its code."""
    from kube_rdma.doctor.rules.diagnose import diagnose
    from kube_rdma.doctor.views import doctor_document, doctor_page

    diagnosis = diagnose(seen)
    text = doctor_page(seen, diagnosis, verbose=verbose)
    show_result(text, doctor_document(seen, diagnosis), output)
    _end(ill=diagnosis.ill, blind=diagnosis.is_blind)


def _end(*, ill: bool, blind: bool) -> None:
    if ill:
        sys.exit(ExitCode.PROBLEM)
    if blind:
        sys.exit(ExitCode.UNKNOWN)


def _target(text: str, usual: Callable[[], str]) -> str | PodName | None:
    """Return a node's name, a pod, or None for this node; raise a usage error for other texts."""
    from kube_rdma.model.late_binding import PodName

    kind, slash, name = text.partition("/")
    if kind in NODES and slash:
        if not name or "/" in name:
            raise click.UsageError("Name a node: node/NAME, as kubectl get nodes shows it.")
        return name
    pod = options.named_pod(text, usual)
    return PodName(*pod) if pod else None


def _refuse_beside(target: str, more: dict[str, Any]) -> None:
    """Raise a usage error for options that --all-nodes excludes."""
    given = [f"--{word}" for word in ("collect", "config", "sysfs") if more[word]]
    given += [target] if target != options.THIS_NODE else []
    if given:
        raise click.UsageError(f"--all-nodes and {given[0]} exclude each other: leave one out.")


def _answers(
    source: Path | None, cluster: options.ClusterOptions, agents: str, opener: options.Opener | None
) -> tuple[NodeAnswer, ...]:
    """Return all nodes' observations, from their agents or from a bundle file."""
    from kube_rdma.adapters.files import bundle

    if source:
        return bundle.read_cluster_bundle(source)
    return asyncio.run(every_node(cluster, agents, opener))


def _show_fleet(answers: tuple[NodeAnswer, ...], output: str) -> None:
    from kube_rdma.doctor.rules.diagnose import diagnose_fleet
    from kube_rdma.doctor.views import fleet_document, fleet_page

    fleet = diagnose_fleet(answers)
    show_result(fleet_page(fleet), fleet_document(fleet), output)
    _end(ill=fleet.ill, blind=fleet.is_blind)


async def _observed(
    words: dict[str, Any],
    pod: PodName | None,
    cluster: options.ClusterOptions,
    opener: options.Opener | None,
) -> Observation:
    """Return what this node, or a pod on it, shows now."""
    from kube_rdma.doctor.evidence import DoctorPlaces, observe

    node, state = words.pop("node_name") or os.uname().nodename, words.pop("state_dir")
    words["host"] = words["host"] or options.root_of_host()
    places = DoctorPlaces(node, state=state, pod=pod, **words)
    with ProgressLine("Looking at this node."):
        return await observe(places, partial(cluster.open, opener))
