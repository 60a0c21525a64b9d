"""What happens to a number of agents in `scale`, step by step, and what is measured there.

    all come ─► rest ─► cards go ─► the configuration changes ─► a pod of eight NICs on one node ─►
    on each ─► memory ─► all come again ─► the API server is killed and comes back

Requests and bytes are counted in the agents, the API server's work in its own metrics. A step ends
with an event, not after a time; the rest alone takes as long as a stream, and with the largest
number of agents alone, for what an agent asks at rest does not depend on others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from statistics import median

from bench import scale_site as site
from bench.context import Context
from bench.operator import cpu
from bench.scale_fit import Measured
from bench.scale_fleet import Fleet, fleet
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, switch, waiting
from kube_rdma_lab.lab import Lab

REST_SECONDS, AWAY_SECONDS = 300, 5
ARRIVED = ("nodereports/status", "nodes/status", "resourceslices", "leases")  # written by each
BACK = ("nodereports/status", "leases")  # by one that was there before
CARDS_LOST = 5  # each on a node of its own
SHARES = 32  # of each card after the change of the configuration
TOLD = {
    "events": "event",
    "nodereports/status": "report",
    "resourceslices": "slice",
    "nodes/status": "condition",
}
ADDRESS_KINDS = ("ipblocks", "ippools")
CARD_ASKS = (*TOLD, "nodes")  # what a card makes an agent ask for; others renew leases meanwhile
AGENT_SECONDS = 20
API = "kube-apiserver"

Step = Iterator[tuple[str, Measured]]


def steps(size: int, context: Context, *, largest: bool) -> Step:
    """All steps with so many agents in a fresh cluster; the key of each figure, and the figure."""
    names = [f"node-{number}" for number in range(size)]
    with site.site() as lab:
        site.make_nodes(lab, names)
        with site.controller(lab) as pid, fleet(lab, names) as agents:
            alone = site.api_server_mib(lab)
            yield from _start(lab, agents)
            if largest:
                yield from _rest(lab, agents, pid, context.times(REST_SECONDS))
            yield from _cards(agents)
            yield from _configuration(lab, agents)
            yield from _pod(lab, agents)
            yield from _addresses(lab, agents)
            yield from _memory(lab, agents, pid, alone)
            if largest:
                with site.one_agent(lab, "one-agent") as own_agent:
                    time.sleep(context.times(AGENT_SECONDS))
                    mib = site.resident(own_agent)
                yield "agent_mib", Measured(mib, "MiB", "", "a process, no cards")
            yield from _again(agents)
            yield from _restart(lab, agents)


def _start(lab: Lab, agents: Fleet) -> Step:
    before = site.metrics(lab)
    times, each = _come(agents, *ARRIVED)
    traffic, after = agents.traffic(), site.metrics(lab)
    per_agent = sum(traffic.requests.values()) / agents.count
    note = f"a few at a time; each takes {median(each):.1f} s, the slowest {max(each):.1f} s"
    yield "start_seconds", Measured(max(times), "s", "", note)
    counted = site.requests(after) - site.requests(before)
    note = f"{per_agent:.1f} of each agent; the API server counted {counted:.0f} ended ones of all"
    yield "start_requests", Measured(sum(traffic.requests.values()), "", "", note, grows=True)
    yield "start_lists", Measured(traffic.count("list"), "", "", "", grows=True)
    answers, changes = (sum(each.values()) / 1e6 for each in (traffic.answers, traffic.changes))
    note = f"answers, without TLS; {_note(traffic.answers)}"
    yield "start_bytes", Measured(answers, "MB", "", note, grows=True)
    note = f"beside them; {_note(traffic.changes)}"
    yield "start_watch_bytes", Measured(changes, "MB", "", note, grows=True)
    yield (
        "start_too_busy",
        Measured(
            traffic.count("429"), "", "", f"answers 429; by the API server {_delta(before, after)}"
        ),
    )
    yield "start_api_cpu", Measured(_cpu(before, after), "s", "", "of the API server", grows=True)


def _come(agents: Fleet, *wanted: str) -> tuple[list[float], list[float]]:
    """Let all come, a few at a time; seconds until each was there since the first and itself."""
    answers = agents.tell("start", *wanted)
    if missing := [node for answer in answers for node in answer["missing"]]:
        raise Unavailable(f"agents did not arrive, such as {missing[0]}")
    since, each = ([s for one in answers for s in one[key]] for key in ("seconds", "each"))
    return since, each


def _again(agents: Fleet) -> Step:
    """All end and come back, as after an upgrade; each node has its slices, report and blocks."""
    agents.tell("stop")
    agents.traffic()
    _come(agents, *BACK)
    traffic = agents.traffic()
    counted = traffic.answers + traffic.changes
    size, requests = sum(counted.values()) / 1e6, sum(traffic.requests.values())
    note = f"answers and watch events of {requests} requests; {_note(counted, 6)}"
    yield "start_bytes_with_blocks", Measured(size, "MB", "≤ 500 at 5,000", note, grows=True)


def _delta(before: str, after: str) -> str:
    return f"{site.rejected(after) - site.rejected(before):.0f}"


def _cpu(before: str, after: str) -> float:
    name = "process_cpu_seconds_total"
    return site.value(after, name) - site.value(before, name)


def _rest(lab: Lab, agents: Fleet, pid: int, seconds: float) -> Step:
    agents.traffic()
    before, controller, begin = site.metrics(lab), cpu(pid), time.monotonic()
    time.sleep(seconds)
    traffic, after = agents.traffic(), site.metrics(lab)
    minutes = (time.monotonic() - begin) / 60
    asked = sum(traffic.requests.values()) / minutes
    of_each = f"{asked / agents.count:.3g} of each agent"
    note = f"{of_each}; {traffic.most(traffic.requests)} in {minutes:.1f} min"
    yield "rest_requests", Measured(asked, "/min", "", note)
    yield "rest_lists", Measured(traffic.count("list") / minutes, "/min")
    changes = sum(traffic.changes.values()) / minutes / 1e3
    note = f"{changes / agents.count:.3g} of each agent; {_note(traffic.changes)}"
    yield "rest_watch_bytes", Measured(changes, "kB/min", "", note)
    api = _cpu(before, after) / minutes / 60
    yield "rest_api_cpu", Measured(api, "", "", "of one processor")
    own = (cpu(pid) - controller) / minutes / 60
    yield "rest_controller_cpu", Measured(own, "", "", "of one processor")


def _note(counter: dict[str, int], count: int = 3) -> str:
    largest = sorted(counter.items(), key=lambda pair: -pair[1])[:count]
    return "most: " + ", ".join(f"{kind} {count / 1e3:.0f} kB" for kind, count in largest)


def _cards(agents: Fleet) -> Step:
    """One after the other, so none waits for another."""
    lost = [agents.tell_one("card", n) for n in range(min(CARDS_LOST, agents.sizes[0]))]
    for resource, name in TOLD.items():
        times = [each[resource] * 1000 for each in lost if resource in each]
        if len(times) < len(lost):
            raise Unavailable(f"{len(lost) - len(times)} of {len(lost)} cards had no {name}")
        note = f"median of {len(times)} cards; the slowest {max(times):.0f} ms"
        yield f"card_to_{name}_ms", Measured(median(times), "ms", "", note)
    traffic = agents.traffic()
    asked = Counter({k: n for k, n in traffic.requests.items() if k.split()[1] in CARD_ASKS})
    per_card = sum(asked.values()) / len(lost)
    yield "card_requests", Measured(per_card, "", "", f"of a card; {traffic.most(asked)}")


def _configuration(lab: Lab, agents: Fleet) -> Step:
    """A NodePolicy changes; every node's slices and report change with it, then its status."""
    agents.traffic()
    agents.tell("mark")
    before, begin = site.metrics(lab), time.monotonic()
    cluster.apply(lab, site.policy(SHARES))
    for resource, name in (("resourceslices", "slices"), ("nodereports/status", "reports")):
        answers = agents.tell("each", resource)
        if missing := sum(answer["missing"] for answer in answers):
            raise Unavailable(f"{missing} nodes wrote no {name} after the change")
        last = max(moment for answer in answers for moment in answer["times"])
        yield f"change_last_{name}_s", Measured(last - begin, "s")
    waiting.until(lab, "the policy's status", lambda: site.is_rolled_out(lab, agents.count))
    note = "until the policy's status says that all nodes have applied it"
    yield "change_ready_s", Measured(time.monotonic() - begin, "s", "", note)
    agents.tell("quiet", "nodepolicies", "resourceslices", "nodereports", "nodes")
    traffic, after = agents.traffic(), site.metrics(lab)
    per_agent = sum(traffic.requests.values()) / agents.count
    note = f"{per_agent:.1f} of each agent"
    yield (
        "change_requests",
        Measured(sum(traffic.requests.values()), "", "", note, grows=True),
    )
    changes = sum(traffic.changes.values()) / 1e6
    yield "change_watch_bytes", Measured(changes, "MB", "", _note(traffic.changes), grows=True)
    yield "change_api_cpu", Measured(_cpu(before, after), "s", "", "of the API server", grows=True)


