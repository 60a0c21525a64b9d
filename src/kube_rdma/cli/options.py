"""Options that several commands have, and the shapes of single ones.

Options that name a cluster are called as kubectl calls them. People's commands have all of them
(cluster_options). Programs that also run in a pod have those that name the cluster, and the
namespace of kube-rdma's own objects (program_options). Either gets them as one value, which opens
the cluster. kube_client/kubeconfig knows what a file, a variable or a pod says when an option is
not given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from kube_base.frozen import Frozen
from kube_rdma.cli.output import ProgressLine

if TYPE_CHECKING:
    from kube_client.objects import Cluster

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Opener: TypeAlias = "Callable[[Path | None], AbstractAsyncContextManager[Cluster]]"
"""A function that a test gives, which opens a fake cluster in place of a connection."""

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator that gives a command options."""

THIS_NODE = "node"
"""The target of a command that names no pod: this machine's node."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")


# The shapes of single options; `more` are words of click.option, such as help.


def flag_option(*names: str, **more: Any) -> Callable[[F], F]:
    """Return a click option without a value."""
    return click.option(*names, is_flag=True, **more)


def text_option(
    *names: str, metavar: str = "NAME", default: str = "", **more: Any
) -> Callable[[F], F]:
    """Return a click option for a text; an empty default is not shown."""
    shown = bool(default)
    return click.option(*names, metavar=metavar, default=default, show_default=shown, **more)


def path_option(
    *names: str, metavar: str = "FILE", default: str | None = None, **more: Any
) -> Callable[[F], F]:
    """Return an option for a file or, with the metavar DIR, a folder, which need not exist."""
    more |= {"type": click.Path(path_type=Path), "show_default": default is not None}
    return click.option(*names, metavar=metavar, default=default, **more)


def choice_option(*names: str, of: Iterable[str], **more: Any) -> Callable[[F], F]:
    """Return a click option for one of several words, whose default is shown.

    Of an enum the command gets a member.
    """
    if isinstance(of, EnumType):
        more["callback"] = lambda _, __, word: of(word)
    return click.option(*names, type=click.Choice([*map(str, of)]), show_default=True, **more)


def number_option(
    *names: str, least: int, most: int | None = None, default: int | None = None, **more: Any
) -> Callable[[F], F]:
    """Return a click option for a whole number from `least` on; a default is shown."""
    more |= {"type": click.IntRange(least, most), "show_default": default is not None}
    return click.option(*names, default=default, **more)


def timeout_option(purpose: str) -> Callable[[F], F]:
    """Return the option for the longest time that a command waits; `purpose` begins its help."""
    text = f"{purpose}, such as 90s or 1m30s; a plain number is seconds."
    more: dict[str, Any] = {"metavar": "TIME", "callback": duration, "show_default": True}
    return click.option("--timeout", "seconds", default="5m", help=text, **more)


def node_name_option(purpose: str) -> Callable[[F], F]:
    """Return the option for the Node object of this machine; `purpose` is its help."""
    return click.option(
        "--node-name", envvar="NODE_NAME", metavar="NAME", show_envvar=True, help=purpose
    )


def seconds_option(name: str, **more: Any) -> Callable[[F], F]:
    """Return an option for a number of whole seconds."""
    return number_option(name, metavar="SECONDS", least=1, **more)


def percent_option(name: str, **more: Any) -> Callable[[F], F]:
    """Return an option for a percentage."""
    return number_option(name, metavar="PERCENT", least=0, most=100, **more)


class ClusterOptions(Frozen):
    """The options that name a cluster, a user and a namespace.

    An empty context, namespace or user is what the kubeconfig says.
    """

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    every_namespace: bool = False
    user: str = ""
    timeout: float = 0.0  # seconds for one request; 0: no other limit than kube-rdma's own

    def __post_init__(self) -> None:
        if self.namespace and self.every_namespace:
            raise click.UsageError("-n and -A exclude each other: leave one out.")

    def open(self, opener: Opener | None = None) -> AbstractAsyncContextManager[Cluster]:
        """Return a context manager that yields a client of the cluster."""
        if opener is not None:
            return opener(self.kubeconfig)
        from kube_client.calls import RequestTiming
        from kube_rdma.adapters.cluster.connect import connect
        from kube_rdma.cli.output import take_logs

        take_logs()
        return connect(
            self.kubeconfig,
            context=self.context,
            namespace=self.namespace,
            user=self.user,
            pace=RequestTiming(patience=self.timeout),
        )

    def ask(
        self,
        act: Callable[[Cluster], Awaitable[T]],
        opener: Opener | None,
        waits: str = "Asking the cluster.",
    ) -> T:
        """Call `act` with a client of the cluster, and return its result; show progress."""
        import asyncio

        async def inside() -> T:
            async with self.open(opener) as cluster:
                return await act(cluster)

        with ProgressLine(waits):
            return asyncio.run(inside())

    def usual_namespace(self, opener: Opener | None = None) -> str:
        """Return the namespace to use: that of -n, else of the context, else `default`."""
        if self.namespace:
            return self.namespace
        import asyncio

        from kube_base.errors import KubeError

        async def of_context() -> str:
            async with self.open(opener) as cluster:  # asks nothing
                return cluster.namespace

        try:
            return asyncio.run(of_context())
        except KubeError:  # a node has its own records, and no kubeconfig
            return "default"


def duration(_: click.Context, __: click.Parameter, text: str) -> float:
    """Return the seconds of a duration such as 30s, 1m30s or a bare number."""
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return float(text)
    if text and not _DURATION.sub("", text):
        return sum(float(count) * _SECONDS[unit] for count, unit in _DURATION.findall(text))
    raise click.BadParameter(f"{text!r} is not a time; write 10s, 1m30s, or 0 for the default.")


_PROGRAM = (
    path_option(
        "--kubeconfig",
        help="Cluster's kubeconfig file. Default: the files of $KUBECONFIG, then ~/.kube/config, "
        "then the pod's service account.",
    ),
    text_option("--context", help="Context of the kubeconfig. Default: its current context."),
)
_ALWAYS = (
    *_PROGRAM,
    text_option(
        "--as", "user", metavar="USER", help="User to act as (impersonation), like --as of kubectl."
    ),
    click.option(
        "--request-timeout",
        "timeout",
        default="0",
        metavar="TIME",
        callback=duration,
        help="Time without an answer after which a request is given up, such as 10s; a plain "
        "number is seconds. Default and maximum: 30s.",
    ),
)
_NAMESPACE = text_option(
    "-n", "--namespace", help="Namespace of the pods. Default: the namespace of the context."
)
_EVERY = flag_option(
    "-A", "--all-namespaces", "every_namespace", help="Show pods of all namespaces."
)
KUBELET_ROOT = path_option(
    "--kubelet-root",
    metavar="DIR",
    help="The kubelet's root directory. Default: found among the usual ones, such as "
    "/var/lib/kubelet.",
)
RUNTIME_SOCKET = path_option(
    "--runtime-socket",
    help="The container runtime's socket. Default: the first that exists of containerd, k3s and "
    "RKE2, CRI-O, k0s and MicroK8s.",
)
METRICS_ADDRESS = click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    help="Address to serve metrics on, under /metrics, such as 10.0.0.5:9879. Without HOST, such "
    "as :9879: every address of node or pod. Default: no metrics.",
)
HEALTH_ADDRESS = click.option(
    "--health-address",
    metavar="HOST:PORT",
    help="Address to serve /livez and /readyz on, for the kubelet's probes, such as "
    "127.0.0.1:9880. Without HOST: every address of node or pod. Default: neither is served.",
)
ADMISSION_SET = click.option(
    "--admission-set",
    "assignments",
    metavar="NAME=LIST",
    multiple=True,
    help="Setting of the admission rules, such as mgpuResources=a/b,c/d. May be repeated. "
    "docs/admission.md has the names.",
)


def cluster_options(*, namespace: bool = False, every: bool = False) -> Decorator:
    """Return a decorator that gives a command the cluster's options as one value `cluster`.

    `namespace` adds -n, and `every` adds -A.
    """
    more = (*((_NAMESPACE,) if namespace else ()), *((_EVERY,) if every else ()))
    return taking("cluster", ClusterOptions, (*_ALWAYS, *more))


def program_options(namespace: str = "") -> Decorator:
    """Return a decorator that gives a program in a pod its options as one value `cluster`.

    Its namespace is that of kube-rdma's own objects, by default `namespace`; without a default it
    is required, for a context's would be a guess.
    """
    usual: dict[str, Any] = {"default": namespace, "show_default": True}
    own = click.option(
        "-n",
        "--namespace",
        envvar="POD_NAMESPACE",
        metavar="NAME",
        show_envvar=True,
        help="Namespace of kube-rdma's own objects: its DaemonSets, Leases and Secrets.",
        **(usual if namespace else {"required": True}),
    )
    return taking("cluster", ClusterOptions, (*_PROGRAM, own))


def taking(name: str, kind: type[Frozen], chosen: Sequence[Callable[..., Any]]) -> Decorator:
    """Return a decorator that passes these options to a command as one value `name`."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(*words: Any, **given: Any) -> None:
            fields = [field for field in kind.__struct_fields__ if field in given]
            value = kind(**{field: given.pop(field) for field in fields})
            command(*words, **{name: value}, **given)

        return functools.reduce(lambda made, option: option(made), reversed(chosen), with_options)

    return wrap


