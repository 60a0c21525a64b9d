"""Follows where pools are configured: a mounted file, policies of the cluster, labels of the node.

Feeds agent/loop. Each can change at any time and no change may cost anything that is served: a
document that is not understood is reported once, in full, and the last good one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.inotify import watching_file
from kube_rdma.lib.phrases import listed
from kube_rdma.lib.text.typed import RESCAN, Config
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import ClusterNodePolicy, FunctionsSpec, NodeSpecs, PoolSpec, Serving
from kube_rdma.pools.config import read_config
from kube_rdma.pools.documents.config import LABEL, label_pools, label_serving
from kube_rdma.pools.documents.config import SERVE_LABEL as SERVE

log = structlog.get_logger()


class ConfigSource:
    """The wanted pools as they are now."""

    def __init__(
        self,
        config: Path | None,
        changed: Callable[[], None],
        refused: Callable[[str], None] = lambda _: None,
        *,
        claims: bool = False,
    ) -> None:
        self._claims = claims  # this agent can serve claims
        self._serving: Serving | None = None  # what the node's label says, None: not known yet
        self._config = config
        self._changed = changed  # called when the wanted pools became others
        self._refused = refused  # called with each new refusal, for the node's events
        self._of_file: tuple[PoolSpec, ...] = ()
        self._rescan = RESCAN
        self._of_label: tuple[PoolSpec, ...] = ()
        self._functions: tuple[FunctionsSpec, ...] = ()
        self._rails: tuple[str, ...] = ()
        self._of_cluster = NodeSpecs()
        self._refusals: dict[str, str] = {}  # those that stand, by what they are about

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return why the current documents are not understood."""
        return tuple(self._refusals.values())

    @property
    def specs(self) -> tuple[PoolSpec, ...]:
        """Return every wanted pool; a resource is the file's, else the policies', else the label's.

        An agent that can serve claims lists no share before it has seen what its node is to do.
        """
        named = {spec.resource for spec in self._of_file}
        others: dict[str, PoolSpec] = {}
        for spec in (*self._of_cluster.pools, *self._of_label):
            others.setdefault(spec.resource, spec)
        wanted = (*self._of_file, *(s for s in others.values() if s.resource not in named))
        if not self._claims:
            return wanted
        otherwise = self._serving or Serving.CLAIMS
        return tuple(replace(spec, serve=spec.serve or otherwise) for spec in wanted)

    @property
    def functions(self) -> tuple[FunctionsSpec, ...]:
        """Return the wanted virtual functions: the file's, else the policies'."""
        return self._functions or self._of_cluster.functions

    @property
    def rails(self) -> tuple[str, ...]:
        """Return the cards in the order of their rails: the file's, else the policies'."""
        return self._rails or self._of_cluster.rails

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Return sentences about policies that disagree."""
        return self._of_cluster.overlaps

    @property
    def followed(self) -> tuple[ClusterNodePolicy, ...]:
        """Return the policies of the cluster that select this node."""
        return self._of_cluster.policies

    @property
    def rescan(self) -> float | None:
        """Return the seconds between looks that nothing announced; None for no such looks."""
        return self._rescan or None

    def read(self) -> None:
        """Read the file for the first time; raise Refused when it makes no sense."""
        if self._config:
            self._take(read_config(self._config))

    async def follow(self) -> None:
        """Read the file again whenever it changed, until cancelled."""
        if self._config is None:
            return
        with watching_file(self._config) as changes:
            self._again()  # what happened between the first reading and now
            async for _ in changes:
                self._again()

    def label(self, node: NodeState) -> None:
        """Take note of the node's labels."""
        labels = dict(node.labels)
        self._serve(labels.get(SERVE))
        try:
            pools = label_pools(labels.get(LABEL))
        except Refused as error:
            self._tell("label", error)
            return
        self._understood("label")
        if pools != self._of_label:
            self._of_label = pools
            self._changed()

    def _serve(self, value: str | None) -> None:
        """Take note of the label that says how the node's pools are served."""
        try:
            serving = label_serving(value, claims=self._claims)
        except Refused as error:
            self._tell("label serve", error)
            return
        self._understood("label serve")
        if serving != self._serving:
            self._serving = serving
            self._changed()

    def policies(self, specs: NodeSpecs, refusals: tuple[Refused, ...]) -> None:
        """Take note of what the cluster's policies ask for, and of those not understood."""
        for error in refusals:
            self._tell(f"policy {error.where}", error)
        standing = {f"policy {error.where}" for error in refusals}
        for about in tuple(self._refusals):
            if about.startswith("policy ") and about not in standing:
                self._understood(about)
        if specs != self._of_cluster:
            self._of_cluster = specs
            self._changed()
        self._tell_unserved()

    def _again(self) -> None:
        assert self._config
        try:
            config = read_config(self._config)
        except Refused as error:
            self._tell("file", error)
            return
        self._understood("file")
        before = (self._of_file, self._functions, self._rails)
        if (config.pools, config.functions, config.rails) == before:
            self._rescan = config.rescan
            return
        log.info("configuration changed", file=str(self._config), pools=len(config.pools))
        self._take(config)
        self._changed()

    def _take(self, config: Config) -> None:
        self._of_file, self._rescan, self._functions = config.pools, config.rescan, config.functions
        self._rails = config.rails
        self._tell_unserved()
        for warning in config.warnings:
            log.warning("configuration warning", file=str(self._config), warning=warning)

    def _tell_unserved(self) -> None:
        """Report pools that are for claims, where this agent serves none: pods get no card."""
        pools = () if self._claims else self.specs
        lost = [spec for spec in pools if spec.serve is Serving.CLAIMS]
        if not lost:
            self._understood("serve")
            return
        names = listed([spec.resource for spec in lost])
        problem = f"claims are to serve {names}, and this agent does not serve claims"
        remedy = 'Install it with claims.enabled=true, or write "serve": "plugin"'
        self._tell("serve", Refused(problem, remedy=remedy, where=lost[0].source))

    def _tell(self, about: str, error: Refused) -> None:
        why = str(error)
        if self._refusals.get(about) != why:
            log.error("configuration rejected", why=why)
            self._refusals[about] = why
            self._refused(why)
            self._changed()

    def _understood(self, about: str) -> None:
        if self._refusals.pop(about, None):
            self._changed()
