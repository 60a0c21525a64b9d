"""Plugins of others are called as libcni calls them, and every way to fail has its sentence."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import select

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.cni.plugins import MOST
from kube_rdma.model.attach.attachment import PluginResult
from kube_rdma.model.attach.cni import Dns

from .conftest import Answer, FakeWorld, RealWorld, call, needs_root, sandbox_in

RESULT = '{"cniVersion": "1.0.0", "interfaces": [{"name": "net1"}], "dns": {"domain": "a.b"}}'


def told(world):
    """What each call was about: plugin, verb, previous result."""
    return [
        (name, variables["CNI_COMMAND"], config.get("prevResult"))
        for name, variables, config in world.calls()
    ]


def test_add_passes_the_result_along(world, sandbox):
    """Each plugin gets what the one before it answered; the last answer counts."""
    world.put("bridge", Answer('{"one": 1}'))
    world.put("tuning", Answer(RESULT))
    found = world.plugins.add(call("bridge", "tuning"), sandbox)
    assert told(world) == [("bridge", "ADD", None), ("tuning", "ADD", {"one": 1})]
    assert json.loads(found.document) == json.loads(RESULT)
    assert found == PluginResult("net1", found.document, Dns(domain="a.b"))


def test_a_plugin_gets_the_variables_of_cni_and_a_path(world, sandbox):
    """Nothing of the agent's own environment."""
    world.put("bridge")
    world.plugins.add(call("bridge"), sandbox)
    ((_, variables, config),) = world.calls()
    assert config == {"type": "bridge"}
    assert variables == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": str(world.seen),
        "CNI_IFNAME": "net1",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=train-0;"
        "K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=uid-1",
        "CNI_PATH": str(world.folder),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_delete_goes_back_along_the_list(world, sandbox):
    """With the result of ADD for all, and without one where ADD gave none."""
    world.put("bridge", Answer(""))
    world.put("tuning", Answer(""))
    world.plugins.delete(call("bridge", "tuning"), sandbox, PluginResult("net1", b'{"one": 1}'))
    world.plugins.delete(call("bridge"), sandbox, None)
    assert told(world) == [
        ("tuning", "DEL", {"one": 1}),
        ("bridge", "DEL", {"one": 1}),
        ("bridge", "DEL", None),
    ]


@pytest.mark.parametrize("change", [{"netns_inode": 1}, {"netns_path": "/run/netns/none"}])
def test_delete_names_no_namespace_that_is_gone(world, sandbox, change):
    """Also when another one has come to its path."""
    world.put("bridge", Answer(""))
    world.plugins.delete(call("bridge"), replace(sandbox, **change), None)
    ((_, variables, _),) = world.calls()
    assert variables["CNI_NETNS"] == ""


@pytest.mark.parametrize(
    ("facts", "result"),
    [({"version": "0.3.1"}, None), ({"version": "0.4.0"}, {}), ({"check": False}, {})],
)
def test_check_and_results_are_of_version_0_4_0(world, sandbox, facts, result):
    """Older plugins know neither; a list may forbid CHECK besides."""
    world.put("bridge", Answer(""))
    one = call("bridge", **facts)
    world.plugins.check(one, sandbox, PluginResult("net1", b"{}"))
    world.plugins.delete(one, sandbox, PluginResult("net1", b"{}"))
    checked = [("bridge", "CHECK", {})] if facts == {"version": "0.4.0"} else []
    assert told(world) == [*checked, ("bridge", "DEL", result)]


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (
            Answer('{"code": 7, "msg": "no bridge.", "details": "br0"}', 1),
            Refused,
            (
                "the CNI plugin bridge refuses ADD with code 7: no bridge: br0. Change the "
                "configuration of the network: the plugin does not accept it."
            ),
        ),
        (
            Answer('{"code": 11, "msg": "busy"}', 1),
            Unavailable,
            "The CNI plugin bridge refuses ADD with code 11: busy.",
        ),
        (
            Answer('{"code": 999}', 1),
            Unavailable,
            "The CNI plugin bridge refuses ADD with code 999: no reason.",
        ),
        (
            Answer("", 2, "panic:\n  at home"),
            Unavailable,
            "The CNI plugin bridge ended 2 at ADD and said: panic: at home.",
        ),
        (
            Answer("", -15),
            Unavailable,
            "The CNI plugin bridge was ended by signal 15 at ADD and said: nothing.",
        ),
        (
            Answer("hello"),
            Unavailable,
            "The CNI plugin bridge answered ADD with something that is not a result: hello.",
        ),
        (
            Answer("x" * (MOST + 1)),
            Unavailable,
            (
                f"The CNI plugin bridge gives no answer: it wrote more than {MOST} bytes and was "
                "killed."
            ),
        ),
    ],
)
def test_what_a_plugin_says_when_it_fails(world, sandbox, answer, kind, sentence):
    """Plugin, code, message and details, and who has to act."""
    world.put("bridge", answer)
    with pytest.raises(kind) as caught:
        world.plugins.add(call("bridge", "tuning"), sandbox)
    assert str(caught.value) == sentence
    assert len(world.calls()) == 1


