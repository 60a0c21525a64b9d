"""Wishes that cannot stand beside each other are refused before a node is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import Bind, FunctionRange, Mode, PoolSpec, Preference, Selector
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.pools import faults, warnings, with_defaults

ONE = PciAddress("0000:81:00.0")
TWO = PciAddress("0000:81:00.1")


def pools(first, second, modes=(Mode.EXCLUSIVE, Mode.EXCLUSIVE)):
    return [
        PoolSpec(f"rdma/{name}", mode, f"f:{line}", selectors=(selector,) if selector else ())
        for name, line, mode, selector in zip("ab", (1, 2), modes, (first, second), strict=True)
    ]


def spans(text, *indexes):
    return FunctionRange(text, indexes)


S = Selector
MEET = {
    "no selectors": (None, None, "every card"),
    "address": (S(pci_addresses=(TWO, ONE)), S(pci_addresses=(ONE,)), ONE),
    "interface": (S(interfaces=("a", "b")), S(interfaces=("b", "c")), "b"),
    "RDMA device": (S(rdma_devices=("mlx5_0",)), S(rdma_devices=("mlx5_0",)), "mlx5_0"),
    "ACPI index": (S(acpi_indexes=(1,)), S(acpi_indexes=(1,)), "1"),
    "functions": (S(physical=(spans("a", (0, 3)),)), S(physical=(spans("a", (3, 5)),)), "a"),
    "all functions": (S(physical=(spans("a"),)), S(physical=(spans("a", (3, 5)),)), "a"),
    "root": (S(roots=(spans(ONE, (0, 3)),)), S(roots=(spans(ONE, (1, 1)),)), ONE),
    "one narrower": (S(interfaces=("a",)), S(interfaces=("a",), vendors=("15b3",)), "a"),
    "both the same": (S(interfaces=("a",), pci_addresses=(ONE,)),) * 2 + (ONE,),
}
APART = {
    "all and some": (None, S(interfaces=("a",))),
    "other address": (S(pci_addresses=(TWO,)), S(pci_addresses=(ONE,))),
    "other ranges": (S(physical=(spans("a", (0, 3)),)), S(physical=(spans("a", (4, 5)),))),
    "other parent": (S(physical=(spans("a"),)), S(physical=(spans("b"),))),
    "other driver": (
        S(interfaces=("a",), drivers=("x",)),
        S(interfaces=("a",), drivers=("y",)),
    ),
    "perhaps": (S(interfaces=("a",), drivers=("x",)), S(interfaces=("a",), vendors=("15b3",))),
    "with and without RDMA": (S(interfaces=("a",), rdma=True), S(interfaces=("a",), rdma=False)),
    "vendor and interface": (S(vendors=("15b3",)), S(interfaces=("a",))),
    "two names": (
        S(interfaces=("a", "b"), pci_addresses=(ONE,)),
        S(interfaces=("a", "c"), pci_addresses=(ONE, TWO)),
    ),
}


@pytest.mark.parametrize("name", MEET)
def test_an_owner_refuses_a_second_pool_of_its_cards(name):
    first, second, what = MEET[name]
    for one, other in ((first, second), (second, first)):
        for modes in ((Mode.EXCLUSIVE, Mode.SHARED), (Mode.HCA, Mode.EXCLUSIVE)):
            specs = pools(one, other, modes)
            (fault,) = faults(specs)
            assert str(fault).startswith(f"f:2: rdma/a has {what} too, and mode exclusive shares")
            assert fault.remedy.endswith("f:1")
            assert not warnings(specs)


@pytest.mark.parametrize("name", MEET)
def test_sharing_pools_of_the_same_cards_are_warned_of(name):
    first, second, what = MEET[name]
    specs = pools(first, second, (Mode.HCA, Mode.SHARED))
    assert not faults(specs)
    (warning,) = warnings(specs)
    assert warning.startswith(f"rdma/a (f:1) and rdma/b (f:2) both have {what}, ")


@pytest.mark.parametrize("name", APART)
def test_what_depends_on_the_node_is_left_to_it(name):
    for one, other in (APART[name], APART[name][::-1]):
        assert not faults(pools(one, other))
        assert not warnings(pools(one, other, (Mode.HCA, Mode.HCA)))


def test_a_resource_is_given_once():
    specs = [PoolSpec("rdma/a", Mode.HCA, f"f:{n}", (S(interfaces=(f"i{n}",)),)) for n in (1, 2, 3)]
    said_of = [str(fault) for fault in faults(specs)]
    assert said_of[0] == "f:2: the resource rdma/a is given twice. Rename one, the first is f:1."
    assert [line[:4] for line in said_of] == ["f:2:", "f:3:"]


@pytest.mark.parametrize("mode", Mode)
def test_shares_are_at_most_what_the_mode_has(mode):
    most = MODES[mode].most
    assert not faults([PoolSpec("rdma/a", mode, "f:1", shares=most)])
    if most is not None:
        (fault,) = faults([PoolSpec("rdma/a", mode, "f:1", shares=most + 1)])
        assert fault.problem == f"{most + 1} shares of a card are more than mode {mode} has"
        assert fault.where == "f:1"


@given(
    st.builds(
        PoolSpec,
        st.just("rdma/a"),
        st.sampled_from(Mode),
        st.just("f"),
        shares=st.none() | st.integers(1, 9),
        bind=st.none() | st.sampled_from(Bind),
        prefer=st.none() | st.sampled_from(Preference),
    )
)
def test_what_is_said_of_a_wish_changes_nothing_in_it(spec):
    whole = with_defaults(spec)
    assert terms(whole) == terms(spec)
    assert None not in (whole.shares, whole.bind, whole.attach, whole.prefer)
    assert with_defaults(whole) == whole
