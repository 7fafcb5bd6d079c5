// The thread page: new stitches, streamed text, open calls and keyboard shortcuts.
import { ending } from "./ending.js";
import { keys } from "./keys.js";
import { follow } from "./live.js";
import { part } from "./nodes.js";
import { saying } from "./saying.js";
import { announce } from "./toast.js";

const page = document.getElementById("thread"), id = page.dataset.thread, talks = page.dataset.view === "talk";
const path = `${document.body.dataset.base}/threads/${id}`;
const seam = document.getElementById("seam");
let position = Number(page.dataset.position);

const end = ending(document.querySelector(".talk"));
const said = saying(end, { place: seam });

// Fetch stitches in order, each once.
let line = Promise.resolve();
function stitch(data) {
  if (data.position <= position) return;
  position = data.position;
  if (data.type === "llm_call") said.ends(data);
  if (!talks) { soon(); return; }
  line = line.then(async () => {
    const nodes = await part(`${path}/stitch/${data.position}`);
    soon();
    if (/^run_(completed|failed)$/.test(data.type)) said.over(data.run_id);
    if (/^run_(completed|failed|paused)$/.test(data.type)) await again([...seam.querySelectorAll("li[data-type=run_started]")].slice(-1));
    if (data.type === "thread_result") await again(seam.querySelectorAll("li[data-type=thread_spawned]"));
    const fresh = nodes?.querySelector("li");
    if (!fresh || document.getElementById(fresh.id)) return;
    const was = end.reached();
    said.gone(data);
    seam.append(fresh);
    window.htmx?.process(fresh);
    document.querySelector(".talk > .empty")?.remove();
    end.grown(was);
    if (data.type === "llm_call") announce(fresh.querySelector(".say")?.textContent.slice(0, 300) ?? "");
  });
}

// Update the steps and cost of a run, and the status of a child, when they change.
async function again(stitches) {
  for (const old of stitches) {
    const fresh = (await part(`${path}/stitch/${old.dataset.position}`))?.querySelector("li");
    if (fresh) old.replaceWith(fresh);
  }
}

// Refresh the open calls, the status and the side column.
let timer = 0;
function soon() { clearTimeout(timer); timer = setTimeout(refresh, 150); }
async function refresh() {
  const nodes = await part(`${path}/now?view=${page.dataset.view}`);
  if (!nodes) return;
  for (const name of ["state", "acts", "views", "side", "needing", "wants"]) {
    const old = document.getElementById(name), fresh = nodes.querySelector(`#${name}`);
    const focused = document.activeElement, held = old?.contains(focused);
    if (!old || !fresh || ["acts", "views"].includes(name) && (held && focused.matches("input") || old.querySelector("details[open]"))) continue;
    if (name === "state") { const dot = old.querySelector("[data-live]"), place = fresh.querySelector("[data-live]"); if (dot && place) place.replaceWith(dot); }
    fresh.removeAttribute("hx-swap-oob");
    if (name === "side") fresh.scrollTop = old.scrollTop;
    const path = held ? focused.closest("form, a")?.getAttribute(focused.closest("form") ? "action" : "href") : null;
    old.replaceWith(fresh);
    window.htmx?.process(fresh);
    // The button with the focus can be gone, for example Cancel after it was pressed.
    if (held) (path && fresh.querySelector(`form[action="${CSS.escape(path)}"] button, a[href="${CSS.escape(path)}"]`) || fresh.querySelector("button, a[href], summary"))?.focus({ preventScroll: true });
  }
  watch();
  if (talks) { composed(nodes.querySelector("#composer")); opened(nodes.querySelector("#open")); }
}
// The form is replaced only when the thread starts or stops to take messages, so that a draft stays.
function composed(fresh) {
  const old = document.getElementById("composer");
  if (!old || !fresh) return;
  const field = old.querySelector("textarea"), next = fresh.querySelector("textarea");
  if (field && next) { field.placeholder = next.placeholder; return; }
  if (!field && !next && old.textContent === fresh.textContent) return;
  old.replaceWith(fresh);
  window.htmx?.process(fresh);
}
function opened(fresh) {
  const old = document.getElementById("open");
  if (!old || !fresh) return;
  const asked = fresh.dataset.mark && fresh.dataset.mark !== old.dataset.mark, had = document.activeElement, held = old.contains(had), was = end.reached();
  // Keep a form that the user fills in while its request is unchanged.
  for (const ask of fresh.querySelectorAll(".asks")) {
    const same = [...old.querySelectorAll(".asks")].find((one) => one.dataset.id === ask.dataset.id);
    if (same) { same.id = ask.id; ask.replaceWith(same); }
  }
  old.replaceWith(fresh);
  window.htmx?.process(fresh);
  if (held) (had.isConnected ? had : fresh.querySelector(".asks") ?? seam.lastElementChild)?.focus({ preventScroll: true });
  if (asked) { announce(`Needs you: ${fresh.querySelector(".ask h2")?.textContent ?? ""}`); offer(); }
  if (was) end.grown(true);
}

