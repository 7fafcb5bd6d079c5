// Loaded on every page: theme, keyboard shortcuts, toasts, copying and navigation.
import { cookie } from "./cookie.js";
import "./focus.js";
import { keys } from "./keys.js";
import { element } from "./nodes.js";
import "./notify.js";
import { openSheet } from "./sheet.js";
import { local } from "./times.js";
import { announce, toast } from "./toast.js";

const root = document.documentElement;

export function toggleTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  cookie("lockstitch_theme", root.dataset.theme);
  dispatchEvent(new CustomEvent("theme"));
}

document.getElementById("theme-toggle")?.addEventListener("click", toggleTheme);

addEventListener("click", async (event) => {
  const copies = event.target.closest?.("[data-copy]");
  if (copies) {
    const text = copies.dataset.copy || copies.closest(".code")?.querySelector("code")?.textContent || "";
    try { await navigator.clipboard.writeText(text); announce("Copied"); copies.dataset.copied = ""; setTimeout(() => delete copies.dataset.copied, 1200); }
    catch { toast("The browser blocked copying."); }
  }
  const opens = event.target.closest?.("[data-opens]");
  if (opens) { event.preventDefault(); document.getElementById(opens.dataset.opens)?.showModal(); }
  if (event.target.closest?.("[data-close]")) event.target.closest("dialog")?.close();
});

addEventListener("change", (event) => { if (event.target.matches?.("[data-submits]")) event.target.form.requestSubmit(); });

// A form that changes something is sent once, however often its button is pressed before the answer.
addEventListener("htmx:confirm", (event) => { if (event.detail.verb !== "get" && event.target.matches?.("form.htmx-request:not(#bench)")) event.preventDefault(); });

// Show the error of a failed request in its form, or as a toast.
function failed(event, text) {
  const form = event.target.closest?.("form[data-problem]");
  if (!form) { toast(text); return; }
  form.querySelector(".note.failed")?.remove();
  form.prepend(element("p", { class: "note failed wide", role: "alert" }, text));
}
addEventListener("htmx:responseError", (event) => {
  let said = "";
  try { said = JSON.parse(event.detail.xhr.responseText).detail; } catch { /* no problem+json: an older server, a proxy */ }
  failed(event, said || `The server answered ${event.detail.xhr.status}.`);
});
addEventListener("htmx:sendError", (event) => failed(event, "Server unreachable. Nothing was changed."));

local(document);
document.addEventListener("htmx:load", (event) => local(event.detail.elt));

// The title has the number of threads that need the user, so it shows in the tab.
const title = document.title, nav = document.querySelector(".nav");
function count() {
  const needing = document.getElementById("wants")?.firstChild?.textContent ?? "";
  document.title = needing ? `(${needing}) ${title}` : title;
}
if (nav) { count(); new MutationObserver(count).observe(nav, { childList: true, subtree: true, characterData: true }); }

const go = (path) => { location.href = `${document.body.dataset.base}${path}`; };
for (const link of document.querySelectorAll(".nav a[data-key]")) {
  keys.on(`g ${link.dataset.key}`, () => link.click(), link.firstChild.textContent.trim().toLowerCase(), { shown: `g ${link.dataset.key}` });
}
keys.on("/", () => { const field = document.querySelector("[data-search]"); if (!field) return false; field.focus(); field.select(); }, "search");
keys.on("n", () => go("/next"), "next thread that needs you");
keys.on("t", toggleTheme, "toggle theme");
keys.on("?", openSheet, "keyboard shortcuts", { always: true });
keys.on("mod+Enter", (event) => { const form = event.target.form ?? document.querySelector("dialog[open] form"); if (!form) return false; form.requestSubmit(); }, "submit the form", { shown: "⌘ ↵" });
keys.on("Escape", (event) => {
  if (document.querySelector("dialog[open]")) return false;
  if (event.target !== document.body && event.target.blur) { event.target.blur(); return; }
  const up = document.querySelector(".crumbs a:last-of-type");
  if (!up) return false;
  up.click();
}, "back", { shown: "Esc" });
