"""A real bond: what stands on it and what does not, as the rules of bonded cards assume."""

from .masters import expected, facts
from .world import run


def test_a_slave_of_a_bond_names_it_and_takes_no_macvlan_itself():
    run("modprobe", "bonding")
    assert facts("bond") == expected("bond")
