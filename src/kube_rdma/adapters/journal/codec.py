"""Turns model values into JSON and back, by a table of names for classes and fields.

Model values are frozen, of plain types, and know nothing of a disk. On disk a value is an object
with a tag beside its keys. A RecordForm has tag and keys, so that a class or a field may be renamed
without a change on disk. A key that the form lacks is taken for a later version's: decoding skips
it, and `carry` brings it back when the record is written again. Any other difference, in a tag, a
word or a type, or a missing key without default, means that the record is not understood.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from inspect import Parameter, signature
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from kube_base.frozen import Frozen
from kube_rdma.model import pools
from kube_rdma.model.attach import attachment, steps
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.claims import claim
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.ipam import AddressAllocation, AllocationRecord, JournalIdentity
from kube_rdma.model.late_binding import Binding, PodName, Promise
from kube_rdma.model.settings import FabricProfile

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
T = TypeVar("T")

TAG = "is"  # beside the keys of a value: of which class it is

_PLAIN = frozenset({str, bool, int, float, type(None)})

# Types that stand in JSON as a text.
_TEXTS: dict[type, Callable[[str], object]] = {
    bytes: lambda text: text.encode("latin-1"),
    IPv4Address: ip_address,
    IPv6Address: ip_address,
    IPv4Network: ip_network,
    IPv6Network: ip_network,
}


class RecordForm(Frozen):
    """The form of a class in the journal: its tag, and the JSON key of each field."""

    of: type
    tag: str
    fields: Mapping[str, str]  # by key
    identity: tuple[str, ...] = ()  # keys that tell a value from others in its list; none: all
    # Keys of fields that came after records had been written: they are left out while the field has
    # its default, so that the record is as an earlier version would have written it.
    later: frozenset[str] = frozenset()


def form(of: type, tag: str, keys: str, identity: str = "") -> RecordForm:
    """Return the journal form of a class.

    `keys` has words ``key``, or ``key=field`` if they differ. The key of a field that was added
    later ends in a question mark: ``active?``.
    """
    words = [word.partition("=") for word in keys.split()]
    names = {key.rstrip("?"): field or key.rstrip("?") for key, _, field in words}
    later = frozenset(key.rstrip("?") for key, _, _ in words if key.endswith("?"))
    return RecordForm(of, tag, names, tuple(identity.split()), later)


class _Shape(Frozen):
    """A journal form of a class together with the types of its fields."""

    form: RecordForm
    types: Mapping[str, Any]  # by key
    required: frozenset[str]  # keys without which a record is not understood


class RecordCodec:
    """An encoder and decoder of records, which are described by a table of forms."""

    def __init__(self, forms: Iterable[RecordForm]) -> None:
        self._forms = {entry.of: entry for entry in forms}
        self._tags = {entry.tag: entry for entry in self._forms.values()}
        self._shapes: dict[type, _Shape] = {}
        self._encoders: dict[type, Callable[[Any], Json]] = {}
        self._choices: dict[tuple[Any, ...], dict[str, type]] = {}  # of a Step, by tag

    def encode(self, value: object) -> Json:
        """Return a value as JSON; raise TypeError for a type without a form."""
        kind: type = type(value)
        encoder = self._encoders.get(kind)
        if encoder is None:  # found out once, for a record holds many of few types
            encoder = self._encoders[kind] = self._encoder(kind)
        return encoder(value)

    def decode(self, of: type[T], data: Json) -> T:
        """Return the value of type `of` in a record's JSON.

        Raise ValueError if it is not understood.
        """
        value = self._decode(of, data)
        assert isinstance(value, of)
        return value

    def is_known(self, data: Json) -> bool:
        """Return whether every key in a record's JSON belongs to a field of its class."""
        if isinstance(data, dict):
            keys = self._tags[str(data[TAG])].fields
            return all(key in keys and self.is_known(part) for key, part in _parts(data))
        return not isinstance(data, list) or all(map(self.is_known, data))

    def carry(self, new: Json, old: Json) -> Json:
        """Return the JSON `new` with the unknown keys that matching values in `old` have."""
        if isinstance(new, list) and isinstance(old, list):
            rest = list(old)
            return [self.carry(part, self._counterpart(part, rest)) for part in new]
        if not isinstance(new, dict) or not isinstance(old, dict) or new[TAG] != old.get(TAG):
            return new
        keys = self._tags[str(new[TAG])].fields
        carried = {key: self.carry(part, old.get(key)) for key, part in new.items()}
        return carried | {key: part for key, part in _parts(old) if key not in keys}

    def _counterpart(self, part: Json, rest: list[Json]) -> Json:
        """Remove from `rest` the old JSON of the value `part`, and return it; None without one."""
        identity = self._tags[str(part[TAG])].identity if isinstance(part, dict) else ()
        for place, other in enumerate(rest):
            if self._is_same(part, other, identity):
                return rest.pop(place)
        return None

    def _is_same(self, new: Json, old: Json, identity: Collection[str] = ()) -> bool:
        """Return whether two JSON values mean the same; keys that `old` lacks do not count.

        With an `identity` of keys, only these count.
        """
        if isinstance(new, list) and isinstance(old, list):
            return len(new) == len(old) and all(map(self._is_same, new, old))
        if not isinstance(new, dict) or not isinstance(old, dict):
            return new == old
        keys = identity or self._tags[str(new[TAG])].fields
        return new[TAG] == old.get(TAG) and all(
            key not in old or self._is_same(new.get(key), old[key]) for key in keys
        )

    def _encoder(self, kind: type) -> Callable[[Any], Json]:
        """Return the function that encodes values of a type as JSON.

        Raise TypeError for a type without a form.
        """
        if kind in _PLAIN:
            return lambda value: value
        if kind in self._forms:
            return self._fields_encoder(self._forms[kind])
        if issubclass(kind, tuple):
            return lambda value: [self.encode(part) for part in value]
        if issubclass(kind, Enum):
            return lambda value: self.encode(value.value)
        if issubclass(kind, bytes):
            return lambda value: value.decode("latin-1")
        if issubclass(kind, str) or kind in _TEXTS:
            return str  # of a str's own kind, as PciAddress is, the text alone
        raise TypeError(f"a record cannot hold {kind.__name__}, no form is for it")

    def _fields_encoder(self, entry: RecordForm) -> Callable[[Any], Json]:
        pairs = tuple(entry.fields.items())
        fields = signature(entry.of).parameters
        later = {key: fields[entry.fields[key]].default for key in entry.later}

        def encoded(value: Any) -> Json:
            data: dict[str, Json] = {TAG: entry.tag}
            for key, name in pairs:
                part = getattr(value, name)
                if key not in later or part != later[key]:
                    data[key] = part if type(part) in _PLAIN else self.encode(part)
            return data

        return encoded

    def _decode(self, of: Any, data: Json) -> object:
        of = getattr(of, "__supertype__", of)  # of a NewType
        origin = get_origin(of)
        if origin in (Union, types.UnionType):
            return self._one_of(get_args(of), data)
        if origin is tuple:
            return self._tuple(get_args(of), data)
        if of in self._forms:
            return self._record(of, data)
        # A value without parts; as in JSON, true is no int.
        if type(data) is of:
            return data
        if of is float and type(data) is int:
            return float(data)
        if isinstance(data, str) and (make := _TEXTS.get(of)):
            return make(data)
        if isinstance(data, str) and isinstance(of, type) and issubclass(of, (Enum, str)):
            return of(data)  # a str's own kind checks its text
        raise ValueError(f"{data!r:.60} is not a {getattr(of, '__name__', of)}")

    def _one_of(self, choices: tuple[Any, ...], data: Json) -> object:
        """Decode JSON as one of several types: by its tag, else the first type that fits."""
        if isinstance(data, dict):
            tags = self._choices.get(choices)
            if tags is None:
                tags = {self._forms[of].tag: of for of in choices if of in self._forms}
                self._choices[choices] = tags
            tag = data.get(TAG)
            if not isinstance(tag, str) or tag not in tags:
                raise ValueError(f"{tag!r} is not one of {', '.join(tags)}")
            return self._record(tags[tag], data)
        for choice in choices:
            try:
                return self._decode(choice, data)
            except ValueError:
                continue
        raise ValueError(f"{data!r:.60} is of no type that stands here")

    def _tuple(self, of: tuple[Any, ...], data: Json) -> tuple[object, ...]:
        if not isinstance(data, list):
            raise ValueError(f"{data!r:.60} is not a list")  # noqa: TRY004  of a text, not of a call
        if len(of) == 2 and of[1] is Ellipsis:
            return tuple(self._decode(of[0], part) for part in data)
        if len(of) != len(data):
            raise ValueError(f"{len(data)} entries stand where {len(of)} belong")
        return tuple(self._decode(kind, part) for kind, part in zip(of, data, strict=True))

    def _record(self, of: Any, data: Json) -> object:
        shape = self._shape(of)
        if not isinstance(data, dict) or data.get(TAG) != shape.form.tag:
            raise ValueError(f"{data!r:.60} is not a {shape.form.tag}")
        if missing := shape.required - data.keys():
            raise ValueError(f"{shape.form.tag} has no {', '.join(sorted(missing))}")
        # A field has its default in a record from before it; what has no field is passed by.
        names = shape.form.fields
        given = ((names[key], kind, data[key]) for key, kind in shape.types.items() if key in data)
        return of(**{name: self._decode(kind, part) for name, kind, part in given})

    def _shape(self, of: type) -> _Shape:
        if of not in self._shapes:
            entry = self._forms[of]
            hints, parameters = get_type_hints(of), signature(of).parameters
            kinds = {key: hints[name] for key, name in entry.fields.items()}
            defaults = {key: parameters[name].default for key, name in entry.fields.items()}
            required = (key for key, default in defaults.items() if default is Parameter.empty)
            self._shapes[of] = _Shape(entry, kinds, frozenset(required))
        return self._shapes[of]


