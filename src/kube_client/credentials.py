"""Reads the credentials that `kubeconfig` names: a token, a password, or what a plugin prints.

`tls` reads the client certificates of kubeconfigs. What can change is read again: a token's file
after a minute, and when the server no longer accepts the token (the kubelet rotates it). A plugin
is run again when its answer expires or is no longer accepted. No message holds a secret; a plugin's
own words of failure, on its standard error, are shown.

Document: Kubernetes, Authentication, "client-go credential plugins".
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kube_base.errors import Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.plain_text import plain
from kube_client.kinds import Pairs
from kube_client.kubeconfig import Access, PluginEntry, UserEntry
from kube_client.tls import read_authority

TOKEN_SECONDS = 60.0  # how long a token's file is not read again
PLUGIN_SECONDS = 60.0  # how long a plugin may take
_BEFORE_EXPIRY = timedelta(seconds=10)  # a credential is no longer used so shortly before its end
_LAST_WORDS = 300  # characters of a plugin's failure


@dataclass(frozen=True, slots=True)
class Credential:
    """The secrets of one request and of a new connection; its repr shows none of them."""

    authorization: str = field(default="", repr=False)  # the header; empty for none
    certificate: bytes = field(default=b"", repr=False)  # a plugin's: PEM of chain and key


class Credentials(Protocol):
    """A source of credentials; `read` raises Refused or Unavailable if there are none."""

    async def read(self) -> Credential:
        """Return the credential to use now."""
        ...

    def reject(self, used: Credential) -> bool:
        """Note that the server refused `used`; return whether `read` may return another now."""
        ...


def find_credentials(access: Access) -> Credentials:
    """Return the credentials that a kubeconfig or the service account names."""
    user = access.user
    if user.exec:
        return CredentialPlugin(user.exec, access)
    if user.token_file:
        return TokenFile(Path(user.token_file), user.token)
    if user.username or user.password:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return FixedCredential(Credential(f"Basic {pair}"))
    return FixedCredential(Credential(_bearer(user.token)))


def impersonation(user: UserEntry) -> Pairs:
    """Return the headers that ask the server to act as somebody else."""
    extra = (
        (f"Impersonate-Extra-{key}", value)
        for key, values in user.impersonate_extra.items()
        for value in values
    )
    groups = (("Impersonate-Group", group) for group in user.impersonate_groups)
    names = ("Impersonate-User", user.impersonate), ("Impersonate-Uid", user.impersonate_uid)
    return (*(pair for pair in names if pair[1]), *groups, *extra)


class FixedCredential:
    """A credential that is written in the kubeconfig itself; it may be empty."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def read(self) -> Credential:
        """Return the credential, which never changes."""
        return self._credential

    def reject(self, _used: Credential) -> bool:
        """Return False: this source has no other credential."""
        return False


