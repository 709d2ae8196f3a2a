"""Pages of every family in a real browser: no overflow, no overlap, no error, on a wide screen and on a narrow one.

Without Chromium these tests are skipped, each with the reason; ``PYRO_HOIM_CHROMIUM`` names another one.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from pyro_hoim import load
from pyro_hoim.cli import run
from pyro_hoim.core.page import Page, Section
from pyro_hoim.report import write_page

sys.path.append(str(Path(__file__).parent))

from page_browser import colours, edge_shades, find_chromium, hidden_width, layout, opened, printed, problems

from support.verbs import verb_first

LONG = "how satisfied are you, all things considered, with the service that you received from our staff"
CHAINS = ("--num-draws", "60", "--burn-in", "40", "--num-chains", "2")
PAGES = {
    "log-linear": ("rows.csv", "--target", LONG, "--split", "0.7,0,0.3"),
    "orders": ("rows.csv", "--order", "1", "--order", "3"),
    "dependency-network": ("rows.csv", "--model", "dependency-network", "--target", LONG),
    "grm": ("counts.csv", "--model", "grm", "--l1", "0.05", "--l1", "0.01"),
    "rbm": ("bits.csv", "--model", "rbm", "--hidden", "2", "--method", "exact", "--iterations", "30"),
    "penalty": ("bits.csv", "--penalty", "sparse-low-rank:0.8,0.8"),
    "structure": ("bits.csv", "structures"),
    "select": ("rows.csv", "learn"),
    "posterior": ("rows.csv", "--posterior", "--order", "2", "--jobs", "1", *CHAINS),
    "structure-chains": ("bits.csv", "structures", "--space", "decomposable", "--jobs", "1", *CHAINS),
}
SLOW = ("orders", "penalty", "select", "posterior", "structure", "structure-chains")


@pytest.fixture(scope="module")
def browser():
    """Chromium, one for all tests."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium here: pages are not checked in a browser (install one, or set PYRO_HOIM_CHROMIUM)")
    with opened(path) as found:
        yield found


def write_tables(folder):
    """Labels with long names, counts, and bits."""
    generator = np.random.default_rng(0)
    hidden = generator.random((300, 1))
    bits = (generator.random((300, 4)) < 0.2 + 0.6 * hidden).astype(int)
    np.savetxt(folder / "bits.csv", bits, fmt="%d", delimiter=",", header="a,b,c,d", comments="")
    counts = generator.poisson(3 * hidden * np.ones(5))
    np.savetxt(folder / "counts.csv", counts, fmt="%d", delimiter=",", header="flow,heat,wing,mach,shock", comments="")
    levels = np.array([["very dissatisfied with nearly everything", "neither", "satisfied"], ["no", "yes", "unknown"]])
    names = [LONG, "age", "region", "bought again"]
    rows = [[levels[k % 2][cell + (cell and k > 1)] for k, cell in enumerate(row)] for row in bits]
    lines = [",".join(f'"{word}"' for word in row) for row in (names, *rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a fit by its name, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    write_tables(folder)
    made = {}

    def page(name):
        if name not in made:
            words = [str(folder / word) if word.endswith(".csv") else word for word in PAGES[name]]
            assert run(verb_first(*words, "--out", str(folder / name))) == 0
            made[name] = folder / name / "report.html"
        return made[name]

    return page


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PAGES])
def test_a_page_is_whole_at_both_widths(browser, pages, name):
    html = pages(name)
    for width, scheme in ((1200, "light"), (400, "dark")):
        assert problems(browser, html, width, scheme) == []
    for width, most in ((1200, 5.0), (400, 6.0)):
        screens, limits, scale, end = layout(browser, html, width)
        assert screens <= most and limits < 800 and end <= width
        assert scale >= 10 / 12 - 0.01  # the smallest type, of nine points, has ten pixels
    lost, [(page, _), (card, _), (_, ink)] = printed(browser, html)
    assert lost == 0 and (page, card, ink) == ("rgb(255, 255, 255)", "rgb(255, 255, 255)", "rgb(0, 0, 0)")


