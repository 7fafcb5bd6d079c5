// The run page: connects rows, overview, panel and comparison, and registers keyboard shortcuts.
import { keys } from "../keys.js";
import { part } from "../nodes.js";
import { announce, toast } from "../toast.js";
import { resizableNames } from "./names.js";
import { Overview } from "./overview.js";
import { Panel } from "./panel.js";
import { Rows } from "./rows.js";
import { Tip } from "./tip.js";
import { Waterfall } from "./waterfall.js";

const section = document.getElementById("waterfall"), base = section.dataset.run;
const panel = new Panel(document.getElementById("panel"), base);
const search = document.getElementById("find"), found = document.getElementById("found");
let view = null, overview = null;

async function load() {
  const answer = await fetch(`${base}/rows`, { headers: { "HX-Request": "true" } });
  if (!answer.ok) throw new Error(`rows: ${answer.status}`);
  return new Rows(await answer.arrayBuffer());
}

async function begin() {
  let rows;
  try { rows = await load(); } catch { toast("Not all rows could be loaded. Only the first rows are shown."); return; }
  view = new Waterfall(document.getElementById("rows"), document.getElementById("axis"), rows, base);
  overview = new Overview(document.getElementById("overview"), view);
  new Tip(document.getElementById("rows"), view);
  resizableNames(section, document.getElementById("name-width"), () => overview.draw());
  waits.hidden = !rows.waits.length;
  const wanted = new URLSearchParams(location.search).get("at");
  const row = wanted ? rows.find(wanted) : 0;
  if (row > 0) view.select(row, { focus: false }); else view.draw();
  if (pending) mark(pending);
  section.dataset.ready = performance.now().toFixed(0);
  if (section.dataset.live) setTimeout(refresh, 3000);
}

function choose(row, { focus = true, open = true } = {}) {
  view.select(row, { focus });
  const at = view.rows.at(view.chosen);
  const address = new URL(location.href);
  address.searchParams.set("at", at);
  history.replaceState(null, "", address);
  panel.show(at, { open });
}

// Redraw a running run periodically. Folded and selected rows stay.
async function refresh() {
  if (!document.hidden) {
    try {
      const rows = await load(), old = view.rows;
      const place = old.at(view.chosen), folded = new Set();
      for (let row = 0; row < old.count; row++) if (old.folded[row]) folded.add(`${old.at(row)} ${old.lookOf(row)}`);
      if (folded.size) for (let row = 0; row < rows.count; row++) if (folded.has(`${rows.at(row)} ${rows.lookOf(row)}`)) rows.folded[row] = 1;
      rows.see();
      view.chosen = Math.max(0, rows.find(place));
      if (rows.count !== old.count) panel.forget();
      view.use(rows);
      waits.hidden = !rows.waits.length;
      overview.gather();
      overview.draw();
    } catch { /* the next time will do */ }
  }
  setTimeout(refresh, 3000);
}

// Comparison: one line from the server, and marks on the rows.
let pending = null;
function mark(line) {
  pending = line;
  if (!view) return;
  view.marks = new Map([...line.querySelectorAll("[data-mark]")].map((one) => [Number(one.dataset.mark), one.dataset.says]));
  view.redraw();
}
const against = document.getElementById("against");
if (against) {
  part(against.dataset.against).then((got) => { if (got) { against.replaceChildren(got); mark(against); } }, () => {});
  against.addEventListener("click", (event) => { if (event.target.closest("[data-next-difference]")) nextDifference(); });
}

function nextDifference() {
  if (!view) return false;
  const { rows } = view;
  const row = rows.next(view.chosen, (one) => rows.thread[one] === 0 && rows.lookOf(one) !== "step" && rows.position[one] >= 0 && rows.call[one] < 0 && view.marks.has(rows.position[one]));
  if (row < 0) { announce("No further differences"); return; }
  choose(row);
}

function nextError() {
  if (!view) return false;
  const fail = view.rows.looks.indexOf("fail"), row = view.rows.next(view.chosen, (one) => view.rows.look[one] === fail);
  if (row < 0) { announce("No errors"); return; }
  choose(row);
}

