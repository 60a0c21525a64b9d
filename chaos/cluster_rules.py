"""What the API has to say: who holds each address, claims of living pods, all that is offered."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.finding import Account, Discrepancy, Thing, repeated
from chaos.kernel_rules import explains, in_use
from chaos.seen import Seen


def judge(seen: Seen, before: Seen, living: frozenset[str]) -> Iterable[Discrepancy]:
    """What is wrong in the cluster as a whole."""
    account = Account()
    _pods(account, seen)
    _used_twice(account, seen)
    _holdings(account, seen)
    _claims(account, seen, living)
    _offers(account, seen, before)
    _transfers(account, seen)
    return account


def _pods(account: Account, seen: Seen) -> None:
    """Every pod works or says why."""
    for pod in seen.pods:
        if not pod.is_ready and not pod.notes:
            account.silent(Thing.POD, f"{pod.name} is {pod.phase} and nothing says why")


def _used_twice(account: Account, seen: Seen) -> None:
    """No two namespaces of the cluster have one address."""
    used = (address for node in seen.nodes for address, _ in in_use(node, seen))
    for address in repeated(used):
        account.doubled(Thing.ADDRESS, f"{address} is in two places")


def _holdings(account: Account, seen: Seen) -> None:
    """An address is one node's, and whoever uses it is on that node."""
    names = {node.name for node in seen.nodes}
    holders: dict[str, str] = {}
    for holding in seen.holdings:
        if holding.node not in names:
            account.leaked(Thing.ADDRESS, f"{holding.block} is held by {holding.node}, no node")
        for address in holding.addresses:
            if holders.setdefault(address, holding.node) != holding.node:
                other = holders[address]
                account.doubled(Thing.ADDRESS, f"{address} is held by {other} and {holding.node}")
    for node in seen.nodes:
        for address, space in in_use(node, seen):
            if holders.get(address) != node.name:
                holder = holders.get(address, "nobody")
                text = f"{address} is in {space.name} of {node.name}, and {holder} holds it"
                account.lost(Thing.ADDRESS, text)


def _claims(account: Account, seen: Seen, living: frozenset[str]) -> None:
    """A claim has a living owner, a Ready pod its claim, and no share is given twice."""
    for claim in seen.claims:
        if claim.is_allocated and claim.owner not in living:
            account.leaked(Thing.CLAIM, f"{claim.name} is allocated, its pod is gone")
    for device in repeated(device for claim in seen.claims for device in claim.devices):
        account.doubled(Thing.CLAIM, f"{device} is given to two claims")
    owners = {claim.owner for claim in seen.claims if claim.is_allocated}
    for pod in seen.pods:
        if pod.by_claim and pod.is_ready and pod.uid not in owners:
            account.lost(Thing.CLAIM, f"pod {pod.name} is Ready and has none")


def _offers(account: Account, seen: Seen, before: Seen) -> None:
    """What was offered on the first day is offered, no matter who holds it; taints are as then."""
    now = {offer.node: offer for offer in seen.offers}
    for first in before.offers:
        offer = now.get(first.node)
        if offer is None:
            account.lost(Thing.OFFER, f"{first.node} offers nothing")
            continue
        if offer.shares != first.shares:
            text = f"{first.node} offers {offer.shares} shares, not {first.shares}"
            account.lost(Thing.OFFER, text)
        if offer.healthy < first.healthy:
            account.lost(Thing.OFFER, f"{first.node} reports {offer.healthy} cards as healthy")
        for card in sorted({*first.by_claims} - {*offer.by_claims}):
            account.lost(Thing.OFFER, f"{card} of {first.node} is in no slice")
        for taint in sorted({*offer.taints} - {*first.taints}):
            account.leaked(Thing.TAINT, f"{first.node} still has {taint}")
        for taint in sorted({*first.taints} - {*offer.taints}):
            account.lost(Thing.TAINT, f"{first.node} no longer has {taint}")


def _transfers(account: Account, seen: Seen) -> None:
    """Two Ready pods on a rail move bytes by verbs, or a pod of them says why not."""
    saying = {pod.name for pod in seen.pods if explains(pod)}
    for transfer in seen.transfers:
        if transfer.why and not saying & {transfer.server, transfer.client}:
            way = f"{transfer.client} to {transfer.server} over {transfer.card}"
            account.silent(Thing.TRANSFER, f"no bytes from {way}: {transfer.why}")
