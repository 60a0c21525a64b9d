"""What the disks of a node have to say: a record, and the files of it, for whoever lives.

Records are compared with what the kernel and the kubelet show of the same pod: each names what the
pod has, nothing more, and two never name the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chaos.finding import Account, Discrepancy, Thing, repeated
from chaos.kernel_rules import explains, in_use
from chaos.seen import Seen, SeenBinding, SeenClaim, SeenNode, SeenPod

CLAIM_FILE = "kube-rdma_claim-"
START_FILE = "kube-rdma-start-"


def judge(
    node: SeenNode,
    pods: Mapping[str, SeenPod],
    living: frozenset[str],
    seen: Seen,
) -> Iterable[Discrepancy]:
    """What is wrong on the disks of a node; `pods` are those of the load there, by uid."""
    account = Account(node.name)
    for name in node.unreadable:
        account.lost(Thing.RECORD, f"{name} cannot be read")
    if not node.is_chained:
        account.lost(Thing.CNI, "kube-rdma is in no configuration of the runtime")
    _addresses(account, node, pods, living, seen)
    _attachments(account, node, pods, living)
    _shares(account, node, pods, living)
    claims = {claim.uid: claim for claim in seen.claims if claim.owner in living}
    _claims(account, node, pods, claims)
    _cdi(account, node, _excused_files(node, pods, seen))
    _settings(account, node)
    return account


def _addresses(
    account: Account,
    node: SeenNode,
    pods: Mapping[str, SeenPod],
    living: frozenset[str],
    seen: Seen,
) -> None:
    """Each record is of a living pod whose kernel has these addresses, and the other way round."""
    for booking in node.bookings:
        if booking.pod not in living:
            texts = ", ".join(booking.addresses)
            account.leaked(Thing.ADDRESS, f"{texts} of pod {booking.pod}, which is gone")
    for text in repeated(text for booking in node.bookings for text in booking.addresses):
        account.doubled(Thing.ADDRESS, f"{text} is in two records")
    used = dict(in_use(node, seen))
    recorded = {text for booking in node.bookings for text in booking.addresses}
    for text in sorted({*used} - recorded):
        account.lost(Thing.RECORD, f"{text} is in {used[text].name} and in no record")
    for booking in node.bookings:
        pod = pods.get(booking.pod)
        if pod and pod.is_ready and not explains(pod):
            for text in sorted({*booking.addresses} - {*used}):
                account.lost(Thing.ADDRESS, f"{text} of pod {pod.name} is in no namespace")


def _attachments(
    account: Account, node: SeenNode, pods: Mapping[str, SeenPod], living: frozenset[str]
) -> None:
    """Each is of a living pod; a Ready one has one, with as many interfaces as it asked for."""
    for record in node.attachments:
        if record.pod not in living:
            account.leaked(Thing.RECORD, f"attachment {record.container} of pod {record.pod}")
    for uid in repeated(record.pod for record in node.attachments):
        account.doubled(Thing.RECORD, f"pod {uid} has two attachments")
    by_pod = {record.pod: record for record in node.attachments}
    for uid, pod in pods.items():
        if pod.is_ready:
            count = len(by_pod[uid].interfaces) if uid in by_pod else 0
            if count < pod.interfaces:
                text = (
                    f"pod {pod.name} has {count} of {pod.interfaces} interfaces in its attachment"
                )
                account.lost(Thing.RECORD, text)


def _shares(
    account: Account, node: SeenNode, pods: Mapping[str, SeenPod], living: frozenset[str]
) -> None:
    """Bindings are of living pods, no share is in two, and the kubelet says the same."""
    by_kubelet = [(held.pod, held.share) for held in node.kubelet if held.pod in living]
    for binding in node.bindings:
        if binding.pod not in living:
            texts = ", ".join(binding.shares)
            account.leaked(Thing.SHARE, f"{texts} of pod {binding.pod}, which is gone")
    # A promise of before may stand for the same share of the same pod
    # (attach/rules/late_binding).
    bound = {(share, binding.pod) for binding in node.bindings for share in binding.shares}
    for share in repeated(share for share, _ in sorted(bound)):
        account.doubled(Thing.SHARE, f"{share} is bound to two pods")
    for share in repeated(share for _, share in by_kubelet):
        account.doubled(Thing.SHARE, f"{share} has two pods, says the kubelet")
    for pod in pods.values():
        if pod.is_ready and not pod.by_claim:
            _shares_of(account, pod, node)
    # The kubelet forgets a pod with its next allocation, and the promise goes with it.
    held = {each.share for each in node.kubelet}
    nonces = {binding.nonce for binding in node.bindings}
    for promise in node.promises:
        if promise.nonce not in nonces and not held & {*promise.shares}:
            account.leaked(Thing.SHARE, f"promise {promise.nonce} of {', '.join(promise.shares)}")


def _shares_of(account: Account, pod: SeenPod, node: SeenNode) -> None:
    """A Ready pod has as many shares as it asked for, the same in both records."""
    held = [each for each in node.kubelet if each.pod == pod.uid]
    recorded = {share for each in node.bindings if each.pod == pod.uid for share in each.shares}
    if len(held) != pod.interfaces:
        text = f"pod {pod.name} has {len(held)} of {pod.interfaces} at the kubelet"
        account.lost(Thing.SHARE, text)
    for share in sorted({each.share for each in held if each.is_late} - recorded):
        account.lost(Thing.SHARE, f"{share} of pod {pod.name} is in no record")


def _claims(
    account: Account,
    node: SeenNode,
    pods: Mapping[str, SeenPod],
    claims: Mapping[str, SeenClaim],
) -> None:
    """Prepared are the claims of living pods, and all of those that are Ready.

    A restore of etcd takes claims from running pods, which are made others: a pod then has what the
    kubelet had prepared for it.
    """
    had = {each.uid: {*each.pods} & pods.keys() for each in node.kubelet_claims}
    for uid in node.claims:
        if uid not in claims and not had.get(uid):
            account.leaked(Thing.CLAIM, f"{uid} is prepared, and no living pod has it")
    served = {pod for uid in node.claims for pod in had.get(uid, ())}
    for uid, claim in claims.items():
        pod = pods.get(claim.owner)
        if pod and pod.is_ready and uid not in node.claims and pod.uid not in served:
            account.lost(Thing.CLAIM, f"{claim.name} of pod {pod.name} is not prepared")


def _bound_file(binding: SeenBinding) -> str:
    return f"kube-rdma-{binding.container}-{binding.nonce}.json"


def _excused_files(node: SeenNode, pods: Mapping[str, SeenPod], seen: Seen) -> frozenset[str]:
    """The CDI files of pods that were told to be deleted, for an interface went with its card."""
    informed = {uid for uid, pod in pods.items() if pod.has_lost_networks}
    bound = [_bound_file(one) for one in node.bindings if one.pod in informed]
    claimed = [f"{CLAIM_FILE}{claim.uid}.json" for claim in seen.claims if claim.owner in informed]
    return frozenset((*bound, *claimed))


def _cdi(account: Account, node: SeenNode, excused: frozenset[str]) -> None:
    """A file for each claim and each binding, and no other; its device nodes are there.

    Those of an interface that is gone are not; `excused` are files of pods that know it.
    """
    names = {each.name for each in node.cdi}
    bound = {*map(_bound_file, node.bindings)}
    claimed = {f"{CLAIM_FILE}{uid}.json" for uid in node.claims}
    starts = {f"{START_FILE}{each.nonce}.json" for each in node.promises}
    for name in sorted(names - bound - claimed - starts):
        account.leaked(Thing.CDI, f"{name} is of no record")
    for name in sorted((bound | claimed) - names):
        account.lost(Thing.CDI, f"{name} is not there")
    for file in (file for file in node.cdi if file.name not in excused):
        for path in sorted({*file.nodes} - {*node.device_nodes}):
            account.lost(Thing.CDI, f"{file.name} names {path}, which is not there")


def _settings(account: Account, node: SeenNode) -> None:
    """A folder of settings for each binding, each sandbox with claims, each claim."""
    bound = {f"{each.container}-{each.nonce}" for each in node.bindings}
    sandboxes = {f"claims/{each.container}" for each in node.attachments}
    claimed = {f"metadata/{uid}" for uid in node.claims}
    for name in sorted({*node.settings} - bound - sandboxes - claimed):
        account.leaked(Thing.SETTINGS, f"{name} is of no record")
    for name in sorted(bound - {*node.settings}):
        account.lost(Thing.SETTINGS, f"{name} is not there")
