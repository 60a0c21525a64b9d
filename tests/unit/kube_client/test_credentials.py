"""Tokens that are rotated, and plugins that are real programs: what is used, and for how long."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kube_base.errors import Refused, Unavailable
from kube_client.credentials import (
    TOKEN_SECONDS,
    Credential,
    CredentialPlugin,
    Person,
    TokenFile,
    find_credentials,
    impersonation,
)
from kube_client.kubeconfig import Access, PluginEntry, ServerEntry, UserEntry

V1 = "client.authentication.k8s.io/v1"
SECRET = "s3cr3t"
START = datetime(2026, 1, 1, tzinfo=UTC)
# Prints what the file beside it holds, notes that it ran, and what it was told.
SCRIPT = """\
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as runs:
    print(os.environ["KUBERNETES_EXEC_INFO"], os.environ.get("LOGIN", ""), file=runs)
print((folder / "answer").read_text())
"""


class Plugin:
    """A program on disk and the entry that names it; `now` is its clock."""

    def __init__(self, folder, **entry):
        self.folder = folder
        self.now = START
        (folder / "plugin.py").write_text(SCRIPT)
        args = (str(folder / "plugin.py"), str(folder))
        plugin = PluginEntry(api_version=V1, command=sys.executable, args=args, **entry)
        server = ServerEntry(server="https://a:1", certificate_authority=str(folder / "ca"))
        access = Access(server, UserEntry(exec=plugin), "the kubeconfig")
        self.credentials = CredentialPlugin(plugin, access, lambda: self.now)

    def prints(self, kind="ExecCredential", version=V1, **status):
        document = {"apiVersion": version, "kind": kind, "status": status}
        (self.folder / "answer").write_text(json.dumps(document))

    @property
    def runs(self):
        path = self.folder / "runs"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def plugin(tmp_path):
    return Plugin(tmp_path)


async def test_a_plugins_token_is_kept(plugin):
    """Without an end, until the server does not accept it."""
    plugin.prints(token="one")
    assert await plugin.credentials.read() == Credential("Bearer one")
    plugin.prints(token="two")
    assert await plugin.credentials.read() == Credential("Bearer one")
    assert plugin.credentials.reject(Credential("Bearer one"))
    assert await plugin.credentials.read() == Credential("Bearer two")
    assert plugin.credentials.reject(Credential("Bearer one"))  # somebody asked anew meanwhile
    await plugin.credentials.read()
    assert len(plugin.runs) == 2


async def test_a_plugins_token_expires(plugin):
    plugin.prints(token="one", expirationTimestamp=(START + timedelta(minutes=5)).isoformat())
    await plugin.credentials.read()
    plugin.prints(token="two")
    plugin.now += timedelta(minutes=4)
    assert await plugin.credentials.read() == Credential("Bearer one")
    plugin.now += timedelta(minutes=1)
    assert await plugin.credentials.read() == Credential("Bearer two")


async def test_a_plugin_runs_once_for_all_that_wait(plugin):
    plugin.prints(token="one")
    await asyncio.gather(*(plugin.credentials.read() for _ in range(5)))
    assert len(plugin.runs) == 1


async def test_a_plugins_certificate(plugin):
    """Chain and key, with or without a token."""
    plugin.prints(clientCertificateData="CHAIN", clientKeyData=SECRET)
    credential = await plugin.credentials.read()
    assert credential == Credential("", f"CHAIN\n{SECRET}".encode())
    assert SECRET not in repr(credential)


async def test_what_a_plugin_is_told(tmp_path):
    """The protocol's version, that nobody can be asked, and the server if it wants to know."""
    (tmp_path / "ca").write_text("PEM")
    entry = msgspec.convert({"env": [{"name": "LOGIN", "value": "yes"}]}, PluginEntry)
    plugin = Plugin(tmp_path, env=entry.env, provide_cluster_info=True)
    plugin.prints(token="one")
    await plugin.credentials.read()
    (run,) = plugin.runs
    info, _, login = run.rpartition(" ")
    assert login == "yes"
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": "https://a:1", "certificate-authority-data": "UEVN"},
        },
    }


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (SECRET, "no ExecCredential"),
        ("{}", "no ExecCredential"),
        ({"kind": "Secret"}, f"{V1} Secret"),
        ({"version": "client.authentication.k8s.io/v1beta1"}, "v1beta1 ExecCredential"),
        ({}, "neither a token nor a certificate"),
        ({"clientKeyData": SECRET, "token": SECRET}, "a key without its certificate"),
        ({"token": [SECRET]}, "no ExecCredential"),
    ],
)
async def test_a_plugin_that_prints_something_else(plugin, answer, what):
    """Refused, with the command and the file that names it; without what it printed."""
    if isinstance(answer, str):
        (plugin.folder / "answer").write_text(answer)
    else:
        plugin.prints(**answer)
    with pytest.raises(Refused) as caught:
        await plugin.credentials.read()
    text = str(caught.value)
    assert what in text
    assert sys.executable in text
    assert "the kubeconfig" in text
    assert SECRET not in text


