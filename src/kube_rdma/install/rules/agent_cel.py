"""What an agent may change of a node, a pod and an object of IPAM, in CEL.

admission.py makes policies of it. The API server evaluates every text for every write of an agent,
so each has an end for objects of any size: what an agent may make long, it may make so long only.
Fields are compared by path: one that a later Kubernetes adds is none that an agent may write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.ipam.rules.grant import MOST_REQUESTS
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import (
    BLOCK_ADDRESSES,
    MOST_MADE_EXCLUDES,
    MOST_MADE_RANGES,
    IPPool,
    PoolName,
)
from kube_rdma.pools.rules.holdings import EFFECT
from kube_rdma.pools.rules.holdings import KEYS as STARTUP_TAINTS
from kube_rdma.pools.rules.labels import FEATURE

# The right, at no API, by which an agent may write labels by which others start their drivers;
# objects/rights.yaml gives it.
NFD_RIGHT = ("kube-rdma.io", "nfdlabels", "write")

_HEX = "[0-9a-f]{1,4}"
_IPV6 = f"({_HEX}:){{7}}{_HEX}|({_HEX}(:{_HEX})*)?::({_HEX}(:{_HEX})*)?"
_ADDRESS = f"^([0-9]{{1,3}}([.][0-9]{{1,3}}){{3}}|{_IPV6})$"
# The last word of a block's name: a multiple of 64, in decimal of IPv4 and in hex of IPv6.
_FIRST_V4 = "([0-9]+-){3}(0|64|128|192)"
_FIRST_V6 = f"({_HEX}-){{7}}(0|([1-9a-f][0-9a-f]?)?[48c]0|[1-9a-f][0-9a-f]?00)"
_MOST = BLOCK_ADDRESSES  # spans of a node and pins in a block
_MADE = IPPool(PoolName(""), ())  # what an agent chooses of a pool beside its addresses
_LONGEST_NODE = 200  # characters of a node's name, which whole names of slices have room for

# Fields, by the resource, that an agent may write at all; more is said of some below.
_FIELDS: Mapping[str, str] = {
    "nodes": "metadata.labels metadata.annotations spec.taints",
    "nodes/status": "status.conditions",
    "pods": "metadata.labels metadata.annotations",
    "ipblocks": "spec.network spec.first spec.edition spec.holdings spec.pins",
    "ippools": (
        "spec.network spec.ranges spec.excludes spec.blockSize spec.restSeconds spec.probe"
    ),
    "ippools/status": "status.wants",
    "resourceclaims/status": "status.devices",
}
# What the API server itself writes, or holds.
_SERVERS = "name uid creationTimestamp generation resourceVersion managedFields"
_OWN = "['leases', 'nodereports', 'nodereports/status', 'resourceslices']"  # with all their fields
# Of what is deleted only the old object is there.
_SLICE = "(object == null ? dyn(oldObject) : dyn(object)).spec"
# Whether one of the devices that a claim was given is of the agent's own pool.
_GIVEN = (
    "object.?status.?allocation.?devices.?results.orValue([]).exists(one, "
    f"one.driver == '{DRIVER}' && one.pool == variables.node)"
)
# Of what a claim says of devices, now and before, that of other drivers and of other nodes.
_OTHER_DEVICES = (
    "[dyn(object), dyn(oldObject)].map(one, one.?status.?devices.orValue([])"
    f".filter(entry, entry.driver != '{DRIVER}' || entry.pool != variables.node))"
)
# Keys of labels and annotations that an agent may write, by the resource.
LABELS: Mapping[str, str] = {
    "nodes": (
        "^(feature[.]node[.]kubernetes[.]io/(pci-[0-9a-f]{4}[.]present|"
        "kernel-version[.](full|major|minor|revision)|"
        "system-os_release[.](ID|VERSION_ID|VERSION_ID[.]major|VERSION_ID[.]minor))|"
        "kube-rdma[.]io/(link-layer|rate-gbps|ports|mode|rdma-namespaces|gpus-near|rails|fabric))$"
    ),
    "pods": "^kube-rdma[.]io/needs-restart$",
}
ANNOTATIONS: Mapping[str, str] = {
    "nodes": "^kube-rdma[.]io/node-labels$",
    "pods": (
        "^(kube-rdma[.]io/(network-status|needs-restart)|"
        "k8s[.](v1[.]cni[.]cncf|volcengine)[.](io|com)/network-status)$"
    ),
}


def _texts(words: Sequence[str]) -> str:
    return f"[{', '.join(map(repr, words))}]"


def _table(rows: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key!r}: {text}" for key, text in rows.items()) + "}"


def changed_keys(part: str) -> str:
    """The keys of labels or of annotations that came, went or have another value."""
    return (
        "[[object, oldObject], [oldObject, object]].map(pair, pair.map(one, "
        f"one.metadata.?{part}.orValue({{}}))).map(pair, pair[0].filter(key, "
        "pair[1][?key] != optional.of(pair[0][key])))"
    )


def changed_fields(allowed: str) -> str:
    """The fields of the second level that differ and are not of the list `allowed`, as paths.

    A text and a list that are empty are as good as none: whoever writes a status writes these.
    """
    return (
        "[[dyn(object), dyn(oldObject)], [dyn(oldObject), dyn(object)]].map(pair, "
        "['metadata', 'spec', 'status'].map(part, pair[0] == null ? [] : "
        "pair[0][?part].orValue({}).filter(key, "
        f"!(part + '.' + key in {allowed}) && "
        "!(pair[0][part][key] in [dyn(''), dyn([])]) && (pair[1] == null || "
        "pair[1][?part][?key] != optional.of(pair[0][part][key]))).map(key, part + '.' + key)))"
    )


def first_of(nested: str) -> str:
    """The first path that `changed_fields` found."""
    return (
        f"{nested}.map(parts, parts.filter(paths, paths.size() > 0))"
        ".filter(parts, parts.size() > 0)[0][0][0]"
    )


def _number(word: str) -> str:
    """The last word of an address as a number; an error for another text."""
    digit = "'0123456789abcdef'.indexOf(padded.charAt({}))"
    value = digit.format(0)
    for n in (1, 2, 3):
        value = f"({value}) * 16 + {digit.format(n)}"
    return (
        f"variables.cell[1].matches('^{_FIRST_V4}$') ? int({word}) : "
        f"[('000' + {word}).substring({word}.size() - 1)].map(padded, {value})[0]"
    )


# An address of a block as its distance from the block's name; -1 for what is none of it.
_ZEROS = "'0:0:0:0:0:0:0:0:'.substring(0, 16 - 2 * words.size())"
_WRITTEN_OUT = (
    "end.contains('::') ? "
    f"(end.split('::')[0].split(':') + {_ZEROS}.split(':') + end.split('::')[1].split(':'))"
    ".filter(word, word != '').join('-') : end.replace('.', '-').replace(':', '-')"
)
_PLACE = (
    "[end.split(':').filter(word, word != '')].map(words, "
    f"!end.matches('{_ADDRESS}') || end.contains('::') && words.size() > 7 ? -1 : "
    f"[{_WRITTEN_OUT}].map(text, !text.startsWith(variables.stem) || "
    "!text.substring(variables.stem.size()).matches('^(0|[1-9a-f][0-9a-f]*)$') ? -1 : "
    f"[text.substring(variables.stem.size())].map(word, {_number('word')})[0] - variables.first"
    ")[0])[0]"
)

# Expressions by name; each may use those before it.
VARIABLES: Mapping[str, str] = {
    # "" for a token that is bound to none.
    "node": "request.userInfo.?extra['authentication.kubernetes.io/node-name'].orValue([''])[0]",
    # The request has no such field but for a part of the object.
    "what": (
        "request.resource.resource + (request.?subResource.orValue('') == '' ? '' : "
        "'/' + request.subResource)"
    ),
    # The node that the object belongs to.
    "concerned": (
        "request.resource.resource == 'pods' ? object.spec.?nodeName.orValue('') : "
        "request.resource.resource == 'leases' ? (object.metadata.name.startsWith('ipam.') ? "
        "object.metadata.name.substring(5) : '') : "
        "request.resource.resource in ['ipblocks', 'ippools'] ? variables.node : "
        f"request.resource.resource == 'resourceslices' ? {_SLICE}.?nodeName.orValue('') : "
        f"request.resource.resource == 'resourceclaims' ? ({_GIVEN} ? variables.node : '') : "
        "object.metadata.name"
    ),
    "fields": (
        f"{_table({key: _texts(text.split()) for key, text in _FIELDS.items()})}"
        "[?variables.what].orValue([]) + "
        f"{_texts([f'metadata.{name}' for name in _SERVERS.split()])}"
    ),
    "strays": f"variables.what in {_OWN} ? [] : {changed_fields('variables.fields')}",
    "labels": f"variables.what in ['nodes', 'pods'] ? {changed_keys('labels')} : []",
    "annotations": f"variables.what in ['nodes', 'pods'] ? {changed_keys('annotations')} : []",
    "label": f"{_table({key: repr(text) for key, text in LABELS.items()})}[variables.what]",
    "annotation": (
        f"{_table({key: repr(text) for key, text in ANNOTATIONS.items()})}[variables.what]"
    ),
    # What is other nodes' of a list in an object that all have, now and before.
    "others": (
        "[dyn(object), dyn(oldObject)].map(one, one == null ? [] : "
        "variables.what == 'ipblocks' ? one.?spec.?holdings.orValue([]) : "
        "variables.what == 'ippools/status' ? one.?status.?wants.orValue([]) : [])"
        ".map(entries, entries.filter(entry, entry.node != variables.node))"
    ),
    # Of a block: network and first address by its name, and all before the last word of that.
    "cell": "object.metadata.name.split('.')",
    "stem": "variables.cell[1].substring(0, variables.cell[1].lastIndexOf('-') + 1)",
    "first": (
        f"[variables.cell[1].substring(variables.stem.size())].map(word, {_number('word')})[0]"
    ),
    "holdings": "object.spec.?holdings.orValue([]).filter(one, one.node == variables.node)",
    "pins": "object.spec.?pins.orValue([])",
    # Its own spans, those of others, pins and the first address; each as one or two places.
    "places": (
        "[variables.holdings.map(one, one.?addresses.orValue([])), "
        "variables.others[0].map(one, one.?addresses.orValue([])), "
        "[dyn(variables.pins.map(pin, pin.address))], [dyn([object.spec.first])]]"
        ".map(group, group.map(spans, spans.map(span, span.split('-').map(end, "
        f"{_PLACE}))))"
    ),
    # Pins as texts, now and before; and those that came or went, by owner and place.
    "pinned": (
        "[dyn(object), dyn(oldObject)].map(one, one == null || variables.what != 'ipblocks' ? [] : "
        "one.spec.?pins.orValue([]).map(pin, pin.owner + ' ' + pin.address))"
    ),
    "moved": (
        "[[0, 1], [1, 0]].map(pair, variables.pinned[pair[0]].filter(pin, "
        "!(pin in variables.pinned[pair[1]])).map(pin, [dyn(pin.substring(0, "
        "pin.lastIndexOf(' ') + 1)), dyn([pin.substring(pin.lastIndexOf(' ') + 1)].map(end, "
        f"{_PLACE})[0])]))"
    ),
}
_BLOCK = "variables.what != 'ipblocks' || "
_NAME = f"^[-a-z0-9]+[.]({_FIRST_V4}|{_FIRST_V6})$"
_CONDITIONS = (
    "[object, oldObject].map(node, node.status.?conditions.orValue([])"
    ".filter(condition, condition.type != 'kube-rdma.io/CardsHealthy'))"
)
# A key that was there may go: the agent takes away what it wrote.
_NFD_GROUP, _NFD_RESOURCE, _NFD_VERB = NFD_RIGHT
_MAY_NFD = (
    f"authorizer.group('{_NFD_GROUP}').resource('{_NFD_RESOURCE}').check('{_NFD_VERB}').allowed()"
)
_STARTING = f"(taint.key in {list(STARTUP_TAINTS)} && taint.effect == '{EFFECT}')"


def _keys(kind: str) -> tuple[str, str, str]:
    """That keys of labels or annotations are an agent's, and a sentence for one that is not."""
    stray = f"!key.matches(variables.{kind})"
    return (
        f"variables.{kind}s.all(keys, keys.all(key, key.matches(variables.{kind})))",
        "messageExpression",
        (
            f"'An agent writes no {kind} ' + variables.{kind}s.map(keys, keys.filter(key, {stray}))"
            ".filter(keys, keys.size() > 0)[0][0] + '.'"
        ),
    )


