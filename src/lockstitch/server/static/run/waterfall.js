// The waterfall: about eighty DOM nodes show all rows, positioned with transform.
import { Scale } from "./scale.js";
import { dollars, duration, ticks } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const SPARE = 12, GUIDES = 12, TICKS = 12;
const narrow = matchMedia("(max-width: 760px)");

const svg = (name, attributes = {}) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const percent = (value) => `${value.toFixed(3)}%`;

export class Waterfall {
  constructor(grid, axis, rows, base) {
    Object.assign(this, { grid, axis, rows, base, chosen: 0, collapsed: true, marks: new Map() });
    this.measure();
    this.from = 0;
    this.to = this.whole;
    this.nodes = new Map();                          // row → node
    this.free = [];
    this.drawn = () => {};
    this.height = narrow.matches ? 42 : 26;
    grid.replaceChildren();
    grid.classList.add("virtual");
    let asked = 0;
    const later = () => { asked ||= requestAnimationFrame(() => { asked = 0; this.draw(); }); };
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later, { passive: true });
    new ResizeObserver(() => this.redraw()).observe(axis);
    narrow.addEventListener("change", () => { this.height = narrow.matches ? 42 : 26; this.redraw(); });
    this.redraw();
  }

  // `from` and `to` are the visible part, as places of the axis.
  measure() {
    const { rows } = this;
    this.scale = new Scale(rows.end, this.collapsed ? rows.waits : [], rows.wait_width);
    this.whole = this.scale.length || 1;
  }

  // New rows. A view of the whole run stays a view of the whole run.
  use(rows) {
    const whole = this.from === 0 && this.to >= this.whole;
    this.rows = rows;
    this.measure();
    if (whole) this.to = this.whole;
    this.redraw();
  }

  // Show waits collapsed or in their real length. The visible times stay.
  collapse(collapsed) {
    const from = this.scale.time(this.from), to = this.scale.time(this.to);
    this.collapsed = collapsed;
    this.measure();
    this.zoom(this.scale.place(from), this.scale.place(to));
  }

  // Redraw all after folding, zooming or new rows.
  redraw() {
    this.grid.style.height = `${this.rows.seen.length * this.height}px`;
    this.grid.setAttribute("aria-rowcount", this.rows.seen.length);
    for (const node of this.nodes.values()) node.stale = true;
    this.ticks = ticks(this.scale, this.from, this.to, this.axis.clientWidth);
    this.axis.replaceChildren(...this.ticks.map(({ place, says, wait }) => {
      const x = this.xOf(place), text = svg("text", { x: percent(x), y: 16, "text-anchor": x < 2 ? "start" : x > 97 ? "end" : "middle" });
      text.textContent = wait ? `⋯ ${says}` : says;
      if (wait) text.setAttribute("class", "wait");
      return text;
    }));
    this.draw();
  }

  x(ms) { return this.xOf(this.scale.place(ms)); }

  xOf(place) { return 100 * (place - this.from) / (this.to - this.from); }

  draw() {
    const { seen } = this.rows, top = this.grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.height) - SPARE);
    const last = Math.min(seen.length, Math.ceil((innerHeight - top) / this.height) + SPARE);
    const wanted = new Map();
    for (let place = first; place < last; place++) wanted.set(seen[place], place);
    // The selected row keeps its node, so the focus never moves to another row.
    const kept = this.rows.placeOf(this.chosen);
    if (seen[kept] === this.chosen) wanted.set(this.chosen, kept);
    for (const [row, node] of this.nodes) if (!wanted.has(row)) { this.nodes.delete(row); this.free.push(node); }
    for (const [row, place] of wanted) {
      let node = this.nodes.get(row);
      if (!node) {
        node = this.free.pop() ?? this.make();
        this.nodes.set(row, node);
        node.stale = true;
      }
      if (node.stale || node.place !== place) this.fill(node, row, place);
    }
    while (this.free.length > SPARE * 2) this.free.pop().remove();
    for (const node of this.free) if (!node.hidden) node.hidden = true;
    this.drawn();
  }

  make() {
    const node = document.createElement("div"), name = document.createElement("div");
    node.className = "wf";
    node.setAttribute("role", "row");
    name.className = "name";
    name.setAttribute("role", "gridcell");
    const parts = { guides: [], name, what: document.createElement("a"), label: document.createElement("span"), note: document.createElement("span"), delta: document.createElement("span"), bars: svg("svg", { class: "bars", role: "gridcell" }), took: document.createElement("span"), cost: document.createElement("span") };
    parts.what.className = "clip what";
    parts.what.tabIndex = -1;
    parts.what.append(document.createElement("span"));
    parts.what.firstChild.append(parts.label);
    parts.note.className = "small faint clip note-of";
    parts.delta.className = "delta";
    parts.delta.textContent = "Δ";
    name.append(parts.what, parts.note, parts.delta);
    parts.lines = Array.from({ length: TICKS }, () => svg("line", { class: "grid", y1: 0, y2: 26 }));
    parts.early = svg("rect", { y: 7, height: 12, rx: 2 });
    parts.bar = svg("rect", { y: 7, height: 12, rx: 2 });
    parts.line = svg("line", { y1: 13, y2: 13 });
    parts.bars.append(...parts.lines, parts.early, parts.bar, parts.line);
    parts.took.className = "num";
    parts.cost.className = "num cost";
    for (const cell of [parts.took, parts.cost]) cell.setAttribute("role", "gridcell");
    node.append(name, parts.bars, parts.took, parts.cost);
    node.parts = parts;
    this.grid.append(node);
    return node;
  }

  fill(node, row, place) {
    const { rows } = this, { parts } = node, look = rows.lookOf(row);
    node.hidden = false;
    node.place = place;
    node.row = row;
    node.stale = false;
    node.style.transform = `translateY(${place * this.height}px)`;
    node.classList.toggle("step", look === "step");
    node.setAttribute("aria-rowindex", place + 1);
    node.setAttribute("aria-level", rows.levels[row]);
    if (rows.hasBelow(row)) node.setAttribute("aria-expanded", rows.folded[row] ? "false" : "true"); else node.removeAttribute("aria-expanded");
    this.choose(node, row === this.chosen);
    this.guides(node, row);
    parts.what.href = `${this.base}?at=${rows.at(row)}`;
    parts.what.firstChild.className = look === "run" || look === "step" ? look : `kind k-${look === "pause" ? "plain" : look}`;
    parts.label.textContent = rows.nameOf(row);
    parts.note.textContent = rows.noteOf(row);
    parts.note.hidden = !rows.noteOf(row);
    const mark = rows.thread[row] === 0 && look !== "step" ? this.marks.get(rows.position[row]) : undefined;
    parts.delta.hidden = mark === undefined;
    if (mark !== undefined) parts.delta.title = mark;
    parts.took.textContent = rows.length[row] < 0 ? "open" : duration(rows.length[row]);
    parts.cost.textContent = dollars(rows.cost[row]);
    this.bar(parts, row, look);
  }

  choose(node, chosen) {
    node.setAttribute("aria-selected", chosen ? "true" : "false");
    node.tabIndex = chosen ? 0 : -1;
  }

  guides(node, row) {
    const { rows } = this, { parts } = node;
    const above = [];
    for (let one = row; one > 0 && above.length < GUIDES; one = rows.parent[one]) above.push(one);
    above.reverse();
    while (parts.guides.length < above.length) {
      const guide = svg("svg", { class: "guide", viewBox: "0 0 14 26", "aria-hidden": "true" });
      guide.append(svg("path"));
      parts.guides.push(guide);
      parts.name.insertBefore(guide, parts.what);
    }
    parts.guides.forEach((guide, level) => {
      const shown = level < above.length;
      guide.toggleAttribute("hidden", !shown);
      if (!shown) return;
      const last = rows.last[above[level]], own = level === above.length - 1;
      guide.firstChild.setAttribute("d", own ? (last ? "M7 0v13h6" : "M7 0v26M7 13h6") : (last ? "" : "M7 0v26"));
    });
  }

  bar(parts, row, look) {
    const { rows } = this, start = rows.start[row], length = rows.lengthOf(row);
    parts.bars.setAttribute("aria-label", `from ${duration(start)}${rows.statusOf(row) ? `, ${rows.statusOf(row)}` : ""}`);
    if (parts.ticks !== this.ticks) {                // ticks change only with the zoom
      parts.ticks = this.ticks;
      parts.lines.forEach((line, number) => {
        const tick = this.ticks[number];
        line.toggleAttribute("hidden", !tick || tick.place === 0);
        if (tick) { const x = percent(this.xOf(tick.place)); line.setAttribute("x1", x); line.setAttribute("x2", x); line.setAttribute("class", tick.wait ? "grid wait" : "grid"); }
      });
    }
    const clamp = (value) => Math.min(110, Math.max(-10, value));
    const x = clamp(this.x(start)), until = clamp(this.x(start + length)), width = Math.max(0.15, until - x);
    const dashed = look === "run" || look === "step" || look === "wait" || look === "pause";
    const early = !dashed && look !== "child" && rows.early[row] > 0 ? clamp(this.x(start + Math.min(rows.early[row], length))) - x : 0;
    const pause = rows.pause[row] > 0 && !dashed;
    parts.early.toggleAttribute("hidden", early <= 0);
    if (early > 0) { parts.early.setAttribute("class", `k-${look} early`); parts.early.setAttribute("x", percent(x)); parts.early.setAttribute("width", percent(early)); }
    parts.bar.toggleAttribute("hidden", dashed);
    if (!dashed) {
      parts.bar.setAttribute("class", look === "child" ? "frame k-child" : `k-${look}`);
      parts.bar.setAttribute("x", percent(x + Math.max(0, early)));
      parts.bar.setAttribute("width", percent(Math.max(0.15, width - Math.max(0, early))));
    }
    parts.line.toggleAttribute("hidden", !dashed && !pause);
    if (dashed || pause) {
      parts.line.setAttribute("class", look === "wait" ? "hatched k-wait" : look === "pause" ? "hatched k-plain" : dashed ? "span" : "hatched k-plain");
      parts.line.setAttribute("x1", percent(dashed ? x : x + width));
      parts.line.setAttribute("x2", percent(dashed ? x + width : clamp(this.x(start + length + rows.pause[row]))));
    }
  }

  // Select a row, scroll to it, and focus it on request.
  select(row, { focus = true, reveal = true } = {}) {
    if (row < 0 || row >= this.rows.count) return;
    if (reveal) { const before = this.rows.seen; this.rows.reveal(row); if (this.rows.seen !== before) this.redraw(); }
    const old = this.nodes.get(this.chosen);
    if (old) this.choose(old, false);
    this.chosen = row;
    this.show(this.rows.placeOf(row));
    this.draw();
    const node = this.nodes.get(row);
    if (!node) return;
    this.choose(node, true);
    if (focus) node.focus({ preventScroll: true });
  }

  show(place) {
    const box = this.grid.getBoundingClientRect(), top = box.top + place * this.height, above = 48 + 34, below = innerHeight - 60;
    if (top < above) scrollBy(0, top - above); else if (top + this.height > below) scrollBy(0, top + this.height - below);
  }

  zoom(from, to) {
    const end = this.whole, width = Math.min(end, Math.max(to - from, Math.min(end, 0.5)));
    this.from = Math.max(0, Math.min(from, end - width));
    this.to = this.from + width;
    this.redraw();
  }

  // Zoom to the period of a row.
  zoomTo(row) {
    const from = this.scale.place(this.rows.start[row]), to = this.scale.place(this.rows.start[row] + this.rows.lengthOf(row));
    const margin = 0.04 * (to - from);
    this.zoom(from - margin, to + margin);
  }

  zoomBy(factor, around = (this.from + this.to) / 2) {
    this.zoom(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }
}
