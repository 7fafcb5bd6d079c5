// Keyboard shortcuts: modules register them, this module listens, sheet.js lists them.
//   import { keys } from "./keys.js";
//   keys.on("j", () => …, "next row", { group: "Lists" });
//   keys.on("g t", () => …, "threads");        two keys, one after the other
// If the function returns false, the browser handles the key.
// Always import this file by this relative name: another URL would create a second registry.

const registered = [];
const OFF = "lockstitch_keys_off";
// Keys that act again while they are held: they move or zoom. Other keys act once.
const HELD = new Set(["j", "k", "down", "up", "left", "right", "PageDown", "PageUp", "+", "=", "-"]);
let pending = "", timer = 0;

function on(key, act, says, { group = "Anywhere", shown = key, always = false } = {}) {
  const entry = { key, act, says, group, shown, always };
  registered.unshift(entry);                              // the last registered shortcut has priority
  return () => registered.splice(registered.indexOf(entry), 1);
}

function list() {
  const groups = new Map();
  for (const { key, says, group, shown } of [...registered].reverse()) {
    if (!says) continue;
    const entries = groups.get(group) ?? groups.set(group, new Map()).get(group);
    entries.set(says, { shown, key, says });
  }
  return [...groups].map(([group, entries]) => ({ group, entries: [...entries.values()] }));
}

const off = () => localStorage.getItem(OFF) === "1";
function turn(wanted) { wanted ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1"); }

const writing = (target) => target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

function name(event) {
  const held = (event.metaKey || event.ctrlKey ? "mod+" : "") + (event.altKey ? "alt+" : "");
  const key = { ArrowDown: "down", ArrowUp: "up", ArrowLeft: "left", ArrowRight: "right" }[event.key] ?? event.key;
  return held + (key.length === 1 && held ? key.toLowerCase() : key);
}

function press(event) {
  if (event.defaultPrevented || event.isComposing) return;
  const key = name(event), single = key.length === 1;
  if (key !== "Escape" && !key.startsWith("mod+") && writing(event.target)) return;
  if (event.repeat && !HELD.has(key)) return;
  if (document.querySelector("dialog[open]") && key !== "Escape" && !key.startsWith("mod+")) return;
  const whole = pending && single ? `${pending} ${key}` : key;
  clearTimeout(timer);
  pending = "";
  const allowed = (entry) => entry.always || !off() || entry.key.length > 1 && !entry.key.includes(" ");
  for (const wanted of new Set([whole, key])) {
    for (const entry of registered) {
      if (entry.key !== wanted || !allowed(entry)) continue;
      if (entry.act(event) === false) continue;
      event.preventDefault();
      return;
    }
  }
  if (single && registered.some((entry) => entry.key.startsWith(`${key} `) && allowed(entry))) {
    pending = key;
    timer = setTimeout(() => { pending = ""; }, 1200);
  }
}

addEventListener("keydown", press);
export const keys = { on, list, off, turn };
