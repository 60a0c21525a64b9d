"""The site of the pages, as a reader has it: built by Sphinx, opened by Debian's chromium.

`make test-all` prepares both. The browser has no network: what a page wants from elsewhere fails.
"""

from __future__ import annotations

import pytest

from kube_base.errors import Refused
from kube_rdma_tools.site import build, versions
from kube_rdma_tools.site.pages import pages, place
from tests.kit import chromium

from .pages import ROOT

pytestmark = pytest.mark.slow  # Sphinx needs a minute for all pages, and so does the browser

PAGES = [place(name).replace(".md", ".html") for name in pages(ROOT)] + ["search.html"]
PHONE, DESK = 400, 1400
ADDRESS = "https://project.example"
SHOWN = (
    "index.html",
    "docs/networks.html",
    "docs/reference/nodepolicy.html",
    "docs/metrics.html",
    "docs/decisions/index.html",
)
SEARCH = "search.html?q=network"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with this checkout as a version, and one that is older."""
    folder = tmp_path_factory.mktemp("site")
    build.site(ROOT, folder / "dev", ADDRESS)
    (folder / "0.0.1").mkdir()
    (folder / "0.0.1/index.html").write_text("<!doctype html><title>older</title>")
    versions.write_index(folder)
    return folder


@pytest.fixture(scope="module")
def browser(site, tmp_path_factory):
    log = tmp_path_factory.mktemp("browser") / "log"
    with chromium.browser(site, log) as opened:
        yield opened


def test_the_site_has_every_page_and_no_other(site):
    written = {str(path.relative_to(site / "dev")) for path in (site / "dev").rglob("*.html")}
    assert written == {*PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_phone_and_a_desk_and_asks_nobody(browser, page):
    browser.open(f"dev/{page}", PHONE)
    assert browser.reach() <= PHONE
    browser.resize(DESK)
    assert browser.reach() <= DESK
    assert not browser.troubles


def test_screenshots_of_five_pages_are_there_to_be_looked_at(browser, tmp_path):
    for name in SHOWN:
        for width in (PHONE, DESK):
            for dark in (False, True):
                browser.dark(dark)
                browser.open(f"dev/{name}", width)
                kind = f"{width}-{'dark' if dark else 'light'}.png"
                browser.screenshot(tmp_path / f"{name.replace('/', '-')}-{kind}")
    browser.dark(False)
    assert len(list(tmp_path.glob("*.png"))) == 4 * len(SHOWN)
    assert min(path.stat().st_size for path in tmp_path.glob("*.png")) > 5000


def test_the_navigation_has_pages_only_and_decisions_once(browser):
    browser.open("dev/index.html", DESK)
    links = "Array.from(document.querySelectorAll('.sidebar-tree a.reference'), each => each.href)"
    shown = [link.partition("/dev/")[2] for link in browser.evaluate(links)]
    assert shown.count("docs/decisions/index.html") == 1
    assert not [link for link in shown if "docs/decisions/0" in link]
    assert not [link for link in shown if link.partition("#")[2] not in ("", "top")]


def test_the_start_shows_its_picture(browser):
    browser.open("dev/index.html", DESK)
    sizes = "Array.from(document.querySelectorAll('article img'), each => each.naturalWidth)"
    assert min(browser.evaluate(sizes)) > 100


def test_output_of_commands_is_whole_on_a_desk(browser):
    browser.open("dev/index.html", DESK)
    hidden = "document.querySelectorAll('pre'), each => each.scrollWidth - each.clientWidth"
    assert max(browser.evaluate(f"Array.from({hidden})")) <= 0


def test_the_search_finds_pages_and_decisions_behind_them(browser):
    browser.open(f"dev/{SEARCH}", DESK)
    browser.until("document.querySelectorAll('#search-results li').length > 3")
    assert not browser.troubles
    links = "Array.from(document.querySelectorAll('#search-results li > a'), each => each.href)"
    assert "/docs/decisions/" not in browser.evaluate(links)[0]


def test_the_selector_has_all_versions_and_leads_to_them(browser):
    browser.open("dev/docs/ip.html", DESK)
    select = "document.querySelector('.site-versions select')"
    shown = f"Array.from({select}.options, each => each.value + each.selected).join()"
    assert browser.evaluate(shown) == "0.0.1false,devtrue"
    browser.evaluate(f"{select}.value = '0.0.1', {select}.dispatchEvent(new Event('change'))")
    browser.until("document.title == 'older'")


def test_the_top_of_the_folder_leads_to_the_newest_release(browser):
    browser.open("index.html", DESK)
    browser.until("document.title == 'older'")


def test_the_browser_sees_what_is_wrong_with_a_page(site, browser):
    """Planted: a picture from elsewhere, an error of a script, a table that is too wide."""
    (site / "planted.html").write_text(
        "<!doctype html><img src='https://elsewhere.example/a.png'><script>console.error('b')"
        "</script><table width=2000><tr><td>c</table>"
    )
    browser.open("planted.html", DESK)
    assert browser.reach() > DESK
    assert any(trouble.startswith("request failed") for trouble in browser.troubles)
    assert any(trouble.startswith("console") for trouble in browser.troubles)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("[gone](gone.md)", "docs/a.md:2: WARNING"),
        ("[gone](../src/gone.py)", "src/gone.py"),
        ("[heading](README.md#gone)", "'gone'"),
        ("[heading](#gone)", "'gone'"),
        ("![picture](gone.svg)", "gone.svg"),
        ('<img src="gone.svg" width="9" alt="picture">', "gone.svg"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path, fault, words):
    checkout = tmp_path / "checkout"
    (checkout / "docs").mkdir(parents=True)
    (checkout / "build").symlink_to(ROOT / "build")
    (checkout / "README.md").write_text("# Start\n")
    (checkout / "docs/README.md").write_text("# Pages\n## Start\n| [A](a.md) | x |\n")
    (checkout / "docs/a.md").write_text(f"# A\n{fault} [good](README.md#start)\n")
    with pytest.raises(Refused) as refused:
        build.site(checkout, tmp_path / "site", ADDRESS)
    assert words in str(refused.value)
    assert not (tmp_path / "site").exists()