class TokenFile:
    """A token in a file that somebody else renews; the last one that could be read is kept."""

    def __init__(
        self, path: Path, token: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._token = token
        self._clock = clock
        self._due: float | None = None  # when it is read again; None before the first time

    async def read(self) -> Credential:
        """Return the token of the file, read again when the last reading is too old."""
        if self._due is None or self._clock() >= self._due:
            self._read()
        return Credential(_bearer(self._token))

    def reject(self, used: Credential) -> bool:
        """Read the file again; return whether its token differs from the one that was refused."""
        self._read()
        return _bearer(self._token) != used.authorization

    def _read(self) -> None:
        try:
            token = self._path.read_text(encoding="ascii").strip()
            why = "" if token else "it is empty"
        except OSError as error:
            token, why = "", error.strerror or type(error).__name__
        except UnicodeDecodeError:
            token, why = "", "it is not text"
        if not token and not self._token:
            raise Refused(
                f"cannot read a token: {why}",
                remedy="Put a token there, or correct tokenFile",
                where=str(self._path),
            )
        self._token = token or self._token
        self._due = self._clock() + TOKEN_SECONDS


class _PluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _PluginStatus | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """The user at the terminal: whether stdin (`types`) and stderr (`reads`) are a terminal."""

    types: bool
    reads: bool

    @classmethod
    def here(cls) -> Person:
        """Return a Person: whether stdin (`types`) and stderr (`reads`) here are a terminal."""
        streams = (sys.stdin, sys.stderr)
        return cls(*(stream is not None and stream.isatty() for stream in streams))


class CredentialPlugin:
    """A program that prints an ExecCredential, which is kept until it expires or is refused.

    At a terminal its questions are shown as they come, and it may take any time. The user may type
    answers, unless the plugin's interactiveMode is Never.
    """

    def __init__(
        self,
        plugin: PluginEntry,
        access: Access,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        person: Person | None = None,
    ) -> None:
        self._person = person or Person.here()
        self._plugin = plugin
        self._access = access
        self._now = now
        self._kept: Credential | None = None
        self._expiry: datetime | None = None
        self._lock = asyncio.Lock()  # it runs once, however many requests wait for it

    async def read(self) -> Credential:
        """Return the plugin's credential; run the plugin if there is none or it expires soon."""
        async with self._lock:
            expired = self._expiry is not None and self._now() + _BEFORE_EXPIRY >= self._expiry
            if self._kept is None or expired:
                self._kept, self._expiry = self._credential(await self._run())
            return self._kept

    def reject(self, used: Credential) -> bool:
        """Forget `used` if it is the kept credential, so that `read` gets another; return True."""
        if self._kept == used:
            self._kept = None
        return True

    async def _run(self) -> bytes:
        """Run the plugin and return its output; end the plugin when the caller is cancelled."""
        command = self._plugin.command
        process = await self._start()
        try:
            async with asyncio.timeout(None if self._person.reads else PLUGIN_SECONDS):
                output, words = await process.communicate()
        except TimeoutError:
            raise Unavailable(
                f"The credential plugin {command} has not ended after {PLUGIN_SECONDS:g} s."
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode:
            last = " ".join((words or b"").decode(errors="replace").split())[-_LAST_WORDS:]
            raise Unavailable(
                f"The credential plugin {command} failed ({process.returncode})"
                f"{f': {plain(last)}' if last else ''}."
            )
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        plugin, pipe = self._plugin, asyncio.subprocess.PIPE
        if plugin.interactive_mode == "Always" and not self._interactive:
            raise self._refused(
                f"the credential plugin {plugin.command} wants to ask, and stdin is not a terminal",
                "Log in by hand first, or set its interactiveMode to IfAvailable",
            )
        environment = {
            **os.environ,
            **{variable.name: variable.value for variable in plugin.env},
            "KUBERNETES_EXEC_INFO": json.dumps(self._info()),
        }
        try:
            return await asyncio.create_subprocess_exec(
                *(plugin.command, *plugin.args),
                env=environment,
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if self._person.reads else pipe,
            )
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise self._refused(
                f"cannot start the credential plugin {plugin.command}: {why}",
                plugin.install_hint or "Install it, or correct the command of exec",
            ) from error

    @property
    def _interactive(self) -> bool:
        """Return whether stdin is a terminal that the plugin's mode lets it use."""
        return self._plugin.interactive_mode != "Never" and self._person.types

    def _info(self) -> dict[str, Any]:
        """Return the ExecCredential that the plugin gets: whether it may ask, and the cluster.

        The cluster is in it only for a plugin with provideClusterInfo.
        """
        spec: dict[str, Any] = {"interactive": self._interactive}
        if self._plugin.provide_cluster_info:
            entry: dict[str, Any] = msgspec.to_builtins(self._access.server)
            entry.pop("certificate-authority", None)
            if authority := read_authority(self._access):
                entry["certificate-authority-data"] = base64.b64encode(authority).decode()
            spec["cluster"] = entry
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _credential(self, output: bytes) -> tuple[Credential, datetime | None]:
        try:
            answer = decoded(output, _ExecCredential)
        except Undecodable as error:  # it names fields and types, never what is in them
            raise self._useless(f"no ExecCredential ({error.why})") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise self._useless(
                f"{answer.api_version} {answer.kind}".strip() or "no ExecCredential"
            )
        status = answer.status or _PluginStatus()
        pair = status.client_certificate_data, status.client_key_data
        if all(pair) != any(pair):
            raise self._useless("a certificate without its key, or a key without its certificate")
        if not status.token and not all(pair):
            raise self._useless("neither a token nor a certificate")
        certificate = "\n".join(pair).encode() if all(pair) else b""
        expiry = status.expiration_timestamp
        if expiry is not None and expiry.tzinfo is None:
            raise self._useless("an expirationTimestamp without a time zone")
        return Credential(_bearer(status.token), certificate), expiry

    def _useless(self, what: str) -> Refused:
        version = self._plugin.api_version
        return self._refused(
            f"the credential plugin {self._plugin.command} printed {what}",
            f"Use a plugin and arguments that print an ExecCredential of {version}",
        )

    def _refused(self, problem: str, remedy: str) -> Refused:
        return Refused(
            problem, remedy=" ".join(remedy.split()).rstrip("."), where=self._access.where
        )


def _bearer(token: str) -> str:
    return f"Bearer {token}" if token else ""