def _pod(lab: Lab, agents: Fleet) -> Step:
    """One node gets a pod with eight NICs: what all nodes receive of it, then of the pool."""
    agents.tell("quiet", *ADDRESS_KINDS)
    agents.tell("mark")
    agents.traffic()
    agents.tell_one("address", 0)
    agents.tell("quiet", "ipblocks")
    if not all(answer["well"] for answer in agents.tell("told", "ippools")):
        raise Unavailable("not all agents were told of the pool's status")
    changes = agents.traffic().changes
    note = "events of blocks, of all agents; one node's pod with 8 NICs"
    yield "pod_watch_bytes", Measured(changes["ipblocks"] / 1e3, "kB", "≤ 20", note, grows=True)
    status = changes["ippools"] / 1e3
    note = "one write of its status, sent to all agents; at most 50 events a second"
    yield "pool_status_watch_bytes", Measured(status, "kB", "", note, grows=True)


def _addresses(lab: Lab, agents: Fleet) -> Step:
    """All nodes at once get a pod with eight NICs."""
    agents.traffic()
    before = site.metrics(lab)
    answers = agents.tell("addresses")
    agents.tell("quiet", "ipblocks")
    traffic, after = agents.traffic(), site.metrics(lab)
    times = sorted(second for answer in answers for second in answer["seconds"])
    note = f"the slowest of {len(times)} pods with 8 NICs; median {median(times):.2f} s"
    yield "pods_at_once_seconds", Measured(times[-1], "s", "", note)
    writes = traffic.count("create", "ipblocks") + traffic.count("update", "ipblocks")
    note = f"lost races count twice; {traffic.count('ipblocks', '409')} of them"
    writes += traffic.count("ipblocks", "409")
    yield "pods_block_writes", Measured(writes, "", "", note, grows=True)
    blocks = traffic.changes["ipblocks"] / 1e6
    note = f"{blocks / agents.count * 1000:.3g} kB of each agent"
    yield "pods_block_watch_bytes", Measured(blocks, "MB", "", note, grows=True)
    yield "pods_api_cpu", Measured(_cpu(before, after), "s", "", "of the API server", grows=True)


