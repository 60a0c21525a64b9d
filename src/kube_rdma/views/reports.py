"""A cluster's health for people and programs: `kube-rdma status`.

First what runs where, then what is wrong with the next step, last one line that says it all. What
is wrong comes from rules/reports/cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import asdict
from kube_rdma.model.finding import Finding
from kube_rdma.model.node import NodeState
from kube_rdma.model.reports.cluster import ClusterFacts, ClusterHealth, ProgramPod, ProgramRole
from kube_rdma.model.reports.node_report import NodeReport
from kube_rdma.views.findings import counted, ended, not_seen_lines, titled
from kube_rdma.views.text import aligned, widths, wrapped

_NONE = "-"
_WELL, _ILL, _ADVICE, _UNKNOWN = "✓", "✗", "!", "?"
_PROGRAMS = ("", "PROGRAM", "NAME", "READY", "IMAGE")
_NODES = ("", "NODE", "AGENT", "CARDS", "SHARES HEALTHY", "ALLOCATABLE", "MODE", "VERSION")
_POLICIES = ("", "POLICY", "STATE")
_NODE_POLICIES = ("", "NODE POLICY", "NODES", "APPLIED", "PENDING", "REFUSED", "OVERRULED")
_POOLS = ("", "ADDRESSES", "USED", "FREE", "RANGES")
_FEW = 20  # rows of nodes without a problem: a thousand of them are no news


def status_text(facts: ClusterFacts, findings: Sequence[Finding], width: int = 100) -> str:
    """The whole; `width` (columns) wraps sentences, never a table."""
    marks = _marks(findings)
    blocks = [
        _table(_PROGRAMS, _program_rows(facts, marks)),
        _table(_NODES, _node_rows(facts, marks)),
        _rest(facts, marks),
        _table(_POLICIES, _policy_rows(facts, marks)),
        _table(_NODE_POLICIES, _node_policy_rows(facts, marks)),
        _table(_POOLS, _pool_rows(facts, marks)),
        [line for finding in findings for line in _lines(finding, width)],
        list(not_seen_lines(facts.not_seen, width, "read")),
        wrapped(_verdict(facts, findings), width, ""),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def status_document(
    facts: ClusterFacts, findings: Sequence[Finding], health: ClusterHealth
) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    reports, pods = facts.reports or {}, facts.agents
    return {
        "health": health.value,
        "problems": [
            {
                "code": each.code,
                "about": each.subject,
                "sentence": each.problem,
                "nextStep": each.remedy,
                "advice": not each.is_error,
            }
            for each in findings
        ],
        "unread": [{"what": each.part, "why": each.why} for each in facts.not_seen],
        "notInstalled": list(facts.missing),
        "programs": [
            {
                "role": each.role.value,
                "namespace": each.namespace,
                "name": each.name,
                "desired": each.desired,
                "ready": each.ready,
                "updated": each.updated,
                "image": each.image,
            }
            for each in facts.workloads or ()
        ],
        "nodes": [
            _node_document(node, reports.get(node.name), pods.get(node.name, ()))
            for node in facts.nodes or ()
        ],
        "policies": [asdict(each) for each in facts.policies or ()],
        "nodePolicies": [asdict(each) for each in facts.node_policies or ()],
        "addressPools": [asdict(each) for each in facts.pools or ()],
    }


def _marks(findings: Sequence[Finding]) -> Mapping[str, str]:
    """The mark of each object that something is wrong with."""
    marks: dict[str, str] = {}
    for finding in findings:
        if finding.subject:
            mark = _mark(finding)
            marks[finding.subject] = _ILL if _ILL in (mark, marks.get(finding.subject)) else mark
    return marks


def _mark(finding: Finding) -> str:
    return _ILL if finding.is_error else _ADVICE


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    """The lines of a table, none without rows."""
    every = [head, *rows]
    columns = widths(every)
    return [aligned(row, columns) for row in every] if len(every) > 1 else []


def _program_rows(facts: ClusterFacts, marks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for program in facts.workloads or ():
        kind = "daemonset" if program.role is ProgramRole.AGENT else "deployment"
        mark = marks.get(f"{kind}/{program.title}", _WELL)
        if program.ready < program.desired:
            mark = _ILL
        ready = f"{program.ready}/{program.desired}"
        yield mark, program.role.value, program.title, ready, program.image


def _shown(facts: ClusterFacts, marks: Mapping[str, str]) -> list[NodeState]:
    """The nodes that have something to show: those with a problem, then some without."""
    pods, reports = facts.agents, facts.reports or {}
    ours = [n for n in facts.nodes or () if n.name in pods or n.name in reports]
    ill = [node for node in ours if f"node/{node.name}" in marks]
    well = [node for node in ours if f"node/{node.name}" not in marks]
    return sorted((*ill, *well[:_FEW]), key=lambda node: node.name)


def _node_rows(facts: ClusterFacts, marks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    pods, reports = facts.agents, facts.reports or {}
    for node in _shown(facts, marks):
        agent = _agent(pods.get(node.name, ()))
        mark = _UNKNOWN if facts.hides_cards else _WELL
        if facts.pods is None:
            agent = _NONE
        elif node.name not in pods:
            mark = _ILL
        mark = marks.get(f"node/{node.name}", mark)
        yield mark, node.name, agent, *_report_cells(node, reports.get(node.name))


def _report_cells(node: NodeState, report: NodeReport | None) -> tuple[str, str, str, str, str]:
    if report is None:
        return (_NONE,) * 5
    allocatable = dict(node.allocatable)
    pools = report.pools
    return (
        f"{len(report.pooled) - len(report.ill)}/{len(report.pooled)}",
        ", ".join(map(str, pools)) or _NONE,
        ", ".join(str(allocatable.get(p.resource, 0)) for p in pools) or _NONE,
        ", ".join(dict.fromkeys(p.mode for p in pools)) or _NONE,
        report.version,
    )


def _agent(pods: Sequence[ProgramPod]) -> str:
    """How the agents of a node are: two are possible, for two examples beside each other."""
    if not pods:
        return "missing"
    ready = sum(pod.ready for pod in pods)
    if ready < len(pods):
        return "not ready" if not ready else f"{ready} of {len(pods)} ready"
    return "ready" if len(pods) == 1 else f"{ready} ready"


def _rest(facts: ClusterFacts, marks: Mapping[str, str]) -> list[str]:
    """Which nodes the table leaves out."""
    shown = len(_shown(facts, marks))
    pods, reports = facts.agents, facts.reports or {}
    ours = sum(node.name in pods or node.name in reports for node in facts.nodes or ())
    others = len(facts.nodes or ()) - ours
    lines = []
    if ours > shown:
        state = "not shown" if facts.hides_cards else "well"
        lines.append(f"{ours - shown} more nodes are {state}.")
    if others and ours:
        lines.append(f"{others} {'node has' if others == 1 else 'nodes have'} no agent.")
    return lines


def _policy_rows(facts: ClusterFacts, marks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for policy in facts.policies or ():
        mark = marks.get(f"nicclusterpolicy/{policy.title}", _WELL)
        yield mark, policy.title, policy.state or "unseen"


def _node_policy_rows(facts: ClusterFacts, marks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for policy in facts.node_policies or ():
        mark = marks.get(f"nodepolicy/{policy.name}", _WELL)
        counts = (policy.nodes, policy.applied, policy.pending, policy.refused, policy.overruled)
        yield mark, policy.name, *(str(n) if policy.seen else _NONE for n in counts)


def _pool_rows(facts: ClusterFacts, marks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for pool in facts.pools or ():
        mark = marks.get(f"ippool/{pool.name}", _WELL)
        yield mark, pool.name, pool.used or _NONE, pool.free or _NONE, pool.ranges or _NONE


def _lines(finding: Finding, width: int) -> Iterator[str]:
    """Its code and object, the sentence, and the next step below it."""
    yield titled(_mark(finding), finding)
    yield from wrapped(f"    {ended(finding.problem)}", width, "    ")
    yield from wrapped(f"    → {ended(finding.remedy)}", width, "      ")


def _verdict(facts: ClusterFacts, findings: Sequence[Finding]) -> str:
    wrong = sum(one.is_error for one in findings)
    advice = len(findings) - wrong
    hints = f" {counted(advice, 'piece')} of advice." if advice else ""
    if wrong:
        more = counted(len(facts.not_seen), "part")
        rest = f" {more} could not be read." if facts.not_seen else ""
        return f"{counted(wrong, 'problem')}.{rest}{hints}"
    if facts.not_seen:
        count = counted(len(facts.not_seen), "part")
        return f"No problem in what could be read; {count} could not be read.{hints}"
    if facts.is_unreported:
        return f"No problem in what could be read; no agent reports cards and pools.{hints}"
    return f"All is well.{hints}"


def _node_document(
    node: NodeState, report: NodeReport | None, pods: Sequence[ProgramPod]
) -> dict[str, object]:
    allocatable = dict(node.allocatable)
    made: dict[str, object] = {
        "name": node.name,
        "agents": [
            {"namespace": pod.namespace, "name": pod.name, "ready": pod.ready, "why": pod.why}
            for pod in pods
        ],
        "report": None,
    }
    if report:
        made["report"] = {
            "agentVersion": report.version,
            "cards": len(report.pooled),
            "healthy": len(report.pooled) - len(report.ill),
            "pools": [
                asdict(pool) | {"allocatable": allocatable.get(pool.resource, 0)}
                for pool in report.pools
            ],
        }
    return made
