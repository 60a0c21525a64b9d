"""Pages of commands that fold on a terminal, each as a value: what test_folded_pages renders."""

import asyncio
from functools import partial

from kube_base.frozen import replace
from kube_rdma.admission.views import Addition, CheckedObject, ManifestCheck, check_page
from kube_rdma.claims.rules.verdicts import explain_claim
from kube_rdma.claims.views import claim_page
from kube_rdma.explain.evidence import read_claim
from kube_rdma.explain.rules.pod import explain
from kube_rdma.explain.views import explain_page
from kube_rdma.ipam.views import Migration, findings_page, migration_page
from kube_rdma.migrate.node import look
from kube_rdma.migrate.rules.plan import plan
from kube_rdma.migrate.views import plan_page
from kube_rdma.model.finding import Finding, Severity, Stage
from kube_rdma.model.migrate import MigrationOptions
from kube_rdma.pools.views import node_page, specs_page
from kube_rdma.verify.views import PairTable, proof_page
from kube_rdma_selftest.report import report
from kube_rdma_selftest.table import Table, dry_run, summary
from kube_rdma_selftest.trial import TrialResult, TrialStage, Trouble
from tests.kit import claimed, explained
from tests.kit.opener import opener_of
from tests.kit.pod_networks import card
from tests.kit.rails import outcome, pods
from tests.unit.cli.test_migrate import World as MigratingWorld
from tests.unit.explain.rules.test_pod import container, evidence, template
from tests.unit.kube_rdma_selftest.test_choice import scene
from tests.unit.kube_rdma_selftest.test_table import BUSY, FUNCTION, LEFT, SYSTEM, TAKE
from tests.unit.pools.test_views import FULL, NODE, SHARED, TAKES
from tests.unit.reports.test_pages_of_512_cards import explanation
from tests.unit.verify.test_ring_page import RUNS

HEIGHT = 24
REFUSED = Finding(
    "rdma/hca",
    "no node has 9 shares of it that are healthy and free; the most that a node has are 2",
    remedy="Ask for 2 at most, or look with kube-rdma resources what there is",
    stage=Stage.SCHEDULER,
)


def _claim():
    opened = partial(explained.opener(claimed.waiting()), None)
    return claim_page(explain_claim(asyncio.run(read_claim("train", "two-cards", None, opened))))


def _planned():
    """A pod that does not exist yet, of two interfaces."""
    asked = replace(evidence("net,net"), template=template(container("main", 2)))
    return explain_page(explain(asked))


def _manifests():
    warning = Finding(
        "pod.yaml:12",
        "the pod asks for 2 shares of rdma/hca and names 1 network, so that a share stays unused",
        remedy="Name a network for each share, or ask for 1",
        severity=Severity.WARNING,
    )
    objects = (
        CheckedObject("pod.yaml:1", "Pod", "train/worker-0", "2 × rdma/hca, network train/rail-0"),
        CheckedObject("pod.yaml:30", "NetworkAttachmentDefinition", "train/rail-0", "a macvlan"),
        CheckedObject("pod.yaml:44", "Service", "train/web", ""),
    )
    added = Addition("pod.yaml:1", "the variable NCCL_IB_GID_INDEX of container main, 3")
    return check_page(ManifestCheck(objects, (warning,), (added,)))


def _addresses():
    """What `ip check` finds."""
    problem = "nodes node-1 and node-2 both hold 10.10.0.7 of pool rdma, so that pods may get it"
    rest = "pool rdma has 3 of 254 addresses left, and each node takes 8 at once"
    warning = Finding("", rest, severity=Severity.WARNING, code="full")
    return findings_page((warning, Finding("", problem, code="duplicate")))


def _taken_over():
    """What `ip migrate` would write."""
    kept = tuple(
        (f"10.0.0.{n}", "default", f"a-team/trainer-worker-{n}", "net1", f"node-{n}", "whereabouts")
        for n in (10, 9)
    )
    unmapped = "range 10.9.0.0/16 of team-b/old has exclude ranges that overlap each other"
    pools = (("whereabouts", "create"), ("rail-0", "update"))
    return migration_page(Migration(pools, kept, ("10.0.0.3",), (unmapped,)), is_done=False)


def _moved():
    """The commands of `migrate plan`."""

    async def made():
        options = MigrationOptions("", "reg.example.com/kube-rdma:0.1.0", "")
        async with opener_of(MigratingWorld().server)(None) as cluster:
            return plan_page(plan(await look(cluster, options), options))

    return asyncio.run(made())


def _rows():
    """Pairs as `verify --verbose` shows them, one by one."""
    among = pods(2, 2)
    table = PairTable(among, RUNS["a bad card"].run)
    rows = [outcome(*among, rail, figure) for rail, figure in ((0, 391.2), (1, None))]
    return (*table.head, *(block for row in rows for block in table.row(row)))


def _tried():
    """What `verify --hardware-selftest --yes` prints."""
    failed = TrialResult(FUNCTION, None, (Trouble(TrialStage.ATTACH, BUSY),))
    outcomes = (TrialResult(TAKE, 12.34), failed, LEFT)
    table = Table((TAKE, FUNCTION, LEFT))
    rows = tuple(block for one in outcomes for block in table.row(one))
    where = scene(card(2, virtual=True))
    return (*table.head, *rows, *summary(outcomes), *report(SYSTEM, where, outcomes))


def _unhealthy():
    """A pod that the scheduler refuses."""
    return explain_page(replace(explanation(), phase="", findings=(REFUSED,), shares=()))


# Each takes the columns of the terminal, which `verify` alone needs: it counts lines.
PAGES = {
    "config-check": lambda _: (
        *specs_page((SHARED, FULL), TAKES, ("mind the gap",), NODE),
        *node_page(NODE, "On this node"),
    ),
    "config-check-manifests": lambda _: _manifests(),
    "explain": lambda _: explain_page(explanation()),
    "explain-claim": lambda _: _claim(),
    "explain-planned": lambda _: _planned(),
    "explain-refused": lambda _: _unhealthy(),
    "ip-check": lambda _: _addresses(),
    "ip-migrate": lambda _: _taken_over(),
    "migrate-plan": lambda _: _moved(),
    "selftest": lambda _: dry_run((TAKE, FUNCTION, LEFT)),
    "selftest-yes": lambda _: _tried(),
    "verify": lambda columns: proof_page(RUNS["a bad rail"], columns, HEIGHT),
    "verify-verbose": lambda _: _rows(),
    "verify-well": lambda columns: proof_page(RUNS["all is well"], columns, HEIGHT),
}
