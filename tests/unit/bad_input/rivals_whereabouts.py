"""What the tests and README of whereabouts show: part of the table in rivals.py, in its form."""

from tests.unit.bad_input.rivals import ONE_OF_EACH, WHEREABOUTS, WHEREABOUTS_CONFIG, Case

ALLOCATE = f"{WHEREABOUTS} pkg/allocate/allocate_test.go"
EXTENDED = f"{WHEREABOUTS} pkg/config/config_extended_test.go"
TYPES = f"{WHEREABOUTS} pkg/types/types.go"

IPAM = {
    "whereabouts: a range with its ends, a gateway elsewhere": Case(
        f"{WHEREABOUTS_CONFIG}: can load a basic config",
        {"type": "whereabouts", "range": "10.7.1.5-10.7.1.25/24", "gateway": "10.7.10.1"},
        {
            "ranges": ["10.7.1.0/24 10.7.1.5 10.7.1.25 -"],
            "notes": ["10.7.10.1 is outside of 10.7.1.0/24, and no route leads over it"],
        },
    ),
    "whereabouts: IPv6 with a gateway elsewhere": Case(
        f"{WHEREABOUTS} README.md: Example IPv6 Config",
        {"type": "whereabouts", "range": "fd07::0/116", "gateway": "fd07::f:1"},
        {"ranges": ["fd07::/116 - - -"], "notes": ["fd07::f:1 is outside of fd07::/116"]},
    ),
    "whereabouts: routes over a gateway elsewhere": Case(
        f"{WHEREABOUTS} cmd/whereabouts_test.go: allocates and releases addresses on ADD/DEL",
        {
            "type": "whereabouts",
            "range": "10.7.1.0/24",
            "gateway": "10.7.10.1",
            "routes": [
                {"dst": "0.0.0.0/0"},
                {"dst": "10.8.0.0/16"},
                {"dst": "10.9.0.0/16", "gw": "10.7.1.1"},
            ],
        },
        {
            "ranges": ["10.7.1.0/24 - - -"],
            "routes": ["10.9.0.0/16 10.7.1.1"],
            "notes": [
                "10.7.10.1 is outside of 10.7.1.0/24, and no route leads over it",
                "the route to 0.0.0.0/0 is left out: there is no gateway to lead it over",
                "the route to 10.8.0.0/16 is left out",
            ],
        },
    ),
    "whereabouts: zeros in front": Case(
        f"{WHEREABOUTS_CONFIG}: allows for leading zeroes in the range when the start and end "
        "ranges are provided",
        {
            "type": "whereabouts",
            "range": "0010.007.1.0/24",
            "range_start": "0010.007.01.44",
            "range_end": "00010.7.1.0209",
            "gateway": "010.7.1.1",
        },
        {"ranges": ["10.7.1.0/24 10.7.1.44 10.7.1.209 10.7.1.1"]},
    ),
    "whereabouts: the ends in the range come before range_start": Case(
        f"{WHEREABOUTS} pkg/config/config.go: LoadIPAMConfig",
        {"type": "whereabouts", "range": "10.7.1.5-10.7.1.25/24", "range_start": "10.7.1.9"},
        {
            "ranges": ["10.7.1.0/24 10.7.1.5 10.7.1.25 -"],
            "notes": ["range_start 10.7.1.9 is ignored"],
        },
    ),
    "whereabouts: a start outside of the subnet": Case(
        f"{WHEREABOUTS_CONFIG}: errors when an invalid range specified",
        {"type": "whereabouts", "range": "10.7.1.5-10.7.2.25/28"},
        {"refused": "10.7.1.5 is outside of 10.7.2.16/28"},
    ),
    "whereabouts: ends outside of the range": Case(
        f"{ALLOCATE}: the range start and end must be ignored if they are not within "
        "the bounds of the range for IPv4",
        {
            "type": "whereabouts",
            "range": "10.7.0.0/28",
            "range_start": "10.7.1.5",
            "range_end": "fd07::9",
        },
        {
            "ranges": ["10.7.0.0/28 - - -"],
            "notes": ["range_start 10.7.1.5 is ignored", "range_end fd07::9 is ignored"],
        },
    ),
    "whereabouts: the end before the start": Case(
        f"{WHEREABOUTS} pkg/iphelpers/iphelpers.go: GetIPRange",
        {
            "type": "whereabouts",
            "range": "10.7.0.0/24",
            "range_start": "10.7.0.50",
            "range_end": "10.7.0.40",
        },
        {"ranges": ["10.7.0.0/24 10.7.0.50 - -"], "notes": ["range_end 10.7.0.40 is ignored"]},
    ),
    "whereabouts: a range and a list of them": Case(
        f"{WHEREABOUTS} README.md: Example IPAM config for assigning multiple IP addresses",
        {
            "type": "whereabouts",
            "range": "fd07::1/64",
            "ipRanges": [{"range": "10.7.0.1/24"}, {"range": "10.8.0.1/16"}],
        },
        {
            "ranges": ["fd07::/64 - - -", "10.7.0.0/24 - - -", "10.8.0.0/16 - - -"],
            "notes": [ONE_OF_EACH],
        },
    ),
    "whereabouts: slices of nodes": Case(
        f"{WHEREABOUTS} README.md: Fast IPAM Configuration",
        {"type": "whereabouts", "range": "10.7.0.0/16", "node_slice_size": "/22"},
        {"ranges": ["10.7.0.0/16 - - -"], "notes": []},
    ),
    "whereabouts: what Go leaves empty": Case(
        f"{TYPES}: IPAMConfig as encoding/json writes it",
        {
            "type": "whereabouts",
            "routes": None,
            "ipRanges": None,
            "dns": {},
            "range": "10.7.0.0/24",
            "range_start": "",
            "gateway": "",
            "log_file": "",
            "enable_overlapping_ranges": None,
            "network_name": "",
        },
        {"ranges": ["10.7.0.0/24 - - -"], "notes": ["log_file is not needed"]},
    ),
    "whereabouts: what steers its leases, and a gateway that is never given": Case(
        f"{TYPES}: IPAMConfig, exclude_gateway and optimistic_ipam",
        {
            "type": "whereabouts",
            "range": "10.7.0.0/24",
            "gateway": "10.7.0.1",
            "exclude_gateway": True,
            "optimistic_ipam": True,
        },
        {
            "ranges": ["10.7.0.0/24 - - 10.7.0.1"],
            "notes": ["exclude_gateway is not needed", "optimistic_ipam is not needed"],
        },
    ),
    "whereabouts: the ends of a subnet, of all ranges": Case(
        f"{TYPES}: IPAMConfig, enable_l3",
        {"type": "whereabouts", "range": "10.7.0.0/24", "enable_l3": True},
        {"ranges": ["10.7.0.0/24 - - -"], "notes": ["the first and the last address"]},
    ),
    "whereabouts: IPv4 in the form of IPv6": Case(
        f"{EXTENDED}: canonicalizes IPv4-mapped-IPv6 to IPv4",
        {
            "type": "whereabouts",
            "range": "10.7.0.0/24",
            "range_start": "::ffff:10.7.0.9",
            "gateway": "::ffff:10.7.0.1",
        },
        {"ranges": ["10.7.0.0/24 10.7.0.9 - 10.7.0.1"]},
    ),
    "whereabouts: addresses of its own, beside a range": Case(
        f"{EXTENDED}: configureStatic",
        {
            "type": "whereabouts",
            "range": "10.7.0.0/24",
            "addresses": [{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}],
        },
        {"ranges": ["10.7.0.0/24 - - -"], "addresses": ["10.9.0.5/24 10.9.0.1"]},
    ),
    "whereabouts: single addresses as excludes": Case(
        f"{ALLOCATE}: can IterateForAssignment on an IPv4 address excluding a range "
        "which is a single IP",
        {"type": "whereabouts", "range": "10.7.0.0/24", "exclude": ["10.7.0.9", "10.7.0.17/30"]},
        {"ranges": ["10.7.0.0/24 - - -"]},
    ),
}
