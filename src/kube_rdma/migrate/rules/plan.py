"""Plans the commands that bring a cluster to kube-rdma, in order, and the way back.

It is the second half of `kube-rdma migrate plan`. kube-rdma's DaemonSet is made beside the other
one, for nodes with the label kube-rdma.io/agent=on. The owner of the other DaemonSet decides the
rest:

    nobody else       it is patched to leave marked nodes; each node goes over by its label
    a policy of 0.1   the policy lets go of it first (that operator deletes nothing), then the same
    a policy since    kube-rdma takes over beside it, node by node; then the policy drops it

Decision 0107 says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.install.rules.presets import merged
from kube_rdma.install.rules.release import image_values
from kube_rdma.lib.phrases import listed
from kube_rdma.migrate.rules import commands
from kube_rdma.migrate.rules.commands import BETWEEN, HERE, MARK
from kube_rdma.migrate.rules.starts import ACK_RESOURCE, VKE_RESOURCE, idle, source
from kube_rdma.model import migrate as model
from kube_rdma.model.kubernetes import quantity_text

NAMESPACE, FILE = "kube-rdma", "kube-rdma-values.yaml"
# On a node of VKE: its component's network out of Cello's way, and back (docs/migrate.md).
CLEAR, LEAVE = "clear-vke", ("uninstall --records", "clear-vke --undo")
# All others take preset scc. How these two plugins name their shares only their vendors know.
_PRESETS = {model.StartingPoint.ACK: "ack", model.StartingPoint.VKE: "vke"}


def plan(view: model.MigrationView, options: model.MigrationOptions) -> model.TakeoverPlan:
    """Return the plan to move a cluster from another plugin to kube-rdma, and back.

    Without a plugin to leave, the plan has only notes. Raise Refused as `source` does, and where no
    node offers its shares.
    """
    origin = source(view, options)
    if origin is None:
        ours = [one.title for one in view.plugins if one.is_ours]
        why = "No device plugin of RDMA cards was seen; docs/install.md says how to begin"
        if ours:
            why = (
                f"kube-rdma serves the nodes already ({listed(ours)}); there is nothing to migrate"
            )
        return model.TakeoverPlan(None, notes=(why, *_idle(view), *view.unread))
    fixed = {model.StartingPoint.ACK: ACK_RESOURCE, model.StartingPoint.VKE: VKE_RESOURCE}
    resources = tuple(origin.config.shares) if origin.config else ()
    if origin.start in fixed:
        resources = (fixed[origin.start],)
    every = (_expected(node, resources, origin.config) for node in view.nodes)
    nodes = tuple(
        node for node in every if any(node.offered.get(name, "0") != "0" for name in resources)
    )
    if not nodes:
        raise Refused(
            f"no node offers {listed(resources)}, the shares of {origin.plugin.title}",
            remedy="Look at its log first; a plan needs to know what each node offers",
        )
    way = _Way(origin, options, resources, nodes)
    mine = {node.name for node in nodes}
    holders = tuple(
        one for one in view.holders if one.node in mine and set(one.resources) & set(resources)
    )
    notes = _notes(view, origin, nodes)
    return model.TakeoverPlan(origin, resources, nodes, holders, way.forward(), way.back(), notes)


class _Way:
    """Makes the steps of one plan, forward and back."""

    def __init__(
        self,
        origin: model.MigrationSource,
        options: model.MigrationOptions,
        resources: Sequence[str],
        nodes: Sequence[model.MigratingNode],
    ) -> None:
        self._origin, self._options = origin, options
        self._plugin, self._start = origin.plugin, origin.start
        self._resources, self._nodes = resources, nodes
        self._preset = _PRESETS.get(origin.start, "scc")
        made = merged({"preset": self._preset})
        self._space = NAMESPACE if self._preset != "vke" else made["namespace"]["name"]
        self._labels = f"name={made['platform']['label']}"

    def forward(self) -> tuple[model.PlanStep, ...]:
        """Return the steps to kube-rdma."""
        others = [node for node in self._nodes if node.mark != HERE]
        if self._start is model.StartingPoint.NVIDIA:
            return (self._installed(), *map(self._beside, others), self._alone())
        released = (self._released(),) if self._is_written_back else ()
        moved = map(self._exchange, others)
        return (self._installed(), *released, self._held_off(), *moved)

    def back(self) -> tuple[model.PlanStep, ...]:
        """Return the steps back to the other plugin."""
        if self._start is model.StartingPoint.NVIDIA:
            return (self._owner_again(), self._removed())
        taken = (self._taken_again(),) if self._is_written_back else ()
        moved = map(self._exchanged_back, self._nodes)
        return (*moved, self._let_in_again(), *taken, self._removed())

    @property
    def _is_written_back(self) -> bool:
        """Return whether a policy of release 0.1 still writes the plugin's DaemonSet."""
        policy = self._origin.policy
        return self._start is model.StartingPoint.NVIDIA_2020 and bool(
            policy and policy.section is not None
        )

    def _render(self, part: str = "") -> str:
        more = f" --values {quote(self._options.values)}" if self._options.values else ""
        only = f" --part {part}" if part else ""
        return f"kube-rdma render --preset {self._preset}{more} --values {FILE}{only}"

    def _values(self) -> model.Document:
        image = image_values(self._options.image)
        values: dict[str, model.Document | str | bool] = {"image": image}
        if self._preset != "vke":
            values["namespace"] = {"name": NAMESPACE, "create": True}
        config = self._origin.config
        agent: dict[str, model.Document | str] = {"config": config.text} if config else {}
        return values | {"agent": agent | {"nodeSelector": {MARK: HERE}}}

    def _installed(self) -> model.PlanStep:
        same = "the configuration of the other plugin and " if self._origin.config else ""
        first = [commands.values_file(FILE, commands.yaml(self._values()))]
        if self._preset == "vke":
            first += [
                f"{self._render('definitions')} | kubectl apply -f -",
                "kubectl wait crd --all --for=condition=Established --timeout=2m",
            ]
        return model.PlanStep(
            "Install kube-rdma, on no node yet",
            f"Its DaemonSet has {same}nodes with the label {MARK}={HERE}, of which there are none. "
            "Keep the file: upgrades and the way back need it.",
            (*first, f"{self._render()} | kubectl apply -f -"),
        )

    def _removed(self) -> model.PlanStep:
        parts = ["workloads"]
        if self._preset == "vke":  # of all others a DaemonSet and its ConfigMap are the whole
            parts += ["rights", "admission"]
        return model.PlanStep(
            "Remove kube-rdma",
            "No node has the label any more. The namespace stays, for others may use it.",
            tuple(
                f"{self._render(part)} | kubectl delete --ignore-not-found -f -" for part in parts
            ),
        )

    def _policy_says(self, section: model.Document | None) -> str:
        assert self._origin.policy
        return commands.policy_says(self._origin.policy, section)

    def _policy_as_read(self) -> str:
        assert self._origin.policy
        return self._policy_says(self._origin.policy.section)

    def _released(self) -> model.PlanStep:
        return model.PlanStep(
            "Have the policy let go of the DaemonSet",
            "The operator of this version deletes nothing when a section goes. It only ceases to "
            "write the DaemonSet back.",
            (self._policy_says(None),),
        )

    def _taken_again(self) -> model.PlanStep:
        return model.PlanStep(
            "Give the DaemonSet back to the policy",
            "The section is the one that was read when this plan was made.",
            (self._policy_as_read(),),
        )

    def _held_off(self) -> model.PlanStep:
        return model.PlanStep(
            f"Have {self._plugin.title} leave the nodes that are moved",
            "Nodes without the label keep its pods as they are: no pod restarts (OnDelete).",
            (commands.held_off(self._plugin),),
        )

    def _let_in_again(self) -> model.PlanStep:
        before = commands.let_in_again(self._plugin)
        return model.PlanStep(
            f"Put {self._plugin.title} back as it was",
            "Its pods that came back meanwhile start once more; no new pods are placed meanwhile.",
            (
                commands.cordon(self._nodes),
                before,
                *([commands.rolled_out(self._plugin)] if "RollingUpdate" in before else []),
                *commands.all_offered(self._nodes, self._resources),
                *commands.uncordon(self._nodes),
            ),
        )

    def _exchange(self, node: model.MigratingNode) -> model.PlanStep:
        why = "Running pods go on with their devices and shares. "
        if self._start is model.StartingPoint.VKE:
            why = "Its pods go elsewhere: what VKE gave them, kube-rdma does not know. "
        return model.PlanStep(
            f"{node.name}: from the other plugin to kube-rdma",
            f"{why}While no plugin serves the node it takes no new pods, for the kubelet would "
            "refuse them for good.",
            self._handover(node, self._plugin.namespace, self._plugin.labels, (CLEAR,), HERE),
            node.name,
        )

    def _exchanged_back(self, node: model.MigratingNode) -> model.PlanStep:
        return model.PlanStep(
            f"{node.name}: back to the other plugin",
            "The same the other way round. Leave out nodes that were never moved.",
            self._handover(node, self._space, self._labels, LEAVE, ""),
            node.name,
        )

    def _handover(
        self, node: model.MigratingNode, space: str, labels: str, on_vke: Sequence[str], mark: str
    ) -> tuple[str, ...]:
        """Return the commands that replace one plugin's pods on a node by the other plugin's."""
        is_vke = self._start is model.StartingPoint.VKE
        return (
            commands.drain(node) if is_vke else commands.cordon([node]),
            commands.mark([node], BETWEEN),
            commands.gone(space, labels, node),
            *commands.none_offered([node], self._resources),
            *(self._on_host(node, on_vke) if is_vke else ()),
            commands.mark([node], mark),
            *commands.all_offered([node], self._resources),
            *commands.uncordon([node]),
        )

    def _on_host(self, node: model.MigratingNode, commands: Sequence[str]) -> list[str]:
        """Return the commands that change a node's CNI configuration by a debug pod.

        No program of kube-rdma serves the node then. The pod is in kube-rdma's namespace, where no
        debug pods of others are.
        """
        image = self._options.image
        name, kubectl = quote(node.name), f"kubectl -n {quote(self._space)}"
        debug = f"{kubectl} debug node/{name} --image={quote(image)} --profile=sysadmin --attach --"
        return [
            *(f"{debug} \\\n    kube-rdma network {command} --host /host" for command in commands),
            f"{kubectl} get pods -o name | grep node-debugger-{name} | xargs {kubectl} delete",
        ]

    def _beside(self, node: model.MigratingNode) -> model.PlanStep:
        return model.PlanStep(
            f"{node.name}: kube-rdma takes over",
            "Both run, and the kubelet asks who came last. Shares have the same names in both, "
            "so none is given twice, whichever answers.",
            (
                commands.cordon([node]),
                commands.mark([node], HERE),
                commands.registered(self._space, self._labels, node),
                *commands.uncordon([node]),
            ),
            node.name,
        )

    def _alone(self) -> model.PlanStep:
        return model.PlanStep(
            "Remove the plugin from the policy, on all nodes at once",
            "Its operator deletes the DaemonSet. Then kube-rdma restarts, so that the wait for "
            "its shares proves something. Running pods go on; no new ones are placed meanwhile.",
            (
                commands.cordon(self._nodes),
                self._policy_says(None),
                *commands.ended(self._plugin),
                commands.mark(self._nodes, BETWEEN),
                commands.gone(self._space, self._labels),
                *commands.none_offered(self._nodes, self._resources),
                commands.mark(self._nodes, HERE),
                *commands.all_offered(self._nodes, self._resources),
                *commands.uncordon(self._nodes),
            ),
        )

    def _owner_again(self) -> model.PlanStep:
        return model.PlanStep(
            "Have the policy bring its plugin back, on all nodes at once",
            "The section is the one that was read when this plan was made. Pods of its plugin that "
            "still run are restarted, so that they register with the kubelet.",
            (
                commands.cordon(self._nodes),
                commands.mark(self._nodes, BETWEEN),
                commands.gone(self._space, self._labels),
                *commands.none_offered(self._nodes, self._resources),
                commands.restarted(self._plugin),
                self._policy_as_read(),
                *commands.all_offered(self._nodes, self._resources),
                commands.mark(self._nodes, ""),
                *commands.uncordon(self._nodes),
            ),
        )


