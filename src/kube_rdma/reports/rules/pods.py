"""Why pods wait: for shares that no node has left, or for networks that cannot be made.

A part of reports/rules/cluster. Events outlive pods and their troubles by up to an hour, so only
those of pods that wait now count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from shlex import quote

from kube_rdma.model.finding import Finding
from kube_rdma.model.reports.cluster import ClusterEvent, ClusterFacts, WaitingPod

_OURS = ("kube-rdma", "rdma")  # words of an error of a sandbox that tell whose it is


def resources(facts: ClusterFacts) -> Mapping[str, int]:
    """The resources of all pools, with the healthy shares of all nodes."""
    healthy: dict[str, int] = {}
    for report in (facts.reports or {}).values():
        for pool in report.pools:
            healthy[pool.resource] = healthy.get(pool.resource, 0) + pool.healthy
    return healthy


def pod_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Each pod that waits for something of kube-rdma's, with the last word about it."""
    words = _last_words(facts.events or ())
    ours = resources(facts)
    others = _offered(facts).difference(ours)
    for pod in facts.waiting or ():
        yield from _shares(pod, words, ours, others)
        yield from _networks(pod, words)


def _offered(facts: ClusterFacts) -> frozenset[str]:
    """What nodes offer, of whatever program."""
    nodes = facts.nodes or ()
    return frozenset(name for node in nodes for name, count in node.allocatable if count)


def _last_words(events: Collection[ClusterEvent]) -> Mapping[tuple[str, str, str], str]:
    """The last note about each pod, by namespace, name and reason."""
    notes: dict[tuple[str, str, str], str] = {}
    for event in sorted(events, key=lambda each: each.last):
        if event.kind == "Pod":
            notes[event.namespace, event.name, event.reason] = event.note
    return notes


def _shares(
    pod: WaitingPod,
    words: Mapping[tuple[str, str, str], str],
    ours: Mapping[str, int],
    others: Collection[str],
) -> Iterator[Finding]:
    """A pod that no node has the shares for; not one that waits for what others offer, as GPUs."""
    note = words.get((pod.namespace, pod.name, "FailedScheduling"), "")
    short = [name for name in pod.resources if f"Insufficient {name}" in note]
    name = next((each for each in short if each in ours), short[0] if short else "")
    if pod.node or not name or name in others:
        return
    if ours.get(name):
        remedy = "End pods that hold shares, add nodes or cards, or raise the pool's shares"
        sentence = f"It waits for shares of {name}: {note}"
    elif name in ours:
        remedy = "Make a card of the pool healthy, or let its selectors choose cards"
        sentence = f"It waits for {name}, of which no node has a healthy share: {note}"
    else:
        sentence = f"It waits for {name}, which no node reports: {note}"
        remedy = "Compare the name with the pools of kubectl get nodereports, or install the "
        remedy += "program that offers it"
    yield Finding.of("PodWaitsForShares", f"pod/{pod.title}", sentence, remedy)


def _networks(pod: WaitingPod, words: Mapping[tuple[str, str, str], str]) -> Iterator[Finding]:
    """A pod whose sandbox fails for its networks."""
    note = words.get((pod.namespace, pod.name, "NetworksRefused"), "")
    if not note:
        sandbox = words.get((pod.namespace, pod.name, "FailedCreatePodSandBox"), "")
        note = sandbox if pod.networks and any(word in sandbox for word in _OURS) else ""
    if note:
        yield Finding.of(
            "PodWaitsForNetworks",
            f"pod/{pod.title}",
            f"Its networks cannot be made: {note}",
            f"Do what the sentence says; kubectl -n {quote(pod.namespace)} describe pod "
            f"{quote(pod.name)} has the rest",
        )
