"""Shows the resources of a cluster to the author of a pod: `kube-rdma resources`.

Tables of resources, classes, networks and names come first, then the lines to copy into a pod, last
what could not be seen. The values come from resources/rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from kube_base.frozen import asdict
from kube_base.plain_text import ended
from kube_rdma.lib import page
from kube_rdma.model.preflight import REQUEST
from kube_rdma.model.resources import CardClass, NamedResource, ResourceListing

_NONE = "-"
_RESOURCES = ("RESOURCE", "MODE", "NODES", "SHARES", "FREE", "ON A NODE", "USED HERE", "QUOTA LEFT")
_CLASSES = ("CLASS OF CLAIMS", "RESOURCE")
_NETWORKS = ("NETWORK", "RESOURCE", "FREE ADDRESSES")
_NAMES = ("NAMES OF ADDRESSES", "ADDRESSES", "READY")
_NOTHING = "No resource, class or network for RDMA cards"


def resources_page(listed: ResourceListing) -> page.Page:
    """Return the page of resources, classes and networks that a user may use."""
    is_empty = not (listed.resources or listed.classes or listed.networks)
    state = "could be seen" if listed.not_seen else "is there"
    nothing = (page.Line(f"{_NOTHING} {state}."),) if is_empty else ()
    addresses = ((one.title, one.resource or _NONE, one.free or _NONE) for one in listed.networks)
    return (
        _table(_RESOURCES, map(_resource_row, listed.resources)),
        _table(_CLASSES, ((one.name, one.resource or _NONE) for one in listed.classes)),
        _table(_NETWORKS, addresses),
        _kept(listed),
        _table(_NAMES, ((one.names, str(one.addresses), str(one.ready)) for one in listed.names)),
        *(
            (
                page.Sentence(_headline(one)),
                *_indented(pod_lines(one, listed)),
                *(page.Sentence(text) for text in _remarks(one, listed)),
            )
            for one in listed.resources
        ),
        *(
            (page.Line(f"As a claim of class {one.name}:"), *_indented(claim_lines(one, listed)))
            for one in listed.classes
            if not one.resource
        ),
        nothing,
        tuple(map(page.Sentence, _preflight(listed))),
        tuple(page.not_seen(listed.not_seen)),
    )


def resources_document(listed: ResourceListing) -> dict[str, object]:
    """Return the listing as JSON values. Keys are stable: none is renamed or removed."""
    return {
        "namespace": listed.namespace,
        "resources": [
            {
                "name": one.name,
                "modes": list(one.modes),
                "nodes": one.nodes,
                "shares": one.total,
                "free": one.free,
                "freeOnOneNode": one.most,
                "usedHere": one.used_here,
                "quotaLeft": one.quota,
                "byClaims": one.by_claims,
                "networks": list(one.networks),
                "write": "\n".join(pod_lines(one, listed)),
                "notes": list(_remarks(one, listed)),
            }
            for one in listed.resources
        ],
        "classes": [
            asdict(one) | {"write": "\n".join(claim_lines(one, listed))} for one in listed.classes
        ],
        "networks": [
            {"name": one.title, "resource": one.resource, "freeAddresses": one.free}
            for one in listed.networks
        ],
        "networksOfOthers": listed.kept_networks,
        "names": [asdict(one) for one in listed.names],
        "preflight": list(_preflight(listed)),
        "notSeen": [{"what": each.part, "why": each.why} for each in listed.not_seen],
    }


def pod_lines(resource: NamedResource, listed: ResourceListing) -> list[str]:
    """Return a pod with one share and its network as YAML; no lines if such a pod cannot work."""
    if _by_claims_alone(resource, listed) or (resource.needs_network and _lacks_network(resource)):
        return []
    key, value = resource.annotation or ("", "")
    annotations = ["  annotations:", f"    {key}: {quote(value)}"] if key else []
    return _pod(listed, [*annotations, "spec:"], f"limits: {{{resource.name}: 1}}")


def claim_lines(card_class: CardClass, listed: ResourceListing) -> list[str]:
    """Return the command that makes a claim template of a class, and a pod that uses it."""
    claims = ["spec:", "  resourceClaims:", "  - {name: rdma, resourceClaimTemplateName: rdma}"]
    served = [one.annotation if one.networks else None for one in listed.resources if one.by_claims]
    named = served[0] if len(served) == 1 else None  # else the class may have cards of another
    network = f" --network {quote(named[1])}" if named else ""
    return [
        f"# kube-rdma claim --class {quote(card_class.name)}{network} | kubectl apply -f -",
        *_pod(listed, claims, "claims: [{name: rdma}]"),
    ]


def _pod(listed: ResourceListing, middle: Sequence[str], resources: str) -> list[str]:
    """Return a sleeping pod as YAML; `middle` are lines between its name and its container."""
    lock = ["    securityContext:", "      capabilities: {add: [IPC_LOCK]}"]
    return [
        *("apiVersion: v1", "kind: Pod", "metadata:", "  name: rdma"),
        *middle,
        *("  containers:", "  - name: main"),
        f"    image: {listed.image or 'your-image'} # with your programs",
        "    command: [sleep, infinity]",
        *(lock if listed.locks else ()),
        *("    resources:", f"      {resources}"),
    ]


def _by_claims_alone(resource: NamedResource, listed: ResourceListing) -> bool:
    """Decide whether only a claim gives a share, as no DeviceClass has the resource's name."""
    return resource.by_claims and resource.name not in {one.resource for one in listed.classes}


