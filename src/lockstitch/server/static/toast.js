// Toasts: announced to screen readers, removed after 8 s or when dismissed.
import { element, icon } from "./nodes.js";

const place = document.getElementById("toasts");

export function toast(text) {
  place.append(element("div", { class: "toast", "data-toast": true }, element("span", {}, text),
    element("button", { class: "btn tiny icon", type: "button", "data-dismiss": true, "aria-label": "Dismiss" }, icon("cross"))));
}

export function announce(text) { document.getElementById("announcer").textContent = text; }

function watch(node) {
  if (!(node instanceof Element) || !node.matches("[data-toast]")) return;
  let timer = setTimeout(() => node.remove(), 8000);
  const stay = () => clearTimeout(timer), go = () => { stay(); timer = setTimeout(() => node.remove(), 8000); };
  node.addEventListener("mouseenter", stay);
  node.addEventListener("mouseleave", go);
  node.addEventListener("focusin", stay);
  node.addEventListener("focusout", go);
}

place.querySelectorAll("[data-toast]").forEach(watch);
new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(watch))).observe(place, { childList: true });
addEventListener("click", (event) => event.target.closest?.("[data-dismiss]")?.closest("[data-toast]")?.remove());
