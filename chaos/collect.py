"""Reads a Seen from a lab: the nodes by `ip`, `rdma`, /proc and files, the API by kubectl.

No reader of kube-rdma takes part, so that one that errs is not believed twice. The forms of its
records are those of docs/decisions/0017; what they mean here stands in seen.py.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path, PurePath
from typing import Any

from chaos import load, setup
from chaos.seen import (
    KubeletClaim,
    KubeletShare,
    Seen,
    SeenAttachment,
    SeenBinding,
    SeenBooking,
    SeenCdiFile,
    SeenClaim,
    SeenHolding,
    SeenLink,
    SeenNamespace,
    SeenNode,
    SeenOffer,
    SeenPod,
    SeenPromise,
    SeenRule,
)
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

Document = Mapping[str, Any]
Section = tuple[list[str], list[str]]  # the words of its first line, the lines behind it

KINDS = "pods,events,resourceclaims,ipblocks,nodereports,resourceslices,nodes"
SCRIPT = Path(__file__).with_name("look.sh")
CHECKPOINT, CLAIMS_CHECKPOINT = "kubelet_internal_checkpoint", "dra_manager_state"
CDI_KIND = b"kube-rdma.io/"  # in an answer that names devices to come, of no other
DRIVER = "rdma.kube-rdma.io"
KERNELS_OWN = frozenset(("local", "main", "default"))  # tables that three rules of the kernel name
STANDING = frozenset(("macvlan", "ipvlan"))  # kinds of links that stand on another
BUS_ID = "resource.kubernetes.io/pciBusID"


def collect(lab: Lab) -> Seen:
    """What all nodes and the API show now; the nodes are asked at the same time."""
    script = SCRIPT.read_text()
    names = [spec.name for spec in lab.topology.nodes]
    with ThreadPoolExecutor() as pool:
        listed = pool.submit(cluster.get, lab, KINDS, "-A")
        texts = pool.map(lambda name: cluster.shell(lab, name, script), names)
        nodes = tuple(map(node_of, names, texts))
        objects = by_kind(listed.result()["items"])
    pods = objects["Pod"]
    return Seen(
        nodes=nodes,
        pods=tuple(_pods(pods, objects["Event"])),
        claims=tuple(map(_claim, objects["ResourceClaim"])),
        holdings=tuple(_holdings(objects["IPBlock"])),
        offers=tuple(_offers(objects)),
        others=tuple(pod["metadata"]["uid"] for pod in pods if not _is_ours(pod)),
        subnet=setup.SUBNET,
    )


def by_kind(items: Iterable[Document]) -> dict[str, list[Document]]:
    """Objects of several kinds, sorted; no kind of them is missing."""
    objects: dict[str, list[Document]] = defaultdict(list)
    for item in items:
        objects[item["kind"]].append(item)
    return objects


# --- a node ---------------------------------------------------------------------------------------


def node_of(name: str, text: str) -> SeenNode:
    """A node from what look.sh printed there."""
    parts = list(sections(text))
    plain = {words[0]: lines for words, lines in parts if len(words) == 1}
    files = {words[1]: "\n".join(lines) for words, lines in parts if words[0] == "file"}
    records, unreadable = _records(files)
    return SeenNode(
        name,
        namespaces=tuple(_namespaces(parts, _pods_by_namespace(plain["processes"]))),
        rdma=tuple(plain["rdma"]),
        device_nodes=tuple(f"/dev/infiniband/{each}" for each in plain["devices"]),
        bookings=tuple(map(_booking, records.get("booking", ()))),
        attachments=tuple(map(_attachment, records.get("attachment", ()))),
        bindings=tuple(map(_binding, records.get("binding", ()))),
        promises=tuple(map(_promise, records.get("promise", ()))),
        claims=tuple(each["claim"]["uid"] for each in records.get("prepared-claim", ())),
        unreadable=unreadable,
        cdi=tuple(_cdi(files)),
        settings=tuple(each for each in plain["settings"] if each not in ("claims", "metadata")),
        kubelet=tuple(_kubelet(files)),
        kubelet_claims=tuple(_kubelet_claims(files)),
        is_chained=bool(plain["chained"]),
    )


def sections(text: str) -> Iterator[Section]:
    """The parts of what look.sh printed."""
    words: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("@@ "):
            if words:
                yield words, lines
            words, lines = line.split()[1:], []
        elif line:
            lines.append(line)
    if words:
        yield words, lines


def _json(lines: list[str]) -> list[Document]:
    """What `ip -j` and its kin printed; nothing for a namespace that cannot be entered."""
    text = "\n".join(lines).strip()
    return list(json.loads(text)) if text else []


def _pods_by_namespace(lines: Iterable[str]) -> dict[str, set[str]]:
    """The pods with a process in each namespace, by its inode."""
    pods: dict[str, set[str]] = {}
    for line in lines:
        inode, _, pod = line.partition(" ")
        pods.setdefault(inode, set()).add(pod)
    return pods


def _namespaces(parts: list[Section], pods: Mapping[str, set[str]]) -> Iterator[SeenNamespace]:
    names: dict[int, str] = {}  # of the node's own interfaces, which it tells first, by index
    for index, (words, lines) in enumerate(parts):
        if words[0] == "netns":
            _, name, inode = words
            is_own = name == "-"
            links = [each for each in _json(lines) if each and each["ifname"] != "lo"]
            if is_own:
                names = {each.get("ifindex", 0): each["ifname"] for each in links}
            yield SeenNamespace(
                "" if is_own else name,
                () if is_own else tuple(sorted(pods.get(inode, ()))),
                tuple(_link(each, names) for each in links),
                tuple(_rules(_json(parts[index + 1][1]))),
                tuple(_routes(_json(parts[index + 2][1]))),
                tuple(_verbs(_json(parts[index + 3][1]))),
            )


def _verbs(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    """Devices with their interfaces; of those of other namespaces no interface is told."""
    return ((each["ifname"], each["netdev"]) for each in documents if "netdev" in each)


def _link(document: Document, names: Mapping[int, str]) -> SeenLink:
    addresses = tuple(
        f"{each['local']}/{each['prefixlen']}"
        for each in document.get("addr_info", ())
        if each.get("scope") == "global"
    )
    kind = document.get("linkinfo", {}).get("info_kind", "")
    is_up = "UP" in document["flags"]
    master = document.get("master", "")
    parent = names.get(document.get("link_index", 0), "") if kind in STANDING else ""
    return SeenLink(document["ifname"], kind, is_up, master, addresses, parent)


def _rules(documents: Iterable[Document]) -> Iterator[SeenRule]:
    for rule in documents:
        if rule["src"] != "all" or rule["table"] not in KERNELS_OWN:
            yield SeenRule(rule["src"], str(rule["table"]))


def _routes(documents: Iterable[Document]) -> Iterator[str]:
    """All but those that the kernel makes of an address."""
    for route in documents:
        if route.get("protocol") != "kernel" and route.get("table") != "local":
            way = f"dev {route.get('dev')} via {route.get('gateway')}"
            yield f"route {route['dst']} {way} in {route.get('table', 'main')}"


# --- its records ----------------------------------------------------------------------------------


def _records(files: Mapping[str, str]) -> tuple[dict[str, list[Document]], tuple[str, ...]]:
    """The records by their kind, and the names of those that are none."""
    records: dict[str, list[Document]] = {}
    unreadable = []
    for path, text in files.items():
        place = PurePath(path)
        if not path.startswith(f"{setup.JOURNALS}/") or place.suffix not in (".json", ".broken"):
            continue
        try:
            document = json.loads(text)
            records.setdefault(document["kind"], []).append(document["data"])
        except (ValueError, KeyError, TypeError):
            unreadable.append(f"{place.parent.name}/{place.name}")
    return records, tuple(unreadable)


def _booking(data: Document) -> SeenBooking:
    held = tuple(each["address"] for each in data["leases"] if not each["resting"])
    return SeenBooking(data["container"], data["pod"], held)


def _attachment(data: Document) -> SeenAttachment:
    interfaces = tuple(
        (plan["interface"], address["address"])
        for plan in data["plans"]
        for address in plan["addresses"]
    )
    sandbox = data["sandbox"]
    return SeenAttachment(sandbox["container"], sandbox["uid"], interfaces)


def _binding(data: Document) -> SeenBinding:
    return SeenBinding(data["nonce"], data["container"], data["uid"], tuple(data["shares"]))


def _promise(data: Document) -> SeenPromise:
    return SeenPromise(data["nonce"], tuple(data["shares"]))


def _cdi(files: Mapping[str, str]) -> Iterator[SeenCdiFile]:
    for path, text in files.items():
        if path.startswith("/run/cdi/"):
            try:
                devices = json.loads(text)["devices"]
            except (ValueError, KeyError):
                devices = []
            edits = (each["containerEdits"] for each in devices)
            nodes = {node["path"] for each in edits for node in each.get("deviceNodes", ())}
            yield SeenCdiFile(PurePath(path).name, tuple(sorted(nodes)))


def _kubelet(files: Mapping[str, str]) -> Iterator[KubeletShare]:
    """The kubelet's checkpoint (pkg/kubelet/cm/devicemanager/checkpoint)."""
    for path, text in files.items():
        if path.endswith(CHECKPOINT):
            for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ():
                is_late = CDI_KIND in b64decode(entry["AllocResp"])
                for shares in entry["DeviceIDs"].values():
                    for share in shares:
                        yield KubeletShare(entry["PodUID"], share, is_late)


