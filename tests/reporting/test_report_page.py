"""The page of `report` in a real Chromium, from a file and without a network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rl_training.reporting.report import Options, write_report

pytest.importorskip("bokeh")

EVIL = "<img src=x onerror=alert(1)>@y{safe}$$x$$"
FIGURES = "Bokeh.documents.map(document => document.roots()[0])"
TOOLTIPS = "[...document.querySelectorAll('.bk-Tooltip')]"
NEXT_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true), 50)))"
LINES = f"{FIGURES}[0].renderers.filter(each => each.glyph.type === 'Line')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_run) -> Path:
    """Two groups of three seeds, an offline run with another task, and one with markup in its names."""
    runs = tmp_path_factory.mktemp("report") / "runs"
    for seed in range(3):
        write_run(runs / "fast" / f"seed_{seed}", 1, 30 + seed, 5, 60 + seed, seed=seed, learning_rate=0.01)
        write_run(runs / "slow" / f"seed_{seed}", 1, 2 + seed, 3, 40 + 9 * seed, seed=seed)
    write_run(runs / "offline", -5, -4, env="Y-v1", top={"dataset": "log.npz"}, algo="iql")
    write_run(runs / "z_evil", 1, 2, env=EVIL, algo=f"sac{EVIL}", note=EVIL)
    return runs


@pytest.fixture
def page(folder, tmp_path, browser) -> Path:
    browser.errors.clear()
    browser.requests.clear()
    page = tmp_path / "report.html"
    write_report([folder], page)
    browser.open(page)
    browser.run("sessionStorage.clear()")
    return page


def pixels(browser, plot: int) -> int:
    """Number of coloured pixels of a plot, of all its canvases."""
    return browser.run(f"""(() => {{
      const found = [];
      const search = node => {{
        if (node.shadowRoot) search(node.shadowRoot);
        for (const child of node.children) {{ if (child.tagName === "CANVAS") found.push(child); search(child); }}
      }};
      search(document.querySelectorAll(".plot")[{plot}]);
      return found.map(canvas => {{
        const {{data}} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) {{
          const [red, green, blue, alpha] = data.slice(i, i + 4);
          if (alpha > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count++;
        }}
        return count;
      }}).reduce((a, b) => a + b, 0);
    }})()""")


def set_input(browser, name: str, value: object) -> None:
    key = "checked" if isinstance(value, bool) else "value"
    change = f"input.{key} = {json.dumps(value)}; input.dispatchEvent(new Event('input'))"
    browser.run(f"(() => {{ const input = document.getElementById('{name}'); {change} }})()")


def test_the_page_opens_offline_without_an_error_and_draws_every_plot(browser, page):
    assert browser.run("document.querySelectorAll('.plot').length") == 6  # curves and profiles of three tasks
    browser.wait(f"{FIGURES}.length === 6")
    for plot in range(6):
        assert pixels(browser, plot) > 100, plot
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


def test_smoothing_changes_the_lines_and_zero_restores_them(browser, page):
    values = f"JSON.stringify({LINES}.map(line => line.data_source.data.y))"
    before = browser.run(values)
    set_input(browser, "smoothing", "20")
    assert browser.run("document.getElementById('smoothing-value').textContent") == "20 %"
    after = browser.run(values)
    assert after != before
    first, last = json.loads(before)[3], json.loads(after)[3]  # after the three seeds: their mean
    assert max(last) - min(last) < max(first) - min(first)
    set_input(browser, "smoothing", "0")
    assert browser.run(values) == before


def test_seeds_bands_and_groups_are_turned_on_and_off(browser, page):
    def shown(kind: str) -> int:
        return browser.run(
            f"{FIGURES}[0].renderers.filter(each => each.glyph.type === '{kind}' && each.visible).length"
        )

    assert (shown("Line"), shown("VArea")) == (2, 2)
    plain = pixels(browser, 0)
    set_input(browser, "seeds", True)
    assert shown("Line") == 8
    browser.run(NEXT_FRAME)
    assert pixels(browser, 0) != plain
    set_input(browser, "bands", False)
    assert (shown("Line"), shown("VArea")) == (8, 0)
    browser.run("document.querySelector('[data-group=\"0\"]').click()")
    assert shown("Line") == 4
    assert browser.run("document.querySelector('[data-group=\"0\"]').getAttribute('aria-pressed')") == "false"
    assert browser.errors == []


def test_a_band_covers_only_steps_with_several_seeds(browser, tmp_path, write_run):
    write_run(tmp_path / "runs" / "seed_0", 1, 2, 3, 4)
    write_run(tmp_path / "runs" / "seed_1", 8, 9, seed=1, status=None)
    write_report([tmp_path / "runs"], tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    band = f"{FIGURES}[0].renderers.find(each => each.glyph.type === 'VArea').data_source.data"
    assert browser.run(f"{band}.x") == [50, 75, 100]
    assert browser.run(f"{LINES}.at(-1).data_source.data.x") == [25, 50, 75, 100]
    assert browser.run(f"{LINES}.at(-1).data_source.data.interval")[:2] == ["none, one seed", "2 to 8"]


def test_the_kind_of_return_can_be_chosen(browser, page):
    lengths = f"{LINES}.filter(line => line.visible).map(line => line.data_source.data.x.length)"
    assert browser.run(lengths) == [4, 4]
    set_input(browser, "kind", "training")
    assert browser.run(lengths) == [1, 1]  # one row of training, drawn as a dot
    assert (
        browser.run(f"{FIGURES}[0].renderers.filter(each => each.glyph.type === 'Scatter' && each.visible).length") == 2
    )


def test_an_open_page_reloads_after_a_change_and_keeps_its_state(browser, folder, tmp_path, write_run):
    runs, page = tmp_path / "runs", tmp_path / "report.html"
    shutil.copytree(folder, runs)
    write_report([runs], page, Options(every=1))
    browser.open(page, height=500)
    set_input(browser, "smoothing", "7")
    set_input(browser, "seeds", True)
    browser.run("document.querySelector('[data-group=\"1\"]').click()")
    browser.run(f"{FIGURES}[0].x_range.setv({{start: 10, end: 60}})")
    browser.run(f"{FIGURES}[0].trigger_event({{event_name: 'rangesupdate', x0: 10, x1: 60, y0: 0, y1: 50}})")
    browser.run("scrollTo(0, 700); window.old = true")
    write_report([runs], page, Options(every=1))
    browser.wait("new Promise(done => setTimeout(() => done(true), 2500))")
    assert browser.run("window.old") is True  # nothing has changed
    write_run(runs / "slow" / "seed_3", 1, 2, 3, 4, seed=3)
    write_report([runs], page, Options(every=1))
    browser.wait("window.old === undefined")
    browser.ready()
    assert "9 runs" in browser.run("document.querySelector('.facts').textContent")
    assert browser.run("[smoothing.value, seeds.checked, scrollY]") == ["7", True, 700]
    assert browser.run("document.querySelector('[data-group=\"1\"]').getAttribute('aria-pressed')") == "false"
    assert browser.run(f"[{FIGURES}[0].x_range.start, {FIGURES}[0].x_range.end]") == [10, 60]
    assert browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_window_never_scrolls_sideways(browser, page, dark):
    browser.open(page, width=400, height=800, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == 400
    assert browser.run("document.querySelector('.plot').getBoundingClientRect().right") <= 400
    assert pixels(browser, 0) > 100
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_a_narrow_toolbar_still_has_its_reset_tool(browser, page):
    browser.open(page, width=400, height=800)
    browser.wait(f"{FIGURES}.length === 6")
    # A horizontal toolbar hides tools in a menu if it is laid out while the plot is still narrow.
    assert browser.run(f"{FIGURES}.map(figure => figure.toolbar_location)") == ["right"] * 6
    places = browser.run("""(() => {
      const found = [];
      const search = node => {
        if (node.shadowRoot) search(node.shadowRoot);
        for (const child of node.children) {
          if (child.title === "Reset") found.push(child.getBoundingClientRect());
          search(child);
        }
      };
      search(document.body);
      return found.map(({width, right}) => [width, right]);
    })()""")
    assert len(places) == 6
    assert all(width > 0 and right <= 400 for width, right in places), places


def test_long_names_of_groups_wrap_in_the_table_of_configs(browser, tmp_path, write_run):
    for number in range(4):
        name = f"runs/study/final/trial_{number:04}_with_a_long_name.yaml"
        write_run(tmp_path / "runs" / str(number), 1, algo=name, learning_rate=0.1 + number)
    write_report([tmp_path / "runs"], tmp_path / "report.html")
    browser.open(tmp_path / "report.html", width=1400, height=800)
    over = browser.run("""[...document.querySelectorAll(".configs thead th .group")].map(each => {
      const {right} = each.closest("th").getBoundingClientRect();
      const padding = parseFloat(getComputedStyle(each.closest("th")).paddingRight);
      return each.lastChild.getBoundingClientRect().right - (right - padding);
    })""")
    assert len(over) == 4
    assert max(over) <= 1, over


def test_the_tables_need_no_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=page.as_uri())
        browser.wait("document.readyState === 'complete' && document.querySelector('.scores')")
        assert "61.0" in browser.run("document.querySelector('.scores').innerText")
        assert browser.run("document.getElementById('controls').hidden")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_names_with_markup_stay_text_in_plots_and_tooltips(browser, page):
    x, top, height = browser.run("""(() => {
      const plot = document.querySelectorAll(".plot")[2];
      plot.scrollIntoView({block: "center"});
      const {x, y, width, height} = plot.getBoundingClientRect();
      return [x + width / 2, y, height];
    })()""")
    texts = []
    for level in range(10, 95, 2):  # down through the line
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=top + height * level / 100)
        browser.run(NEXT_FRAME)
        texts += browser.run(f"{TOOLTIPS}.map(each => each.shadowRoot.textContent)")
        assert not browser.run(f"{TOOLTIPS}.some(each => each.shadowRoot.querySelector('img'))")
    assert any(f"sac{EVIL}" in text for text in texts)
    assert browser.errors == []
