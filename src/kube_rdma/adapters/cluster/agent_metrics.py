"""The metrics of agents, asked through the API server: from a laptop, without a way to the nodes.

`kube-rdma top` asks. It needs get of pods/proxy in the namespace of the agents; the API server
needs a way to the nodes' port.
"""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kube_base.errors import Unavailable
from kube_client.objects import Cluster
from kube_rdma.model.metrics.throughput import MetricsAgent, ScrapedSample


async def samples_of(cluster: Cluster, agent: MetricsAgent) -> tuple[ScrapedSample, ...]:
    """One scrape of an agent; raise Unavailable when it does not answer, or in another tongue."""
    text = await cluster.proxied(agent.namespace, f"{agent.pod}:{agent.port}", "metrics")
    try:
        return tuple(
            ScrapedSample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    except ValueError as error:
        raise Unavailable(f"its answer is not in the format of Prometheus ({error})") from error
