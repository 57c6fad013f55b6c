// Plots and controls of the report. The tables above work without this script.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const KEY = "report:" + location.pathname;
  const DASHES = ["solid", "dashed", "dotted"];
  const defaults = {kind: "evaluation", smoothing: 0, seeds: false, bands: true, hidden: [], zoom: {}, scroll: 0};
  const state = {...defaults, ...load()};
  const plots = [];  // {id, figure, refresh, paint}

  function load() {
    try { return JSON.parse(sessionStorage.getItem(KEY)) || {}; } catch { return {}; }
  }
  function save() {
    try { sessionStorage.setItem(KEY, JSON.stringify(state)); } catch { /* storage is off: the state lasts as long as the page */ }
  }

  const styles = getComputedStyle(document.documentElement);
  const color = name => styles.getPropertyValue("--" + name).trim();
  const groupColor = group => color("c" + group % 6);
  const groupDash = group => DASHES[Math.floor(group / 6) % 3];

  // 50k, 1.5M; numbers below `least` in full.
  function tick(value, least) {
    const plain = number => number.toLocaleString("en", {maximumSignificantDigits: 6});
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= Math.max(size, least)) return plain(value / size) + unit;
    return plain(value);
  }

  // A Gaussian around each point, in units of x; points without a value keep none.
  function smooth(x, y, share) {
    if (!share || x.length < 3) return y;
    const width = share / 100 * (x[x.length - 1] - x[0]);
    let from = 0, to = 0;
    return y.map((_, i) => {
      while (x[i] - x[from] > 3 * width) from++;
      while (to < x.length && x[to] - x[i] <= 3 * width) to++;
      let sum = 0, weights = 0;
      for (let j = from; j < to; j++) {
        const weight = Math.exp(-0.5 * ((x[j] - x[i]) / width) ** 2);
        sum += weight * y[j];
        weights += weight;
      }
      return sum / weights;
    });
  }

  function newFigure(id, element, x_axis_label, y_axis_label) {
    const figure = Bokeh.Plotting.figure({
      name: id, height: 340, min_width: 200, sizing_mode: "stretch_width", x_axis_label, y_axis_label,
      tools: [], toolbar_location: innerWidth < 600 ? "right" : "above", output_backend: "canvas",
      background_fill_color: null, border_fill_color: null, outline_line_color: null,
      x_range: new Bokeh.Models.DataRange1d({only_visible: true, range_padding: 0.03}),
      y_range: new Bokeh.Models.DataRange1d({only_visible: true, range_padding: 0.08}),
    });
    const {BoxZoomTool, PanTool, WheelZoomTool, ResetTool, SaveTool} = Bokeh.Models;
    const box = new BoxZoomTool();
    figure.add_tools(box, new PanTool(), new WheelZoomTool(), new ResetTool(), new SaveTool({filename: id.replace(/[^\w.-]+/g, "-")}));
    figure.toolbar.active_drag = box;
    figure.toolbar.logo = null;
    for (const axis of [...figure.xaxes, ...figure.yaxes]) {
      axis.minor_tick_line_color = null;
      const least = axis === figure.xaxes[0] && x_axis_label !== "score" ? 1e3 : 1e4;
      axis.formatter = new Bokeh.Models.BasicTickFormatter();
      axis.formatter.doFormat = ticks => ticks.map(value => tick(value, least));
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_text_font = axis.major_label_text_font = getComputedStyle(document.body).fontFamily;
      axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px";
    }
    figure.xaxes[0].ticker.desired_num_ticks = innerWidth < 600 ? 4 : 5;
    figure.on_event("rangesupdate", event => {
      state.zoom[id] = [event.x0, event.x1, event.y0, event.y1];
      save();
    });
    figure.on_event("reset", () => { delete state.zoom[id]; save(); });
    return figure;
  }

  function zoomTo(id, figure) {
    if (!state.zoom[id]) return;
    const [x0, x1, y0, y1] = state.zoom[id];
    for (const [range, start, end] of [[figure.x_range, x0, x1], [figure.y_range, y0, y1]]) {
      range.have_updated_interactively = true;
      range.setv({start, end});
    }
  }

  function hover(figure, renderers, tooltips, mode = "mouse") {
    figure.add_tools(new Bokeh.Models.HoverTool({renderers, tooltips, mode, point_policy: "snap_to_data", line_policy: "nearest", toggleable: false}));
  }

  function paintFrame(figure) {
    for (const axis of [...figure.xaxes, ...figure.yaxes]) {
      axis.axis_line_color = axis.major_tick_line_color = color("rule");
      axis.axis_label_text_color = axis.major_label_text_color = color("quiet");
    }
    for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = color("rule");
  }

  function drawCurves(panel, id, element) {
    const figure = newFigure(id, element, panel.x_label, "return");
    const parts = panel.groups.map(entry => {
      const label = data.groups[entry.group];
      const most = Math.max(...["evaluation", "training"].map(kind => entry[kind] ? entry[kind].seeds.length : 0));
      const source = new Bokeh.ColumnDataSource({data: {x: [], y: [], n: [], interval: []}});
      const band = figure.varea({x: {field: "x"}, y1: {field: "low"}, y2: {field: "high"}, fill_alpha: 0.18, level: "underlay",
        source: new Bokeh.ColumnDataSource({data: {x: [], low: [], high: []}})});
      const seeds = Array.from({length: most}, () => figure.line({x: {field: "x"}, y: {field: "y"},
        source: new Bokeh.ColumnDataSource({data: {x: [], y: [], seed: []}}), name: label, line_width: 1, line_alpha: 0.55}));
      const line = figure.line({x: {field: "x"}, y: {field: "y"}, source, name: label, line_width: 2.2, line_dash: groupDash(entry.group)});
      // One evaluation alone makes no line.
      const dots = figure.scatter({x: {field: "x"}, y: {field: "y"}, source, size: 7, visible: false});
      return {entry, source, band, seeds, line, dots};
    });
    hover(figure, parts.map(part => part.line), [["group", "$name"], [panel.x_label, "@x{0,0}"], ["return", "@y{0,0.[00]}"],
      ["95 % interval", "@interval"], ["seeds", "@n"]]);
    hover(figure, parts.flatMap(part => part.seeds), [["group", "$name"], ["seed", "@seed"], [panel.x_label, "@x{0,0}"], ["return", "@y{0,0.[00]}"]]);
    const refresh = () => {
      for (const {entry, source, band, seeds, line, dots} of parts) {
        const {middle, seeds: curves} = entry[state.kind] || entry.evaluation || entry.training;
        const shown = !state.hidden.includes(data.groups[entry.group]);
        const several = middle.x.map((_, i) => i).filter(i => middle.n[i] > 1);  // one seed alone has no band
        const pick = name => several.map(i => middle[name][i]);
        const smoothed = name => smooth(pick("x"), pick(name), state.smoothing);
        const [low, high] = [smoothed("low"), smoothed("high")];
        const intervals = new Map(several.map((i, place) => [i, tick(low[place], 1e9) + " to " + tick(high[place], 1e9)]));
        source.data = {x: middle.x, y: smooth(middle.x, middle.y, state.smoothing), n: middle.n,
          interval: middle.x.map((_, i) => intervals.get(i) || "none, one seed")};
        band.data_source.data = {x: pick("x"), low, high};
        line.visible = shown;
        dots.visible = shown && middle.x.length === 1;
        band.visible = shown && state.bands && curves.length > 1;
        seeds.forEach((renderer, i) => {
          const curve = curves[i];
          renderer.visible = Boolean(shown && state.seeds && curve);
          if (curve) renderer.data_source.data = {x: curve.x, y: smooth(curve.x, curve.y, state.smoothing), seed: curve.x.map(() => curve.seed)};
        });
      }
    };
    const paint = () => {
      paintFrame(figure);
      for (const {entry, band, seeds, line, dots} of parts) {
        band.glyph.fill_color = dots.glyph.fill_color = dots.glyph.line_color = groupColor(entry.group);
        for (const renderer of [...seeds, line]) renderer.glyph.line_color = groupColor(entry.group);
      }
    };
    show({id, figure, refresh, paint}, element);
  }

  function drawProfile(profile, id, element) {
    const figure = newFigure(id, element, "score", "fraction of runs above it");
    const parts = profile.groups.map(entry => {
      const {levels: x} = profile, {y, low = y, high = y} = entry;
      const source = new Bokeh.ColumnDataSource({data: {x, y, low, high}});
      const band = figure.varea_step({x: {field: "x"}, y1: {field: "low"}, y2: {field: "high"}, source, step_mode: "after", fill_alpha: 0.15, level: "underlay"});
      const line = figure.step({x: {field: "x"}, y: {field: "y"}, source, name: data.groups[entry.group], mode: "after", line_width: 2.2, line_dash: groupDash(entry.group)});
      return {entry, band, line};
    });
    hover(figure, parts.map(part => part.line), [["group", "$name"], ["score", "@x{0,0.[00]}"], ["fraction", "@y{0.00}"]]);
    const refresh = () => {
      for (const {entry, band, line} of parts) {
        line.visible = !state.hidden.includes(data.groups[entry.group]);
        band.visible = line.visible && state.bands && "low" in entry;
      }
    };
    const paint = () => {
      paintFrame(figure);
      for (const {entry, band, line} of parts) band.glyph.fill_color = line.glyph.line_color = groupColor(entry.group);
    };
    show({id, figure, refresh, paint}, element);
  }

  function show(plot, element) {
    for (const renderer of plot.figure.renderers) renderer.hover_glyph = null;  // the colours stay while the pointer is over a line
    plot.refresh();
    plot.paint();
    plots.push(plot);
    zoomTo(plot.id, plot.figure);
    Bokeh.Plotting.show(plot.figure, element);
  }

  function refresh() {
    for (const plot of plots) plot.refresh();
    const output = document.getElementById("smoothing-value");
    if (output) output.textContent = state.smoothing ? state.smoothing + " %" : "off";
    for (const button of document.querySelectorAll("[data-group]"))
      button.setAttribute("aria-pressed", String(!state.hidden.includes(data.groups[button.dataset.group])));
  }

  function control(id, property, read) {
    const input = document.getElementById(id);
    if (!input) return;
    input[property] = state[id];
    if (input.selectedIndex === -1) { input.selectedIndex = 0; state[id] = input.value; }
    input.addEventListener("input", () => { state[id] = read(input); refresh(); save(); });
  }

  function controls() {
    const box = document.getElementById("controls");
    if (box) box.hidden = false;
    control("kind", "value", input => input.value);
    control("smoothing", "value", input => Number(input.value));
    control("seeds", "checked", input => input.checked);
    control("bands", "checked", input => input.checked);
    for (const button of document.querySelectorAll("[data-group]")) {
      button.addEventListener("click", () => {
        const label = data.groups[button.dataset.group];
        state.hidden = state.hidden.includes(label) ? state.hidden.filter(each => each !== label) : [...state.hidden, label];
        refresh();
        save();
      });
    }
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = !navigator.clipboard;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.previousElementSibling.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    }
    const details = [...document.querySelectorAll("details")];
    details.forEach((each, i) => {
      const name = each.querySelector("summary").textContent.replace(/\d+/g, "");
      if (state["open:" + name] !== undefined) each.open = state["open:" + name];
      each.addEventListener("toggle", () => { state["open:" + name] = each.open; save(); });
    });
  }

  // The page loads itself in a hidden frame and compares stamps; it reloads once the file has changed.
  function watch() {
    const {stamp, every} = document.body.dataset;
    const live = document.getElementById("live");
    let frame = null;
    const ask = () => {
      if (document.hidden) return;
      if (frame) frame.remove();
      frame = document.createElement("iframe");
      frame.hidden = true;
      frame.src = location.href.split("#")[0] + "#stamp";
      document.body.append(frame);
    };
    addEventListener("message", event => {
      if (!frame || event.source !== frame.contentWindow || !event.data || !event.data.report) return;
      frame.remove();
      frame = null;
      if (event.data.report !== stamp && !document.querySelector(":active")) {
        state.scroll = scrollY;
        save();
        location.reload();
      }
    });
    if (every) {
      live.textContent = "refreshes every " + every + " s";
      live.hidden = false;
    }
    setInterval(ask, 1000 * (Number(every) || 10));
    addEventListener("visibilitychange", ask);
  }

  // Tooltips have a style of their own, in which labels are too pale.
  function styleTooltips() {
    new MutationObserver(records => {
      for (const node of records.flatMap(record => [...record.addedNodes])) {
        if (!node.shadowRoot || !node.classList.contains("bk-Tooltip") || node.shadowRoot.querySelector(".own")) continue;
        const style = document.createElement("style");
        style.className = "own";
        style.textContent = ".bk-tooltip-row-label { color: inherit; opacity: 0.7; padding-right: 0.5em; }";
        node.shadowRoot.append(style);
      }
    }).observe(document.body, {childList: true});
  }

  function main() {
    history.scrollRestoration = "manual";
    controls();
    styleTooltips();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => { for (const plot of plots) plot.paint(); });
    for (const element of document.querySelectorAll("[data-curves]")) drawCurves(data.curves[element.dataset.curves], "curves: " + data.curves[element.dataset.curves].title, element);
    for (const element of document.querySelectorAll("[data-profile]")) drawProfile(data.profiles[element.dataset.profile], "profile: " + data.profiles[element.dataset.profile].title, element);
    refresh();
    if (!location.hash && state.scroll) scrollTo(0, state.scroll);
    addEventListener("pagehide", () => { state.scroll = scrollY; save(); });
    document.documentElement.dataset.ready = "yes";
    watch();
  }
  main();
})();