async def test_a_plugin_that_fails(plugin):
    """Its last words are shown, and it is asked again."""
    with pytest.raises(Unavailable, match=r"failed \(1\): .*No such file"):
        await plugin.credentials.read()
    plugin.prints(token="one")
    assert await plugin.credentials.read() == Credential("Bearer one")


async def test_a_plugin_that_is_not_installed(tmp_path):
    """Its own hint is the remedy."""
    entry = PluginEntry(api_version=V1, command="./none", install_hint="Install\n  none.")
    access = Access(ServerEntry(), UserEntry(exec=entry), "the kubeconfig")
    with pytest.raises(Refused, match=r"cannot start .*none.* Install none\.$"):
        await find_credentials(access).read()


async def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path):
    """Nobody types here: it is said, and not waited for."""
    entry = PluginEntry(api_version=V1, command="login", interactive_mode="Always")
    access = Access(ServerEntry(), UserEntry(exec=entry), "the kubeconfig")
    nobody = Person(types=False, reads=False)
    with pytest.raises(Refused, match="login wants to ask, and stdin is not a terminal"):
        await CredentialPlugin(entry, access, person=nobody).read()


PROMPTED = """
import asyncio, sys
from kube_client.credentials import CredentialPlugin
from kube_client.kubeconfig import Access, PluginEntry, ServerEntry, UserEntry
entry = PluginEntry("client.authentication.k8s.io/v1", sys.executable, ("-c", sys.argv[1]),
                    interactive_mode=sys.argv[2])
access = Access(ServerEntry(), UserEntry(exec=entry), "x")
print(asyncio.run(CredentialPlugin(entry, access).read()).authorization)
"""
ASKS = """
import json, os, sys
print("enter the code", file=sys.stderr, flush=True)
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
word = sys.stdin.readline().strip() if info["spec"]["interactive"] else "nobody"
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential",
                  "status": {"token": word}}))
"""


@pytest.mark.parametrize(("mode", "token"), [("IfAvailable", "1234"), ("Never", "nobody")])
def test_on_a_terminal_a_plugin_asks_and_is_answered(mode, token):
    """Its question is shown while it waits, and what is typed is its own to read."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROMPTED, ASKS, mode]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        shown = b""
        while b"enter the code" not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, b"1234\n")
        assert process.stdout.read().decode().strip() == f"Bearer {token}"
    os.close(ours)


async def test_a_cancelled_plugin_is_ended(tmp_path):
    """Nobody waits for it any more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = (
        "import sys, time; pipe = open(sys.argv[1], 'w'); print('ready', file=pipe, flush=True)"
    )
    script += "; time.sleep(600)"
    entry = PluginEntry(api_version=V1, command=sys.executable, args=("-c", script, str(pipe)))
    access = Access(ServerEntry(), UserEntry(exec=entry), "the kubeconfig")
    reading = asyncio.create_task(find_credentials(access).read())
    with await asyncio.to_thread(pipe.open) as end:
        assert await asyncio.to_thread(end.readline) == "ready\n"
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await asyncio.to_thread(end.read) == ""


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


async def test_a_tokens_file_is_read_again(tmp_path):
    """After a minute; a moment in which it is missing or empty does no harm."""
    clock, path = Clock(), tmp_path / "token"
    path.write_text("one\n")
    credentials = TokenFile(path, clock=clock)
    assert await credentials.read() == Credential("Bearer one")
    path.write_text("two")
    assert await credentials.read() == Credential("Bearer one")
    clock.now += TOKEN_SECONDS
    assert await credentials.read() == Credential("Bearer two")
    for remove in (path.unlink, lambda: path.write_text("")):
        remove()
        clock.now += TOKEN_SECONDS
        assert await credentials.read() == Credential("Bearer two")


async def test_a_token_that_is_no_longer_accepted(tmp_path):
    """Only another one is worth a try."""
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(path)
    used = await credentials.read()
    assert not credentials.reject(used)
    path.write_text("two")
    assert credentials.reject(used)
    assert await credentials.read() == Credential("Bearer two")


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
async def test_no_token_at_all(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused, match=r"token: cannot read a token: .*tokenFile\.$"):
        await TokenFile(path).read()


async def test_what_stands_in_the_kubeconfig():
    """A password, a token, nothing."""
    for user, header in (
        (UserEntry(username="me", password="it:"), "Basic bWU6aXQ6"),
        (UserEntry(token="one"), "Bearer one"),
        (UserEntry(), ""),
    ):
        credentials = find_credentials(Access(ServerEntry(), user, ""))
        assert await credentials.read() == Credential(header)
        assert not credentials.reject(Credential(header))


def test_acting_as_somebody_else():
    user = UserEntry(
        impersonate="jo", impersonate_groups=("a", "b"), impersonate_extra={"why": ("x",)}
    )
    assert impersonation(user) == (
        ("Impersonate-User", "jo"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-why", "x"),
    )
