"""The end of pod networks on a node: `kube-rdma network uninstall`."""

import json
import socket

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cni.conf.folder import ConfFolder
from kube_rdma.adapters.cni.conf.places import NAMES, install
from kube_rdma.attach.rules.conflist import CELLO_RDMA, RDMA_CONF, SAVED, plan
from kube_rdma.cli.main import cli

LIST = json.dumps({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "bridge"}]})
CONF, BINARIES = "etc/cni/net.d", "opt/cni/bin"


@pytest.fixture
def host(tmp_path_factory):
    """A host without anything of ours; its folder has a short name, a socket is in it."""
    root = tmp_path_factory.mktemp("h")
    for folder in (CONF, BINARIES, "run/kube-rdma"):
        (root / folder).mkdir(parents=True)
    (root / BINARIES / "bridge").write_text("another's")
    return root


def wired(host, name, text):
    """What the agent leaves behind on a host with this configuration."""
    (host / CONF / name).write_text(text)
    folder = ConfFolder(host / CONF)
    files = folder.read()
    assert folder.apply(plan(files), files)
    install(b"shim", host / BINARIES)


def uninstall(host):
    return CliRunner().invoke(cli, ["network", "uninstall", "--host", str(host)])


def content(host):
    return {path.name: path.read_text() for path in (host / CONF).iterdir()}


def test_our_entry_and_our_binaries_go(host):
    """One line for each; what is another's stays as it was."""
    wired(host, "10-cbr0.conflist", LIST)
    assert "kube-rdma" in content(host)["10-cbr0.conflist"]
    result = uninstall(host)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "/etc/cni/net.d/10-cbr0.conflist: kube-rdma is no longer called",
        *(f"/opt/cni/bin/{name}: removed" for name in NAMES),
    ]
    assert json.loads(content(host)["10-cbr0.conflist"]) == json.loads(LIST)
    assert [path.name for path in (host / BINARIES).iterdir()] == ["bridge"]
    before, result = content(host), uninstall(host)  # as a job that was killed after its work
    assert (result.exit_code, result.output) == (
        0,
        "Nothing of kube-rdma is in /etc/cni/net.d any more.\n",
    )
    assert content(host) == before


def test_an_agent_that_runs_is_not_fought(host):
    """It would put everything back within a second; one that has ended leaves a dead socket."""
    wired(host, "10-cbr0.conflist", LIST)
    before = content(host)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(host / "run/kube-rdma/agent.sock"))
        listener.listen()
        result = uninstall(host)
    assert isinstance(result.exception, Refused)
    assert "Delete its DaemonSet first" in str(result.exception)
    assert content(host) == before
    assert uninstall(host).exit_code == 0


def forgotten(host):
    return CliRunner().invoke(cli, ["network", "uninstall", "--host", str(host), "--records"])


def test_records_go_on_demand(host):
    """Without the option they stay: the agent may come back."""
    (host / "var/lib/kube-rdma/pools").mkdir(parents=True)
    (host / "run/kube-rdma/missed").mkdir()
    (host / "run/kube-rdma/neighbours").touch()
    wired(host, "10-cbr0.conflist", LIST)
    uninstall(host)
    assert (host / "var/lib/kube-rdma/pools").exists()
    assert forgotten(host).output.splitlines() == [
        "Nothing of kube-rdma is in /etc/cni/net.d any more.",
        "/var/lib/kube-rdma: records removed",
        "/run/kube-rdma: records removed",
    ]
    assert not (host / "var/lib/kube-rdma").exists()
    assert not (host / "run/kube-rdma").exists()


def test_records_stay_while_a_network_is_among_them(host):
    """They say what is to be put back on a card."""
    record = host / "var/lib/kube-rdma/attachments/c1@net1.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    wired(host, "10-cbr0.conflist", LIST)
    result = forgotten(host)
    assert (
        "stays, 1 records of networks are left in it, such as attachments/c1@net1" in result.output
    )
    assert record.exists()


LEFT = json.dumps({"cniVersion": "0.3.1", "name": "rdma", "plugins": [{"type": CELLO_RDMA}]})


def clear_vke(host, *options):
    result = CliRunner().invoke(cli, ["network", "clear-vke", "--host", str(host), *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_what_vke_left_is_set_aside_and_put_back(host):
    """Kube-rdma's own `rdma` is the network of that name then, while an agent keeps the folder."""
    meta = {"cniVersion": "0.3.1", "name": "m", "plugins": [{"type": "cello-meta"}]}
    (host / CONF / "20-rdma.conflist").write_text(LEFT)
    wired(host, "01-cello-meta.conflist", json.dumps(meta))
    before = content(host)
    assert RDMA_CONF not in before
    name = "/etc/cni/net.d/20-rdma.conflist"
    assert clear_vke(host) == f"{name}: set aside as 20-rdma.conflist{SAVED}\n"
    assert ConfFolder(host / CONF).read() != ()
    wired(host, "01-cello-meta.conflist", json.dumps(meta))
    assert RDMA_CONF in content(host)
    assert "Nothing to do" in clear_vke(host)
    uninstall(host)
    assert clear_vke(host, "--undo") == f"{name}: put back\n"
    assert content(host) == before
    assert "Nothing to do" in clear_vke(host, "--undo")


def test_a_component_that_has_come_back_keeps_its_own_file(host):
    """What was set aside is older."""
    (host / CONF / "20-rdma.conflist").write_text(LEFT)
    clear_vke(host)
    (host / CONF / "20-rdma.conflist").write_text(LEFT + "\n")
    clear_vke(host, "--undo")
    assert content(host) == {"20-rdma.conflist": LEFT + "\n"}
