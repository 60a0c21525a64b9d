"""`kube-rdma config`: what a configuration means, before a node has to live with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_base.frozen import Frozen, replace
from kube_rdma.cli import options
from kube_rdma.cli.output import (
    OUTPUT,
    ExitCode,
    ProgressLine,
    examples,
    show,
    show_document,
    tell,
)
from kube_rdma.cli.recorded import sysfs_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kube_base.errors import Refused
    from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
    from kube_rdma.admission.views import ManifestCheck
    from kube_rdma.lib.text.document import Document
    from kube_rdma.lib.text.typed import Config
    from kube_rdma.model.admission import AdmissionSettings
    from kube_rdma.model.finding import Finding
    from kube_rdma.pools.rules.pools import Clash
    from kube_rdma.pools.views import NodePools


class _Place(Frozen):
    """The node that configurations are checked on: this one, the recorded `sysfs`, or none.

    If the check is `strict`, a warning makes the command exit with 1.
    """

    sysfs: SysfsRoot | None
    node: bool
    node_name: str | None
    cluster: options.ClusterOptions
    strict: bool


_STDIN = "-"
_PARAMETERS = "claim-parameters"


@click.group()
def config() -> None:
    """Check configurations and manifests.

    `check` shows what a file means before you apply it. `schema` prints the JSON Schema of a
    format, for editors.
    """


@config.command(
    epilog=examples(
        "kube-rdma config check config.json",
        "kube-rdma config check --node config.json",
        "kube-rdma config check --sysfs dgx-like config.json",
        "kube-rdma config check pod.yaml network.yaml -o json",
    )
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@sysfs_option("Also show which cards the pools, or what the pods, have on another node.")
@options.flag_option("--node", help="Also show which cards the pools have on this node.")
@options.node_name_option(
    "Name of this node's Node object, for --node. Pools do not move cards that have its addresses."
)
@options.cluster_options()
@OUTPUT
@options.ADMISSION_SET
@options.flag_option("--strict", help="Exit with 1 for warnings too, as CI wants it.")
def check(
    files: tuple[str, ...],
    output: str,
    assignments: tuple[str, ...],
    *,
    sysfs: SysfsRoot | None,
    node: bool,
    node_name: str | None,
    cluster: options.ClusterOptions,
    strict: bool,
) -> None:
    """Show what files mean, or their faults.

    FILE is JSON or YAML; - is stdin. It has a configuration of pools, or manifests of any kind:
    pods, Deployments and Jobs, networks, IPPools, policies, BandwidthChecks, ConfigMaps,
    ResourceClaims and DeviceClasses. All files are judged together.

    Exits with 1 when two pools claim a card of the node that only one can have, with 3 when
    something is refused. Warnings change that with --strict alone.
    """
    from kube_base.errors import Refused
    from kube_rdma.admission.documents import pod_manifest as admission_settings
    from kube_rdma.admission.manifest_check import is_configuration
    from kube_rdma.lib.page import located
    from kube_rdma.model.finding import Finding

    if node and sysfs:
        raise click.UsageError("--node and --sysfs cannot be combined.")
    place = _Place(sysfs, node, node_name, cluster, strict)
    try:
        texts = [_text_of(name) for name in files]
        parts = [part for text in texts for part in _parts(text)]
        if len(parts) == 1 and isinstance(parts[0], Refused):
            raise parts[0]
        if len(files) == 1 and is_configuration(parts):
            _check_configuration(texts[0], place, output)
            return
        if node:
            raise click.UsageError("--node is for a configuration alone.")
        settings = admission_settings.load_settings(assignments, "--admission-set")
        _check_manifests(parts, settings, place, output)
    except Refused as error:
        if output != "json":
            raise
        errors = [located(one) for one in Finding.of_refused(error)]
        show_document({"errors": errors}, "json")
        sys.exit(ExitCode.REFUSED)


@config.command(
    epilog=examples(
        "kube-rdma config schema", "kube-rdma config schema node-policy > node-policy.json"
    )
)
@click.argument("dialect", required=False)
def schema(dialect: str | None) -> None:
    """Print the JSON Schema of a configuration.

    DIALECT is the format's name, such as node-policy, or claim-parameters, the parameters of
    ResourceClaims. Without it, the names of all formats are printed. Editors check and complete
    files with a schema.
    """
    from kube_rdma.claims.parameters import ClaimParametersObject
    from kube_rdma.pools.documents.config import DIALECTS, schema_text
    from kube_rdma.pools.views import formats_page

    if dialect is None:
        rows = [(name, entry.key, f"the format of {entry.of}") for name, entry in DIALECTS.items()]
        show(formats_page((*rows, (_PARAMETERS, "kind", "parameters of ResourceClaims"))))
    elif dialect in (*DIALECTS, _PARAMETERS):
        model = DIALECTS[dialect].model if dialect in DIALECTS else ClaimParametersObject
        click.echo(schema_text(model))
    else:
        names = ", ".join((*DIALECTS, _PARAMETERS))
        raise click.UsageError(f"There is no format {dialect}; the formats are {names}.")


class _Text(Frozen):
    """The content of a file, and the file's name for messages."""

    data: bytes
    source: str


