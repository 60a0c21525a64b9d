"""Reads and follows configurations of pools: a file, policies of the cluster, labels of the node.

`kube-rdma config check` calls `judged` too, so it judges like the agent. ConfigSource feeds
agent/loop. Each source can change at any time. A document that is not understood is reported once,
in full, and the last good one stays, so nothing that is served is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed
from kube_rdma.lib.text import document, reader
from kube_rdma.lib.text.typed import Config
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import ClusterNodePolicy, FunctionsSpec, NodeSpecs, PoolSpec, Serving
from kube_rdma.pools.documents import config as documents
from kube_rdma.pools.rules import pools
from kube_rdma.pools.rules.functions import function_faults, range_faults

log = structlog.get_logger()


def read_config(path: Path) -> Config:
    """Read a configuration file; raise Refused if it cannot be read, parsed or carried out."""
    try:
        with path.open("rb") as file:
            data = file.read(reader.MAX_BYTES + 1)
    except OSError as error:
        raise document.unreadable(str(path), error) from error
    return parse_config(data, str(path))


def parse_config(data: bytes, source: str) -> Config:
    """Parse a configuration's text; `source` names it in messages.

    Raise Refused as read_config does.
    """
    return judged(documents.parse(data, source))


def judged(config: Config) -> Config:
    """Return the configuration with warnings added; raise Refused if no node can carry it out."""
    faults = (
        *pools.faults(config.pools),
        *function_faults(config.functions),
        *range_faults(config.pools, config.functions),
    )
    if faults:
        raise Refused.all(faults)
    return replace(config, warnings=(*config.warnings, *pools.warnings(config.pools)))


class ConfigSource:
    """The pools, functions and rails of a node, merged from its file, NodePolicies and labels."""

    def __init__(
        self,
        path: Path | None,
        changed: Callable[[], None],
        refused: Callable[[str], None] = lambda _: None,
        *,
        claims: bool = False,
    ) -> None:
        self._claims = claims  # this agent can serve claims
        self._serving: Serving | None = None  # what the node's label says, None: not known yet
        self._path = path
        self._changed = changed  # called when what is wanted has changed, or a refusal
        self._refused = refused  # called with each new refusal, for the node's events
        self._file = Config(())
        self._of_label: tuple[PoolSpec, ...] = ()
        self._of_cluster = NodeSpecs()
        self._refusals: dict[str, str] = {}  # those that stand, by what they are about

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return the message of each refusal that stands at present."""
        return tuple(self._refusals.values())

    @property
    def specs(self) -> tuple[PoolSpec, ...]:
        """Return all wanted pools; for a resource the file counts, else policies, else the label.

        An agent that can serve claims lets claims serve pools without `serve` until it has read the
        node's label.
        """
        wanted: dict[str, PoolSpec] = {}
        for spec in (*self._file.pools, *self._of_cluster.pools, *self._of_label):
            wanted.setdefault(spec.resource, spec)
        if not self._claims:
            return tuple(wanted.values())
        otherwise = self._serving or Serving.CLAIMS
        return tuple(replace(spec, serve=spec.serve or otherwise) for spec in wanted.values())

    @property
    def functions(self) -> tuple[FunctionsSpec, ...]:
        """Return the specs of wanted virtual functions: the file's, else the policies'."""
        return self._file.functions or self._of_cluster.functions

    @property
    def rails(self) -> tuple[str, ...]:
        """Return the cards' names in the order of their rails: the file's, else the policies'."""
        return self._file.rails or self._of_cluster.rails

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Return one sentence for each contradiction between policies."""
        return self._of_cluster.overlaps

    @property
    def followed(self) -> tuple[ClusterNodePolicy, ...]:
        """Return the NodePolicies of the cluster that select this node."""
        return self._of_cluster.policies

    @property
    def rescan(self) -> float | None:
        """Return the seconds between surveys that no kernel event triggers; None turns them off."""
        return self._file.rescan or None

    def read(self) -> None:
        """Read the configuration file for the first time; raise Refused as read_config does."""
        if self._path:
            self._take(read_config(self._path))

    async def follow(self) -> None:
        """Read the configuration file again whenever it changes, until cancelled.

        Return at once without a file.
        """
        if self._path is None:
            return
        # inotify is of Linux alone, and `config check` runs on any system.
        from kube_rdma.adapters.inotify import watching_file

        with watching_file(self._path) as changes:
            self._again(self._path)  # what happened since the first reading
            async for _ in changes:
                self._again(self._path)

    def label(self, node: NodeState) -> None:
        """Update the pools and the way of serving that the node's labels ask for."""
        labels = dict(node.labels)
        before = self._serving, self._of_label
        with self._reading("label serve"):
            served = labels.get(documents.SERVE_LABEL)
            self._serving = documents.label_serving(served, claims=self._claims)
        with self._reading("label"):
            self._of_label = documents.label_pools(labels.get(documents.LABEL))
        if (self._serving, self._of_label) != before:
            self._changed()

    def policies(self, specs: NodeSpecs, refusals: tuple[Refused, ...]) -> None:
        """Update what the cluster's NodePolicies ask for, and record which policies are refused."""
        for error in refusals:
            self._refuse(f"policy {error.where}", error)
        standing = {f"policy {error.where}" for error in refusals}
        for about in tuple(self._refusals):
            if about.startswith("policy ") and about not in standing:
                self._understood(about)
        if specs != self._of_cluster:
            self._of_cluster = specs
            self._changed()
        self._refuse_unserved()

    @contextmanager
    def _reading(self, about: str) -> Iterator[None]:
        """Record a refusal when the `with` block raises Refused, else withdraw the earlier one."""
        try:
            yield
        except Refused as error:
            self._refuse(about, error)
        else:
            self._understood(about)

    def _again(self, path: Path) -> None:
        try:
            config = read_config(path)
        except Refused as error:
            self._refuse("file", error)
            return
        self._understood("file")
        if replace(config, rescan=self._file.rescan) == self._file:
            self._file = config
            return
        log.info("configuration changed", file=str(path), pools=len(config.pools))
        self._take(config)
        self._changed()

    def _take(self, config: Config) -> None:
        self._file = config
        self._refuse_unserved()
        for warning in config.warnings:
            log.warning("configuration warning", file=str(self._path), warning=warning)

    def _refuse_unserved(self) -> None:
        """Record or withdraw a refusal of pools for claims, where this agent serves none."""
        specs = () if self._claims else self.specs
        lost = [spec for spec in specs if spec.serve is Serving.CLAIMS]
        if not lost:
            self._understood("serve")
            return
        names = listed([spec.resource for spec in lost])
        problem = f"claims are to serve {names}, and this agent does not serve claims"
        remedy = 'Install it with claims.enabled=true, or write "serve": "plugin"'
        self._refuse("serve", Refused(problem, remedy=remedy, where=lost[0].source))

    def _refuse(self, about: str, error: Refused) -> None:
        why = str(error)
        if self._refusals.get(about) != why:
            log.error("configuration rejected", why=why)
            self._refusals[about] = why
            self._refused(why)
            self._changed()

    def _understood(self, about: str) -> None:
        if self._refusals.pop(about, None):
            self._changed()
