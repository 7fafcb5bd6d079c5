// The SQL page: editor, history, sortable results and downloads.
import { Editor } from "./editor.js";
import { keys } from "./keys.js";
import "./menus.js";
import { element } from "./nodes.js";
import { rowKeys } from "./rowkeys.js";
import { announce, toast } from "./toast.js";

const KEPT = 50, PLACE = "lockstitch_sql";
const form = document.getElementById("bench"), result = document.getElementById("result");
const editor = new Editor(form.querySelector(".editor"));
const lens = () => form.elements.lens.value;

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
for (const key of document.querySelectorAll("[data-mod-enter]")) key.textContent = mac ? "⌘ ↵" : "Ctrl ↵";
keys.on("mod+Enter", () => form.requestSubmit(form.querySelector("[name=act]")), "run", { group: "SQL", shown: mac ? "⌘ ↵" : "Ctrl ↵" });
keys.on("e", () => editor.field.focus(), "focus the editor; Esc leaves it", { group: "SQL" });
rowKeys(result);

// Another lens has other tables and examples, so load its page and pass the query.
form.addEventListener("change", (event) => {
  const goes = event.target.dataset.goes;
  if (!goes) return;
  const untouched = editor.text === editor.field.defaultValue;
  location.href = untouched ? goes : `${goes}&${new URLSearchParams({ q: editor.text })}`;
});

addEventListener("click", (event) => {
  const inserts = event.target.closest("[data-insert]"), puts = event.target.closest("[data-put]");
  const links = event.target.closest("[data-link]"), sorts = event.target.closest("[data-sorts] th button");
  if (inserts) editor.insert(inserts.dataset.insert);
  if (puts) { event.preventDefault(); editor.text = puts.dataset.put; form.requestSubmit(form.querySelector("[name=act]")); }
  if (links) { event.preventDefault(); copy(links.href, "Link copied."); }
  if (sorts) sort(sorts.closest("th"));
});

async function copy(text, said) {
  try { await navigator.clipboard.writeText(text); toast(said); }
  catch { toast("The browser blocked copying."); }
}

// The browser downloads files. Markdown is copied to the clipboard instead.
form.addEventListener("htmx:confirm", (event) => {
  const by = event.detail.triggeringEvent?.submitter;
  if (!by?.matches("[data-download]")) return;
  event.preventDefault();
  take(by);
});

async function take(button) {
  const body = new FormData(form);
  body.set("as", button.value);
  const answer = await fetch(button.formAction, { method: "POST", body });
  if (!answer.ok) { toast("The query could not be run again."); return; }
  const text = await answer.text();
  if (button.value === "markdown") { await copy(text, "Copied as Markdown."); return; }
  const address = URL.createObjectURL(new Blob([text], { type: answer.headers.get("content-type") }));
  const link = element("a", { href: address, download: `${lens()}.${button.value}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], place = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  const numeric = head.classList.contains("num");
  const value = (row) => {
    const cell = row.cells[place];
    if (cell.querySelector(".null")) return null;
    const text = cell.title || cell.textContent;
    return numeric ? Number(text.replaceAll(",", "")) : text;
  };
  const rows = [...body.rows].map((row) => [value(row), row]);
  const order = (a, b) => (a === null) - (b === null) || (numeric ? a - b : a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1) || 0;
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : numeric ? (down ? b - a : a - b) : order(a, b));
  body.replaceChildren(...rows.map(([, row]) => row));
  for (const other of head.parentElement.cells) {
    other.removeAttribute("aria-sort");
    const button = other.querySelector("button");
    button.textContent = button.textContent.replace(/ [↑↓]$/, "");
  }
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  head.querySelector("button").textContent += down ? " ↓" : " ↑";
  announce(`Sorted by ${head.textContent}`);
}

// Query history, stored only in this browser.
const menu = document.getElementById("history");
function kept() {
  try { return JSON.parse(localStorage.getItem(PLACE)) || []; } catch { return []; }
}
function remember() {
  const entry = { lens: lens(), query: editor.text };
  if (!entry.query.trim()) return;
  const rest = kept().filter((one) => one.lens !== entry.lens || one.query !== entry.query);
  localStorage.setItem(PLACE, JSON.stringify([entry, ...rest].slice(0, KEPT)));
  tell();
}
function tell() {
  const entries = kept();
  menu.hidden = !entries.length;
  menu.querySelector("ol").replaceChildren(...entries.map((entry) => {
    const button = element("button", { type: "button" }, element("code", { class: "clip" }, entry.query.replace(/\s+/g, " ").slice(0, 120)), element("small", {}, entry.lens));
    button.addEventListener("click", () => {
      menu.open = false;
      if (entry.lens === lens()) { editor.text = entry.query; editor.field.focus(); }
      else location.href = `${document.body.dataset.base}/sql?${new URLSearchParams({ lens: entry.lens, q: entry.query })}`;
    });
    return element("li", {}, button);
  }));
}
menu.querySelector("[data-forget]").addEventListener("click", () => { localStorage.removeItem(PLACE); tell(); });
form.addEventListener("htmx:beforeRequest", remember);
tell();