def test_a_plugin_that_was_taken_away_is_named_with_its_folder(world, sandbox):
    """It may have left something that only it can take back."""
    world.put("bridge")
    assert world.plugins.installed() == ("bridge",)
    world.remove("bridge")
    assert world.plugins.installed() == ()
    with pytest.raises(Refused, match=rf"^{world.folder}: the host has no CNI plugin bridge"):
        world.plugins.delete(call("bridge"), sandbox, None)


def test_a_plugin_that_hangs_is_killed(world, sandbox):
    """With what it has started."""
    world.put("bridge", Answer(hangs=True, leaves=True))
    with pytest.raises(Unavailable, match=r"bridge gives no answer: it did not end within \d+ s"):
        world.impatient().add(call("bridge"), sandbox)
    if isinstance(world, RealWorld) and (child := world.child()):
        with suppress(ProcessLookupError):
            ended = os.pidfd_open(child)
            assert select([ended], [], [], 60)[0], "what it started still runs"
            os.close(ended)


def test_what_a_plugin_leaves_running_is_not_waited_for(world, sandbox):
    """It holds the plugin's output open."""
    world.put("bridge", Answer(RESULT, leaves=True))
    assert world.plugins.add(call("bridge"), sandbox).dns == Dns(domain="a.b")


def test_a_namespace_that_is_gone_is_not_added_to(world, sandbox):
    """Nor another one at its path."""
    world.put("bridge")
    with pytest.raises(Unavailable, match="gone"):
        world.plugins.add(call("bridge"), replace(sandbox, netns_inode=1))
    assert world.calls() == []


def test_a_namespace_that_plugins_do_not_see_is_a_mount_that_lacks():
    """The sentence names the mount."""
    world = FakeWorld(Path("/host"))
    world.put("bridge")
    far = sandbox_in(world, netns_path="/var/run/netns/cni-2")
    with pytest.raises(Refused, match="Mount the host's /var/run/netns at /host/var/run/netns in"):
        world.plugins.add(call("bridge"), far)
    unseen = sandbox_in(world, netns_path="/run/netns/cni-2", netns_inode=9)
    with pytest.raises(Unavailable, match="/host/run/netns lacks mountPropagation"):
        world.plugins.add(call("bridge"), unseen)


def test_a_file_that_cannot_be_run_is_no_plugin(tmp_path):
    """A configuration that lies there by mistake, a folder, a name that is none."""
    world = RealWorld(tmp_path)
    (world.folder / "README").write_text("x")
    (world.folder / "more").mkdir()
    assert world.plugins.installed() == ()
    with pytest.raises(ValueError, match="no file has such a name"):
        type(FakeWorld().host)({"../x": lambda *_: None}, lambda _: None)


def test_a_folder_that_is_not_there_has_no_plugins(tmp_path):
    """Whoever asks for one gets the sentence of one that is missing."""
    world = RealWorld(tmp_path)
    world.folder.rmdir()
    assert world.plugins.installed() == ()


@pytest.mark.parametrize("root", ["/", pytest.param("/proc/self/root", marks=needs_root)])
def test_a_program_without_its_interpreter_is_told(tmp_path, root):
    """As one for another machine, or whose loader is not mounted."""
    world = RealWorld(tmp_path, Path(root))
    world.put("bridge")
    program = world.folder / "bridge"
    program.write_text("#!/nowhere/at/all")
    with pytest.raises((Refused, Unavailable), match="No such file or directory"):
        world.plugins.add(call("bridge"), sandbox_in(world))


REMEDY = "Give the agent the capability SYS_CHROOT"

# Run without the capability: what the real host says then.
WITHOUT = """\
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.contract.cni_exec.conftest import RealWorld, call, sandbox_in
world = RealWorld(Path({folder!r}), Path("/proc/self/root"))
world.put("bridge")
world.plugins.add(call("bridge"), sandbox_in(world))
"""


def test_without_the_capability_the_sentence_says_so():
    """Of the fake host, at once and at ADD; the next test is the real one."""
    world = FakeWorld(Path("/host"), permitted=False)
    world.put("bridge")
    sentence = f"cannot be run below /host: .*{REMEDY}, and mount"
    with pytest.raises(Refused, match=sentence):
        world.plugins.ready(call("bridge"))
    with pytest.raises(Refused, match=sentence):
        world.plugins.add(call("bridge"), sandbox_in(world))


def test_a_plugin_that_is_asked_for_its_version_is_told_no_more(world):
    """One that does not know the question is ready all the same."""
    world.put("bridge", Answer('{"code": 4, "msg": "unknown CNI_COMMAND"}', 1))
    world.plugins.ready(call("bridge"))
    ((_, variables, config),) = world.calls()
    assert (set(variables), config) == ({"CNI_COMMAND", "CNI_PATH", "PATH"}, {})
    assert variables["CNI_COMMAND"] == "VERSION"


@needs_root
def test_without_the_capability_the_real_host_says_the_same(tmp_path):
    """A child of ours that has given it up."""
    code = WITHOUT.format(tests=str(Path(__file__).parents[3]), folder=str(tmp_path))
    argv = ["setpriv", "--bounding-set", "-sys_chroot", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=os.sep)
    assert "bridge cannot be run below /proc/self/root: " in done.stderr
    assert "Operation not permitted. " + REMEDY in done.stderr
