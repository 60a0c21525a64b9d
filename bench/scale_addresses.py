"""What 40,000 addresses ask of a real API server: eight NICs on each of 5,000 nodes.

The first and the last group are nodes with a journal, a lease and watches of their own
(kube_rdma_tools.address_load), which stay holders when their process has ended. What those between
hold is written for them (scale_holders.py). All ask as the cluster's administrator.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import scale_site as site
from bench.clients import expect, talking, tell
from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.operator import cpu
from bench.scale_fit import TARGET
from bench.scale_fleet import fleet
from bench.scale_holders import hold, report
from bench.scale_node import CARDS
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.lab import Lab

FEW, GROUP, PROCESSES = 50, 200, 2
MODEL = "model"  # a node whose report the others have too
LIST = "/apis/kube-rdma.io/v1alpha1/ipblocks"

Document = dict[str, Any]


def measure(context: Context) -> Iterator[Row]:
    """With another number of nodes where `--agents` says one."""
    nodes = FEW if context.short else max(context.agents, default=TARGET)
    yield from attempt("addresses", partial(addresses, nodes))


def addresses(nodes: int) -> Iterator[Figure]:
    """Give them, list them, start a controller anew, start an agent."""
    names = [f"node-{number}" for number in range(nodes)]
    with site.site() as lab:
        site.make_nodes(lab, [*names, MODEL])
        with fleet(lab, [MODEL]) as agents:
            agents.tell("start", "nodereports/status")
            report(lab.kubeconfig, names, MODEL)
        with tempfile.TemporaryDirectory(dir=lab.home) as journals:
            yield from _given(lab, names, Path(journals))
        yield from _listed(lab)
        yield from _controllers(lab, nodes)
        with site.one_agent(lab, "one-agent") as pid:
            time.sleep(20)
            memory = site.resident(pid)
        key = f"nics_{nodes * CARDS}_agent_mib"
        yield Figure(key, memory, "MiB", "", "a process, without cards")


def _given(lab: Lab, names: Sequence[str], journals: Path) -> Iterator[Figure]:
    """One group of nodes in an empty pool, one when all others hold their addresses."""
    key, group = f"nics_{len(names) * CARDS}", min(GROUP, len(names) // 3)
    first, between, last = names[:group], names[group:-group], names[-group:]
    early = _group(lab, first, journals)
    begin = time.monotonic()
    held = hold(lab.kubeconfig, between)
    note = f"by {len(between)} nodes, written for them in {time.monotonic() - begin:.0f} s"
    yield Figure(f"{key}_held", held, "", "", note)
    late = _group(lab, last, journals)
    given = [address for pod in (*early, *late) for address in pod["addresses"]]
    yield Figure(f"{key}_given", len(given), "", "", f"to {2 * group} nodes that ask")
    yield Figure(f"{key}_duplicates", len(given) - len(set(given)), "", "0", "among these")
    before, after = (sorted(pod["seconds"] * 1000 for pod in part) for part in (early, late))
    worst = f"of a pod with {CARDS} NICs, {group} at once; the slowest {after[-1]:.0f} ms"
    yield Figure(f"{key}_p50_ms", after[group // 2], "ms", "", worst)
    note = "median of the last nodes by that of the first"
    yield Figure(f"{key}_last_by_first", after[group // 2] / before[group // 2], "×", "", note)


def _group(lab: Lab, names: Sequence[str], journals: Path) -> list[Document]:
    """Let these nodes ask, all at once."""
    shares = [names[n::PROCESSES] for n in range(min(PROCESSES, len(names)))]
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(lab, share, journals)) for share in shares]
        for process in clients:
            expect(process, "ready")
        for process in clients:
            tell(process)
        parts = [json.loads(expect(process, "{")) for process in clients]
        for process in clients:  # all have what they asked for: they may end
            tell(process)
            process.wait()
    return [pod for part in parts for pod in part["pods"]]


@contextmanager
def _client(lab: Lab, names: Sequence[str], journals: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["-m", "kube_rdma_tools.address_load", "--pool", "scale", "--pods", "1"]
    words += ["--nics", str(CARDS), "--namespace", site.SPACE, "--journals", str(journals)]
    words += ["--kubeconfig", f"{lab.home}/pki/admin.kubeconfig", *names]
    with talking(site.inside(lab, *words)) as process:
        yield process


def _listed(lab: Lab) -> Iterator[Figure]:
    """All blocks as whoever starts reads them, and `kube-rdma ip list`, which reads everything."""
    begin = time.monotonic()
    text = cluster.kubectl(lab, "get", "--raw", LIST)
    seconds, items = time.monotonic() - begin, json.loads(text)["items"]
    holdings = sum(len(one["spec"]["holdings"]) for one in items)
    key = f"nics_{holdings * CARDS}"
    note = f"{len(items)} blocks, {holdings} holdings"
    yield Figure("blocks", len(items), "", "", note)
    yield Figure("blocks_list_mb", len(text) / 1e6, "MB", "", "what a list of all of them is")
    yield Figure("blocks_list_seconds", seconds, "s", "", "with kubectl")
    begin = time.monotonic()
    command = site.inside(lab, "-m", "kube_rdma.cli.main", "ip", "list")
    command += ["--kubeconfig", f"{lab.home}/pki/admin.kubeconfig"]
    subprocess.run(command, check=True, capture_output=True)
    yield Figure("ip_pools_seconds", time.monotonic() - begin, "s", "", f"`kube-rdma ip`; {key}")


def _controllers(lab: Lab, nodes: int) -> Iterator[Figure]:
    """The first one, then one that takes its place."""
    for word in ("first", "again"):
        _forget(lab)
        begin = time.monotonic()
        with site.controller(lab) as pid:
            waiting.until(lab, "the pool's status", lambda: _held(lab) >= nodes * CARDS)
            seconds, used = time.monotonic() - begin, cpu(pid)
            time.sleep(30)  # rounds of garbage collection and reports
            rest = (cpu(pid) - used) / 30
            peak = site.resident(pid, "VmHWM")
        note = "until it leads and has reported"
        yield Figure(f"controller_{word}_seconds", seconds, "s", "", note)
        yield Figure(f"controller_{word}_cpu_s", used, "s")
        yield Figure(f"controller_{word}_rest_cpu", rest, "", "", "of one processor, then")
        yield Figure(f"controller_{word}_peak_mib", peak, "MiB", "≤ 150", "the most that it had")


def _forget(lab: Lab) -> None:
    """Take away what the pool's status says, so that the next controller has to say it."""
    words = ("patch", "ippool", "scale", "--subresource=status", "--type=merge")
    cluster.kubectl(lab, *words, '-p={"status":{"used":""}}')


def _held(lab: Lab) -> int:
    """Addresses that the pool's status says nodes hold."""
    used = cluster.get(lab, "ippool", "scale").get("status", {}).get("used")
    return int(used.split()[0]) if used else 0
