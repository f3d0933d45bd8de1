// The page's part of a timeline: fewer or more marks as one zooms, arrows, themes, keys. It talks to no network.
(function () {
  "use strict";
  const page = JSON.parse(document.getElementById("timeline-data").textContent);
  const div = document.getElementById("timeline");
  const {marks, rows, texts, roles, never: NEVER} = page;
  const MS = 1e6, COLUMNS = ["row", "role", "start", "end", "count", "busy", "name", "extra", "launch",
    "launch_row", "after", "after_row", "bytes", "wait", "whole"];
  const size = marks.row.length;
  let view = page.views[0], seen = rowsSeen();  // what is folded away is not looked at

  function rowsSeen() {
    const found = [];
    for (let k = 0; k < size; k++) if (view.y[marks.row[k]] !== undefined) found.push(k);
    return found;
  }
  for (const name of ["start", "launch", "after"]) unpack(marks[name]);
  marks.end = marks.length.map((length, k) => marks.start[k] + length);

  function unpack(deltas) {  // kept as differences; null stands for an instant that is not known
    let before = 0;
    for (let k = 0; k < deltas.length; k++) {
      if (deltas[k] === null) deltas[k] = NEVER;
      else { before += deltas[k]; deltas[k] = before; }
    }
  }

  // As `coarsen` in marks.py: marks shorter than the resolution that begin in one bin of it become one.
  function coarsen(resolutionOf) {
    const found = {};
    for (const name of COLUMNS) found[name] = [];
    let last = -1, key = null, longest = 0;
    for (const k of seen) {
      const length = marks.end[k] - marks.start[k], resolution = resolutionOf(k);
      const alone = length >= resolution;
      const bin = Math.floor(marks.start[k] / resolution);
      if (!alone && key !== null && key.bin === bin && key.row === marks.row[k] && key.role === marks.role[k]
          && key.resolution === resolution) {
        found.end[last] = Math.max(found.end[last], marks.end[k]);
        for (const name of ["count", "busy", "wait"]) found[name][last] += marks[name][k];
        if (length > longest) { longest = length; found.name[last] = marks.name[k]; found.extra[last] = marks.extra[k]; }
        found.launch[last] = found.after[last] = NEVER;
        found.launch_row[last] = found.after_row[last] = found.bytes[last] = -1;
        continue;
      }
      for (const name of COLUMNS) found[name].push(marks[name][k]);
      last = found.row.length - 1;
      longest = length;
      key = alone ? null : {bin, row: marks.row[k], role: marks.role[k], resolution};
    }
    return found;
  }

  function fit(low, high) {  // as `fit` in marks.py
    const whole = page.last - page.first;
    let fine = Math.max(Math.floor((high - low) / page.fine), 1), coarse = Math.max(Math.floor(whole / page.coarse), 1);
    for (;;) {
      const outer = Math.max(coarse, fine);
      const found = coarsen((k) => (marks.end[k] >= low && marks.start[k] <= high ? fine : outer));
      const count = found.row.length;
      if (count <= page.most || fine > 2 * whole) return found;
      let inside = 0;
      for (let k = 0; k < count; k++) inside += found.end[k] >= low && found.start[k] <= high;
      if (inside > page.most / 2 || coarse > 2 * whole) fine *= 2; else coarse *= 2;
    }
  }

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (value) => value.toLocaleString("en-US");

  function nameOf(found, k, role) {
    if (role.fixed) return [role.fixed, role.fixed];
    return found.name[k] < 0 ? ["", ""] : texts[found.name[k]];
  }

  function labelOf(found, k, role, name, room) {
    const many = found.count[k] > 1, length = Math.max(found.end[k] - found.start[k], 1);
    const text = many ? number(found.count[k]) + " × " + Math.round(100 * found.busy[k] / length) + "%"
      : role.label.replace("%", () => name[role.full ? 0 : 1]);
    const letters = Math.floor((room - page.inside) / page.letter);
    if (letters >= text.length) return escaped(text);
    if (role.race) return letters > 0 ? text[0] : "";
    return letters >= page.least && !many ? escaped(text.slice(0, letters - 1)) + "…" : "";
  }

  function moreOf(found, k) {
    const lines = [], one = found.count[k] === 1;
    if (one && found.whole[k] > 0) {
      lines.push("waits " + number(found.wait[k]) + " ns for the last rank, then transfers "
        + number(found.whole[k] - found.wait[k]) + " ns");
    }
    if (found.launch[k] !== NEVER) {
      lines.push("launched " + number(found.start[k] - found.launch[k]) + " ns before"
        + (found.launch_row[k] >= 0 ? ", by " + rows[found.launch_row[k]] : ""));
    }
    if (found.bytes[k] >= 0) lines.push(bytes(found.bytes[k]));
    if (found.extra[k] >= 0 && one) lines.push(...wrapped(texts[found.extra[k]][0]).map(escaped));
    return lines.map((line) => "<br>" + line).join("");
  }

  function wrapped(text) {
    return text.match(/.{1,100}(\s|$)|.{1,100}/g) || [];
  }

  function bytes(count) {
    let value = count, unit = "B";
    for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
      if (value < 1024) break;
      value /= 1024; unit = larger;
    }
    return unit === "B" ? count + " B" : value.toFixed(1) + " " + unit;
  }

  let shown = null;  // the marks behind each trace's points, for arrows

  const FILLED = ["base", "x", "y", "width", "text", "customdata"];

  function fill([from, to], pixels) {  // every trace's data for a span in ns, so many pixels wide
    const length = to - from, perNs = pixels / length;
    const found = fit(from - length / 2, to + length / 2);  // what panning brings in next is there already
    const data = page.figure.data.map(() => ({base: [], x: [], y: [], width: [], text: [], customdata: [], at: []}));
    const written = [];
    for (let k = 0; k < found.row.length; k++) {
      const role = roles[found.role[k]], many = found.count[k] > 1, y = view.y[found.row[k]];
      const trace = data[many ? role.many : role.one], span = found.end[k] - found.start[k];
      const name = nameOf(found, k, role), share = Math.min(found.busy[k] / Math.max(span, 1), 1);
      const low = Math.max(found.start[k], from), high = Math.min(found.end[k], to);
      const cut = !many && (found.start[k] < from || found.end[k] > to);
      trace.base.push(found.start[k] / MS);
      trace.x.push(span / MS);
      trace.y.push(y);
      trace.width.push(many ? role.height * (page.low_height + (1 - page.low_height) * share) : role.height);
      const tall = trace.width[trace.width.length - 1];
      const text = many && tall < page.readable ? "" : labelOf(found, k, role, name, (high - low) * perNs);
      trace.text.push(cut ? "" : text);
      if (text && !cut) written.push([high - low, trace.text, trace.text.length - 1]);
      if (cut && text) {  // in the middle of what is seen of it
        const label = data[role.text];
        label.base.push(low / MS);
        label.x.push((high - low) / MS);
        label.y.push(y);
        label.width.push(tall);
        label.text.push(text);
        label.customdata.push([]);
        written.push([high - low, label.text, label.text.length - 1]);
      }
      trace.customdata.push([
        many ? number(found.count[k]) + " marks drawn as one, the longest " + escaped(name[0]) : escaped(name[0]),
        rows[found.row[k]], found.start[k], span, moreOf(found, k), many ? number(found.busy[k]) + " ns busy" : ""]);
      trace.at.push(k);
      if (role.shade && !many) {
        const band = view.spans[found.row[k]], under = data[0];
        under.base.push(found.start[k] / MS);
        under.x.push(span / MS);
        under.y.push(band[0]);
        under.width.push(band[1]);
        under.text.push("");
        under.customdata.push([]);
      }
    }
    // A browser takes long to measure texts: the longest marks keep theirs.
    for (const [, texts, at] of written.sort((one, other) => other[0] - one[0]).slice(page.texts_at_once)) texts[at] = "";
    shown = {found, at: data.map((one) => one.at)};
    // A trace without any bar would lose its legend entry: one that is not drawn stands in.
    return data.map((one) => (one.x.length ? one
      : {base: [null], x: [null], y: [null], width: [0], text: [""], customdata: [[]], at: []}));
  }

  function refine(layout = {}) {
    const axis = div._fullLayout.xaxis, data = fill(axis.range.map((edge) => edge * MS), axis._length);
    const update = {};
    for (const name of FILLED) update[name] = data.map((one) => one[name]);
    return Plotly.update(div, update, layout).then(() => div.setAttribute("data-refined", String(++refined)));
  }
  let refined = 0;

  // Arrows: from the launch, and from the op that an event made it wait for. Drawn above the plot, not by it.
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "arrows");
  svg.innerHTML = '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    + 'orient="auto"><path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs><g></g>';
  const lines = svg.querySelector("g");
  let pinned = [];

  function arrowsOf(point) {
    const k = shown && point.customdata && shown.at[point.curveNumber] ? shown.at[point.curveNumber][point.pointNumber] : -1;
    if (k === undefined || k < 0) return [];
    const found = shown.found, to = [found.start[k], found.row[k]], some = [];
    if (found.launch[k] !== NEVER && found.launch_row[k] >= 0) some.push(["launch", found.launch[k], found.launch_row[k], ...to]);
    const kind = roles[found.role[k]].race ? "race" : "event";
    if (found.after[k] !== NEVER && found.after_row[k] >= 0) some.push([kind, found.after[k], found.after_row[k], ...to]);
    return some;
  }

  function drawArrows(some) {
    const {xaxis, yaxis} = div._fullLayout;
    const x = (ns) => Math.min(Math.max(xaxis._offset + xaxis.l2p(ns / MS), xaxis._offset), xaxis._offset + xaxis._length);
    const y = (row) => yaxis._offset + yaxis.l2p(view.y[row]);
    const there = some.filter(([, , fromRow, , toRow]) => view.y[fromRow] !== undefined && view.y[toRow] !== undefined);
    lines.replaceChildren(...there.map(([kind, fromNs, fromRow, toNs, toRow]) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const [x0, y0, x1, y1] = [x(fromNs), y(fromRow), x(toNs), y(toRow)];
      line.setAttribute("d", `M${x0} ${y0}C${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1} ${x1} ${y1}`);
      line.setAttribute("class", kind);
      line.setAttribute("marker-end", "url(#tip)");
      return line;
    }));
  }

  // Themes
  let theme = "light";
  function setTheme(name) {
    theme = name;
    document.documentElement.dataset.theme = name;
    return Plotly.update(div, {...page.themes[name]}, view.themes[name]);
  }

  function unfold() {  // all bands, or those again that speak for the others
    view = page.views[page.views.indexOf(view) ? 0 : 1];
    seen = rowsSeen();
    document.getElementById("fold").textContent = view === page.views[0] ? `all ${page.views[1].bands} devices`
      : `only ${page.views[0].bands} of them`;
    pinned = [];
    drawArrows(pinned);
    return refine({...view.layout, ...view.themes[theme]});
  }

  function put(target, path, value) {  // "marker.line.color" into nested objects
    const keys = path.split("."), last = keys.pop();
    keys.reduce((inner, key) => (inner[key] = inner[key] || {}), target)[last] = value;
  }

  function first() {  // the figure with its data and colours, so that it is drawn but once
    theme = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = theme;
    const traces = page.themes[theme], layout = view.themes[theme], {margin} = page.figure.layout;
    const data = fill(page.opening.map((edge) => edge * MS), Math.max(div.clientWidth - margin.l - margin.r, 100));
    page.figure.data.forEach((trace, number) => {
      for (const name of FILLED) trace[name] = data[number][name];
      for (const path of Object.keys(traces)) if (traces[path][number] !== null) put(trace, path, traces[path][number]);
    });
    for (const path of Object.keys(layout)) put(page.figure.layout, path, layout[path]);
  }

  function zoom(factor, shift) {
    const [low, high] = div._fullLayout.xaxis.range, middle = (low + high) / 2 + shift * (high - low);
    const half = (high - low) / 2 * factor;
    Plotly.relayout(div, {"xaxis.range": [middle - half, middle + half]});
  }
  const keys = {
    a: () => zoom(1, -0.25), d: () => zoom(1, 0.25), w: () => zoom(0.6, 0), s: () => zoom(1 / 0.6, 0),
    i: () => Plotly.relayout(div, {"xaxis.range": page.opening.slice()}),
    o: () => Plotly.relayout(div, {"xaxis.range": [page.first / MS, page.last / MS]}),
  };

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  first();
  Plotly.newPlot(div, page.figure.data, page.figure.layout, {
    responsive: true, displaylogo: false, scrollZoom: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d", "zoomIn2d", "zoomOut2d"],
    toImageButtonOptions: {format: "svg", filename: "timeline"},
  }).then(() => {
    div.appendChild(svg);
    let timer = 0;
    div.on("plotly_relayout", (change) => {
      drawArrows(pinned);
      if (Object.keys(change).some((key) => key.startsWith("xaxis.range") || key === "autosize")) {
        clearTimeout(timer);
        timer = setTimeout(() => refine(), 80);
      }
    });
    div.on("plotly_hover", (event) => drawArrows(pinned.concat(...event.points.map(arrowsOf))));
    div.on("plotly_unhover", () => drawArrows(pinned));
    div.on("plotly_click", (event) => { pinned = [].concat(...event.points.map(arrowsOf)); drawArrows(pinned); });
    div.on("plotly_doubleclick", () => { pinned = []; drawArrows(pinned); keys.i(); return false; });
    document.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key]) keys[event.key]();
    });
    const fold = document.getElementById("fold");
    if (fold) fold.addEventListener("click", unfold);
    document.getElementById("theme").addEventListener("click", () => setTheme(theme === "dark" ? "light" : "dark"));
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    let before = theme;
    window.addEventListener("beforeprint", () => { before = theme; setTheme("light"); });
    window.addEventListener("afterprint", () => setTheme(before));
  }).then(() => div.setAttribute("data-ready", "true"));
})();
