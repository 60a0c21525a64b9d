"""Reads kubeconfig files and the pod's service account: the API server, and who asks it.

Where the flow begins: `connect` asks here once; `credentials`, `tls` and `route` work with the
result. Files that KUBECONFIG lists are merged as kubectl does it: the first file that has a name
wins with the whole entry. Paths in a file are relative to its folder. Faults are Refused with the
file.

Documents: Kubernetes, "Organizing Cluster Access Using kubeconfig Files"; client-go, clientcmd.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_QUOTED = re.compile(r"""(['"])(?!<).{2,}\1""")  # by YAML's parser from the file
_REMEDY = "Name a kubeconfig with a current context, or give the pod a service account"
PROXY_SCHEMES = "http", "https", "socks5", "socks5h"
PROXY_REMEDY = "Write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
PLUGIN_VERSIONS = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
INTERACTIVE = "Never", "IfAvailable", "Always"
_BOTH = "certificate-authority", "client-certificate", "client-key"  # each as a file or as data


class ServerEntry(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """The ``cluster`` of a kubeconfig; merging the files makes its paths absolute."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class PluginEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The ``exec`` of a user: a program that prints credentials."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """The ``user`` of a kubeconfig; merging the files makes its paths absolute."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    exec: PluginEntry | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_uid: str = msgspec.field(name="as-uid", default="")
    impersonate_groups: tuple[str, ...] = msgspec.field(name="as-groups", default=())
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(name="as-user-extra", default={})

    def __repr__(self) -> str:
        """Return a text that shows no secrets."""
        return "UserEntry(…)"


class Access(Frozen):
    """A context of a kubeconfig, or the pod's service account: server, user and namespace.

    `where` is the file that has the user (without one, the context), or the folder of the account.
    """

    server: ServerEntry
    user: UserEntry
    where: str
    namespace: str = "default"


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedServer(msgspec.Struct, frozen=True):
    name: str
    cluster: ServerEntry = ServerEntry()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry = UserEntry()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedServer, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


class _Merged(Frozen):
    """All kubeconfig files merged: each entry by name, with the file that it is from."""

    servers: Mapping[str, tuple[ServerEntry, Path]]
    users: Mapping[str, tuple[UserEntry, Path]]
    contexts: Mapping[str, tuple[_Context, Path]]
    current: tuple[str, Path] | None


def find_access(
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
    *,
    context: str = "",
) -> Access:
    """Return the server, user and namespace of this process, found as kubectl does.

    Without a file: the files that KUBECONFIG lists, else ``~/.kube/config``, else, where these say
    nothing, the pod's service account. A `context` is looked for in files alone. Raise Refused when
    they name no server, or have faults.
    """
    if kubeconfig:
        return read_access((kubeconfig,), context)
    listed = [Path(name) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    listed = list(dict.fromkeys(listed)) or [_own_file(environment)]
    paths = [path for path in listed if os.path.exists(path)]  # noqa: PTH110  also where it may not look
    if "KUBERNETES_SERVICE_HOST" in environment and not context and not _say_something(paths):
        return _service_account(environment, account)
    return read_access(paths or listed[:1], context)


def _own_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's kubeconfig, ``$HOME/.kube/config``; HOME may be unset."""
    return Path(environment.get("HOME") or "/") / ".kube" / "config"


def _say_something(paths: Iterable[Path]) -> bool:
    """Return whether one of the files has a cluster, a user, a context or a current-context."""
    files = [_read(path) for path in paths]
    return any(f.clusters or f.users or f.contexts or f.current_context for f in files)


def read_access(paths: Iterable[Path], chosen: str = "") -> Access:
    """Return the `chosen` context of kubeconfig files, else the current one.

    Of entries with one name, the one in the first file counts. Raise Refused for a file that cannot
    be read, and for a context that is missing or has faults.
    """
    paths = [path.expanduser() for path in paths]
    merged = _merge([(_read(path), path) for path in paths])
    if chosen and chosen not in merged.contexts:
        raise _refused(paths[0], f"context {chosen!r}", "is nowhere")
    if not chosen and merged.current is None:
        raise _refused(paths[0], "current-context", "is not set")
    name, path = (chosen, paths[0]) if chosen or not merged.current else merged.current
    if name not in merged.contexts:
        raise _refused(path, "current-context", f"names the context {name!r}, which is nowhere")
    context, path = merged.contexts[name]
    if context.cluster not in merged.servers:
        raise _refused(
            path, f"context {name!r}", f"names no cluster that exists: {context.cluster!r}"
        )
    if context.user and context.user not in merged.users:
        raise _refused(path, f"context {name!r}", f"names no user that exists: {context.user!r}")
    server, server_path = merged.servers[context.cluster]
    user, user_path = merged.users.get(context.user, (UserEntry(), path))
    faults = [
        *(_refused(server_path, f"cluster {context.cluster!r}", w) for w in _server_faults(server)),
        *(_refused(user_path, f"user {context.user!r}", why) for why in _user_faults(user)),
    ]
    if server.proxy_url and read_url(server.proxy_url, PROXY_SCHEMES) is None:
        field, why = f"cluster {context.cluster!r}", "has a proxy-url that cannot be used"
        faults.append(_refused(server_path, field, why, PROXY_REMEDY))
    if faults:
        raise Refused.all(faults)
    return Access(server, user, str(user_path), context.namespace or "default")


def read_url(text: str, schemes: Sequence[str] = ("http", "https")) -> SplitResult | None:
    """Return the parts of ``SCHEME://HOST:PORT`` with one of the schemes, else None."""
    try:
        url = urlsplit(text)
        fits = url.scheme in schemes and url.hostname and url.port != 0
    except ValueError:  # of a port, or of brackets
        return None
    return url if fits else None


def _service_account(environment: Mapping[str, str], account: Path) -> Access:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    authority, token = account / "ca.crt", account / "token"
    for path in (authority, token):
        if not path.is_file():
            raise Refused(
                "the pod has no service account: the file is missing",
                remedy="Set automountServiceAccountToken in the pod",
                where=str(path),
            )
    server = ServerEntry(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        certificate_authority=str(authority),
    )
    space = account / "namespace"
    namespace = environment.get("POD_NAMESPACE", "")
    if not namespace:
        try:
            namespace = space.read_text().strip() if space.is_file() else "default"
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(
                f"the pod's namespace cannot be read: {error}",
                remedy="Name a namespace in the variable POD_NAMESPACE",
                where=str(space),
            ) from None
    return Access(server, UserEntry(token_file=str(token)), str(account), namespace)


def _read(path: Path) -> _KubeconfigFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Refused(
            f"cannot read the kubeconfig: {why}", remedy=_REMEDY, where=str(path)
        ) from error
    if not data.strip():
        return _KubeconfigFile()  # kubectl takes an empty file for one that says nothing
    try:
        document = _without_nulls(decoded(data))
    except Undecodable:
        document = _of_yaml(data, path)
    try:
        return msgspec.convert(document, _KubeconfigFile)
    except msgspec.ValidationError as error:
        why, _, field = str(error).partition(" - at ")
        field = field.strip("`").removeprefix("$").removeprefix(".")
        raise _refused(path, field or "the whole file", f"is not as it has to be ({why})") from None


def _of_yaml(data: bytes, path: Path) -> Any:
    """Decode a YAML kubeconfig; raise Refused for a text that is no YAML.

    JSON is tried before, as importing YAML's parser takes 12 ms.
    """
    import yaml

    try:
        return _without_nulls(yaml.safe_load(data))
    except yaml.MarkedYAMLError as error:  # it quotes the file, which holds secrets
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise Refused(
            f"the kubeconfig is not YAML: {_QUOTED.sub('…', error.problem or '')}",
            remedy=_REMEDY,
            where=f"{path}{place}",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise Refused("the kubeconfig is not text", remedy=_REMEDY, where=str(path)) from None
    except (ValueError, RecursionError):  # no such day or number, or an anchor within itself
        raise Refused("the kubeconfig is not YAML", remedy=_REMEDY, where=str(path)) from None


def _without_nulls(value: Any) -> Any:
    """Return a document without null values: kubectl writes ``users: null`` for no users."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value if part is not None]
    return value


def _server_in(folder: Path, entry: ServerEntry) -> ServerEntry:
    """Return the server entry with paths made absolute from the kubeconfig's folder."""
    path = _absolute(folder, entry.certificate_authority)
    return msgspec.structs.replace(entry, certificate_authority=path)


def _user_in(folder: Path, entry: UserEntry) -> UserEntry:
    """Return the user entry with absolute paths; its command too, if it has a slash."""
    plugin = entry.exec
    if plugin and "/" in plugin.command:
        plugin = msgspec.structs.replace(plugin, command=_absolute(folder, plugin.command))
    return msgspec.structs.replace(
        entry,
        client_certificate=_absolute(folder, entry.client_certificate),
        client_key=_absolute(folder, entry.client_key),
        token_file=_absolute(folder, entry.token_file),
        exec=plugin,
    )


def _absolute(folder: Path, name: str) -> str:
    return str(folder / name) if name else ""


Entry = TypeVar("Entry")


def _merge(files: Iterable[tuple[_KubeconfigFile, Path]]) -> _Merged:
    """Merge kubeconfig files: of entries with one name the first file's counts, as a whole."""
    servers: dict[str, tuple[ServerEntry, Path]] = {}
    users: dict[str, tuple[UserEntry, Path]] = {}
    contexts: dict[str, tuple[_Context, Path]] = {}
    current: tuple[str, Path] | None = None
    for file, path in files:
        folder = path.absolute().parent
        _add(servers, ((n.name, _server_in(folder, n.cluster)) for n in file.clusters), path)
        _add(users, ((n.name, _user_in(folder, n.user)) for n in file.users), path)
        _add(contexts, ((n.name, n.context) for n in file.contexts), path)
        if current is None and file.current_context:
            current = file.current_context, path
    return _Merged(servers, users, contexts, current)


def _add(
    entries: dict[str, tuple[Entry, Path]], named: Iterable[tuple[str, Entry]], path: Path
) -> None:
    own: dict[str, tuple[Entry, Path]] = {}
    for name, entry in named:
        if name in own:
            raise _refused(path, f"the name {name!r}", "stands twice in one list")
        own[name] = entry, path
    for name, placed in own.items():
        entries.setdefault(name, placed)


def _server_faults(server: ServerEntry) -> Iterator[str]:
    yield from _twice(server)
    if read_url(server.server) is None:
        yield "has no server of the form https://HOST:PORT"
    if server.insecure_skip_tls_verify and (
        server.certificate_authority or server.certificate_authority_data
    ):
        yield "has a certificate-authority and insecure-skip-tls-verify, of which only one can hold"


def _user_faults(user: UserEntry) -> Iterator[str]:
    yield from _twice(user)
    has_certificate = bool(user.client_certificate or user.client_certificate_data)
    if has_certificate != bool(user.client_key or user.client_key_data):
        yield "has only one of client-certificate and client-key"
    ways = {
        "token": user.token or user.token_file,
        "username": user.username or user.password,
        "exec": user.exec,
    }
    if len(used := [way for way, value in ways.items() if value]) > 1:
        yield f"has several ways to log in, of which only one can hold: {', '.join(used)}"
    if user.auth_provider is not None:
        yield "has an auth-provider, which kubectl gave up too; use exec"
    if user.exec:
        yield from _plugin_faults(user.exec)


def _plugin_faults(plugin: PluginEntry) -> Iterator[str]:
    if not plugin.command:
        yield "has an exec without a command"
    if plugin.api_version not in PLUGIN_VERSIONS:
        yield f"has an exec whose apiVersion is not one of {', '.join(PLUGIN_VERSIONS)}"
    if plugin.interactive_mode not in ("", *INTERACTIVE):
        yield f"has an exec whose interactiveMode is not one of {', '.join(INTERACTIVE)}"


def _twice(entry: ServerEntry | UserEntry) -> Iterator[str]:
    fields = msgspec.structs.asdict(entry)
    for name in _BOTH:
        field = name.replace("-", "_")
        if fields.get(field) and fields.get(f"{field}_data"):
            yield f"has both {name} and {name}-data, of which only one can hold"


def _refused(path: Path, field: str, why: str, remedy: str = _REMEDY) -> Refused:
    return Refused(f"{field} {why}", remedy=remedy, where=str(path))
