"""What `kube-rdma status` says of nodes whose cards were measured before use."""

import json
import re

from kube_base.frozen import replace
from tests.unit.cli.report_world import measured_site


def test_the_page_says_how_many_nodes_were_measured_and_the_json_has_each_receipt():
    site = measured_site(3, 1)
    now = "2999-01-01T00:00:00Z"
    site.put("node-2", site.cards(2), site.receipt("node-2", time=now))
    site.put("node-3", site.cards(3))
    days = r"Measured before use: 2 of 3 nodes; the oldest receipt is \d+ d old \(node-1\)\."
    assert re.search(days, site.run().stdout)
    first, second, third = json.loads(site.run("-o", "json").stdout)["nodes"]
    assert first["report"]["receipt"]["peers"] == ["node-3", "node-2"]
    assert second["report"]["receipt"]["time"] == now
    assert third["report"]["receipt"] is None


def test_a_receipt_without_a_time_has_no_age():
    site = measured_site(1, 1)
    site.put("node-1", site.cards(1), site.receipt("node-1", time="soon"))
    site.put("node-2", site.cards(2), site.receipt("node-1", time="2026-01-01T00:00:00"))
    assert "Measured before use: 2 of 2 nodes.\n" in site.run().stdout


def test_advice_says_that_firmware_is_another_than_when_it_was_measured():
    site = measured_site(3, 2)
    assert "FirmwareChanged" not in site.codes()
    first, second = site.cards(2)
    site.put("node-2", (first, replace(second, firmware="28.38.1900")), site.receipt("node-2"))
    changed = site.codes()["FirmwareChanged"]
    assert (changed["about"], changed["advice"]) == ("node/node-2", True)
    assert changed["sentence"] == (
        "The firmware of mlx5_1 is another than when the node was measured"
    )
    assert changed["nextStep"].endswith("taint nodes node-2 kube-rdma.io/burn-in:NoSchedule")


def test_what_a_receipt_does_not_name_has_not_changed():
    site = measured_site(2, 2)
    site.put("node-1", site.cards(1), site.receipt("node-1", firmware=("mlx5_7 1", "", "mlx5_0")))
    assert site.codes() == {}
