"""`kube-rdma controller`: what one pod of the cluster does for all nodes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from kube_rdma.cli.options import (
    HEALTH_ADDRESS,
    METRICS_ADDRESS,
    ClusterOptions,
    F,
    choice_option,
    listen_address,
    log_options,
    program_options,
    text_option,
)

if TYPE_CHECKING:
    from kube_rdma.controller.exporter import ControllerExporter
    from kube_rdma.controller.parts import ControllerOptions
    from kube_rdma.model.install import Values

LEASE = "kube-rdma-controller"  # of the copy that works


def feature(name: str, text: str) -> Callable[[F], F]:
    """Return the option that adds a part to the controller; `text` is its help."""
    return click.option(f"--{name}", "features", flag_value=name, multiple=True, help=text)


@click.command()
@program_options(namespace="kube-rdma")
@click.option(
    "--policies",
    is_flag=False,
    flag_value="Namespaced",
    type=click.Choice(["Namespaced", "Cluster"]),
    help="Deploy what a NicClusterPolicy asks for. Namespaced, or no value: as with the definition "
    "of NVIDIA's operator 0.1.0 (config/operator), policies of the namespace count. Cluster: as "
    "with that of later releases, policies of the cluster count. Needs the right to write "
    "DaemonSets and ConfigMaps in the namespace. Default: no policies.",
)
@click.option(
    "--policy-set",
    "policy_set",
    metavar="PATH=VALUE",
    multiple=True,
    help="Value of the Helm chart for what a NicClusterPolicy deploys, such as "
    "host.runtime=/run/crio. May be repeated. Those of distribution and host count.",
)
@choice_option(
    "--node-labels",
    of=("write", "write-topograph", "write-ack", "leave", "remove"),
    default="leave",
    help="Labels of nodes by the switches that agents hear, and Events of wrong cables; as the "
    "value controller.nodeLabels. Needs the rights to get and patch nodes.",
)
@text_option(
    "--fullname",
    help="Value fullnameOverride of the installation, by which the Lease is named. Default: the "
    "name of an installation without it.",
)
@feature(
    "names",
    "Publish the RDMA addresses of pods under the names of Services that ask for it by the "
    "annotation kube-rdma.io/pods. Needs the right to write EndpointSlices.",
)
@feature(
    "preflight",
    "Let gangs of pods measure before they start, which the annotation kube-rdma.io/preflight "
    "asks for. Needs the right to patch pods.",
)
@feature(
    "queue",
    "Answer AdmissionChecks of Kueue with the controllerName kube-rdma.io/rails. Needs the "
    "right to patch the status of Workloads and AdmissionChecks.",
)
@feature(
    "repair",
    "Taint nodes whose cards are bad, as RepairPolicies say. Needs the rights to get and patch "
    "nodes.",
)
@HEALTH_ADDRESS
@METRICS_ADDRESS
@log_options
def controller(
    cluster: ClusterOptions,
    *,
    policies: str | None,
    policy_set: tuple[str, ...],
    node_labels: str,
    fullname: str,
    features: tuple[str, ...],
    health_address: str | None,
    metrics_address: str | None,
    **log: str,
) -> None:
    """Do cluster-wide work; the Deployment runs it.

    It frees the addresses of nodes that are gone, reports how full pools are, and writes the status
    of NodePolicies. It evicts pods without their networks, or with outdated device nodes, when an
    agent asks for it. It runs the BandwidthChecks of namespaces that allow it. With --node-labels
    it labels nodes by the switches that they are plugged into. With --names it publishes RDMA
    addresses of pods. With --preflight it lets gangs of pods measure before they start. With
    --queue it tells Kueue whether the rails of a job's nodes are well. With --repair it taints
    nodes as RepairPolicies say.

    When several copies run, the one that holds the Lease kube-rdma-controller works. With
    --fullname=NAME the Lease is NAME-controller. A controller runs until SIGTERM or SIGINT.
    """
    from kube_rdma.lib import logs  # before all that logs

    health = listen_address(health_address, "--health-address")
    namespace, metrics = cluster.namespace, listen_address(metrics_address)

    from kube_rdma.controller.parts import ControllerOptions

    options = ControllerOptions(
        namespace,
        policies is not None,
        policies == "Cluster",
        _values(policy_set),
        fullname,
        health,
        node_labels,
        frozenset(features),
    )
    logs.configure(log["log_level"], log["log_format"])
    asyncio.run(logs.until_signal(_run(cluster, options, metrics)))


def _values(assignments: tuple[str, ...]) -> Values:
    """Return the installation values for policies that --policy-set assigns."""
    if not assignments:
        return {}
    from kube_rdma.install.installation import policy_values

    return policy_values(assignments, "--policy-set")


async def _run(
    access: ClusterOptions, options: ControllerOptions, metrics: tuple[str | None, int] | None
) -> None:
    """Run all tasks of the controller; those of `leading` run in the leader alone."""
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.controller.leadership import ElectionLease, Leadership, own_identity
    from kube_rdma.controller.parts import always, leading, readiness, run_controller

    async with access.open() as cluster:
        events = Events(cluster, socket.gethostname())
        lease = f"{options.fullname}-controller" if options.fullname else LEASE
        lead = Leadership(ElectionLease(cluster, lease, access.namespace), own_identity())
        exporter: ControllerExporter | None = None
        if metrics:  # the library of Prometheus is imported then
            from kube_rdma.controller import exporter as prometheus

            exporter = prometheus.ControllerExporter(*metrics, lambda: lead.leads)
        checks, address = readiness(cluster, lead), options.health
        beside = always(events, exporter, partial(checks.run, address) if address else None)
        await run_controller(lead, beside, leading(cluster, events, options, exporter))
