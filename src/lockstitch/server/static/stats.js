// The stats page: draws charts when panels load, with one shared cursor, and shows the threads of a day.
import { Chart } from "./chart.js";
import { keys } from "./keys.js";
import "./menus.js";
import { rowKeys } from "./rowkeys.js";

const charts = new Set();

function move(from, at) {
  for (const chart of charts) if (chart !== from) chart.follow(at);
}

function open(link) {
  htmx.ajax("GET", link.getAttribute("href"), { target: "#span-threads", swap: "innerHTML" }).then(() => {
    const title = document.getElementById("span-title");
    title?.focus();
    title?.scrollIntoView({ block: "nearest" });
  });
}

function find(inside) {
  for (const plot of inside.querySelectorAll("[data-plot]:not([data-drawn])")) charts.add(new Chart(plot, move, open));
}

function redraw() {
  for (const chart of charts) {
    if (chart.plot.isConnected) chart.draw();
    else charts.delete(chart);
  }
}

document.addEventListener("htmx:load", (event) => find(event.detail.elt.parentElement || document));
// A panel that fails to load shows its own error.
for (const name of ["htmx:sendError", "htmx:responseError"]) document.addEventListener(name, (event) => {
  const panel = event.detail.elt.closest?.(".panel");
  if (!panel) return;
  const note = Object.assign(document.createElement("p"), { className: "note failed", textContent: "This panel could not be loaded. Reload the page." });
  note.setAttribute("role", "alert");
  panel.removeAttribute("aria-busy");
  panel.querySelector(".body")?.replaceChildren(note);
});
addEventListener("theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
find(document);

rowKeys(document.getElementById("span-threads"));
// Charts handle these keys; register them only for the shortcut list.
keys.on("left", () => false, "move back along the focused chart", { group: "Stats", shown: "←" });
keys.on("right", () => false, "move forward along the focused chart", { group: "Stats", shown: "→" });
keys.on("Enter", () => false, "threads of the day, most expensive first", { group: "Stats", shown: "↵" });
