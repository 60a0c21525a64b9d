"""Any value of a recorded type, for Hypothesis: every field whatever its type allows."""

from __future__ import annotations

import types
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st

from kube_rdma.model.device import PciAddress

from .recorded import has_fields, hints

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    type(None): st.none(),
    PciAddress: st.sampled_from(["0000:81:00.0", "0001:02:1f.7"]).map(PciAddress),
    IPv4Address: st.ip_addresses(v=4),
    IPv6Address: st.ip_addresses(v=6),
    IPv4Network: st.ip_addresses(v=4).map(IPv4Network),
    IPv6Network: st.ip_addresses(v=6).map(IPv6Network),
}


@cache
def values(of: Any) -> st.SearchStrategy[Any]:
    """Values of a type as a field has it."""
    of = getattr(of, "__supertype__", of)
    if of in _PLAIN:
        return _PLAIN[of]
    args = get_args(of)
    if get_origin(of) in (Union, types.UnionType):
        return st.one_of(*map(values, args))
    if get_origin(of) is tuple:
        if args[1:] == (...,):
            return st.lists(values(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, args))
    if has_fields(of):
        return st.builds(of, **{name: values(part) for name, part in hints(of).items()})
    assert issubclass(of, Enum), of
    return st.sampled_from(of)
