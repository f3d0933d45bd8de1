// The page's part of a timeline: fewer or more marks as one zooms, arrows, themes, keys. It talks to no network.
(function () {
  "use strict";
  const page = JSON.parse(document.getElementById("timeline-data").textContent);
  const div = document.getElementById("timeline");
  const {marks, rows, texts, roles, never: NEVER} = page;
  const MS = 1e6, COLUMNS = ["row", "role", "start", "end", "count", "busy", "name", "extra", "launch",
    "launch_row", "after", "after_row", "bytes", "wait", "whole"];
  const size = marks.row.length;
  let all = 0, gpuOnly = 0, view = page.views[0][0], seen = rowsSeen();  // what is folded away is not looked at

  function rowsSeen() {
    const found = [];
    for (let k = 0; k < size; k++) if (view.y[marks.row[k]] !== undefined) found.push(k);
    return found;
  }
  for (const name of ["start", "launch", "after"]) unpack(marks[name]);
  for (const area of page.areas) unpack(area.start);
  marks.end = marks.length.map((length, k) => marks.start[k] + length);

  function unpack(deltas) {  // kept as differences; null stands for an instant that is not known
    let before = 0;
    for (let k = 0; k < deltas.length; k++) {
      if (deltas[k] === null) deltas[k] = NEVER;
      else { before += deltas[k]; deltas[k] = before; }
    }
  }

  // As `coarsen` in marks.py: marks shorter than the resolution that begin in one bin of it become one.
  // What panning brings in next is there already, coarser than what is in view.
  function grouped(low, high, fine, outer) {  // where in `seen` each such group begins, and when it ends
    const half = (high - low) / 2, aside = Math.min(page.aside * fine, outer);
    const heads = [], ends = [];
    let head = -1, headBin = 0, headResolution = 0;  // what the next may join: none beside a mark that stays alone
    for (let at = 0; at < seen.length; at++) {
      const k = seen[at], start = marks.start[k], end = marks.end[k];
      const near = end >= low - half && start <= high + half;
      const coarse = roles[marks.role[k]].coarse, weight = coarse ? coarse * page.weights[marks.row[k]] : 1;
      const resolution = weight * (end >= low && start <= high ? fine : near ? aside : outer);
      const bin = Math.floor(start / resolution);
      const alone = end - start >= resolution;
      if (!alone && head >= 0 && bin === headBin && resolution === headResolution
          && marks.row[k] === marks.row[head] && marks.role[k] === marks.role[head]
          && start > high === marks.start[head] > high) {  // nor across what is in view
        if (end > ends[ends.length - 1]) ends[ends.length - 1] = end;
        continue;
      }
      heads.push(at);
      ends.push(end);
      head = alone ? -1 : k;
      headBin = bin;
      headResolution = resolution;
    }
    return {heads, ends};
  }

  function joined(heads, ends) {  // the columns of marks that became one
    const found = {};
    for (const name of COLUMNS) found[name] = heads.map((at) => marks[name][seen[at]]);
    found.end = ends;
    for (let group = 0; group < heads.length; group++) {
      const first = heads[group], next = group + 1 < heads.length ? heads[group + 1] : seen.length;
      if (next === first + 1) continue;
      let longest = seen[first];
      for (let at = first + 1; at < next; at++) {
        const k = seen[at];
        for (const name of ["count", "busy", "wait"]) found[name][group] += marks[name][k];
        if (marks.length[k] > marks.length[longest]) longest = k;
      }
      for (const name of ["name", "extra"]) found[name][group] = marks[name][longest];
      found.launch[group] = found.after[group] = NEVER;
      found.launch_row[group] = found.after_row[group] = found.bytes[group] = -1;
    }
    return found;
  }

  function fit(low, high) {  // as `fit` in marks.py; of what is tried nothing but the last is put together
    const whole = page.last - page.first;
    let fine = Math.max(Math.floor((high - low) / page.fine), 1), coarse = Math.max(Math.floor(whole / page.coarse), 1);
    for (;;) {
      const {heads, ends} = grouped(low, high, fine, Math.max(coarse, fine));
      if (heads.length <= page.most || fine > 2 * whole) return joined(heads, ends);
      const half = (high - low) / 2;
      const inside = heads.filter((at, group) => ends[group] >= low - half && marks.start[seen[at]] <= high + half).length;
      if (inside > 0.9 * page.most || coarse > 2 * whole) fine *= 2; else coarse *= 2;
    }
  }

  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  // Formatters made once: toLocaleString makes one at each call, a third of the time that a fill takes.
  const number = (value) => formats[0].format(value);

  // One unit for the ticks, the hover texts and the lengths on marks, by how much is in view: as `unit_of` in texts.py.
  const UNITS = [{name: "ms", ns: 1e6, decimals: 6}, {name: "µs", ns: 1e3, decimals: 3}];
  const formats = [0, 1, 2, 3, 4, 5, 6].map((decimals) => new Intl.NumberFormat("en-US",
    {minimumFractionDigits: decimals, maximumFractionDigits: decimals}));
  let unit = UNITS[0];
  const unitOf = (length) => UNITS[length >= UNITS[0].ns ? 0 : 1];

  function amount(ns) {  // as `amount` in texts.py
    let decimals = 0;
    while (ns && decimals < unit.decimals && Math.abs(ns) / unit.ns * 10 ** decimals < 99.95) decimals++;
    return formats[decimals].format(ns / unit.ns) + " " + unit.name;
  }

  const instant = (ns) => formats[unit.decimals].format(ns / unit.ns) + " " + unit.name;

  function ticks(low, high, most) {  // as `ticks` in texts.py, and as many again on either side
    const of = unitOf(high - low);
    let step = 1, zeros = 0;
    for (;; zeros++) {
      const fits = [1, 2, 5].map((first) => first * 10 ** zeros).find((one) => Math.floor((high - low) / one) <= most);
      if (fits) { step = fits; break; }
    }
    let decimals = 0;
    while (step * 10 ** decimals % of.ns && decimals < of.decimals) decimals++;
    const values = [], texts = [], end = high + (high - low);
    for (let at = Math.ceil((low - (high - low)) / step) * step; at <= end; at += step) {
      values.push(at / MS);
      texts.push(formats[decimals].format(at / of.ns + 0) + " " + of.name);
    }
    return {"xaxis.tickmode": "array", "xaxis.tickvals": values, "xaxis.ticktext": texts};
  }

  function nameOf(found, k, role) {  // in full, on a mark, in a hover text
    if (role.fixed) return [role.fixed, role.fixed, role.fixed];
    const [full, short, fn] = found.name[k] < 0 ? ["", "", ""] : texts[found.name[k]];
    return [full, short, role.full ? full : fn];
  }

  function labelOf(found, k, role, name, room) {
    const many = found.count[k] > 1, length = Math.max(found.end[k] - found.start[k], 1);
    const text = many ? number(found.count[k]) + " × " + Math.round(100 * found.busy[k] / length) + "%"
      : role.label.replace("%", () => name[role.full ? 0 : 1]);
    const letters = Math.floor((room - page.inside) / page.letter);
    if (role.held && !many) {
      const told = amount(found.whole[k]);
      return found.whole[k] && [text + " " + told, text, told].find((one) => letters >= one.length) || "";
    }
    if (letters >= text.length) return escaped(text);
    if (role.race) return letters > 0 ? text[0] : "";
    return letters >= page.least && !many ? escaped(text.slice(0, letters - 1)) + "…" : "";
  }

  function moreOf(found, k) {
    const lines = [], one = found.count[k] === 1;
    const role = roles[found.role[k]];
    if (one && role.held && found.whole[k]) lines.push(amount(found.whole[k]) + " in which the other side ran alone");
    else if (one && !role.held && found.whole[k] > 0) {
      lines.push("waits " + amount(found.wait[k]) + " for the last rank, then transfers "
        + amount(found.whole[k] - found.wait[k]));
    }
    if (one && role.early) lines.push(page.early);
    if (found.launch[k] !== NEVER) {
      lines.push("launched " + amount(found.start[k] - found.launch[k]) + " before"
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
    unit = unitOf(length);
    const found = fit(from, to);
    const data = page.figure.data.map(() => ({base: [], x: [], y: [], width: [], text: [], customdata: [], at: []}));
    const written = [], traces = found.row.map((_, k) => roles[found.role[k]][found.count[k] > 1 ? "many" : "one"]);
    const roomOf = rooms(found, traces, from, to, perNs);
    for (let k = 0; k < found.row.length; k++) {
      const role = roles[found.role[k]], many = found.count[k] > 1, y = view.y[found.row[k]];
      const trace = data[traces[k]], span = found.end[k] - found.start[k];
      const name = nameOf(found, k, role), share = Math.min(found.busy[k] / Math.max(span, 1), 1);
      const [low, high] = roomOf(k), whole = low === found.start[k] && high === found.end[k];
      const isCut = low === Math.max(found.start[k], from) && high === Math.min(found.end[k], to);
      trace.base.push(found.start[k] / MS);
      trace.x.push(span / MS);
      trace.y.push(y);
      trace.width.push(many ? role.height * (page.low_height + (1 - page.low_height) * share) : role.height);
      const tall = trace.width[trace.width.length - 1];
      const text = many && tall < page.readable ? "" : labelOf(found, k, role, name, (high - low) * perNs);
      const above = !(role.launch && isCut) && (!whole || role.held && !many);  // not on what lies on it
      trace.text.push(above ? "" : text);
      if (text && !above) written.push([high - low, trace.text, trace.text.length - 1]);
      if (above && text && !role.launch) {
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
        many ? number(found.count[k]) + " marks drawn as one, the longest " + escaped(name[2]) : escaped(name[2]),
        rows[found.row[k]], found.start[k], span, moreOf(found, k), many ? amount(found.busy[k]) + " busy" : "",
        "from " + instant(found.start[k]) + " · " + amount(span) + " long"]);
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
    told = entries(found, from, to);
    const areas = page.figure.data.length - page.areas.length;
    page.areas.forEach((area, number) => drawArea(area, data[areas + number], from - length / 2, to + length / 2));
    // A trace without any bar would lose its legend entry: one that is not drawn stands in.
    return data.map((one) => (one.x.length ? one
      : {base: [null], x: [null], y: [null], width: [0], text: [""], customdata: [[]], at: []}));
  }

  function rooms(found, traces, from, to, perNs) {  // as `room` in room.py: where on a mark a text has room, in ns
    const onRow = new Map();
    for (let k = 0; k < found.row.length; k++) {
      if (found.end[k] <= from || found.start[k] >= to) continue;
      if (!onRow.has(found.row[k])) onRow.set(found.row[k], []);
      onRow.get(found.row[k]).push(k);
    }
    return (k) => {
      const low = Math.max(found.start[k], from), high = Math.min(found.end[k], to);
      if ((high - low) * perNs < page.text_pixels) return [low, high];
      const covers = onRow.get(found.row[k]).filter((j) => found.start[j] < high && found.end[j] > low
        && (traces[j] > traces[k] || traces[j] === traces[k] && j > k));
      if (!covers.length) return [low, high];
      covers.sort((one, other) => found.start[one] - found.start[other]);
      let until = low, best = [low, low];
      for (const [start, end] of [...covers.map((j) => [found.start[j], found.end[j]]), [high, high]]) {
        if (start - until > best[1] - best[0]) best = [until, start];
        until = Math.max(until, end);
      }
      return best;
    };
  }

  let told = new Set();  // traces that the legend tells of

  function entries(found, from, to) {  // as `seen_roles` in draw.py: of more than hairs on some row
    const sums = new Map(), some = new Set();
    for (let k = 0; k < found.row.length; k++) {
      const role = found.role[k], length = Math.min(found.end[k], to) - Math.max(found.start[k], from);
      if (length <= 0) continue;
      const key = found.row[k] * roles.length + role, sum = (sums.get(key) || 0) + length;
      sums.set(key, sum);
      if (roles[role].always || page.seen * sum >= to - from) some.add(roles[role].entry);
    }
    return some;
  }

  const ruler = document.createElement("canvas").getContext("2d");  // of texts in the legend and of titles
  let legendRows = 0;  // it only grows: the page is not to move up and down as one pans

  function legendLayout(width) {  // room above the plot for the legend, by its rows
    const {l, r} = page.figure.layout.margin;
    const names = page.figure.data.filter((one, k) => told.has(k)).map((one) => one.name);
    ruler.font = "12px " + page.font;
    const wide = names.map((name) => page.legend_pixels + ruler.measureText(name).width);
    const fitsOneRow = wide.reduce((sum, one) => sum + one, 0) <= width - l - r;  // else plotly makes columns
    const columns = Math.max(Math.floor((width - l - r) / Math.max(1, ...wide)), 1);
    legendRows = Math.max(legendRows, fitsOneRow ? 1 : Math.ceil(names.length / columns));
    const more = 20 * (legendRows - page.legend_rows);
    return {"margin.t": page.top + more, height: view.layout.height + more};
  }

  const tickCount = (pixels) => Math.max(Math.floor(pixels / page.tick_pixels), 2);

  // As `thinned` in areas.py: the least and the greatest point of each part, so that no peak is lost.
  function thinned({start, value}, from, to, parts) {
    const kept = [];
    let first = 0;
    while (first + 1 < start.length && start[first + 1] <= from) first++;
    let bucket = -1, least = -1, greatest = -1;
    const put = () => {
      if (least < 0) return;
      kept.push(Math.min(least, greatest));
      if (least !== greatest) kept.push(Math.max(least, greatest));
    };
    for (let k = first; k < start.length && start[k] < to; k++) {
      const its = Math.floor((Math.max(start[k], from) - from) * parts / (to - from));
      if (its !== bucket) { put(); bucket = its; least = greatest = k; }
      if (value[k] < value[least]) least = k;
      if (value[k] >= value[greatest]) greatest = k;
    }
    put();
    return kept;
  }

  function drawArea(area, trace, from, to) {  // a counter's area on its row, down to the row's floor
    const y = view.y[area.row], floor = y - page.area_height / 2;
    const kept = y === undefined ? [] : thinned(area, from, to, 2 * page.area_buckets);
    if (!kept.length) return;
    const put = (at, height, value) => { trace.x.push(at / MS); trace.y.push(height); trace.customdata.push(value); };
    put(Math.max(area.start[kept[0]], from), floor, 0);
    for (const k of kept) {
      put(Math.max(area.start[k], from), floor + page.area_height * area.value[k] / area.most, area.value[k]);
    }
    put(Math.min(area.start[area.start.length - 1], to), floor, 0);
  }

  function refine(layout = {}) {
    const axis = div._fullLayout.xaxis, data = fill(axis.range.map((edge) => edge * MS), axis._length);
    const update = {};
    for (const name of FILLED) update[name] = data.map((one) => one[name]);
    update.showlegend = data.map((one, k) => told.has(k));
    const placed = ticks(...axis.range.map((edge) => Math.round(edge * MS)), tickCount(axis._length));
    return Plotly.update(div, update, {...layout, ...placed, ...legendLayout(div.clientWidth)}).then(() => {
      placePane();
      rest();
      div.setAttribute("data-refined", String(++refined));
    });
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
    if (roles[found.role[k]].held) {
      const gap = page.gaps.find(([row, low, high]) => row === to[1] && low <= to[0] && found.end[k] <= high);
      return gap ? gap[3] : [];
    }
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
      const bow = fromRow === toRow ? Math.abs(yaxis.l2p(0.8) - yaxis.l2p(0)) : 0, middle = (x0 + x1) / 2;
      line.setAttribute("d", bow ? `M${x0} ${y0}C${x0} ${y0 - bow} ${x1} ${y1 - bow} ${x1} ${y1}`
        : `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`);
      line.setAttribute("class", kind);
      line.setAttribute("marker-end", "url(#tip)");
      return line;
    }));
    if (!marked || view.y[marked[0]] === undefined) return;
    const box = document.createElementNS("http://www.w3.org/2000/svg", "rect"), [row, low, high] = marked, left = x(low);
    const half = Math.abs(yaxis.l2p(1) - yaxis.l2p(0)) / 2;
    const attributes = {x: left - 1, y: y(row) - half, width: Math.max(x(high) - left, 1) + 2, height: 2 * half};
    for (const name of Object.keys(attributes)) box.setAttribute(name, attributes[name]);
    lines.appendChild(box);
  }

  // Places to go to: gaps by how much they cost, instances by time, and what one searches for.
  const where = document.getElementById("where"), opening = page.opening.map((edge) => edge * MS);
  let marked = null, gapAt = -1, last = opening;
  const rowIsSeen = ([row]) => view.y[row] !== undefined;

  function rest() {  // what is drawn while nothing is pointed at: what was clicked, or the largest gap of its rank in view
    const [low, high] = div._fullLayout.xaxis.range.map((edge) => edge * MS);
    const worst = new Map();  // of the rank that decides; of several runs that of each
    for (const one of page.gaps) {
      if (one[4] >= 0 && !worst.has(one[4]) && rowIsSeen(one) && one[2] > low && one[2] < high) worst.set(one[4], one);
    }
    const links = [...worst.values()].flatMap((gap) => gap[3].filter((link) => link[1] > low));
    drawArrows(pinned.length ? pinned : links);
  }

  function go(low, high, what, room = 0.15) {
    const more = Math.max(high - low, 1) * room;
    last = [low, high];
    where.textContent = what;
    return Plotly.relayout(div, {"xaxis.range": [(low - more) / MS, (high + more) / MS]});
  }

  function toGap() {  // the largest, then the next
    const gaps = page.gaps.filter(rowIsSeen);
    if (!gaps.length) { where.textContent = "nothing was missed"; return null; }
    gapAt = (gapAt + 1) % gaps.length;
    const [row, low, high, links] = gaps[gapAt], from = links.filter((link) => link[0] !== "record").map((link) => link[1]);
    pinned = links;
    marked = [row, low, high];
    return go(Math.max(Math.min(low, ...from), low - (high - low)), high, `gap ${gapAt + 1} of ${gaps.length}: ${page.ranks[row]}, ${rows[row]}`);
  }

  function toInstance(step) {  // the next to begin behind the middle of where one is, or the one before
    const some = page.instances, middle = (last[0] + last[1]) / 2;
    if (!some.length) { where.textContent = "no instances"; return null; }
    const begun = some.filter(([, low]) => low <= middle).length, inside = begun > 0 && some[begun - 1][2] >= middle;
    const k = Math.min(Math.max(step > 0 ? begun : begun - 1 - (inside ? 1 : 0), 0), some.length - 1);
    pinned = []; marked = null;
    return go(some[k][1], some[k][2], `${some[k][0]}: ${k + 1} of ${some.length}`);
  }

  let sought = "", hits = [], hitAt = -1;
  function toHit(text, step) {  // the next mark, by time, whose name has the text
    if (text !== sought) {
      const wanted = text.toLowerCase();
      const named = new Set(texts.flatMap((one, k) => (one[0].toLowerCase().includes(wanted) ? [k] : [])));
      hits = seen.filter((k) => roles[marks.role[k]].named && named.has(marks.name[k]))
        .sort((one, other) => marks.start[one] - marks.start[other]);
      [sought, hitAt] = [text, step > 0 ? -1 : 0];
    }
    pinned = []; marked = null;
    if (!text || !hits.length) { rest(); where.textContent = text ? "not found" : ""; return null; }
    hitAt = (hitAt + step + hits.length) % hits.length;
    const k = hits[hitAt], length = marks.end[k] - marks.start[k], middle = marks.start[k] + length / 2;
    marked = [marks.row[k], marks.start[k], marks.end[k]];
    const [low, high] = div._fullLayout.xaxis.range.map((edge) => edge * MS), half = Math.max(high - low, 1.3 * length) / 2;
    return go(middle - half, middle + half, `${hitAt + 1} of ${hits.length}, on ${rows[marks.row[k]]}`, 0);
  }

  // The strip below: all there is at once, each side in its colour, and a pane over what is seen, to be dragged.
  const strip = document.getElementById("strip"), canvas = strip.querySelector("canvas"), pane = strip.querySelector("div");
  const [active, activeEnd] = page.active, GRIP = 7;  // pixels beside an edge of the pane
  const byDepth = [...roles.keys()].filter((role) => roles[role].one >= 0).sort((a, b) => roles[a].one - roles[b].one);

  function drawStrip() {
    placePane();
    const width = strip.clientWidth, height = strip.clientHeight, row = -height / view.layout["yaxis.range"][0];
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    const pen = canvas.getContext("2d"), x = (ns) => (ns - active) * width / (activeEnd - active);
    pen.scale(ratio, ratio);
    const ofRole = roles.map(() => []);
    for (const k of seen) ofRole[marks.role[k]].push(k);
    const colors = page.themes[theme], ground = view.themes[theme].paper_bgcolor;
    for (const number of byDepth) {
      const {one, height} = roles[number], fill = colors["marker.color"][one];
      if (div.data[one].visible === "legendonly") continue;
      pen.fillStyle = fill === ground ? colors["marker.line.color"][one] : fill;  // of ranges the outline
      for (const k of ofRole[number]) {
        const left = x(marks.start[k]), y = -row * (view.y[marks.row[k]] + height / 2);
        pen.globalAlpha = marks.count[k] > 1 ? Math.min(marks.busy[k] / Math.max(marks.length[k], 1), 1) : 1;
        pen.fillRect(left, y, Math.max(x(marks.end[k]) - left, 0.3), row * height);
      }
    }
    pen.globalAlpha = 1;
    page.areas.forEach((area, number) => {
      const y = view.y[area.row], {line} = page.figure.data[page.figure.data.length - page.areas.length + number];
      if (y === undefined) return;
      pen.fillStyle = line.color;
      for (const k of thinned(area, active, activeEnd, Math.max(Math.floor(width / 2), 1))) {
        const tall = row * page.area_height * area.value[k] / area.most;
        pen.fillRect(x(area.start[k]), -row * (y - page.area_height / 2) - tall, 2, tall);
      }
    });
  }

  function placePane() {  // on a strip that is as wide as the plot
    const {l, r} = div._fullLayout._size;
    strip.style.marginLeft = `${l}px`;
    strip.style.marginRight = `${r}px`;
    const [low, high] = div._fullLayout.xaxis.range.map((edge) => (edge * MS - active) / (activeEnd - active));
    pane.style.left = `${100 * Math.min(Math.max(low, 0), 1)}%`;
    pane.style.right = `${100 * Math.min(Math.max(1 - high, 0), 1)}%`;
  }

  let held = null, wanted = null;
  function gripped(event) {  // where one points at, ns, and what is held there: the pane, or an edge of it (0 or 1)
    const box = strip.getBoundingClientRect(), ns = (activeEnd - active) / strip.clientWidth;
    const at = active + (event.clientX - box.left) * ns, [low, high] = div._fullLayout.xaxis.range.map((edge) => edge * MS);
    const inside = Math.min(GRIP * ns, (high - low) / 4);
    const edge = at > low - GRIP * ns && at < low + inside ? 0 : at < high + GRIP * ns && at > high - inside ? 1 : -1;
    return {at, low, high, edge};
  }

  strip.addEventListener("pointerdown", (event) => {
    if (event.button || !div.dataset.ready) return;
    held = gripped(event);
    const {at, low, high, edge} = held, half = (high - low) / 2;
    if (edge < 0 && (at < low || at > high)) {  // beside it: there it goes
      Object.assign(held, {low: at - half, high: at + half});
      look(held.low, held.high);
    }
    strip.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  strip.addEventListener("pointermove", (event) => {
    if (!div.dataset.ready) return;
    const found = gripped(event);
    if (!held) { strip.style.cursor = found.edge < 0 ? "grab" : "ew-resize"; return; }
    const by = found.at - held.at, ends = [held.low + (held.edge === 1 ? 0 : by), held.high + (held.edge === 0 ? 0 : by)];
    if (ends[1] !== ends[0]) look(Math.min(...ends), Math.max(...ends));
  });
  for (const name of ["pointerup", "pointercancel"]) strip.addEventListener(name, () => { held = null; });

  function look(low, high) {  // at most once a frame
    const first = wanted === null;
    wanted = [low / MS, high / MS];
    if (!first) return;
    requestAnimationFrame(() => {
      last = wanted.map((edge) => edge * MS);
      Plotly.relayout(div, {"xaxis.range": wanted});
      wanted = null;
    });
  }

  // Themes
  let theme = "light";
  function setTheme(name) {
    theme = name;
    document.documentElement.dataset.theme = name;
    return Plotly.update(div, {...page.themes[name]}, view.themes[name]).then(drawStrip);
  }

  function show() {  // rows that were folded away, or fewer
    view = page.views[all][gpuOnly];
    seen = rowsSeen();
    sought = "";
    pinned = [];
    return refine({...view.layout, ...view.themes[theme]}).then(rest).then(drawStrip);
  }

  function unfold() {  // all bands, or those again that speak for the others
    all = 1 - all;
    document.getElementById("fold").textContent = all ? `only ${page.views[0][0].bands} of them`
      : `all ${page.views[1][0].bands} devices`;
    return show();
  }

  function hostRows() {
    gpuOnly = 1 - gpuOnly;
    return show();
  }

  function fitTitles({annotations}) {  // in letters for which a narrow page has room
    ruler.font = `bold ${page.title_size}px ${page.font}`;
    const wide = annotations.map(({text}) => ruler.measureText(text.replace(/<.*?>/g, "")).width / page.title_size);
    const size = Math.min(page.title_size, (div.clientWidth - 24) / Math.max(1, ...wide));
    for (const {font} of annotations) font.size = Math.max(size, 7);
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
      trace.showlegend = told.has(number);
      for (const name of FILLED) trace[name] = data[number][name];
      for (const path of Object.keys(traces)) if (traces[path][number] !== null) put(trace, path, traces[path][number]);
    });
    const opened = page.opening.map((edge) => Math.round(edge * MS));
    const above = {...ticks(...opened, tickCount(div.clientWidth - margin.l - margin.r)), ...legendLayout(div.clientWidth)};
    for (const path of Object.keys({...layout, ...above})) put(page.figure.layout, path, {...layout, ...above}[path]);
    page.views.flat().flatMap((one) => Object.values(one.themes)).forEach(fitTitles);
    // Plotly draws all of it again once it knows its margins: those of a page as wide as this are known before.
    if (page.wide <= div.clientWidth) margin.autoexpand = false;
  }

  function zoom(factor, shift) {
    const [low, high] = div._fullLayout.xaxis.range, middle = (low + high) / 2 + shift * (high - low);
    const half = (high - low) / 2 * factor;
    Plotly.relayout(div, {"xaxis.range": [middle - half, middle + half]});
  }
  const keys = {
    a: () => zoom(1, -0.25), d: () => zoom(1, 0.25), w: () => zoom(0.6, 0), s: () => zoom(1 / 0.6, 0),
    i: () => { pinned = []; marked = null; return go(...opening, "", 0); },
    o: () => go(...page.active, "", 0),
    g: toGap, n: () => toInstance(1), p: () => toInstance(-1), h: hostRows,
  };

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  first();
  Plotly.newPlot(div, page.figure.data, page.figure.layout, {
    responsive: true, displaylogo: false, scrollZoom: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d", "zoomIn2d", "zoomOut2d"],
    toImageButtonOptions: {format: "svg", filename: "timeline"},
  }).then(() => {
    div.layout.margin.autoexpand = true;
    div.appendChild(svg);
    let timer = 0;
    div.on("plotly_relayouting", placePane);
    div.on("plotly_restyle", ([change]) => { if ("visible" in change) drawStrip(); });
    div.on("plotly_relayout", (change) => {
      rest();
      if ("autosize" in change) drawStrip(); else placePane();
      if (Object.keys(change).some((key) => key.startsWith("xaxis.range") || key === "autosize")) {
        clearTimeout(timer);
        timer = setTimeout(() => refine(), 80);
      }
    });
    div.on("plotly_hover", (event) => drawArrows(pinned.concat(...event.points.map(arrowsOf))));
    div.on("plotly_unhover", rest);
    div.on("plotly_click", (event) => { pinned = [].concat(...event.points.map(arrowsOf)); rest(); });
    div.on("plotly_doubleclick", () => { keys.i(); return false; });
    const search = document.getElementById("search");
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target === search) return;
      if (event.key === "/") { search.focus(); event.preventDefault(); } else if (keys[event.key]) keys[event.key]();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") toHit(search.value, event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { search.value = ""; toHit("", 1); search.blur(); }
    });
    const buttons = {fold: unfold, host: hostRows, gap: toGap, next: keys.n, before: keys.p,
      theme: () => setTheme(theme === "dark" ? "light" : "dark")};
    for (const id of Object.keys(buttons)) {
      const button = document.getElementById(id);
      if (button) button.addEventListener("click", () => buttons[id]());
    }
    rest();
    drawStrip();
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    let before = theme;
    window.addEventListener("beforeprint", () => { before = theme; setTheme("light"); });
    window.addEventListener("afterprint", () => setTheme(before));
  }).then(() => {
    div.setAttribute("data-ready", "true");
    // In a notebook a picture stands in for the page until now; the script beside it knows its frame.
    if (window.parent !== window) window.parent.postMessage({timeline: document.documentElement.scrollHeight}, "*");
  });
})();
