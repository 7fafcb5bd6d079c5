// Keyboard shortcuts of table rows: j and k move, ↵ opens the link of the row.
import { keys } from "./keys.js";

export function rowKeys(inside) {
  const rows = () => [...inside.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());
  const here = () => document.activeElement.closest?.("[data-row]");
  const move = (step) => {
    const all = rows(), at = all.indexOf(here());
    if (!all.length || (at < 0 && step < 0)) return false;
    all[Math.max(0, Math.min(all.length - 1, at + step))].focus();
  };
  const beside = (step) => here() && inside.contains(here()) ? move(step) : false;
  keys.on("j", () => move(1), "next row", { group: "Lists", shown: "j ↓" });
  keys.on("k", () => move(-1), "previous row", { group: "Lists", shown: "k ↑" });
  // Arrow keys scroll the page unless a row has the focus.
  keys.on("down", () => beside(1), "", { group: "Lists" });
  keys.on("up", () => beside(-1), "", { group: "Lists" });
  keys.on("Enter", (event) => {
    const link = event.target === here() && inside.contains(here()) && here().querySelector("a");
    if (!link) return false;
    link.click();
  }, "open", { group: "Lists", shown: "↵" });
}
