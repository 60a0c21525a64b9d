"""Pods with cards on rails whose pairs have made-up figures, measured in the order of the rules."""

import random
from functools import partial

from kube_rdma.model import verify
from kube_rdma.verify.rules.pairs import retries, turns_of
from kube_rdma.verify.rules.pods import lonely, with_rails
from kube_rdma.verify.rules.suspects import rate, suspects

LINE, SLOW = 400.0, 195.0
NOISE = partial(random.Random, 1)  # noise that is the same each time


def device(rail):
    return f"mlx5_{rail}"


def pod(node, rails):
    """A node's pod with a device on each of these rails."""
    devices = tuple(verify.PodDevice(device(rail), gbps=LINE) for rail in rails)
    return verify.PairedPod(node, "default", f"pod-{node}", "", devices)


def pods(count, rails):
    """Nodes that all have the same rails."""
    return [pod(f"node-{number}", range(rails)) for number in range(count)]


def outcome(client, server, rail, figure):
    """`figure` None is a pair that failed."""
    names = client.by_rail[rail].name, server.by_rail[rail].name
    rows = () if figure is None else (verify.PerftestRow(65536, 5000, figure),)
    why = "" if rows else "no answer"
    return verify.PairOutcome(client.title, server.title, rail, names, LINE, rows, why)


def rated(among, is_bad, pairing=verify.Pairing.RING, figure=SLOW, noise=None):
    """All that a run measures and what it is worth; `is_bad` is of a title and a device.

    Bad figures are those of `figure`, None for failures; they stray by some percent, as real ones.
    """
    noise = noise or NOISE()

    def measured(turn):
        for client, server, rail in turn:
            names = client.by_rail[rail].name, server.by_rail[rail].name
            bad = is_bad(client.title, names[0]) or is_bad(server.title, names[1])
            if not bad:
                yield outcome(client, server, rail, LINE * noise.uniform(0.93, 0.99))
            else:
                yield outcome(client, server, rail, figure and figure * noise.uniform(0.96, 1.04))

    first = [each for turn in turns_of(pairing, among) for each in measured(turn)]
    again = retries(rate(first, verify.PairStandard()), among)
    every = [*first, *(each for turn in again for each in measured(turn))]
    return rate(every, verify.PairStandard())


def proof(among, is_bad, pairing=verify.Pairing.RING, figure=SLOW, left_out=()):
    """A whole run."""
    among = with_rails(among)
    pairs = rated(among, is_bad, pairing, figure)
    absent = (*left_out, *lonely(among))
    return verify.PairProof(verify.PerftestRun(), pairs, suspects(pairs), absent, pairing=pairing)
