// Keyboard shortcuts of the thread tree: arrow keys move, Enter opens a thread.
import { keys } from "./keys.js";

const lanes = [...document.querySelectorAll(".weave [data-lane]")];
function move(step) {
  const at = lanes.indexOf(document.activeElement), next = lanes[at < 0 ? 0 : Math.max(0, Math.min(lanes.length - 1, at + step))];
  if (!next) return false;
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
}
for (const key of ["j", "down"]) keys.on(key, () => move(1), "next thread", { group: "Tree", shown: "j ↓" });
for (const key of ["k", "up"]) keys.on(key, () => move(-1), "previous thread", { group: "Tree", shown: "k ↑" });