def _memory(lab: Lab, agents: Fleet, pid: int, alone: float) -> Step:
    """`alone`: MiB that the API server had before the agents came."""
    own = site.resident(pid)
    yield "controller_mib", Measured(own, "MiB", "", "with all of it")
    peak = site.resident(pid, "VmHWM")
    yield "controller_peak_mib", Measured(peak, "MiB", "≤ 150", "the most that it had")
    api = site.api_server_mib(lab)
    note = f"{api:.0f} MiB in all; garbage of the start is in it"
    yield "api_server_added_mib", Measured(api - alone, "MiB", "", note, grows=True)
    simulated = agents.memory()
    note = f"of all processes of agents, {simulated / agents.count:.1f} MiB each"
    yield "simulated_mib", Measured(simulated, "MiB", "", note)


def _restart(lab: Lab, agents: Fleet) -> Step:
    """Killed; back after some seconds."""
    agents.traffic()
    switch.turn(lab.home, "kill", API)
    time.sleep(AWAY_SECONDS)
    begin = time.monotonic()
    switch.turn(lab.home, "start", API)
    site.until_ready(lab)
    ready = time.monotonic()
    answers = agents.tell("streams")
    if not all(answer["well"] for answer in answers):
        raise Unavailable("not all watches came back")
    away = f"it was away for {ready - begin + AWAY_SECONDS:.0f} s"
    yield (
        "restart_seconds",
        Measured(time.monotonic() - ready, "s", "", f"from ready until all watches go on; {away}"),
    )
    traffic, after = agents.traffic(), site.metrics(lab)
    answered = sum(n for key, n in traffic.requests.items() if not key.endswith(" none"))
    note = f"{traffic.count('check')} ask for the version; {traffic.most(traffic.requests)}"
    yield "restart_requests", Measured(answered, "", "", note, grows=True)
    note = "watches that ended so and listed again"
    ended = sum(n for key, n in traffic.errors.items() if key.endswith(" 410"))
    yield "restart_expired", Measured(ended, "", "", note, grows=True)
    silent = traffic.count("none")
    yield "restart_unanswered", Measured(silent, "", "", "requests while it was away")
    yield "restart_too_busy", Measured(traffic.count("429"), "", "", "answers 429")
    name = "process_cpu_seconds_total"
    yield (
        "restart_api_cpu",
        Measured(
            site.value(after, name), "s", "", "of the API server, its own start too", grows=True
        ),
    )
