"""Nobody imports what only others need: each start costs emulated nodes seconds."""

import sys

import pytest

from bench.imports import modules, programs

API = "h11", "kube_client.wire"  # the client of the API server
DOCUMENTS = "pydantic", "yaml"
GRPC = "grpclib", "h2", "google.protobuf"
LOOP = "asyncio", "structlog"
# Documents of pods and networks, which come later if at all, and formats of other configurations.
LATER = tuple(
    f"kube_rdma.{name}"
    for name in (
        *("attach.documents.networks", "attach.documents.pod_networks", "ipam.ip_conf"),
        *("attach.documents.network_definition", "attach.documents.network_plugins"),
        *("attach.documents.called_conf", "attach.documents.cni_conf", "lib.schema.structural"),
        *("pools.documents.resource_list", "pools.documents.node_policy", "pools.documents.hca"),
    )
)
# Pod networks and their addresses are for agents that put networks into pods, the rest for people.
NETWORKS = (
    *("kube_client", "kube_rdma.adapters.cluster", "kube_rdma.adapters.cni", "kube_rdma.ipam"),
    *("kube_rdma.attach.node_networks", "kube_rdma.attach.node_view", "kube_rdma.attach.executor"),
    *("kube_rdma.attach.calls", "kube_rdma.attach.rules.cni_conf"),
)
PEOPLE = (
    *("kube_rdma.hardware.views", "kube_rdma.pools.views", "kube_rdma.lib.page"),
    *("kube_rdma.migrate", "kube_rdma_selftest.run"),
)
CERTIFICATES = ("cryptography",)  # the lab makes them
DRAWING = ("rich.console", "pygments")  # structlog asks for rich, and gets none (lib/logs.py)
PLUGINS = ("importlib.metadata", "zipfile", "email")  # pydantic looks for some unless told not to
# A module stands for all that is in it.
NEEDLESS = {
    "bare_python": (),
    "devices": (
        *(*API, *DOCUMENTS, *GRPC, *LOOP, "rich", "importlib.metadata", "email"),
        *("kube_rdma.model.doctor", "kube_rdma.model.pools"),  # and what these bring
    ),
    "lab": (*API, *DOCUMENTS, *GRPC, "structlog", "rich"),
    "agent": (
        *(*API, *LATER, *NETWORKS, *PEOPLE, *CERTIFICATES),
        *("http.client", "urllib.request", "yaml", *DRAWING, *PLUGINS, "_ssl"),
    ),
    "agent_networks": (
        *LATER,
        *PEOPLE,
        *CERTIFICATES,
        "http.client",
        "urllib.request",
        "anyio",
        "yaml",
        "wsproto",
        *DRAWING,
        *PLUGINS,
    ),
}


def needless(name, imported):
    """What of it should not be there, and fakes, which are for tests and the lab."""
    fakes = {one for one in imported if one.rpartition(".")[2].startswith("fake")}
    inside = {one for one in imported if any(f"{one}.".startswith(f"{n}.") for n in NEEDLESS[name])}
    return inside | (fakes if name != "lab" else set())


@pytest.mark.parametrize("name", NEEDLESS)
def test_a_program_imports_nothing_that_only_others_need(name, tmp_path):
    """The real command, up to the configuration that ends it."""
    imported = modules(programs(tmp_path)[name])
    assert not needless(name, imported)
    assert name == "bare_python" or "kube_rdma" in imported


def test_a_controller_draws_nothing(tmp_path):
    """Up to a value that ends it."""
    program = programs(tmp_path)["agent"][0]
    imported = modules([program, "controller", "--policies", "--policy-set", "host.runtime"])
    assert "kube_rdma.controller.parts" in imported
    assert not imported.intersection(DRAWING)


def test_role_plugin_can_answer_a_scrape(tmp_path):
    """What writes its text imports ssl, which the start of this role does without."""
    words = programs(tmp_path)["agent"][2:]
    code = (
        "import sys\nfrom kube_rdma.cli.agent import agent\n"
        "try: agent(sys.argv[1:])\nfinally: import kube_rdma.adapters.metrics.exposition"
    )
    assert "_ssl" in modules([sys.executable, "-c", code, *words])


def test_what_writes_reports_reads_no_documents_of_people():
    """Statuses are Structs, for programs write them."""
    code = "import kube_rdma.agent.node.report"
    assert "pydantic" not in modules([sys.executable, "-c", code])


def test_an_import_that_is_planted_is_found(tmp_path):
    """In a program that imports it two modules further on."""
    (tmp_path / "planted.py").write_text(
        "import kube_rdma.lib.text.typed, kube_rdma.adapters.inotify"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import planted"
    assert needless("devices", modules([sys.executable, "-c", code])) >= {"pydantic"}


def test_a_part_of_pod_networks_in_the_plugin_is_found():
    """The whole of a package is meant, not its first file alone."""
    code = "import kube_rdma.ipam.rules.subpools"
    assert needless("agent", modules([sys.executable, "-c", code])) >= {
        "kube_rdma.ipam.rules.subpools"
    }