def _expected(
    node: model.MigratingNode, resources: Sequence[str], config: model.PluginConfig | None
) -> model.MigratingNode:
    """Return the node with the shares that it will offer, if it is between two plugins.

    Such a node offers none now.
    """
    shares = config.shares if config and node.mark == BETWEEN else {}
    missing = {
        name: quantity_text(count)
        for name, count in shares.items()
        if count and name in resources and node.offered.get(name, "0") == "0"
    }
    return replace(node, offered={**node.offered, **missing})


def _idle(view: model.MigrationView, origin: model.MigrationSource | None = None) -> list[str]:
    """Return a sentence that DaemonSets without a ready pod were passed over; none without any."""
    names = [one.title for one in idle(view) if origin is None or one != origin.plugin]
    many = "have no ready pod and are" if len(names) > 1 else "has no ready pod and is"
    return [f"{listed(names)} {many} passed over, but --daemonset can name it"] if names else []


def _notes(
    view: model.MigrationView, origin: model.MigrationSource, nodes: Sequence[model.MigratingNode]
) -> tuple[str, ...]:
    warnings = origin.config.warnings if origin.config else ()
    notes = [f"Of its configuration: {text}" for text in warnings]
    notes += _idle(view, origin)
    offering = {node.name for node in nodes}
    silent = [node.name for node in view.nodes if node.name not in offering]
    if silent:
        notes.append(f"Nodes that offer none of these shares are left alone: {listed(silent)}")
    if origin.policy and not view.operators:
        notes.append(
            "No Deployment of NVIDIA's network operator is ready: without one nothing follows the "
            "policy"
        )
    if origin.start in _PRESETS:
        notes.append(
            "How this plugin names its shares only its vendor knows. Where the names differ, "
            "shares of running pods are not counted until these pods end"
        )
    if origin.start is model.StartingPoint.VKE:
        notes.append(
            "The preset has no addresses: write your subnets as `pools` into a file, and name it "
            "with --values. The component is removed in VKE's console, when all is done"
        )
    if origin.start is not model.StartingPoint.NVIDIA:
        notes.append(f"{origin.plugin.title} stays, without pods, for the way back")
    notes.append(f"New nodes get no plugin of kube-rdma without the label {MARK}={HERE}")
    return (*notes, *view.unread)
