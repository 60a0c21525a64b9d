"""`kube-rdma status -o html`: the report by which a cluster is handed over."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.model.reports import ReportedNeighbour
from kube_rdma.model.verify import Pairing
from tests.kit.golden import assert_golden
from tests.unit.cli.report_world import FIRMWARE, HandedOver, measured_site

HERE = Path(__file__)
HOSTILE = '</style></title><script>alert("1")</script><img src=x onerror=alert(1)>\x1b[31m\u202e'
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "dl", "div", "dt", "dd"),
    *("nav", "a", "table", "thead", "tbody", "tr", "th", "td", "figure"),
    *("svg", "rect", "g", "circle", "path", "text"),
}


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.ended, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        self.ended.append(tag)

    def handle_data(self, words):
        self.words.append(words)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def read(site, code=0):
    """The report of a cluster, whose time is left out."""
    result = site.run("-o", "html")
    assert (result.stderr, result.exit_code) == ("", code)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", result.stdout)


def test_the_report_of_two_nodes():
    site = measured_site(2, 2)
    site.check("nightly")
    assert_golden(HERE.with_name("report.html"), read(site))


def test_a_slow_card_is_in_the_verdict_and_among_the_suspects():
    site = measured_site(5, 1)
    site.check("nightly", lambda node, _: node == "node-3")
    text = Tags(read(site)).text
    assert "✗ 1 of 1 measurements not well. All else is well." in text
    assert re.search(r"✗ node-3 mlx5_0: 3 of 3 pairs at ~\d+ Gb/s \(due 320\)\. → Look at", text)
    assert "0 / 1 measurements are well" in text


def test_rare_firmware_is_marked():
    site = measured_site(3, 2)
    first, second = site.cards(2)
    cards = (first, replace(second, firmware="28.38.1900"))
    site.put("node-2", cards, site.receipt("node-2"))
    text = Tags(read(site)).text
    assert f"✓ mlx5_core {FIRMWARE} 5 node-1, node-2, node-3" in text
    assert "! mlx5_core 28.38.1900 1 node-2" in text
    assert f"! node-2 2/2 400 Gb/s mlx5_core 1 × {FIRMWARE}, 1 × 28.38.1900 su1-leaf1" in text
    assert "✓ All is well. 1 piece of advice." in text


def test_firmware_of_another_family_is_not_rare():
    site = measured_site(3, 2)
    first, second = site.cards(1)
    site.put("node-1", (first, replace(second, firmware="32.38.1900")))
    assert "✓ mlx5_core 32.38.1900 1 node-1" in Tags(read(site)).text


def hostile():
    """A cluster whose every text is an attack."""
    site = HandedOver(3, 2)
    for number, name in enumerate(site.names, 1):
        cards = tuple(
            replace(
                card,
                name=HOSTILE,
                driver=HOSTILE,
                firmware=HOSTILE,
                reasons=(HOSTILE,),
                degraded=HOSTILE,
                ports=(replace(card.ports[0], neighbour=ReportedNeighbour(HOSTILE, HOSTILE)),),
            )
            for card in site.cards(number)
        )
        words = dict.fromkeys(("time", "policy", "result", "remark"), HOSTILE)
        lists = dict.fromkeys(("peers", "firmware"), (HOSTILE,))
        site.put(name, cards, site.receipt(name, **words, **lists))
    site.check("nightly", lambda node, _: node == "node-1")
    (status,) = [one["status"] for one in site.server.documents("bandwidthchecks")]
    status |= dict.fromkeys(("result", "startTime"), HOSTILE)
    for pair in status["pairs"]:
        pair |= {"client": HOSTILE, "devices": [HOSTILE, HOSTILE], "why": HOSTILE}
    for suspect in status["suspects"]:
        suspect.update(dict.fromkeys(("node", "device", "peer", "why"), HOSTILE))
    status["leftOut"] = [{"name": HOSTILE, "why": HOSTILE}]
    return site


def test_no_text_of_the_cluster_becomes_markup():
    report = read(hostile(), 1)
    page = Tags(report)
    assert "Measurement kr/nightly" in page.text
    assert page.text.count("alert") > 50
    begun = [tag for tag, _ in page.found]
    assert set(begun) <= TAGS
    assert sorted(tag for tag in begun if tag != "meta") == sorted(page.ended)
    assert not [name for _, more in page.found for name in more if name.startswith("on")]
    assert "\x1b" not in report
    assert "\u202e" not in report


def test_the_file_needs_nothing_from_outside_and_forbids_it():
    site = measured_site(3, 2)
    site.check("nightly")
    report = read(site)
    policy = [
        more["content"] for tag, more in Tags(report).found if tag == "meta" and "content" in more
    ]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policy
    assert not re.search(r"url\(|@import|<link|src=", report)
    assert set(re.findall(r'https?:[^"]*', report)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("pairing", [Pairing.RING, Pairing.STAR, Pairing.ALL])
def test_a_big_cluster_has_a_report_of_bounded_size_that_says_what_is_cut(pairing):
    site = measured_site(64, 8)
    site.check("nightly", lambda node, card: (node, card) == ("node-9", "mlx5_2"), pairing)
    report = read(site)
    assert len(report) < 600_000
    text = Tags(report).text
    assert re.search(r"The picture has 500 of \d+ pairs: the worst, which the object lists", text)
    assert "64 / 64 nodes were measured before use" in text
    assert all(f"✓ {name} 8/8 400 Gb/s" in text for name in site.names)


def test_of_many_measurements_the_last_ones_are_drawn():
    site = measured_site(2, 1)
    for number in range(11):
        site.check(f"check-{number}")
    text = Tags(read(site)).text
    assert "11 / 11 measurements are well" in text
    assert "Further measurements 3 earlier ones are left out." in text


def test_measurements_that_nobody_may_read_are_named():
    site = measured_site(2, 1)
    site.server.forbidden |= {("list", "bandwidthchecks"), ("watch", "bandwidthchecks")}
    text = Tags(read(site)).text
    assert "? No problem" not in text
    assert "? Not read: BandwidthCheck." in text


def test_while_a_check_measures_its_former_figures_are_shown():
    site = measured_site(3, 1)
    site.check("nightly")
    (status,) = [one["status"] for one in site.server.documents("bandwidthchecks")]
    status |= {"state": "Measuring", "result": ""}
    assert "A run is under way; these are the figures of the run before." in Tags(read(site)).text