def _text_of(name: str) -> _Text | Refused:
    """Return the content of a file, or the error for one that cannot be read."""
    from kube_rdma.lib.text import document, reader

    if name == _STDIN:
        return _Text(sys.stdin.buffer.read(), "stdin")
    try:
        with Path(name).open("rb") as file:
            return _Text(file.read(reader.MOST_OF_MANIFESTS + 1), name)
    except OSError as error:
        return document.unreadable(name, error)


def read_parts(name: str) -> Sequence[Document | Refused]:
    """Return the documents of a file, with an error in place of each unreadable one."""
    return _parts(_text_of(name))


def read_documents(name: str) -> Sequence[Document]:
    """Return the documents of a file; raise the error of the first that cannot be read."""
    documents = []
    for part in read_parts(name):
        if isinstance(part, Exception):
            raise part
        documents.append(part)
    return documents


def _parts(text: _Text | Refused) -> Sequence[Document | Refused]:
    """Return the documents of a file, with an error in place of each unreadable one."""
    from kube_base.errors import Refused
    from kube_rdma.lib.text.reader import read_all

    if isinstance(text, Refused):
        return (text,)
    try:
        return read_all(text.data, text.source)
    except Refused as refused:
        return (refused,)


def _check_configuration(text: _Text | Refused, place: _Place, output: str) -> None:
    """Show the pools of the configuration in a file, on a node if one is named."""
    from kube_rdma.hardware.recorded_survey import called
    from kube_rdma.lib.text.reader import read
    from kube_rdma.pools.config import judged
    from kube_rdma.pools.documents import config as api

    assert isinstance(text, _Text)
    configuration = judged(api.of_document(read(text.data, text.source)))
    on_node = _on_node(configuration, place) if place.node or place.sysfs else None
    title = "On this node" if place.sysfs is None else f"On the node of {called(place.sysfs)}"
    _show(configuration, on_node, title, output)
    if (on_node and on_node.clashes) or (place.strict and configuration.warnings):
        sys.exit(ExitCode.PROBLEM)


def _repair_policy(document: Document) -> str:
    from kube_rdma.lib.text.faults import validate
    from kube_rdma.repair.policy import RepairPolicy

    spec = validate(RepairPolicy, document).spec
    return f"{'' if spec.enforce else 'a dry run of '}taints for nodes with bad cards"


def _bandwidth_check(document: Document) -> str:
    from kube_rdma.lib.text.document import section
    from kube_rdma.verify.bandwidth_check import plan_of

    plan = plan_of(section(document, ("spec",)))
    what = "copies of a pod" if plan.template else "pods"
    return f"a measurement of {what}, pairs: {plan.pairing.value}"


_READERS = {
    ("kube-rdma.io", "RepairPolicy"): _repair_policy,
    ("kube-rdma.io", "BandwidthCheck"): _bandwidth_check,
}


def _check_manifests(
    parts: Sequence[Document | Refused], settings: AdmissionSettings, place: _Place, output: str
) -> None:
    """Show the meaning of manifests after their errors; exit with the code of the result."""
    from kube_rdma.admission.manifest_check import check as judge
    from kube_rdma.admission.views import check_document, check_page
    from kube_rdma.lib.page import sentences
    from kube_rdma.model.finding import Severity

    checked = judge(parts, settings, _READERS)
    if place.sysfs and not checked.errors:
        there = _on_machine(checked, parts, place.sysfs)
        checked = replace(checked, findings=(*there, *checked.findings))
    if output == "json":
        show_document(check_document(checked), "json")
    else:
        if checked.errors:
            show((tuple(sentences(checked.errors)),), err=True)
        show(check_page(checked), before="\n" if checked.errors else "")
    if checked.errors:
        sys.exit(ExitCode.REFUSED)
    if place.strict and any(one.severity is Severity.WARNING for one in checked.warnings):
        sys.exit(ExitCode.PROBLEM)


