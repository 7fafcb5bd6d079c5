// The notebook page: shows committed messages, streams text, and refreshes the side columns.
import { ending } from "../ending.js";
import { keys } from "../keys.js";
import { follow } from "../live.js";
import "../menus.js";
import { element, icon, part } from "../nodes.js";
import { saying } from "../saying.js";
import { announce } from "../toast.js";
import { mark, plain, show } from "./citing.js";

const page = document.getElementById("notebook"), { path, thread } = page.dataset;
const seam = document.getElementById("seam"), end = ending(document.querySelector(".talk"));

// Streamed text with the name of its author. The activity list has the names of the runs.
const said = saying(end, { place: document.getElementById("live"), plain, by: (data) => [element("div", { class: "by" }, element("b", {}, name(data.run_id)), writing())] });
const name = (run) => document.querySelector(`#turns [data-run="${CSS.escape(run)}"]`)?.dataset.name ?? "…";
const writing = () => element("span", { class: "status running" }, element("span", { class: "pulse", "aria-hidden": "true" }), "writing");
const written = new Map();                       // committed responses that are shown as live text until the page has their messages
function delta(data) {
  said.delta(data);
  for (const [run, one] of written) if (run !== data.run_id) { said.gone(one); written.delete(run); }
  if (!document.querySelector(`#open > li[data-run="${CSS.escape(data.run_id)}"]`)) soon();
  who();
}
function who() {
  for (const text of document.querySelectorAll("#live > li")) {
    const line = document.querySelector(`#open > li[data-run="${CSS.escape(text.dataset.run)}"]`);
    if (line) line.hidden = true;
    text.querySelector(".by b").textContent = name(text.dataset.run);
    const from = line?.querySelector("[data-from]");
    if (from && !text.querySelector("[data-from]")) text.querySelector(".by").append(from.cloneNode(true));
  }
}

function stitch(data) {
  if (data.type === "llm_call") {
    said.ends(data);
    if (data.calls) said.gone(data); else written.set(data.run_id, data);
    document.querySelectorAll(`#live > li[data-run="${CSS.escape(data.run_id)}"] :is(.status, .caret)`).forEach((one) => one.remove());
  }
  soon();
}

// Refresh the parts that change: messages, open runs, Stop button, sources, chats, activity.
let timer = 0, asking = Promise.resolve();
function soon() { clearTimeout(timer); timer = setTimeout(() => { asking = asking.then(refresh); }, 120); }
async function refresh() {
  const last = seam.querySelector(":scope > li:last-child")?.dataset.position ?? 0;
  const nodes = await part(`${path}/now?after=${last}`);
  if (!nodes) return;
  const was = end.reached(), fresh = [...nodes.querySelectorAll("#fresh > li")].filter((one) => !document.getElementById(one.id));
  for (const id of ["open", "steps", "sources", "chats", "turns"]) put(document.getElementById(id), nodes.querySelector(`#${id}`));
  for (const one of fresh) {
    seam.append(one);
    document.querySelector(".talk > .empty")?.remove();
    if (one.dataset.shape === "asked") continue;
    for (const text of written.values()) said.gone(text);
    written.clear();
    announce(one.querySelector(".say")?.textContent.slice(0, 300) ?? one.textContent.trim());
    const first = one.querySelector("a.cite");
    if (first && !document.getElementById("place").contains(document.activeElement)) show(first.href);
  }
  // A response that was committed while the run was stopped may arrive after the last message.
  if (!document.querySelector("#open > li")) { for (const text of written.values()) said.gone(text); written.clear(); }
  who();
  mark();
  if (fresh.length) end.grown(was);
}
function put(old, fresh) {
  if (!old || !fresh) return;
  const dot = old.querySelector("[data-live]"), place = fresh.querySelector("[data-live]");
  if (dot && place) place.replaceWith(dot);
  const held = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  old.replaceWith(fresh);
  window.htmx?.process(fresh);
  if (held) fresh.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
}

addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.successful || event.detail.requestConfig.verb === "get") return;
  if (event.target.id === "composer") { event.target.reset(); end.go(); }
  soon();
});

// Show a placeholder while the server reads an uploaded source.
addEventListener("submit", (event) => {
  const form = event.target.closest(".way-in form");
  if (!form) return;
  const called = form.elements.file?.files[0]?.name ?? form.elements.title?.value ?? form.elements.url?.value;
  document.querySelector("#sources .list").append(element("li", {}, element("div", { "aria-busy": "true" }, icon("file"),
    element("span", { class: "clip" }, element("span", {}, called), element("small", {}, "reading and indexing"), element("span", { class: "skel mid" })))));
  form.closest("dialog")?.close();
});

// Keyboard shortcuts
const group = "Notebook";
const here = () => document.activeElement?.closest?.(".seam > li");
function move(step) {
  const all = [...seam.children], at = all.indexOf(here());
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
  if (!next) return false;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
const press = (selector) => { const found = document.querySelector(selector); if (!found) return false; found.click(); };
keys.on("j", () => move(1), "next message", { group });
keys.on("k", () => move(-1), "previous message", { group });
keys.on("/", () => { const field = document.querySelector("#composer textarea"); if (!field) return false; field.focus(); }, "ask", { group });
keys.on("o", () => { const link = here()?.querySelector("a.cite"); if (!link) return false; link.click(); }, "open the first citation", { group });
keys.on("s", () => press("#sources [data-opens]"), "add source", { group });
keys.on("c", () => press("#chats > a.btn"), "new chat", { group });

mark();
if (thread) {
  const cited = document.querySelector("a.cite[aria-current]");
  if (location.search.includes("cited=") && cited) cited.scrollIntoView({ block: "center" });
  else if (!location.hash && !location.search) end.go();
  const stream = follow(`${document.body.dataset.base}/api/threads/${thread}/events`, {
    stitch, delta,
    status: () => soon(),
    end() { stream.close(); document.querySelectorAll("[data-live]").forEach((place) => { place.hidden = true; }); soon(); },
  }, page.dataset.position);
}
