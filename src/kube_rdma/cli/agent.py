"""`kube-rdma agent`: what the container image runs, without arguments."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from kube_rdma.cli import options

# The files that manifests of Alibaba SCC's, the shared and the SR-IOV device plugin mount.
CONFIG = Path("/k8s-rdma-sriov-dev-plugin/config.json")
SHARED_CONFIG = Path("/k8s-rdma-shared-dev-plugin/config.json")
SRIOV_CONFIG = Path("/etc/pcidp/config.json")
_OF_PLUGIN = ("networks", "claims", "startup_taint", "metrics_address", "health_address")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@click.command()
@click.option(
    "--role",
    "roles",
    type=click.Choice(["plugin", "node"]),
    multiple=True,
    default=["plugin"],
    show_default=True,
    help="Work of this process. plugin offers the cards to the kubelet. node beside it follows the "
    "node's mode label, writes labels and events, and binds devices to pods' networks. node alone "
    "only labels the node. May be given twice.",
)
@options.path_option(
    "--config",
    help="File of the pools to offer, JSON or YAML; `kube-rdma config check` explains it. "
    f"Default: {SHARED_CONFIG} or {SRIOV_CONFIG}, whose folder exists, else {CONFIG}. No default "
    "with role node.",
)
@options.node_name_option("Name of this node's Node object. Role node needs it.")
@options.program_options(namespace="kube-rdma")
@options.KUBELET_ROOT
@options.choice_option(
    "--registry",
    of=["device-plugins", "plugins_registry"],
    default="device-plugins",
    help="Folder of the kubelet to register in. device-plugins works with every Kubernetes, "
    "plugins_registry from 1.13 on.",
)
@options.path_option(
    "--state-dir",
    metavar="DIR",
    default="/var/lib/kube-rdma",
    help="Folder of the agent's records, which role node needs after a restart.",
)
@options.path_option(
    "--cdi-dir",
    metavar="DIR",
    default="/var/run/cdi",
    help="Folder in which the container runtime looks for CDI files. Role node writes them there.",
)
@options.RUNTIME_SOCKET
@options.flag_option(
    "--networks",
    help="Put networks into pods. Needs role node, CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_NET_RAW and "
    "the host's CNI folders.",
)
@click.option(
    "--namespace-isolation",
    is_flag=False,
    flag_value="default,kube-system",
    metavar="NAMESPACE,...",
    help="Let a pod name only networks of its own namespace and of the listed ones, such as "
    "default,shared, and no CNI configuration of the node. Without a list: default,kube-system. "
    "Needs --networks. Default: a pod may name networks of any namespace.",
)
@options.flag_option(
    "--startup-taint",
    help="Take the taint kube-rdma.io/starting:NoSchedule off this node when it offers every "
    "resource, or startup-taint.cluster-autoscaler.kubernetes.io/kube-rdma:NoSchedule. Needs role "
    "node and the right to patch nodes.",
)
@options.flag_option(
    "--claims",
    help="Let ResourceClaims have the cards of pools that the node's label kube-rdma.io/serve or "
    "the configuration gives to them, as devices of the driver rdma.kube-rdma.io. Alpha. Needs "
    "role node, Kubernetes 1.34 or later, the host's folder plugins_registry and the right to "
    "write resourceslices.",
)
@options.flag_option(
    "--dranet-attributes",
    help="Publish the devices of --claims under DRANET's names of attributes too: "
    "dra.net/encapsulation, ifName, isSriovVf, numaNode, pciAddress, rdma and rdmaDevice.",
)
@options.choice_option(
    "--node-labels",
    of=["write", "write-nfd", "leave", "remove"],
    default="write",
    help="Labels of this node, for role node. write: write labels below kube-rdma.io/. write-nfd: "
    "also those of Node Feature Discovery, by which operators start drivers. leave: change none. "
    "remove: remove the labels that an agent wrote. Needs the right to patch nodes.",
)
@options.flag_option(
    "--no-lldp",
    help="Receive no LLDP. Otherwise role node reports which switch port each port of its pools is "
    "plugged into, if it has CAP_NET_RAW.",
)
@options.HEALTH_ADDRESS
@options.METRICS_ADDRESS
@click.option(
    "--metrics-names",
    type=click.Choice(["node-exporter", "vke", "none"]),
    multiple=True,
    default=["node-exporter"],
    show_default=True,
    help="Names for the counters of the node's ports; none leaves these counters out. May be given "
    "twice. Avoid names that another exporter on the node uses: sums then count each port twice.",
)
@options.flag_option(
    "--metrics-pods",
    help="Serve the series of pods too, without asking for a credential: namespaces, names and "
    "traffic. docs/metrics.md says how to guard the port.",
)
@options.path_option(
    "--socket",
    default="/run/kube-rdma/agent.sock",
    help="Socket on which the agent answers the CNI shim, for --networks.",
)
@options.path_option(
    "--host",
    metavar="DIR",
    default="/host",
    help="Folder in which the host's root is mounted. --networks needs its CNI folders, "
    "--node-labels=write-nfd its os-release.",
)
@options.log_options
def agent(
    roles: tuple[str, ...],
    config: Path | None,
    node_name: str | None,
    cluster: options.ClusterOptions,
    **more: Any,
) -> None:
    """Serve a node's cards; the DaemonSet runs it.

    Role plugin offers the cards as resources to the kubelet. It needs the kubelet's folder and a
    configuration, and no privilege. Role node adds what needs the API server. The agent runs until
    SIGTERM or SIGINT.
    """
    _check(roles, node_name, config, more)
    level, form = more.pop("log_level"), more.pop("log_format")
    # Role plugin speaks no TLS, and OpenSSL takes 4 MiB. What is None in sys.modules is not
    # imported: asyncio, grpclib and hashlib do without. prometheus_client, for a scrape, does not.
    unneeded = {"ssl", "_hashlib"} - sys.modules.keys() if "node" not in roles else set()
    sys.modules.update(dict.fromkeys(unneeded))  # type: ignore[arg-type]

    from kube_rdma.lib import logs  # before all that logs

    # isort: split
    import asyncio

    from kube_rdma.adapters.kubelet.device_plugin import Registry
    from kube_rdma.adapters.runtime.cri import find_socket
    from kube_rdma.agent.compose import AgentOptions, LabelMode, labelling, opened
    from kube_rdma.agent.loop import run_plugin
    from kube_rdma.model.metrics import MetricNames

    for name in unneeded:
        del sys.modules[name]
    agent_options = AgentOptions(
        config=config if config or "node" in roles else _mounted(),
        node=node_name if "node" in roles else None,
        connect=cluster.open,
        registry=Registry(more.pop("registry")),
        global_namespaces=_namespaces(more.pop("namespace_isolation")),
        dranet=more.pop("dranet_attributes"),
        labels=LabelMode(more.pop("node_labels")),
        health=options.listen_address(more.pop("health_address"), "--health-address"),
        metrics=options.listen_address(more.pop("metrics_address")),
        # `none` beside other families of names says nothing.
        metric_names=tuple(MetricNames(one) for one in more.pop("metrics_names") if one != "none"),
        namespace=cluster.namespace,
        **{**more, "runtime_socket": more["runtime_socket"] or find_socket()},
    )

    async def run() -> None:
        if "plugin" not in roles:
            from kube_rdma.agent.node.node_labels import run_labeller

            async with labelling(agent_options) as sources:
                await run_labeller(sources)
            return
        async with opened(agent_options) as dependencies:
            await run_plugin(dependencies)

    logs.configure(level, form)
    asyncio.run(logs.until_signal(run()))


def _check(
    roles: tuple[str, ...], node_name: str | None, config: Path | None, more: dict[str, Any]
) -> None:
    """Raise a usage error for options that exclude or require each other."""
    if "plugin" not in roles and any((config, *map(more.get, _OF_PLUGIN))):
        raise click.UsageError("role node alone labels its node: give --role plugin too")
    for word in ("networks", "startup_taint", "claims"):
        if more[word] and "node" not in roles:
            option = f"--{word.replace('_', '-')}"
            raise click.UsageError(f"{option} is what role node does: give --role node too")
    if more["namespace_isolation"] is not None and not more["networks"]:
        raise click.UsageError("--namespace-isolation is about networks: give --networks too")
    if more["dranet_attributes"] and not more["claims"]:
        raise click.UsageError("--dranet-attributes is about claims: give --claims too")
    if "node" in roles and not node_name:
        raise click.UsageError("role node has to know its node: set NODE_NAME or --node-name")


def _namespaces(text: str | None) -> tuple[str, ...] | None:
    """Return the namespaces in a comma-separated list; None if the option was not given.

    Raise a usage error for a text that no namespace can have as its name.
    """
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            problem = f"{name!r} is not a namespace: write them with commas, such as default,shared"
            raise click.BadParameter(problem, param_hint="--namespace-isolation")
    return names


def _mounted() -> Path:
    """Return the default path of a configuration whose folder exists, else CONFIG."""
    places = (SHARED_CONFIG, SRIOV_CONFIG)
    return next((place for place in places if place.parent.is_dir()), CONFIG)