def _lacks_network(resource: NamedResource) -> bool:
    """Decide whether a share that no claim serves comes without an annotation for a network."""
    return resource.annotation is None and not resource.by_claims


def _remarks(resource: NamedResource, listed: ResourceListing) -> Iterator[str]:
    """Yield sentences on a missing network, on shares by claims alone, and on idle quotas."""
    if _by_claims_alone(resource, listed):
        yield f"Claims alone give shares of {resource.name}: ask for a device of a class."
    if _lacks_network(resource) and resource.needs_network is not False:
        yield (
            f"No network that pods of {listed.namespace} may name is tied to {resource.name}: on "
            "Ethernet (RoCE) a pod without one cannot use its card. Ask your administrator for one "
            "(docs/networks.md)."
        )
    for key in resource.idle_quotas:
        yield f"{key} counts nothing: Kubernetes counts requests.{resource.name} alone."


def _preflight(listed: ResourceListing) -> Iterator[str]:
    """Yield how the pods of a gang measure before they start, where a controller lets them."""
    if listed.preflight:
        command = f"kube-rdma preflight lines --image {quote(listed.image or 'IMAGE')}"
        yield (
            f"Pods with the annotation {REQUEST}: ring measure their rails before they start. "
            f"Before Kubernetes 1.36 they also need what this prints: {command}"
        )


def _table(head: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> page.Block:
    """Return a table of these cells; an empty block without rows."""
    rows = tuple(map(page.PageRow, cells))
    return (page.PageTable(head, rows),) if rows else ()


def _resource_row(one: NamedResource) -> tuple[str, ...]:
    mode = ", ".join(one.modes) or _NONE
    counts = (one.nodes, one.total, one.free, one.most, one.used_here, one.quota)
    shown = (_NONE if count is None else str(count) for count in counts)
    return (one.name, f"{mode} by claims" if one.by_claims else mode, *shown)


def _kept(listed: ResourceListing) -> page.Block:
    """Return a sentence with the number of networks that the namespace may not name, if any."""
    if not listed.kept_networks:
        return ()
    count = page.counted(listed.kept_networks, "network")
    return (page.Sentence(f"{count} more: pods of {listed.namespace} may not name them."),)


def _headline(resource: NamedResource) -> str:
    """Return the heading of a resource's example, with the meaning of a share."""
    means = f" A share is {ended(resource.meaning)}" if resource.meaning else ""
    return f"For {resource.name}.{means}"


def _indented(lines: Sequence[str]) -> page.Block:
    return tuple(page.Line(f"    {line}") for line in lines)