def _on_machine(
    checked: ManifestCheck, parts: Sequence[Document | Refused], sysfs: SysfsRoot
) -> Iterator[Finding]:
    """Yield what `explain` finds about each pod of manifests on a recorded node."""
    import asyncio

    from kube_rdma.explain.recorded import explain_recorded
    from kube_rdma.explain.rules.pod import explain
    from kube_rdma.hardware.recorded_survey import called
    from kube_rdma.model.finding import Stage

    said = {(one.code, one.problem) for one in checked.findings}
    for place, pod in checked.pods:
        evidence = asyncio.run(explain_recorded(pod, sysfs, parts))
        found = [one for one in evidence.findings if (one.code, one.problem) not in said]
        found += (one for one in explain(evidence).findings if one.stage is not Stage.ADMISSION)
        for one in found:
            yield replace(one, subject=f"{place}: on {called(sysfs)}: {one.subject}")


def _show(configuration: Config, on_node: NodePools | None, title: str, output: str) -> None:
    from kube_rdma.pools.rules.modes import MODES
    from kube_rdma.pools.rules.pools import with_defaults
    from kube_rdma.pools.views import functions_page, node_page, pools_document, specs_page

    specs = [with_defaults(spec) for spec in configuration.pools]
    if output == "json":
        document = pools_document(
            specs, configuration.rescan, configuration.warnings, on_node, configuration.functions
        )
        show_document(document, "json")
        return
    takes = {mode: row.takes.value for mode, row in MODES.items()}
    show(
        (
            *specs_page(specs, takes, configuration.warnings, on_node),
            *functions_page(configuration.functions),
            *(node_page(on_node, title) if on_node else ()),
        )
    )


def _own_addresses(place: _Place) -> Mapping[str, str]:
    """Return the node's own addresses, whose cards no pool may move; say if they are unknown."""
    import asyncio

    from kube_base.errors import KubeError
    from kube_rdma.hardware.survey import read_own

    try:
        if place.node_name:
            with ProgressLine("Asking the cluster for the node's addresses."):
                return asyncio.run(read_own(place.node_name, place.cluster.open()))
        why = "give --node-name"
    except KubeError as error:
        why = str(error)
    tell(f"The agent also spares cards with the node's own addresses, not known here: {why}")
    return {}


def _on_node(configuration: Config, place: _Place) -> NodePools:
    """Return the pools that a configuration gives on this node, or on a recorded one."""
    from kube_rdma.hardware.recorded_survey import survey_at
    from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
    from kube_rdma.pools.rules.selection import asked_uses, why_not
    from kube_rdma.pools.views import NodePools, PoollessCard

    moving = place.sysfs is None and asked_uses(configuration.pools)
    own = _own_addresses(place) if moving else {}
    survey = survey_at(place.sysfs, own=lambda: own)
    if moving:
        from kube_rdma.hardware.survey import with_uses

        survey = with_uses(survey)
    facts = NodeFacts(survey, node_cards(survey), configuration.pools, configuration.functions)
    verdict = evaluate(facts)
    functions = {
        card.function.position.pci: card.function for card in verdict.cards if card.function
    }
    taken = {card.id for pool in verdict.pools for card in pool.cards}
    left_out = tuple(
        PoollessCard(
            card,
            tuple(
                (spec.resource, why_not(spec, card, functions) or "")
                for spec in configuration.pools
            ),
        )
        for card in verdict.cards
        if card.id not in taken
    )
    return NodePools(
        verdict.pools,
        tuple(_sentences(clash for clash in verdict.clashes if clash.fatal)),
        (*_sentences(clash for clash in verdict.clashes if not clash.fatal), *verdict.beyond),
        left_out,
    )


def _sentences(clashes: Iterable[Clash]) -> Iterator[str]:
    """Yield a sentence for each two pools that have cards in common."""
    groups: dict[tuple[str, str], list[Clash]] = {}
    for clash in clashes:
        groups.setdefault((clash.first.resource, clash.second.resource), []).append(clash)
    for first, *others in groups.values():
        names = ", ".join(one.card.name for one in others)
        yield f"{first}; likewise {names}" if others else str(first)
