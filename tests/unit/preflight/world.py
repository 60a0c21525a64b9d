"""A cluster whose gangs, and what their containers report, are in the test's hands."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from kube_client.calls import RequestTiming
from kube_client.kinds import NOTHING, ObjectKind
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DOCUMENT, POD
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model import preflight as model
from kube_rdma.preflight import rules
from kube_rdma.preflight.documents import read_plan, read_verdict
from kube_rdma.preflight.rounds import PreflightRounds, RoundTiming
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.beside import beside

JOB = ObjectKind("batch", "v1", "Job", "jobs", True, DOCUMENT, NOTHING)
JOB_SET = ObjectKind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", True, DOCUMENT, NOTHING)
LWS = ObjectKind(
    "leaderworkerset.x-k8s.io",
    "v1",
    "LeaderWorkerSet",
    "leaderworkersets",
    True,
    DOCUMENT,
    NOTHING,
)
ASKING = {"metadata": {"annotations": {model.REQUEST: "ring"}}}
EAGER = RequestTiming(pause=lambda _: 0.0)
NOW = datetime(2026, 11, 30, tzinfo=UTC)


class PreflightWorld:
    """Pods that ask for a preflight, at a fake API server."""

    def __init__(self):
        self.server = FakeServer((POD, JOB, JOB_SET, LWS, NODE_REPORT, BANDWIDTH_CHECK))
        self.now = NOW
        self.line = self.server.line()

    def job(self, name="train", pods=4, namespace="team", **more):
        metadata = {"name": name, "namespace": namespace}
        self.server.put(JOB, {"metadata": metadata, "spec": {"parallelism": pods, **more}})

    def job_set(self, name, pods):
        template = {"spec": {"parallelism": pods, "template": ASKING}}
        metadata = {"name": name, "namespace": "team"}
        spec = {"replicatedJobs": [{"name": "w", "template": template}]}
        self.server.put(JOB_SET, {"metadata": metadata, "spec": spec})

    def leader_worker_set(self, name, size, **spec):
        metadata = {"name": name, "namespace": "team"}
        group = {"size": size, "workerTemplate": ASKING}
        self.server.put(
            LWS, {"metadata": metadata, "spec": {"leaderWorkerTemplate": group, **spec}}
        )

    def delete(self, name):
        self.server.remove(POD, name, "team")

    def pod(self, number, **more):
        """A pod of a Job whose first container measures; `more`: job, node, labels and so on."""
        job, namespace = more.pop("job", "train"), more.pop("namespace", "team")
        name = f"{job}-{number}"
        device = {
            "name": "team/rail-0",
            "interface": "net1",
            "rdmaDevice": "mlx5_0",
            "gidIndex": 3,
            "ips": [f"10.1.{len(job)}.{number + 1}/24"],
        }
        seen = more.pop("seen") if "seen" in more else self.found(name, namespace)
        kept = seen["metadata"].get("annotations", {}) if seen and not more.pop("again", 0) else {}
        attached = more.pop("attached", [device])
        annotations = {
            **({model.REQUEST: asks} if (asks := more.pop("asks", "ring")) else {}),
            "kube-rdma.io/network-status": msgspec.json.encode(attached).decode(),
            **more.pop("annotations", {}),
        }
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job,
            "uid": more.pop("owner", "j"),
        }
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {model.REQUEST: "ring", **more.pop("labels", {})},
            "annotations": {**annotations, **kept},
            "ownerReferences": [{**owner, "controller": True}],
            **({"uid": seen["metadata"]["uid"]} if seen else {}),
        }
        state = more.pop("state", {"running": {"startedAt": "2026-11-30T00:00:00Z"}})
        status = {
            "phase": more.pop("phase", "Pending"),
            "podIP": more.pop("address", f"10.0.0.{number + 1}"),
            "initContainerStatuses": [{"name": model.MEASURES, "state": state}] if state else [],
            "conditions": more.pop("conditions", []),
        }
        resources = {"limits": dict.fromkeys(more.pop("shares", ()), 1)}
        inits = [
            {"name": name, "resources": resources}
            for name in more.pop("inits", (model.MEASURES, model.AWAITS))
        ]
        spec = {
            "nodeName": more.pop("node", f"node-{number % 4}"),
            "initContainers": inits,
            "hostNetwork": more.pop("host", False),
        }
        assert not more
        self.server.put(POD, {"metadata": metadata, "spec": spec, "status": status})

    def node_report(self, node, cards, **pool):
        """Report a node's cards: ports by the card's name; `pool` has fields of rdma/hca."""
        made = [
            {
                "id": f"0000:0{rail}:00.0",
                "name": name,
                "resources": ["rdma/hca"],
                "rail": rail,
                "ports": [{"device": name, "number": 1, "linkLayer": "Ethernet", **port}],
            }
            for rail, (name, port) in enumerate(cards.items())
        ]
        counts = {"shares": 1000, "healthy": 1000, "cards": len(cards)}
        pools = [{"resource": "rdma/hca", "mode": "hca", "bind": "pool", **counts, **pool}]
        summary = {"cards": len(made), "healthy": len(made)}
        status = {"agentVersion": "1", "summary": summary, "cards": made, "pools": pools}
        self.server.put(NODE_REPORT, {"metadata": {"name": node}, "status": status})

    def gang(self, pods=4, **more):
        for number in range(pods):
            self.pod(number, **more)

    def found(self, name, namespace="team"):
        for one in self.server.documents("pods"):
            if (one["metadata"]["name"], one["metadata"]["namespace"]) == (name, namespace):
                return one
        return None

    def texts(self, key, job="train"):
        """The plans or verdicts of a Job's pods, by the pod's number."""
        return {
            int(one["metadata"]["name"].rpartition("-")[2]): text
            for one in self.server.documents("pods")
            if one["metadata"]["name"].startswith(f"{job}-")
            and (text := one["metadata"].get("annotations", {}).get(key))
        }

    def plans(self, job="train"):
        found = self.texts(model.PLAN, job)
        return {number: read_plan(text) for number, text in found.items()}

    def verdicts(self, job="train"):
        found = self.texts(model.VERDICT, job)
        return {number: read_verdict(text) for number, text in found.items()}

    def report(self, number, figure=lambda _: 90.0, job="train", **more):
        """A pod's first container ends with the figures of its runs."""
        plan = self.plans(job)[number]
        runs = [run for run in plan.runs if run.client]
        text = "\n".join(rules.result_line(run, rules.Result(figure(run))) for run in runs)
        ended = {"exitCode": 0, "message": text, **more.pop("ended", {})}
        self.pod(number, state={"terminated": ended}, job=job, **more)

    def all_report(self):
        """Every pod ends well; each is looked for once, so that there may be many."""
        for pod in self.server.documents("pods"):
            job, _, number = pod["metadata"]["name"].rpartition("-")
            plan = read_plan(pod["metadata"]["annotations"][model.PLAN])
            runs = [run for run in plan.runs if run.client]
            text = "\n".join(rules.result_line(run, rules.Result(90.0)) for run in runs)
            ended = {"terminated": {"exitCode": 0, "message": text}}
            self.pod(int(number), job=job, node=pod["spec"]["nodeName"], state=ended, seen=pod)

    def told(self, reason):
        return [one["note"] for one in self.server.documents("events") if one["reason"] == reason]

    @property
    def checks(self):
        return self.server.documents("bandwidthchecks")

    @property
    def writes(self):
        verbs = ("create", "update", "patch", "delete")
        return [one for one in self.line.requests if one.verb in verbs and one.plural != "events"]

    @asynccontextmanager
    async def leading(self, **timing):
        """A controller that leads, with a client of its own."""
        self.line = self.server.line()
        cluster = Cluster(self.line, EAGER)
        events = Events(cluster, "controller")
        paced = RoundTiming(now=lambda: self.now, **timing)
        rounds = PreflightRounds(cluster, events, paced, Debounce(0.01, 0.03))
        async with beside(rounds.run(), events.run()):
            yield rounds