def root_of_host() -> Path:
    """Return where the host's root is: mounted in the agent's container, else ``/``."""
    mounted = Path("/host")
    return mounted if (mounted / "etc").is_dir() else Path("/")


def named_pod(target: str, usual: Callable[[], str]) -> tuple[str, str] | None:
    """Return namespace and name of the pod in a target; None for this node.

    `usual` returns the namespace where none is written. Raise a usage error for any other target.
    """
    kind, _, name = target.partition("/")
    if target == THIS_NODE:
        return None
    namespace, slash, bare = name.partition("/")
    if kind not in ("pod", "pods") or not name or (slash and not bare):
        raise click.UsageError(
            "Name what to look at: node, pod/NAME or pod/NAMESPACE/NAME. Of a Job or a Deployment "
            "name one of the pods."
        )
    return (namespace, bare) if slash else (usual(), name)


def log_options(command: F) -> F:
    """Give a long-running program the options `log_level` and `log_format`."""
    level = choice_option(
        "--log-level",
        of=("debug", "info", "warning", "error"),
        default="info",
        help="Least level of the lines in the log. debug adds each request to the API server.",
    )
    form = choice_option(
        "--log-format",
        of=("text", "json"),
        default="text",
        help="Form of the lines in the log. text: key=value (logfmt). json: an object each.",
    )
    return level(form(command))


def listen_address(
    text: str | None, option: str = "--metrics-address"
) -> tuple[str | None, int] | None:
    """Return host and port of an address HOST:PORT, [HOST]:PORT or :PORT; None without a text.

    Raise a usage error for any other text.
    """
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
    if not colon or not 0 < number < 1 << 16 or (":" in bare and not _is_address(bare)):
        raise click.BadParameter(
            f"{text!r} is not an address: write HOST:PORT, such as 10.0.0.5:9879, or :9879",
            param_hint=option,
        )
    return bare or None, number


def _is_address(text: str) -> bool:
    """Decide whether a text is an IP address, without brackets."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
