"""`kube-rdma devices`: what RDMA this node has, and what is wrong with the rest.

It takes a survey, judges it and shows it. What only one option needs is imported for that option.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import click

from kube_base.errors import Refused
from kube_rdma.adapters.files.neighbours import read_neighbours
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
from kube_rdma.cli import output as out
from kube_rdma.cli.options import flag_option, path_option
from kube_rdma.cli.recorded import sysfs_option
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.hardware.views.documents import document
from kube_rdma.hardware.views.table import device_names, devices_page
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.discovery import judge, notes

_SYSFS = Path("/sys")
_WATCHED = 2.0  # seconds in which counters that rise are recorded, as `kube-rdma doctor` waits


@out.command(
    "kube-rdma devices",
    "kube-rdma devices --topology",
    "kube-rdma devices --sysfs dgx-like --svg topology.svg",
    "kube-rdma devices --record /tmp/node-1",
    "kube-rdma devices --sysfs /tmp/node-1 -o json",
)
@out.output_option(
    (*out.LIST_FORMATS, "ibdev2netdev", "nccl"),
    f"{out.LIST_HELP} ibdev2netdev prints lines like those of Mellanox's tool. nccl prints "
    "NCCL's topology file and needs --topology.",
)
@sysfs_option("Node to show instead of this one.")
@flag_option(
    "--topology", help="Show how near GPUs and RDMA devices are to each other in the PCIe tree."
)
@path_option(
    "--svg",
    help="Draw sockets, PCIe switches, GPUs and RDMA devices with their rails into this SVG file.",
)
@flag_option("--watch", help="Print each change of the devices until Ctrl-C.")
@path_option(
    "--record",
    metavar="DIR",
    help="Copy the files that describe the devices into the new folder DIR, for --sysfs on another "
    "machine.",
)
def devices(
    output: str,
    sysfs: SysfsRoot | None,
    *,
    topology: bool,
    watch: bool,
    svg: Path | None,
    record: Path | None,
) -> None:
    """Show the RDMA devices of this node.

    The table says whether pods can use a device, and why not.

    Exits with 1 when no device is usable, but not with --topology, --svg, --watch, --record or -o
    ibdev2netdev.
    """
    _check(output, topology=topology, svg=bool(svg), watch=watch, record=bool(record))
    if output == "nccl":
        _nccl(sysfs)
        return
    if record:
        _record(sysfs, record)
    elif svg:
        _draw(sysfs, svg)
    elif watch:
        _watch(sysfs, output)
    elif topology:
        _topology(survey_at(sysfs), output)
    elif output == "ibdev2netdev":
        from kube_rdma.hardware.views.table import ibdev2netdev

        out.show_names(ibdev2netdev(survey_at(sysfs)).splitlines())
    else:
        survey = survey_at(sysfs)
        _show(survey if sysfs else survey.with_neighbours(read_neighbours()), output)


def _check(output: str, **modes: bool) -> None:
    """Raise a usage error for options that exclude or require each other."""
    chosen = [f"--{name}" for name, on in modes.items() if on]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} cannot be combined.")
    if chosen and output == "ibdev2netdev":
        raise click.UsageError(f"{chosen[0]} has no lines in the style of ibdev2netdev.")
    if output == "nccl" and chosen != ["--topology"]:
        raise click.UsageError("--topology is missing: -o nccl is NCCL's topology file.")
    if output not in ("table", "json") and chosen == ["--watch"]:
        raise click.UsageError("--watch prints sentences or, with -o json, a line for each change.")
    if output in ("wide", "name") and chosen == ["--topology"]:
        raise click.UsageError("--topology prints a picture, or a document with -o json or yaml.")
    if chosen in (["--record"], ["--svg"]) and output != "table":
        raise click.UsageError(f"{chosen[0]} writes and shows nothing; leave -o out.")


def _show(survey: Survey, output: str) -> None:
    verdicts = judge(survey)
    wide = output == "wide"
    if output in out.DOCUMENTS:
        out.show_document(document(verdicts, survey, notes(survey)), output)
    elif output == "name":
        out.show_names(device_names(verdicts))
    else:
        out.show(devices_page(verdicts, survey, notes(survey), wide=wide), wide=wide)
    if not any(verdict.usable for verdict in verdicts):
        sys.exit(out.ExitCode.PROBLEM)


def _topology(survey: Survey, output: str) -> None:
    """Print the topology matrix, or the document with the key ``topology``."""
    from kube_rdma.hardware.rules.node_picture import matrix
    from kube_rdma.hardware.views.topology import topology_document, topology_text
    from kube_rdma.lib.page import lines_of

    marks = matrix(survey)
    if output in out.DOCUMENTS:
        whole = document(judge(survey), survey, notes(survey))
        whole["topology"] = topology_document(survey, marks)
        out.show_document(whole, output)
    else:
        out.show((lines_of(topology_text(survey, marks)),))


def _nccl(sysfs: SysfsRoot | None) -> None:
    """Print NCCL's topology file of all RDMA devices of the node."""
    from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of
    from kube_rdma.attach.rules.settings import topology_file
    from kube_rdma.model.settings import PlacedNet

    survey = survey_at(sysfs)
    nets = [PlacedNet(device.name, device.position, device.numa_node) for device in survey.devices]
    click.echo(topology_file(nets, facts_of(nets, sysfs)), nl=False)