def _kubelet_claims(files: Mapping[str, str]) -> Iterator[KubeletClaim]:
    """The kubelet's other checkpoint (pkg/kubelet/cm/dra/state/checkpoint.go)."""
    for path, text in files.items():
        if path.endswith(CLAIMS_CHECKPOINT):
            for entry in json.loads(json.loads(text)["Data"])["ClaimInfoStateList"] or ():
                yield KubeletClaim(entry["ClaimUID"], tuple(entry["PodUIDs"]))


# --- the API --------------------------------------------------------------------------------------


def _is_ours(pod: Document) -> bool:
    return load.LABEL in pod["metadata"].get("labels", {})


def _pods(pods: Iterable[Document], events: Iterable[Document]) -> Iterator[SeenPod]:
    notes: dict[str, list[str]] = {}
    for event in events:
        uid = event["involvedObject"].get("uid", "")
        if event.get("type") == "Warning":
            notes.setdefault(uid, []).append(f"{event['reason']}: {event.get('message')}")
    for pod in filter(_is_ours, pods):
        yield _pod(pod, tuple(notes.get(pod["metadata"]["uid"], ())))


def _pod(pod: Document, notes: tuple[str, ...]) -> SeenPod:
    metadata, status = pod["metadata"], pod["status"]
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    own = [each["message"] for each in conditions.values() if each.get("message")]
    states = (each.get("state", {}) for each in status.get("containerStatuses", ()))
    ends = (state["terminated"] for state in states if "terminated" in state)
    own += [f"{end.get('reason')}: exit code {end['exitCode']}" for end in ends]
    is_ready = conditions.get("Ready", {}).get("status") == "True"
    return SeenPod(
        metadata["uid"],
        metadata["name"],
        pod["spec"].get("nodeName", ""),
        int(metadata["annotations"][load.INTERFACES]),
        bool(pod["spec"].get("resourceClaims")),
        status["phase"],
        is_ready and "deletionTimestamp" not in metadata,
        (*notes, *own, *filter(None, [status.get("message")])),
        load.VERBS in metadata["annotations"],
    )


