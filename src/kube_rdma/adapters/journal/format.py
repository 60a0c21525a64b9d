"""What stands on disk: the tag of each recorded class and the key of each of its fields.

Every journal writes by this table alone. Tags and keys are frozen, for other versions read them,
earlier and later ones: docs/decisions/0017 says what may change and how. When a class or a field is
renamed, its place here keeps the old word: ``parent=below``. A field of a later version has a
default, and its key a question mark: it is written only where it says something.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_rdma.adapters.journal.codec import RecordCodec, form
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    Attachment,
    InterfaceAddress,
    NetworkRoute,
    Plan,
    PluginResult,
    Sandbox,
)
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.claims.parameters import ClaimParameters, NetworkReference
from kube_rdma.model.claims.prepared import ClaimName, ClaimShare, ClaimUser, PreparedClaim
from kube_rdma.model.functions import step as function_step
from kube_rdma.model.functions.function import MadeFunctions
from kube_rdma.model.ipam import AddressAllocation, AllocationRecord, JournalIdentity
from kube_rdma.model.late_binding.binding import Binding, PodName, Promise
from kube_rdma.model.link import PlannedHostLink
from kube_rdma.model.pools.pool import AppliedPools, ExtraInfo, FunctionRange, PoolSpec, Selector
from kube_rdma.model.pools.rails import RailRecord
from kube_rdma.model.pools.rdma_limits import RdmaLimits
from kube_rdma.model.settings.fabric import FabricProfile

# The kinds of record that each journal holds, by the word in their envelope.
ATTACHMENTS: Mapping[str, type[Attachment]] = {"attachment": Attachment}  # attachments, delegated
BINDINGS: Mapping[str, type[Promise | Binding]] = {"promise": Promise, "binding": Binding}
FUNCTIONS: Mapping[str, type[MadeFunctions]] = {"made-functions": MadeFunctions}
POOLS: Mapping[str, type[AppliedPools]] = {"applied-pools": AppliedPools}
RAILS: Mapping[str, type[RailRecord]] = {"rails": RailRecord}
CLAIMS: Mapping[str, type[PreparedClaim]] = {"prepared-claim": PreparedClaim}
ADDRESSES: Mapping[str, type[AllocationRecord | JournalIdentity]] = {
    "booking": AllocationRecord,
    "identity": JournalIdentity,
}

RECORDS: tuple[Mapping[str, type], ...] = (
    ATTACHMENTS,
    BINDINGS,
    FUNCTIONS,
    POOLS,
    RAILS,
    CLAIMS,
    ADDRESSES,
)

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
    form(Attachment, "Attachment", "sandbox plans complete results"),
    form(Sandbox, "Sandbox", "container pod uid netns_path netns_inode"),
    form(PodName, "PodName", "namespace name"),
    form(Plan, "Plan", "interface network card steps addresses held", identity="interface"),
    form(InterfaceAddress, "GivenAddress", "address prefix gateway", identity="address"),
    form(PluginResult, "PluginResult", "interface document dns", identity="interface"),
    form(Dns, "Dns", "nameservers domain search options"),
    # their steps
    form(steps.MakeLink, "MakeLink", "kind parent name mark mode mtu mac pkey inside"),
    form(
        steps.TakeLink, "TakeLink", "link name pci mtu mac up soft addresses active? routes? rules?"
    ),
    form(PlannedHostLink, "Host", "index name"),
    form(function_step.SetFunction, "SetFunction", "place wanted found=previous"),
    form(function_step.RebindFunction, "RebindFunction", "pci physical driver guid found=previous"),
    form(function_step.FunctionPlace, "FunctionPlace", "physical pci number"),
    form(function_step.FunctionSettings, "FunctionSettings", _SETTINGS),
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
    form(MadeFunctions, "MadeFunctions", "physical boot begun"),
    # the pools that are met
    form(AppliedPools, "AppliedPools", "specs"),
    form(PoolSpec, "PoolSpec", _POOL, identity="resource"),
    form(Selector, "Selector", _SELECTOR),
    form(FunctionRange, "FunctionRange", "parent indexes"),
    form(FabricProfile, "FabricProfile", _FABRIC),
    form(RdmaLimits, "RdmaLimits", "handles objects"),
    form(ExtraInfo, "ExtraInfo", "card facts", identity="card"),
    # the rails of cards
    form(RailRecord, "Rails", "functions names guids? places? boot? waiting? came?"),
    # claims that are prepared
    form(PreparedClaim, "PreparedClaim", "claim shares users boot when pod_claim?"),
    form(ClaimName, "ClaimName", "namespace name uid"),
    form(ClaimShare, "ClaimShare", _CLAIM_SHARE, identity="resource share"),
    form(ClaimUser, "ClaimUser", "resource name uid"),
    form(ClaimParameters, "ClaimParameters", _PARAMETERS),
    form(NetworkReference, "NetworkReference", "name namespace"),
    form(AskedAddress, "AskedAddress", "address prefix", identity="address"),
    form(NetworkRoute, "NetworkRoute", "to via onlink", identity="to"),
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
