"""`python -m kube_rdma_tools.fail_open`: writes pods that check themselves, and judges them.

kubectl makes and reads the pods, so any cluster can be tried. `pods … | kubectl create -f -` comes
first, then `kubectl get pods,events -o json | … judge`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import IO

import click
import yaml

from kube_base.errors import KubeError, Refused
from kube_rdma_tools.fail_open.judge import Judgement, PodVerdict, judge, score, sentence
from kube_rdma_tools.fail_open.pods import EXPECTATIONS, probes

NONE, SOME, REFUSED = 0, 1, 3  # exit codes: pods without their NIC, and a document that is wrong


@click.group()
def main() -> None:
    """Count pods that run without the NIC that they asked for."""


@main.command()
@click.argument("pod", type=click.File())
@click.option(
    "--count", type=click.IntRange(1), default=100, show_default=True, help="How many pods."
)
@click.option(
    "--expect",
    default="netdev,verbs",
    show_default=True,
    help=f"What each has to have, of {', '.join(EXPECTATIONS)}, with commas between.",
)
@click.option(
    "--late",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="For how long a pod that lacks something looks for it.",
)
def pods(pod: IO[str], count: int, expect: str, late: int) -> None:
    """Print pods like the one in the file POD, whose program is the check.

    The image needs /bin/sh and sleep.
    """
    words = expect.split(",")
    if wrong := [word for word in words if word not in EXPECTATIONS]:
        raise click.BadParameter(
            f"{wrong[0]!r} is none of {', '.join(EXPECTATIONS)}", param_hint="--expect"
        )
    try:
        document = yaml.safe_load(pod)
        if not isinstance(document, dict):
            raise Refused("the file holds no document", remedy="Give a Pod")
        items = list(probes(document, count, words, late))
    except (KubeError, yaml.YAMLError) as error:
        click.echo(f"{pod.name}: {error}", err=True)
        sys.exit(REFUSED)
    click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@main.command(name="judge")
@click.option("--all", "every", is_flag=True, help="A line for each pod, besides the score.")
def judge_command(every: bool) -> None:
    """Judge the pods of `kubectl get pods,events -o json`, which it reads.

    Exit codes: 0 no pod ran without its NIC; 1 some did, the check of one wrote no result, or
    there is no pod; 3 the input is no list.
    """
    try:
        items = json.load(sys.stdin)["items"]
    except (ValueError, TypeError, KeyError):
        command = "kubectl get pods,events -o json"
        click.echo(f"the input is no list of objects; give what `{command}` prints", err=True)
        sys.exit(REFUSED)
    judgements = judge(items)
    for line in lines(judgements, every=every):
        click.echo(line)
    total = score(judgements)
    click.echo(sentence(total))
    bad = total.failed_open or total.by_verdict.get(PodVerdict.UNCLEAR, 0) or not total.pods
    sys.exit(SOME if bad else NONE)


def lines(judgements: Sequence[Judgement], *, every: bool) -> Iterator[str]:
    """Yield a line for each pod whose verdict is not WITH, or with `every` for each pod."""
    for judged in judgements:
        if every or judged.verdict is not PodVerdict.WITH:
            late = f" (came after {judged.late} s)" if judged.late is not None else ""
            yield f"{judged.verdict:8} {judged.pod}  {judged.why}{late}".rstrip()


if __name__ == "__main__":
    main()