@pytest.mark.parametrize("name", ["log-linear", "dependency-network", "grm", "rbm"])
def test_the_page_of_a_result_is_whole_too(browser, pages, name, tmp_path):
    assert problems(browser, load(pages(name).parent).report(tmp_path), 400) == []
    assert list((tmp_path / "tables").glob("*.csv"))


def test_dark_pages_are_dark_and_pictures_lie_on_light(browser, pages):
    html = pages("rbm")
    shades = {}  # mean of the three colours, of cards and of text
    for scheme in ("light", "dark"):
        (_, _), (card, _), (_, ink) = colours(browser, html, scheme)
        shades[scheme] = [sum(map(int, shade[4:-1].split(","))) / 3 for shade in (card, ink)]
    assert shades["light"][0] > 240 > 80 > shades["light"][1] and shades["dark"][1] > 200 > 60 > shades["dark"][0]
    assert "background: #fff" in html.read_text(encoding="utf-8").split("img {")[1].split("}")[0]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ('<div style="width: 3000px">wide</div>', "the page is 3"),
        ('<p style="margin-bottom: -1.5em">one line of text</p><p>another line of text</p>', "texts overlap: one line"),
        ("<script>console.error('oh')</script>", "console: oh"),
        ("<script>undefined.x</script>", "script: "),
        ('<img src="none.svg" alt="lost">', "picture without size or description: lost"),
        ('<img src="http://localhost:9/x.svg" alt="far">', "request: http://localhost:9"),
        ('<img src="data:image/svg+xml,<svg/>">', "picture without size or description: "),
    ],
    ids=["overflow", "overlap", "console", "script", "picture", "network", "description"],
)
def test_a_page_that_is_broken_is_found(browser, tmp_path, broken, told):
    section = Section("A section")
    section.table(["name", "number"], [["a", 1], ["b", 2]])
    write_page(Page("Small", {"train": 2.0}, ["a"], ["Answer."], [], [], [section], 0), tmp_path)
    html = tmp_path / "report.html"
    assert problems(browser, html, 400) == []  # control
    html.write_text(html.read_text(encoding="utf-8").replace("</main>", f"{broken}</main>"), encoding="utf-8")
    assert any(sentence.startswith(told) for sentence in problems(browser, html, 400))


def test_a_comparison_of_models_with_posteriors_is_not_cut_on_a_wide_screen(browser, tmp_path):
    columns = ["model", "parameters", "G²", "X²", "df", "p", "AIC", "BIC"]
    columns += ["elpd (LOO)", "SE", "R-hat", "ESS", "p (LOO)", "p by"]
    row = ["order 3", 41, 847.35, 845.039, 422, 0.364, 13375.6, 13491.5]
    row += [-6688.1, 139.42, 1.049, 27200, 121.246, "bootstrap"]
    section = Section("Models compared")
    section.table(columns, [row, ["order 2", *row[1:-1], "exact"]], chosen=0, brief=2)
    write_page(Page("Wide", {"train": 2.0}, ["a"], ["Answer."], [], [], [section], 0), tmp_path)
    html = tmp_path / "report.html"
    assert hidden_width(browser, html, 1200) == 0 < hidden_width(browser, html, 400)
    text = html.read_text(encoding="utf-8")
    html.write_text(text.replace('<table class="wide">', "<table>"), encoding="utf-8")
    assert hidden_width(browser, html, 1200) > 0  # control: with the space of other tables it would be


def test_a_table_that_scrolls_shows_it(browser, pages):
    html = pages("log-linear")
    assert hidden_width(browser, html, 400) > 0
    (cut, whole), (end, other) = edge_shades(browser, html, 400)
    assert cut < whole - 20  # darker at the side where a table goes on
    assert other < end - 20 and end > 250  # and after it was scrolled at the other one


def test_what_paper_would_lose_is_found(browser, pages, tmp_path):
    text = pages("log-linear").read_text(encoding="utf-8")
    assert "<details" in text and "::details-content" in text
    html = tmp_path / "report.html"
    html.write_text(text.replace("details::details-content", "nothing"), encoding="utf-8")
    assert printed(browser, html)[0] > 0


def test_without_a_browser_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    assert find_chromium() is None