# What has to hold, and a sentence for what does not: a text, or an expression that makes one.
VALIDATIONS: Sequence[tuple[str, str, str]] = (
    (
        "variables.node != ''",
        "message",
        (
            "The agent's token is bound to no node. Run the agent as a pod, on Kubernetes 1.30 or "
            "newer."
        ),
    ),
    (
        "variables.node == '' || variables.node == variables.concerned",
        "messageExpression",
        (
            "'The agent of node ' + variables.node + ' may not change ' + "
            "request.resource.resource + ' of ' + (variables.concerned == '' ? 'no node' : "
            "'node ' + variables.concerned) + '.'"
        ),
    ),
    (
        "variables.strays.all(parts, parts.all(paths, paths.size() == 0))",
        "messageExpression",
        (
            f"'An agent may not write ' + {first_of('variables.strays')} + ' of ' + variables.what"
            " + '.'"
        ),
    ),
    (
        f"variables.what != 'nodes/status' || {_CONDITIONS}[0] == {_CONDITIONS}[1]",
        "message",
        (
            "An agent changes nothing of its node's status but the condition "
            "kube-rdma.io/CardsHealthy."
        ),
    ),
    _keys("label"),
    (
        (
            "variables.what != 'nodes' || "
            f"variables.labels[0].all(key, !key.startsWith('{FEATURE}/')) || {_MAY_NFD}"
        ),
        "message",
        (
            f"An agent writes labels below {FEATURE} only with the right to {_NFD_VERB} "
            f"{_NFD_RESOURCE} of {_NFD_GROUP}: install with agent.nodeLabels=write-nfd, or give it "
            "--node-labels=write."
        ),
    ),
    _keys("annotation"),
    (
        (
            "variables.what != 'nodes' || ("
            "object.spec.?taints.orValue([]).all(taint, taint in "
            "oldObject.spec.?taints.orValue([])) && "
            "oldObject.spec.?taints.orValue([]).all(taint, taint in "
            f"object.spec.?taints.orValue([]) || {_STARTING}))"
        ),
        "message",
        "An agent changes no taint of its node but the startup taint, which it takes off.",
    ),
    (
        (
            f"variables.what != 'resourceslices' || ({_SLICE}.driver == '{DRIVER}' && "
            f"{_SLICE}.pool.name == variables.node)"
        ),
        "message",
        f"An agent writes and deletes slices of {DRIVER} alone, in the pool of its node's name.",
    ),
    (
        (
            "variables.what != 'resourceslices' || object == null || ("
            f"object.metadata.name.matches('^[0-9]{{3}}-{DRIVER.replace('.', '[.]')}-') && ("
            f"variables.node.size() > {_LONGEST_NODE} || "
            f"object.metadata.name.substring({len(DRIVER) + 5}) == variables.node))"
        ),
        "message",
        f"An agent writes slices of the names 000-{DRIVER}-NODE to 999-{DRIVER}-NODE.",
    ),
    (
        (
            f"variables.what != 'resourceclaims/status' || [{_OTHER_DEVICES}]"
            ".all(pair, pair[0] == pair[1])"
        ),
        "message",
        f"An agent writes of a claim what became of devices of {DRIVER} on its node alone.",
    ),
    (
        "variables.others[0] == variables.others[1]",
        "messageExpression",
        (
            "'The agent of node ' + variables.node + ' may not change what other nodes have of ' + "
            "variables.what + ' ' + object.metadata.name + '.'"
        ),
    ),
    (
        (
            f"{_BLOCK}(object.metadata.name.matches('{_NAME}') && "
            "object.spec.network == variables.cell[0] && "
            "object.spec.?edition.orValue(0) == 1 + (oldObject == null ? 0 : "
            "oldObject.spec.?edition.orValue(0)) && variables.holdings.size() < 2 && "
            f"variables.holdings.all(one, one.?addresses.orValue([]).size() <= {_MOST}) && "
            f"variables.pins.size() <= {_MOST} && "
            "variables.places[3] == [[[0]]] && variables.places.all(group, group.all(spans, "
            "spans.all(span, span.size() < 3 && span.all(place, 0 <= place && place < 64) && "
            "span[0] <= span[span.size() - 1]))))"
        ),
        "message",
        "An agent writes a block as the block's name, its edition and 64 addresses have it.",
    ),
    (
        (
            f"{_BLOCK}variables.places[0].all(spans, spans.all(own, "
            "variables.places[1].all(others, others.all(span, "
            "own[own.size() - 1] < span[0] || span[span.size() - 1] < own[0]))))"
        ),
        "message",
        "An agent takes no address that another node has.",
    ),
    (
        (
            f"{_BLOCK}variables.moved.all(pins, pins.all(pin, "
            "variables.places[0].exists(spans, spans.exists(own, own[0] <= pin[1] && "
            "pin[1] <= own[own.size() - 1])) || (pins == variables.moved[1] && "
            "variables.pinned[0].exists(new, new.startsWith(pin[0])))))"
        ),
        "message",
        (
            "An agent pins addresses that its node holds, and takes away no pin but of these and "
            "of owners that have one of these now."
        ),
    ),
    (
        (
            "variables.what != 'ippools' || (oldObject == null && "
            "object.metadata.name.matches('^(whereabouts|host-local)-[0-9a-f]{10}$'))"
        ),
        "message",
        (
            "An agent makes no pool but that of a network's whereabouts or host-local, and changes "
            "none."
        ),
    ),
    (
        (
            "variables.what != 'ippools' || ("
            f"object.spec.ranges.size() <= {MOST_MADE_RANGES} && "
            f"object.spec.?excludes.orValue([]).size() <= {MOST_MADE_EXCLUDES} && "
            "object.spec.ranges.all(one, one.?perNode.?nodes.orValue([]).size() == 0) && "
            f"object.spec.?restSeconds.orValue({_MADE.cooldown:.0f}) == {_MADE.cooldown:.0f} && "
            f"object.spec.?blockSize.orValue({_MADE.block_size}) == {_MADE.block_size} && "
            "!object.spec.?probe.orValue(false))"
        ),
        "message",
        (
            f"An agent makes a pool of at most {MOST_MADE_RANGES} ranges and {MOST_MADE_EXCLUDES} "
            "excludes, without slices of certain nodes, restSeconds, blockSize and probe."
        ),
    ),
    (
        (
            "variables.what != 'ippools/status' || object.status.?wants.orValue([]).filter(want, "
            f"want.node == variables.node).size() <= {MOST_REQUESTS}"
        ),
        "message",
        f"An agent asks a pool for addresses in {MOST_REQUESTS} entries at most.",
    ),
)
