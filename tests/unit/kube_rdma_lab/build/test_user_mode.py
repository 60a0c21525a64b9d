"""The user-mode kernel's configuration: reasons, what is lost, and which source it is made from."""

from dataclasses import replace
from pathlib import Path

import pytest

from kube_base.errors import Broken, Refused
from kube_rdma_lab.bare import user_mode as machine
from kube_rdma_lab.build import kernel, user_mode

RESOLVED = kernel.Resolved("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1", {"linux-binary-x": "ab"})


def test_a_block_of_options_has_a_reason():
    text = "# title\n\n# why\nCONFIG_A=y\nCONFIG_B=8\n"
    assert user_mode.options(text) == {"CONFIG_A": "y", "CONFIG_B": "8"}
    with pytest.raises(Refused, match="CONFIG_C"):
        user_mode.options(f"{text}\nCONFIG_C=y\n")


def test_an_option_that_the_source_turned_off_or_forgot_is_lost():
    wanted = {"CONFIG_A": "y", "CONFIG_B": "8", "CONFIG_C": "y"}
    assert user_mode.lost(wanted, "CONFIG_A=y\n# CONFIG_B is not set\n") == ["CONFIG_B", "CONFIG_C"]


def test_the_committed_configuration_is_well_formed_and_has_soft_roce():
    options = user_mode.options(user_mode.CONFIG.read_text())
    assert options["CONFIG_RDMA_RXE"] == "y"
    assert all(name.startswith("CONFIG_") for name in options)


def test_the_source_is_of_the_machines_kernel_s_version():
    """Another version, configuration or card is another kernel."""
    inputs = user_mode.inputs_of(RESOLVED)
    assert inputs["package"] == "linux-source-7.3"
    assert user_mode.inputs_of(replace(RESOLVED, version="7.3.5-1")) != inputs


def test_a_source_is_changed_once_and_one_without_a_line_is_broken(tmp_path):
    """Another version of Linux may have written it otherwise."""
    for path, (before, _) in user_mode.CHANGES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"\t{before} a\n\t{before} b\n")
    user_mode.change(tmp_path)
    for path, (before, after) in user_mode.CHANGES.items():
        assert (tmp_path / path).read_text() == f"\t{after} a\n\t{before} b\n"
    (tmp_path / "arch/x86/um/Kconfig").write_text("config UML_X86\n")
    with pytest.raises(Broken, match=r"arch/x86/um/Kconfig .* `select ARCH_SUPPORTS_ATOMIC_RMW`"):
        user_mode.change(tmp_path)


def test_the_machine_sees_one_folder_and_no_disk_that_it_could_write():
    argv = machine.command_line(Path("/k"), Path("/d"), Path("/h/initrd"), Path("/h/tests.jsonl"))
    assert "hostfs=/h" in argv
    assert [word for word in argv if word.startswith("ubd")] == ["ubd0r=/d"]
