"""The same kubeconfigs mean the same to kubectl, which the lab builds, and to kube-rdma."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_client.kubeconfig import find_access

pytestmark = [pytest.mark.lab]

NAMES = "abc"


def document(noise, number):
    """A file with some of three servers, users and contexts; entries show which file it is."""
    chosen = [name for name in NAMES if noise.random() < 0.6]
    contexts = [
        {
            "name": name,
            "context": {
                "cluster": noise.choice(NAMES),
                "user": noise.choice(NAMES),
                **({"namespace": f"ns-{name}{number}"} if noise.random() < 0.5 else {}),
            },
        }
        for name in chosen
    ]
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}{number}.example:6443"}}
            for name in NAMES
            if noise.random() < 0.7
        ],
        "users": [
            {"name": name, "user": {"token": f"{name}{number}"}}
            for name in NAMES
            if noise.random() < 0.7
        ],
        "contexts": contexts,
    }
    if noise.random() < 0.7:
        made["current-context"] = noise.choice(NAMES)
    return made


def of_kubectl(kubectl, environment, words):
    """Server, token and namespace as kubectl has them; None where it cannot say."""
    command = [kubectl, "config", "view", "--minify", "--raw", "-o", "json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    view = json.loads(done.stdout)
    if not (view["clusters"] and view["contexts"]):
        return None
    context = view["contexts"][0]["context"]
    user = view["users"][0]["user"].get("token", "") if view["users"] else ""
    server = view["clusters"][0]["cluster"]["server"]
    return server, user, context.get("namespace", "default")


def of_ours(environment, words):
    """The same as kube-rdma has them."""
    options = dict(word.lstrip("-").split("=", 1) for word in words)
    file = options.get("kubeconfig")
    try:
        access = find_access(
            Path(file) if file else None, environment, context=options.get("context", "")
        )
    except Refused:
        return None
    return access.server.server, access.user.token, access.namespace


def test_both_mean_the_same_cluster_user_and_namespace(native, tmp_path):
    """Lists of files, files that are missing or empty, a context that is named, a file alone."""
    kubectl = native.kubectl()[0]
    compared = 0
    for seed in range(60):
        noise = random.Random(seed)  # noqa: S311  a choice that can be repeated
        folder = tmp_path / str(seed)
        (folder / ".kube").mkdir(parents=True)
        files = [folder / f"config-{number}" for number in range(3)]
        for number, file in enumerate(files):
            if noise.random() < 0.8:
                empty = noise.random() < 0.1
                file.write_text("" if empty else json.dumps(document(noise, number)))
        (folder / ".kube" / "config").write_text(json.dumps(document(noise, 9)))
        environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        if noise.random() < 0.8:
            environment["KUBECONFIG"] = os.pathsep.join(map(str, files))
        words = [f"--context={noise.choice(NAMES)}"] if noise.random() < 0.4 else []
        if noise.random() < 0.2 and files[0].exists():
            words.append(f"--kubeconfig={files[0]}")
        theirs = of_kubectl(kubectl, environment, words)
        if theirs is not None:
            compared += 1
            assert of_ours(environment, words) == theirs, (seed, words)
    assert compared > 10