// Frontend tools: a custom module can answer the calls, else the form is shown.
//   addEventListener("lockstitch:tool", (event) => { if (event.detail.name === "…") event.detail.answer(result); });
function offer() {
  for (const place of document.querySelectorAll("[data-tool]")) {
    const number = [...place.parentElement.querySelectorAll("[data-tool]")].indexOf(place), form = place.closest("form");
    const answer = (result) => { form.elements[`raw.${number}`].value = typeof result === "string" ? result : JSON.stringify(result); place.dataset.answered = ""; if (!form.querySelector("[data-tool]:not([data-answered])")) form.requestSubmit(); };
    dispatchEvent(new CustomEvent("lockstitch:tool", { detail: { name: place.dataset.tool, call: place.dataset.call, answer } }));
  }
}

addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.successful || event.detail.requestConfig.verb === "get") return;
  if (event.target.id === "composer") { event.target.reset(); end.go(); }
  soon();
});
addEventListener("htmx:afterSettle", (event) => { if (event.target.id === "seam") seam.querySelector("li")?.focus({ preventScroll: true }); });

// Keyboard shortcuts
const group = "Thread";
const list = () => [...document.querySelectorAll(".seam > li:not(.live-text)")];
const here = () => document.activeElement?.closest?.(".seam > li");
function move(step) {
  const all = list(), at = all.indexOf(here()), next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
  if (!next) return false;
  next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
keys.on("j", () => move(1), "next stitch", { group });
keys.on("k", () => move(-1), "previous stitch", { group });
// Approve or deny the focused request. If no request has the focus, the first one gets it, so that the user sees what
// the next key press decides.
function decide(selector) {
  const request = here()?.querySelector(selector) ? here() : document.querySelector(selector)?.closest(".asks");
  if (!request) return false;
  if (request === here()) { request.querySelector(selector).click(); return; }
  request.focus();
  request.scrollIntoView({ block: "nearest" });
}
keys.on("a", () => decide("[data-approve]"), "approve the focused request", { group });
keys.on("d", () => decide("[data-deny]"), "deny the focused request", { group });
keys.on("f", () => { const button = here()?.querySelector(".fork"); if (!button) return false; button.click(); }, "fork at the focused stitch", { group });
keys.on("o", () => { const one = here()?.querySelectorAll("details"), all = one?.length ? one : document.querySelectorAll(".call"); if (!all.length) return false; const open = ![...all][0].open; all.forEach((each) => { each.open = open; }); }, "expand or collapse calls", { group });
keys.on("n", () => {
  const asks = [...document.querySelectorAll(".asks")], next = asks[asks.indexOf(here()) + 1];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); } else location.href = `${document.body.dataset.base}/next?after=${id}`;
}, "next thread that needs you");
keys.on("/", () => { const field = document.querySelector("#composer textarea"); if (!field) return false; field.focus(); }, "write", { group });

offer();
if (talks && !location.hash && !new URLSearchParams(location.search).has("before")) end.go();
if (location.hash === "#needs") document.getElementById("needs")?.focus({ preventScroll: true });

// Follow the thread until it ends, and again after a retry.
let stream = null;
function watch() {
  if (stream || !document.querySelector("#state [data-live]")) return;
  stream = follow(`${document.body.dataset.base}/api/threads/${id}/events`, {
    stitch,
    delta: (data) => { if (talks) said.delta(data); },
    status: () => soon(),
    end() { stream.close(); stream = null; document.querySelectorAll("[data-live]").forEach((place) => { place.hidden = true; }); soon(); },
  }, position);
}
watch();
