// The plan page: task selection, search, dependency lines and keyboard shortcuts.
import { keys } from "../keys.js";
import { part } from "../nodes.js";
import { rowKeys } from "../rowkeys.js";
import { drawn, sides } from "./lines.js";
import { grow } from "./trace.js";

const base = document.body.dataset.base;
const narrow = matchMedia("(max-width: 760px)");
const plan = () => document.getElementById("plan");
const graph = () => document.getElementById("graph");
const cards = () => [...graph()?.querySelectorAll(".task") ?? []];
const current = () => graph()?.querySelector(".task[aria-current]");
const path = () => `${base}/plans/${plan().dataset.plan}`;

// Only the selected task is a tab stop. j and k move from there.
function stops() { for (const card of cards()) card.tabIndex = card.hasAttribute("aria-current") ? 0 : -1; }

function look(card = current()) {
  if (!graph()) return;
  sides(graph(), card);
  drawn(graph(), card);
}

let wanted = 0;
async function choose(card) {
  const number = wanted += 1, address = new URL(card.href);
  current()?.removeAttribute("aria-current");
  card.setAttribute("aria-current", "true");
  stops();
  look();
  history.replaceState(history.state, "", address.pathname + address.search);
  const fresh = (await part(`${path()}/task${address.search}`))?.querySelector("#chosen");
  if (!fresh || number !== wanted) return;
  document.getElementById("chosen").replaceWith(fresh);
  put(card);
}

// On narrow screens the selected task is shown below its card, else in the side column.
function put(card) {
  const chosen = document.getElementById("chosen");
  if (narrow.matches) card.after(chosen); else document.getElementById("aside").prepend(chosen);
}
narrow.addEventListener("change", () => { if (current()) { document.getElementById("aside").prepend(document.getElementById("chosen")); look(); } });

document.addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  const named = event.target.closest?.("[data-choose]");
  const card = named ? document.getElementById(`task-${named.dataset.choose}`) : event.target.closest?.(".task[data-row]");
  if (!card) return;
  event.preventDefault();
  if (named) { card.closest("li").hidden = false; card.focus(); card.scrollIntoView({ block: "nearest" }); }
  choose(card);
});
for (const name of ["mouseover", "focusin"]) document.addEventListener(name, (event) => {
  const card = event.target.closest?.(".task[data-row]");
  if (card) look(card); else if (name === "mouseover") look();
});

// Search: hide cards that do not contain the words, and waves without visible cards.
function find() {
  const field = plan().querySelector(".find input");
  if (!field) return;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean), all = cards();
  const has = (card) => words.every((word) => card.dataset.words.includes(word));
  let found = 0;
  for (const card of all) { const shown = has(card); card.closest("li").hidden = !shown; found += shown; }
  for (const wave of graph().querySelectorAll(".wave")) wave.hidden = !wave.querySelector("ol > li:not([hidden])");
  document.getElementById("found").textContent = words.length ? `${found} of ${all.length}` : "";
  look();
}
document.addEventListener("input", (event) => { if (event.target.closest?.(".find")) find(); });
document.addEventListener("submit", (event) => {
  if (!event.target.closest?.(".find")) return;
  event.preventDefault();
  cards().find((card) => !card.closest("li").hidden)?.focus();
});

rowKeys(document.body);
keys.on("m", () => { const link = plan().querySelector("a[download]"); if (!link) return false; link.click(); }, "download as Markdown", { group: "Plan" });

let due = 0;
addEventListener("resize", () => { due ||= requestAnimationFrame(() => { due = 0; look(); }); });

function begin() { stops(); find(); look(); }
begin();
grow(plan(), begin);
