"""What happens to a number of agents in `scale`, step by step, and what is measured there.

    all come at once ─► rest ─► cards go ─► the configuration changes ─► a pod of eight NICs on
    each node ─► memory ─► the API server is killed and comes back

Requests and bytes are counted in the agents, the API server's work in its own metrics.
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
from kube_rdma_lab import cluster, switch
from kube_rdma_lab.lab import Lab

REST_SECONDS, SETTLE_SECONDS, AWAY_SECONDS = 300, 15, 5
MANY = 200  # agents; so many start over minutes, and their streams do not end together
CARDS_LOST = 5  # each on a node of its own
SHARES = 32  # of each card after the change of the configuration
TOLD = {
    "events": "event",
    "nodereports/status": "report",
    "resourceslices": "slice",
    "nodes/status": "condition",
}
CARD_ASKS = (*TOLD, "nodes")  # what a card makes an agent ask for; others renew leases meanwhile
AGENT_SECONDS, LATER_SECONDS = 20, 8
API = "kube-apiserver"

Step = Iterator[tuple[str, Measured]]


def steps(size: int, context: Context) -> Step:
    """All steps with so many agents in a fresh cluster; the key of each figure, and the figure."""
    names = [f"node-{number}" for number in range(size)]
    with site.site() as lab:
        site.make_nodes(lab, names)
        with site.controller(lab) as pid, fleet(lab, names) as agents:
            alone = site.api_server_mib(lab)
            yield from _start(lab, agents)
            time.sleep(context.times(SETTLE_SECONDS))
            rest = REST_SECONDS if size < MANY else REST_SECONDS / 3
            yield from _rest(lab, agents, pid, context.times(round(rest)))
            yield from _cards(agents)
            yield from _configuration(lab, agents)
            yield from _addresses(lab, agents)
            yield from _memory(lab, agents, pid, alone)
            with site.one_agent(lab, "one-agent") as own_agent:
                time.sleep(context.times(AGENT_SECONDS))
                yield (
                    "agent_mib",
                    Measured(site.resident(own_agent), "MiB", "", "a process, no cards"),
                )
            yield from _restart(lab, agents)


def _start(lab: Lab, agents: Fleet) -> Step:
    before = site.metrics(lab)
    answers = agents.tell("start")
    missing = [node for answer in answers for node in answer["missing"]]
    if missing:
        raise Unavailable(f"agents did not arrive, such as {missing[0]}")
    traffic, after = agents.traffic(), site.metrics(lab)
    times = sorted(second for answer in answers for second in answer["seconds"])
    per_agent = sum(traffic.requests.values()) / agents.count
    yield "start_seconds", Measured(times[-1], "s", "", f"median {median(times):.1f} s")
    counted = site.requests(after) - site.requests(before)
    note = f"{per_agent:.1f} of each agent; the API server counted {counted:.0f} ended ones of all"
    yield "start_requests", Measured(sum(traffic.requests.values()), "", "", note, grows=True)
    yield "start_lists", Measured(traffic.count("list"), "", "", "", grows=True)
    yield (
        "start_bytes",
        Measured(sum(traffic.answers.values()) / 1e6, "MB", "", "answers, without TLS", grows=True),
    )
    yield (
        "start_too_busy",
        Measured(
            traffic.count("429"), "", "", f"answers 429; by the API server {_delta(before, after)}"
        ),
    )
    yield "start_api_cpu", Measured(_cpu(before, after), "s", "", "of the API server", grows=True)


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
    note = f"a minute; {traffic.most(traffic.requests)} in {minutes:.1f} min"
    asked = sum(traffic.requests.values()) / minutes
    yield "rest_requests", Measured(asked, "/min", "", note, grows=True)
    yield "rest_lists", Measured(traffic.count("list") / minutes, "/min")
    changes = sum(traffic.changes.values()) / minutes / 1e3
    yield "rest_watch_bytes", Measured(changes, "kB/min", "", _note(traffic.changes), grows=True)
    api = _cpu(before, after) / minutes / 60
    yield "rest_api_cpu", Measured(api, "", "", "of one processor", grows=True)
    own = (cpu(pid) - controller) / minutes / 60
    yield "rest_controller_cpu", Measured(own, "", "", "of one processor", grows=True)


def _note(counter: dict[str, int]) -> str:
    largest = sorted(counter.items(), key=lambda pair: -pair[1])[:3]
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
    """A NodePolicy changes; every node's slices and report change with it."""
    time.sleep(SETTLE_SECONDS)  # a report is written 5 s after the last one at the soonest
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
    time.sleep(LATER_SECONDS)  # conditions of nodes, and the policy's status
    traffic, after = agents.traffic(), site.metrics(lab)
    per_agent = sum(traffic.requests.values()) / agents.count
    yield (
        "change_requests",
        Measured(
            sum(traffic.requests.values()), "", "", f"{per_agent:.1f} of each agent", grows=True
        ),
    )
    changes = sum(traffic.changes.values()) / 1e6
    yield "change_watch_bytes", Measured(changes, "MB", "", _note(traffic.changes), grows=True)
    yield "change_api_cpu", Measured(_cpu(before, after), "s", "", "of the API server", grows=True)


def _addresses(lab: Lab, agents: Fleet) -> Step:
    """All nodes at once get a pod with eight NICs."""
    agents.traffic()
    before = site.metrics(lab)
    answers = agents.tell("addresses")
    time.sleep(LATER_SECONDS)  # the last changes are under way to all
    traffic, after = agents.traffic(), site.metrics(lab)
    times = sorted(second for answer in answers for second in answer["seconds"])
    note = f"the slowest of {len(times)} pods with 8 NICs; median {median(times):.2f} s"
    yield "pods_at_once_seconds", Measured(times[-1], "s", "", note)
    writes = traffic.count("create", "ipblocks") + traffic.count("update", "ipblocks")
    yield (
        "pods_block_writes",
        Measured(
            writes + traffic.count("ipblocks", "409"), "", "", "lost races count twice", grows=True
        ),
    )
    blocks = traffic.changes["ipblocks"] / 1e6
    yield (
        "pods_block_watch_bytes",
        Measured(
            blocks, "MB", "", f"{blocks / agents.count * 1000:.0f} kB of each agent", grows=True
        ),
    )
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
