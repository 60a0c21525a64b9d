"""What an agent's container prints for `kube-rdma top`: when its counters were read, and series."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kube_base.errors import Unavailable
from kube_rdma.adapters.metrics.local import READ
from kube_rdma.model.metrics import ScrapedSample


def samples(text: str) -> tuple[float, tuple[ScrapedSample, ...]]:
    """Both out of its text; raise Unavailable when that is written otherwise."""
    first, _, rest = text.partition("\n")
    try:
        return float(first.removeprefix(READ.decode())), tuple(
            ScrapedSample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(rest)
            for sample in family.samples
        )
    except ValueError as error:
        raise Unavailable(f"its answer is not in the format of Prometheus ({error})") from error