def _parts(data: dict[str, Json]) -> Iterable[tuple[str, Json]]:
    """Return keys and values of a JSON object, without the tag of its class."""
    return ((key, part) for key, part in data.items() if key != TAG)


# The disk format: the tag of each recorded class and the key of each of its fields.

# The kinds of record that each journal holds, by the word in their envelope. ATTACHMENTS are those
# of the journals attachments and delegated.
ATTACHMENTS: Mapping[str, type[attachment.Attachment]] = {"attachment": attachment.Attachment}
BINDINGS: Mapping[str, type[Promise | Binding]] = {"promise": Promise, "binding": Binding}
FUNCTIONS: Mapping[str, type[pools.MadeFunctions]] = {"made-functions": pools.MadeFunctions}
POOLS: Mapping[str, type[pools.AppliedPools]] = {"applied-pools": pools.AppliedPools}
RAILS: Mapping[str, type[pools.RailRecord]] = {"rails": pools.RailRecord}
CLAIMS: Mapping[str, type[claim.PreparedClaim]] = {"prepared-claim": claim.PreparedClaim}
ADDRESSES: Mapping[str, type[AllocationRecord | JournalIdentity]] = {
    "booking": AllocationRecord,
    "identity": JournalIdentity,
}

RECORDS = (ATTACHMENTS, BINDINGS, FUNCTIONS, POOLS, RAILS, CLAIMS, ADDRESSES)