def _claim(claim: Document) -> SeenClaim:
    metadata = claim["metadata"]
    owners = [each["uid"] for each in metadata.get("ownerReferences", ())]
    allocation = claim.get("status", {}).get("allocation")
    results = allocation["devices"]["results"] if allocation else []
    devices = tuple(
        "/".join((each["pool"], each["device"], each.get("shareID", "")))
        for each in results
        if each["driver"] == DRIVER
    )
    return SeenClaim(
        metadata["uid"], metadata["name"], (owners or [""])[0], bool(allocation), devices
    )


def _holdings(blocks: Iterable[Document]) -> Iterator[SeenHolding]:
    for block in blocks:
        for holding in block["spec"].get("holdings", ()):
            texts = (text for span in holding.get("addresses", ()) for text in spread(span))
            yield SeenHolding(block["metadata"]["name"], holding["node"], tuple(texts))


def spread(span: str) -> Iterator[str]:
    """Every address of a span: an address, or two ends with a dash between them."""
    first, _, last = span.partition("-")
    begin, end = ip_address(first), ip_address(last or first)
    kind = type(begin)
    return (str(kind(number)) for number in range(int(begin), int(end) + 1))


def _offers(objects: Mapping[str, list[Document]]) -> Iterator[SeenOffer]:
    reports = {each["metadata"]["name"]: each for each in objects["NodeReport"]}
    for node in objects["Node"]:
        name = node["metadata"]["name"]
        cards = {
            device["attributes"][BUS_ID]["string"]
            for each in objects["ResourceSlice"]
            if (each["spec"]["driver"], each["spec"].get("nodeName")) == (DRIVER, name)
            for device in each["spec"]["devices"]
        }
        shares = int(str(node["status"]["allocatable"].get(setup.SHARES, "0")))
        summary = reports.get(name, {}).get("status", {}).get("summary", {})
        taints = (
            f"{one['key']}={one.get('value', '')}:{one['effect']}"
            for one in node["spec"].get("taints", ())
        )
        offered = (shares, summary.get("healthy", 0), tuple(sorted(cards)))
        yield SeenOffer(name, *offered, tuple(sorted(taints)))
