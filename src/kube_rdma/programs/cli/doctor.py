"""`kube-rdma doctor`: why RDMA does not work here, root causes first.

Run it on the node or in the agent's container; it changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.frozen import replace
from kube_rdma.programs.cli.examples import examples
from kube_rdma.programs.cli.exit_codes import ExitCode
from kube_rdma.programs.cli.options import (
    KUBELET_ROOT,
    RUNTIME_SOCKET,
    THIS_NODE,
    ClusterOptions,
    cluster_options,
    named_pod,
    root_of_host,
)
from kube_rdma.programs.cli.output import AS_JSON, TEXT_OUTPUT, page_width

if TYPE_CHECKING:
    from kube_rdma.model.doctor import Observation
    from kube_rdma.programs.cli.options import Opener

_PATH = click.Path(path_type=Path)


@click.command(
    epilog=examples(
        "kube-rdma doctor",
        "kube-rdma doctor pod/train/worker-0",
        "kube-rdma doctor --collect node-1.json",
        "kube-rdma doctor --bundle node-1.json",
    )
)
@click.argument("target", metavar="[node|pod/[NAMESPACE/]NAME]", default=THIS_NODE)
@cluster_options(namespace=True)
@TEXT_OUTPUT
@AS_JSON
@click.option(
    "--collect",
    metavar="FILE",
    type=_PATH,
    help="Write all that was seen to this file, for --bundle; - is stdout.",
)
@click.option(
    "--bundle",
    metavar="FILE",
    type=_PATH,
    help="Judge a file that --collect wrote, on any machine, instead of this node.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=_PATH,
    help="Configuration of the pools that this node should offer. Default: the agent's record.",
)
@click.option(
    "--sysfs",
    metavar="DIR",
    type=_PATH,
    help="Judge a recorded tree, and nothing else of this machine; `kube-rdma devices --record` "
    "writes DIR.",
)
@click.option(
    "--node-name",
    envvar="NODE_NAME",
    show_envvar=True,
    metavar="NAME",
    help="Name of this node's Node object. Default: the host name.",
)
@click.option(
    "--host",
    metavar="DIR",
    type=_PATH,
    help="Folder in which the host's root is mounted. Default: /host if it has /host/etc, else /.",
)
@KUBELET_ROOT
@RUNTIME_SOCKET
@click.option(
    "--state-dir",
    metavar="DIR",
    type=_PATH,
    default=Path("/var/lib/kube-rdma"),
    show_default=True,
    help="Folder of the agent's records.",
)
@click.pass_obj
def doctor(
    opener: Opener | None,
    /,
    target: str,
    output: str,
    cluster: ClusterOptions,
    *,
    as_json: bool,
    **more: Any,
) -> None:
    """Find out why RDMA does not work here.

    Run it on the node or in the agent's container. It names root causes first, each with its fix,
    and changes nothing. With pod/NAME it also checks a pod of this node; its processes are visible
    only to root on the node.

    Exits with 1 when something is in the way of RDMA, with 6 when most checks could not be made,
    else with 0. The output names what could not be seen. docs/doctor.md explains the codes.
    """
    from kube_rdma.adapters.files import bundle
    from kube_rdma.rules.doctor.diagnose import diagnose
    from kube_rdma.views.doctor import doctor_document, doctor_text

    pod = named_pod(target, lambda: cluster.usual_namespace(opener))
    collect, source = more.pop("collect"), more.pop("bundle")
    more["host"] = more["host"] or root_of_host()
    seen = bundle.read(source) if source else asyncio.run(_observed(more, pod, cluster, opener))
    if collect == Path("-"):
        click.echo(bundle.encode(seen), nl=False)
        return
    if collect:
        bundle.write(seen, collect)
    diagnosis = diagnose(seen)
    if as_json or output == "json":
        click.echo(json.dumps(doctor_document(seen, diagnosis), indent=2))
    else:
        click.echo(doctor_text(seen, diagnosis, page_width()))
    if diagnosis.ill:
        sys.exit(ExitCode.PROBLEM)
    if diagnosis.is_blind:
        sys.exit(ExitCode.UNKNOWN)


async def _observed(
    words: dict[str, Any],
    pod: tuple[str, str] | None,
    cluster: ClusterOptions,
    opener: Opener | None,
) -> Observation:
    """What there is to see now."""
    from kube_rdma.programs.doctor.evidence import DoctorPlaces, observe

    places = DoctorPlaces(
        node=words["node_name"] or os.uname().nodename,
        config=words["config"],
        sysfs=words["sysfs"],
        host=words["host"],
        kubelet_root=words["kubelet_root"],
        runtime_socket=words["runtime_socket"],
        state=words["state_dir"],
        pod=pod,
    )
    taken = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seen = await observe(places, partial(cluster.open, opener))
    return replace(seen, taken=taken)