_SETTINGS = (
    "mac vlan qos protocol spoof_check trust link_state min_rate max_rate node_guid port_guid"
)
_SELECTOR = (
    "source vendors device_ids drivers interfaces link_types pci_addresses acpi_indexes physical "
    "roots auxiliary_types rdma_devices pkeys rdma"
)
_FABRIC = "traffic_class service_level timeout retry_count qps_per_connection variables"
_POOL = (
    "resource mode source selectors shares bind attach prefer numa_hints variables extra_info "
    "extra_paths host_network? fabric? bare_ids? serve? limits? device_files?"
)
_CLAIM_SHARE = (
    "request pool device share_id resource share cards slots char_paths cdi admin parameters?"
)
_PARAMETERS = (
    "network type=kind mode interface mtu pool addresses routes defaultRoute=default_route mac guid"
)

FORMS = (
    # attachments
    form(attachment.Attachment, "Attachment", "sandbox plans complete results"),
    form(attachment.Sandbox, "Sandbox", "container pod uid netns_path netns_inode"),
    form(PodName, "PodName", "namespace name"),
    form(
        attachment.Plan, "Plan", "interface network card steps addresses held", identity="interface"
    ),
    form(attachment.InterfaceAddress, "GivenAddress", "address prefix gateway", identity="address"),
    form(attachment.PluginResult, "PluginResult", "interface document dns", identity="interface"),
    form(Dns, "Dns", "nameservers domain search options"),
    # their steps
    form(steps.MakeLink, "MakeLink", "kind parent name mark mode mtu mac pkey inside"),
    form(
        steps.TakeLink, "TakeLink", "link name pci mtu mac up soft addresses active? routes? rules?"
    ),
    form(PlannedHostLink, "Host", "index name"),
    form(pools.SetFunction, "SetFunction", "place wanted found=previous"),
    form(pools.RebindFunction, "RebindFunction", "pci physical driver guid found=previous"),
    form(pools.FunctionPlace, "FunctionPlace", "physical pci number"),
    form(pools.FunctionSettings, "FunctionSettings", _SETTINGS),
    form(steps.SetLink, "SetLink", "name mtu mac"),
    form(steps.Probe, "Probe", "name address"),
    form(steps.AddAddress, "AddAddress", "name address prefix"),
    form(steps.AddRoute, "AddRoute", "name to via source table onlink metric?"),
    form(steps.AddRule, "AddRule", "source table priority"),
    form(steps.SetSysctl, "SetSysctl", "path value optional?"),
    form(steps.MakeRdma, "MakeRdma", "name kind on"),
    form(steps.MoveRdma, "MoveRdma", "device pci"),
    form(steps.AwaitPartition, "AwaitPartition", "pci pkey"),
    form(steps.AwaitGid, "AwaitGid", "device on address"),
    form(steps.Announce, "Announce", "name address"),
    form(steps.CallPlugin, "CallPlugin", "name plugins version check addresses?"),
    form(steps.PluginConf, "PluginConf", "type config"),
    # promises and bindings
    form(Promise, "Promise", "nonce resource shares cards cdi when replaces"),
    form(Binding, "Binding", "nonce container pod uid netns resource shares cards cdi when"),
    # virtual functions
    form(pools.MadeFunctions, "MadeFunctions", "physical boot begun"),
    # the pools that are met
    form(pools.AppliedPools, "AppliedPools", "specs"),
    form(pools.PoolSpec, "PoolSpec", _POOL, identity="resource"),
    form(pools.Selector, "Selector", _SELECTOR),
    form(pools.FunctionRange, "FunctionRange", "parent indexes"),
    form(FabricProfile, "FabricProfile", _FABRIC),
    form(pools.RdmaLimits, "RdmaLimits", "handles objects"),
    form(pools.ExtraInfo, "ExtraInfo", "card facts", identity="card"),
    # the rails of cards
    form(pools.RailRecord, "Rails", "functions names guids? places? boot? waiting? came?"),
    # claims that are prepared
    form(claim.PreparedClaim, "PreparedClaim", "claim shares users boot when pod_claim?"),
    form(claim.ClaimName, "ClaimName", "namespace name uid"),
    form(claim.ClaimShare, "ClaimShare", _CLAIM_SHARE, identity="resource share"),
    form(claim.ClaimUser, "ClaimUser", "resource name uid"),
    form(claim.ClaimParameters, "ClaimParameters", _PARAMETERS),
    form(claim.NetworkReference, "NetworkReference", "name namespace"),
    form(attachment.AskedAddress, "AskedAddress", "address prefix", identity="address"),
    form(attachment.NetworkRoute, "NetworkRoute", "to via onlink", identity="to"),
    # addresses
    form(AllocationRecord, "Booking", "container pod leases=allocations began"),
    form(
        AddressAllocation,
        "Lease",
        "network interface pool address subnet gateway rest=cooldown owner resting=cooling "
        "node_slice?",
        identity="network interface address",
    ),
    form(JournalIdentity, "Identity", "journal"),
)

CODEC = RecordCodec(FORMS)