def _watch(sysfs: SysfsRoot | None, output: str) -> None:
    import asyncio

    from kube_rdma.adapters.kernel.netlink.events import RtnlEvents, Uevents
    from kube_rdma.hardware.survey import take_survey
    from kube_rdma.hardware.views.changes import SurveyChange, entry, line
    from kube_rdma.hardware.watch import watch

    if sysfs is not None:
        raise Refused(
            "a tree of files does not change by itself",
            remedy="Leave --sysfs out to watch this node",
            where="--watch",
        )

    def tell(changes: tuple[SurveyChange, ...]) -> None:
        now = datetime.now().astimezone()
        for change in changes:
            if output == "json":
                click.echo(json.dumps(entry(change, now)))
            else:
                out.show_sentence(line(change, now))

    async def follow() -> None:
        # Said from inside the loop: only here does Ctrl-C end it in order.
        click.echo("Watching this node's RDMA devices; Ctrl-C ends it.", err=True)
        await watch(take_survey, (Uevents(), RtnlEvents()), tell)

    with suppress(KeyboardInterrupt):
        asyncio.run(follow())


def _draw(sysfs: SysfsRoot | None, file: Path) -> None:
    """Write an SVG picture of the node's topology to a file."""
    from kube_rdma.hardware.recorded_survey import called
    from kube_rdma.hardware.rules.node_picture import node_topology
    from kube_rdma.hardware.views.topology import topology_svg

    name = "this node" if sysfs is None else called(sysfs)
    out.keep(topology_svg(node_topology(survey_at(sysfs)), name), file)
    out.show_sentence(f"{file}: the topology of {name}.")


def _record(sysfs: SysfsRoot | None, to: Path) -> None:
    import asyncio

    from kube_rdma.adapters.kernel.link_view import LinkView, recorded_links, recorded_routes
    from kube_rdma.adapters.kernel.netlink.rdma_read import read_links
    from kube_rdma.adapters.kernel.netlink.rtnl_read import read_default_routes
    from kube_rdma.adapters.kernel.sysfs.record import record
    from kube_rdma.doctor.beside_sysfs import read_beside_sysfs, write_beside_sysfs
    from kube_rdma.doctor.recorded import recorded_beside_sysfs

    if isinstance(sysfs, RecordedText):
        raise Refused(
            f"{sysfs.name} comes with kube-rdma and is no node",
            remedy="Leave --sysfs out to record this node",
            where="--record",
        )
    links: Callable[[], LinkView | None] = read_links
    routes: Callable[[], tuple[str, ...] | None] = read_default_routes
    if sysfs is not None:
        survey_at(sysfs)  # refuses what is not a tree
        links, routes = partial(recorded_links, sysfs), partial(recorded_routes, sysfs)
    files, faults = record(sysfs or _SYSFS, links, routes, to)
    beside = (
        asyncio.run(read_beside_sysfs(survey_at(None), _WATCHED))
        if sysfs is None
        else recorded_beside_sysfs(sysfs)
    )
    if beside is not None:
        write_beside_sysfs(beside, to)
        files += 1
    lines = (f"{to}: {files} files; kube-rdma devices --sysfs {to} shows them.",)
    left = (f"  not copied: {fault.path}: {fault.reason}" for fault in faults)
    out.show_sentence("\n".join((*lines, *left)))