// Search in names and notes. The browser cannot search rows that are not in the document.
let hits = null;
function find() {
  const text = search.value.trim().toLowerCase();
  hits = null;
  found.textContent = "";
  if (!text || !view) return;
  const { rows } = view;
  const names = new Set(rows.names.flatMap((name, number) => name.toLowerCase().includes(text) ? [number] : []));
  const notes = new Set(rows.notes.flatMap((name, number) => name.toLowerCase().includes(text) ? [number] : []));
  hits = [];
  for (let row = 0; row < rows.count; row++) if (names.has(rows.name[row]) || notes.has(rows.note[row])) hits.push(row);
  found.textContent = hits.length ? `${hits.length.toLocaleString("en")} found` : "none found";
}
function goToHit(way) {
  if (!hits?.length) return;
  const wanted = way > 0 ? hits.find((row) => row > view.chosen) ?? hits[0] : hits.findLast((row) => row < view.chosen) ?? hits.at(-1);
  choose(wanted, { focus: false });
  found.textContent = `${(hits.indexOf(wanted) + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
}
search.addEventListener("input", find);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); if (!hits) find(); goToHit(event.shiftKey ? -1 : 1); }
});

const grid = document.getElementById("rows");
grid.addEventListener("click", (event) => {
  const node = event.target.closest(".wf");
  if (!view || !node || event.ctrlKey || event.metaKey || event.button) return;
  event.preventDefault();
  const again = node.row === view.chosen && event.target.closest(".guide, .name") && view.rows.hasBelow(node.row);
  choose(node.row);
  if (again) fold(node.row, !view.rows.folded[node.row]);
});
grid.addEventListener("wheel", (event) => {
  if (!view || !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  view.zoomBy(event.deltaY > 0 ? 1.25 : 0.8);
  overview.draw();
}, { passive: false });
panel.place.addEventListener("closed", () => view?.nodes.get(view.chosen)?.focus({ preventScroll: true }));

function fold(row, folded) {
  if (!view.rows.fold(row, folded)) return false;
  view.redraw();
}

const foldAll = document.getElementById("fold-all");
foldAll.addEventListener("click", () => {
  if (!view) return;
  const folded = foldAll.getAttribute("aria-pressed") !== "true";
  foldAll.setAttribute("aria-pressed", folded ? "true" : "false");
  view.rows.foldAll(folded);
  view.chosen = view.rows.seen[view.rows.placeOf(view.chosen)];
  view.redraw();
  view.show(view.rows.placeOf(view.chosen));
});

const waits = document.getElementById("waits");
function toggleWaits() {
  if (!view || waits.hidden) return false;
  view.collapse(!view.collapsed);
  waits.setAttribute("aria-pressed", view.collapsed ? "true" : "false");
  overview.gather();
  overview.draw();
}
waits.addEventListener("click", toggleWaits);

function zoomToRow() {
  if (!view) return false;
  view.zoomTo(view.chosen);
  overview.draw();
}
document.getElementById("zoom-row").addEventListener("click", zoomToRow);

function zoom(way) {
  if (!view) return false;
  if (way) view.zoomBy(way > 0 ? 0.5 : 2); else view.zoom(0, view.whole);
  overview.draw();
}
section.addEventListener("click", (event) => { const button = event.target.closest("[data-zoom]"); if (button) zoom(Number(button.dataset.zoom)); });

// Keyboard shortcuts. In the panel, its elements handle the arrow keys.
const elsewhere = (event) => !view || event.target.closest?.("#panel, .tools, dialog, details.menu, .diff") !== null;
function move(step) {
  const place = view.rows.placeOf(view.chosen) + step;
  choose(view.rows.seen[Math.max(0, Math.min(view.rows.seen.length - 1, place))], { open: panel.place.classList.contains("chosen") });
}
const group = { group: "Run" };
for (const [key, step] of [["j", 1], ["k", -1], ["down", 1], ["up", -1]]) {
  keys.on(key, (event) => elsewhere(event) && key.length > 1 ? false : view ? move(step) : false, key === "j" ? "next row" : key === "k" ? "previous row" : "", group);
}
keys.on("PageDown", (event) => elsewhere(event) || event.target === document.body ? false : move(Math.floor(innerHeight / view.height) - 6), "", group);
keys.on("PageUp", (event) => elsewhere(event) || event.target === document.body ? false : move(6 - Math.floor(innerHeight / view.height)), "", group);
keys.on("Home", (event) => elsewhere(event) ? false : choose(0), "first row", group);
keys.on("End", (event) => elsewhere(event) ? false : choose(view.rows.seen[view.rows.seen.length - 1]), "last row", group);
keys.on("right", (event) => {
  if (elsewhere(event)) return false;
  const { rows, chosen } = view;
  if (rows.folded[chosen]) return fold(chosen, false);
  if (rows.hasBelow(chosen)) choose(chosen + 1); else return false;
}, "expand, go to child", { ...group, shown: "→" });
keys.on("left", (event) => {
  if (elsewhere(event)) return false;
  const { rows, chosen } = view;
  if (rows.hasBelow(chosen) && !rows.folded[chosen] && chosen > 0) return fold(chosen, true);
  if (rows.parent[chosen] >= 0) choose(rows.parent[chosen]); else return false;
}, "collapse, go to parent", { ...group, shown: "←" });
keys.on("Enter", (event) => {
  if (!view || !event.target.closest?.("#rows")) return false;
  const go = panel.place.querySelector("[data-go]");
  if (go && view.rows.lookOf(view.chosen) === "child") { go.click(); return; }
  panel.show(view.rows.at(view.chosen));
  panel.place.querySelector("[role=tab][aria-selected=true]")?.focus();
}, "open", { ...group, shown: "↵" });
for (const number of [1, 2, 3, 4]) keys.on(String(number), () => panel.pick(number - 1), number === 1 ? "tabs of the panel" : "", { ...group, shown: "1–4" });
keys.on("+", () => zoom(1), "zoom in", group);
keys.on("=", () => zoom(1), "", group);
keys.on("-", () => zoom(-1), "zoom out", group);
keys.on("0", () => zoom(0), "whole run", group);
keys.on("z", zoomToRow, "zoom to the row", group);
keys.on("w", toggleWaits, "collapse or show waits", group);
keys.on("e", nextError, "next error", group);
keys.on("x", nextDifference, "next difference", group);
keys.on("Escape", (event) => {
  if (event.target === search || !event.target.closest?.("#panel")) return false;
  panel.place.classList.remove("chosen");
  view?.nodes.get(view.chosen)?.focus({ preventScroll: true });
}, "", group);

begin();
