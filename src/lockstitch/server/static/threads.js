// The list of threads: a treegrid with one tab stop, live rows, and children that load when expanded.
import { keys } from "./keys.js";
import { follow } from "./live.js";
import "./menus.js";
import { element, part } from "./nodes.js";

const base = document.body.dataset.base;
const rows = () => [...document.querySelectorAll("tr[data-row]")].filter((row) => row.offsetParent !== null || row.getClientRects().length);
const here = () => document.activeElement?.closest?.("tr[data-row]") ?? null;
const query = (more = {}) => {
  const names = new URLSearchParams(document.getElementById("rows")?.dataset.query);
  for (const [name, value] of Object.entries(more)) if (value != null) names.set(name, value);
  return names.size ? `?${names}` : "";
};
const level = (row) => Number(row.getAttribute("aria-level"));

// One tab stop
function stop(row) {
  for (const other of document.querySelectorAll('tr[data-row][tabindex="0"]')) if (other !== row) other.tabIndex = -1;
  if (row) row.tabIndex = 0;
}
function tidy() { selected(); if (!document.querySelector('tr[data-row][tabindex="0"]')) stop(rows()[0]); }
function go(row) { if (!row) return false; stop(row); row.focus(); row.scrollIntoView({ block: "nearest" }); }
function move(step) {
  const all = rows(), at = all.indexOf(here());
  return go(at < 0 ? all[0] : all[Math.max(0, Math.min(all.length - 1, at + step))]);
}

// Children
const below = (row) => {
  const found = [];
  for (let next = row.nextElementSibling; next?.matches("tr[data-row]") && level(next) > level(row); next = next.nextElementSibling) found.push(next);
  return found;
};
async function open(row) {
  if (row.getAttribute("aria-expanded") !== "false") return false;
  mark(row, true);
  const nodes = await part(`${base}/threads/${row.dataset.row}/children${query({ lines: row.dataset.below ?? "" })}`);
  if (!nodes || row.getAttribute("aria-expanded") !== "true" || below(row).length) return;
  row.after(nodes);
  prepare();
}
function close(row) {
  if (row.getAttribute("aria-expanded") !== "true") return false;
  below(row).forEach((child) => child.remove());
  mark(row, false);
}
function mark(row, opened) {
  row.setAttribute("aria-expanded", opened);
  row.querySelector("button.twig")?.setAttribute("aria-expanded", opened);
  if (level(row) === 1) row.classList.toggle("open", opened);
}
function parent(row) {
  for (let before = row.previousElementSibling; before; before = before.previousElementSibling) {
    if (before.matches("tr[data-row]") && level(before) < level(row)) return before;
  }
  return null;
}

addEventListener("click", (event) => {
  const twig = event.target.closest?.("button.twig");
  if (!twig) { const row = event.target.closest?.("tr[data-row]"); if (row) stop(row); return; }
  const row = twig.closest("tr");
  stop(row);
  if (open(row) === false || row.getAttribute("aria-expanded") === "true" && below(row).length) close(row);
});
addEventListener("dblclick", (event) => { const row = event.target.closest?.("tr[data-row]"); if (row && !event.target.closest("a, button")) location.href = row.dataset.href; });

const group = "Lists";
for (const key of ["j", "down"]) keys.on(key, () => move(1), "next row", { group, shown: "j ↓" });
for (const key of ["k", "up"]) keys.on(key, () => move(-1), "previous row", { group, shown: "k ↑" });
keys.on("right", () => { const row = here(); if (!row || !row.hasAttribute("aria-expanded")) return false; if (row.getAttribute("aria-expanded") === "true") move(1); else open(row); }, "expand, go to child", { group, shown: "→" });
keys.on("left", () => { const row = here(); if (!row) return false; if (row.getAttribute("aria-expanded") === "true") close(row); else go(parent(row)); }, "collapse, go to parent", { group, shown: "←" });
keys.on("Home", () => here() ? go(rows()[0]) : false, "first row", { group });
keys.on("End", () => here() ? go(rows().at(-1)) : false, "last row", { group });
keys.on("Enter", (event) => { const row = here(); if (!row || event.target !== row) return false; location.href = row.dataset.href; }, "open", { group, shown: "↵" });
keys.on("a", () => { const act = here()?.querySelector("[data-act]"); if (!act) return false; act.click(); }, "action of the row", { group: "Threads" });
keys.on("c", () => { const sheet = document.getElementById("begin"); if (!sheet) return false; sheet.showModal(); }, "new thread", { group: "Threads" });

