"""What nodes with NetworkManager or systemd-networkd get, read as those read it."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "config/node-files"
RULES = FOLDER / "10-kube-rdma-unmanaged.rules"
NETWORK = FOLDER / "05-kube-rdma-unmanaged.network"
KEY = re.compile(r'([A-Z]+)(?:\{(\w+)\})?(==|!=|=)"([^"]*)"')


def lines():
    """The rules: of each line its keys with operator and value (udev(7))."""
    text = [line for line in RULES.read_text().splitlines() if line and not line.startswith("#")]
    read = [KEY.findall(line) for line in text]
    for line, keys in zip(text, read, strict=True):
        assert ", ".join(f'{a}{f"{{{b}}}" if b else ""}{c}"{d}"' for a, b, c, d in keys) == line
    return read


def marks():
    """The properties that the rules set."""
    return {(name, value) for keys in lines() for key, name, _, value in keys if key == "ENV"}


def test_every_event_that_brings_a_function_is_meant():
    """An interface that comes back from a pod is moved; one that is renamed too."""
    (actions,) = [value for keys in lines() for key, _, _, value in keys if key == "ACTION"]
    assert set(actions.split("|")) == {"add", "change", "move"}


def test_a_function_is_told_by_the_kernel_s_own_link():
    """As adapters/kernel/sysfs tells it; other interfaces have none."""
    (test,) = [keys for keys in lines() if keys[0][0] == "TEST"]
    assert test[0][3] == "device/physfn"
    assert {(name, value) for key, name, _, value in test if key == "ENV"} == marks()


def test_networkd_looks_for_what_the_rules_set():
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read_string(NETWORK.read_text())
    name, _, value = parser["Match"]["Property"].partition("=")
    assert (name, value) in marks()
    assert parser["Link"]["Unmanaged"] == "yes"
    assert ("NM_UNMANAGED", "1") in marks()


def test_networkd_s_file_comes_before_those_of_netplan():
    assert NETWORK.name < "10-netplan-eth0.network"


def test_a_page_says_how_they_are_installed():
    page = (ROOT / "docs/nodes.md").read_text()
    for path in FOLDER.iterdir():
        assert f"config/node-files/{path.name}" in page