// Selection
const boxes = () => [...document.querySelectorAll("tr[data-row] .select")];
const form = document.getElementById("bulk");
function selected() {
  const all = boxes(), chosen = all.filter((box) => box.checked);
  const top = document.getElementById("select-all");
  if (top) { top.hidden = !all.length; top.checked = chosen.length > 0 && chosen.length === all.length; top.indeterminate = chosen.length > 0 && !top.checked; }
  if (form) form.querySelector("output").textContent = `${chosen.length} selected`;
}
addEventListener("change", (event) => {
  if (event.target.id === "select-all") for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.matches?.(".select, #select-all")) selected();
});
form?.addEventListener("reset", () => setTimeout(selected));
form?.addEventListener("submit", () => { form.elements.query.value = document.getElementById("rows").dataset.query; });
keys.on("x", () => { const box = here()?.querySelector(".select"); if (!box) return false; box.click(); }, "select the row", { group: "Threads" });

function prepare() {
  window.htmx?.process(document.getElementById("rows"));
  tidy();
}
addEventListener("htmx:afterSettle", (event) => {
  tidy();
  if (event.detail.requestConfig?.elt?.closest?.(".older") && !here()) go(rows().at(0));
});
addEventListener("focusin", (event) => { if (event.target.matches?.("tr[data-row]")) stop(event.target); });

// Back: load the rows again that were loaded before, and return to the row.
const PLACE = "lockstitch_list";
addEventListener("pagehide", () => {
  sessionStorage.setItem(PLACE, JSON.stringify({ address: location.href, rows: rows().length, row: here()?.dataset.row, scroll: scrollY }));
});
async function restore() {
  if (performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
  const was = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
  if (was.address !== location.href) return;
  for (let older; rows().length < was.rows && (older = document.querySelector("tr.older a")); ) {
    const nodes = await part(older.getAttribute("href"));
    if (!nodes) return;
    older.closest("tr").replaceWith(nodes);
  }
  prepare();
  const row = was.row && document.getElementById(`t-${was.row}`);
  if (row) { stop(row); row.focus({ preventScroll: true }); }
  scrollTo(0, was.scroll);
}
restore();
if (location.hash === "#begin") document.getElementById("begin")?.showModal();
tidy();

// Live updates: visible rows change in place. Other changes are counted; a click reloads the list.
const due = new Map();
const newer = new Set();
let counting = 0;

function changed(id) {
  if (due.has(id)) return;
  due.set(id, setTimeout(async () => { due.delete(id); await refresh(id); }, 200));
}
async function refresh(id) {
  const row = document.getElementById(`t-${id}`);
  if (!row) return;
  const { lines, last } = row.dataset;
  const nodes = await part(`${base}/threads/${id}/row${query({ lines, last: last === undefined ? null : "true" })}`);
  const fresh = nodes?.querySelector("tr[data-row]");
  if (!fresh || !row.isConnected) return;
  if (fresh.hasAttribute("data-person") !== row.hasAttribute("data-person")) { newer.add(id); tellNewer(); }
  const focused = row.contains(document.activeElement), inner = document.activeElement !== row;
  // Keep an expanded row expanded and keep the focus in it.
  if (row.getAttribute("aria-expanded") === "true") { fresh.setAttribute("aria-expanded", "true"); fresh.querySelector("button.twig")?.setAttribute("aria-expanded", "true"); fresh.classList.toggle("open", level(row) === 1); }
  fresh.tabIndex = row.tabIndex;
  const [box, before] = [fresh, row].map((one) => one.querySelector(".select"));
  if (box && before) box.checked = before.checked;
  const path = focused && inner ? [...row.querySelectorAll("a, button")].indexOf(document.activeElement) : -1;
  row.replaceWith(fresh);
  window.htmx?.process(fresh);
  if (focused) (path >= 0 ? [...fresh.querySelectorAll("a, button")][path] ?? fresh : fresh).focus({ preventScroll: true });
}
function tellNewer() {
  const place = document.getElementById("newer");
  if (!place) return;
  const button = element("button", { class: "btn tiny", type: "button" }, `${newer.size} newer`);
  button.addEventListener("click", () => {
    newer.clear();
    window.htmx.ajax("GET", `${base}/${query()}`, { target: "#rows", swap: "outerHTML" });
  });
  place.replaceChildren(...(newer.size ? [button] : []));
}
function count() {
  clearTimeout(counting);
  counting = setTimeout(() => window.htmx?.ajax("GET", `${base}/counts${query()}`, { swap: "none" }), 700);
}

const drawn = document.querySelector("[data-drawn]")?.dataset.drawn ?? "";
follow(`${base}/api/events`, {
  status(data) {
    const row = document.getElementById(`t-${data.thread_id}`);
    if (row) {
      if (row.dataset.position === String(data.position) && row.dataset.status === data.status && row.dataset.updated === data.updated_at) return;
      count();
      if (data.status === "deleted") { row.remove(); tidy(); return; }
      changed(data.thread_id);
      return;
    }
    // Ignore changes from before the list was rendered.
    if (data.status === "deleted" || data.updated_at <= drawn) return;
    count();
    if (data.parent_id) { if (document.getElementById(`t-${data.parent_id}`)) changed(data.parent_id); if (!data.needs_person) return; }
    newer.add(data.thread_id);
    tellNewer();
  },
});
