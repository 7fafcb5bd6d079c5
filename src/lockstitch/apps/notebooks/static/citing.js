// Citations: numbers in brackets become links. A link opens the cited passage next to the answer.
import { element, part } from "../nodes.js";

const MARK = /\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\](?!\()/g;

// In streamed text the targets are unknown, so show plain numbers.
export function plain(text) {
  const found = [];
  let place = 0;
  for (const match of text.matchAll(MARK)) {
    if (match.index > place) found.push(text.slice(place, match.index));
    place = match.index + match[0].length;
    for (const number of match[1].match(/\d+/g)) found.push(element("span", { class: "cite" }, number));
  }
  if (place < text.length) found.push(text.slice(place));
  return found;
}

const links = () => [...document.querySelectorAll("a.cite")];
const named = (link) => new URL(link.href).searchParams.get("cited");

const current = (node, is) => { if (is) node.setAttribute("aria-current", "true"); else node.removeAttribute("aria-current"); };

// Mark the current citation and its source.
export function mark() {
  const { cite, source } = document.getElementById("place").dataset;
  for (const link of links()) current(link, named(link) === cite);
  for (const link of document.querySelectorAll("#sources a[data-source]")) current(link, link.dataset.source === source);
}

// Replace the shown passage. Return false if the response has no passage.
export async function show(href) {
  const fresh = (await part(href))?.querySelector("#place"), old = document.getElementById("place");
  if (!fresh || !old) return false;
  old.replaceWith(fresh);
  mark();
  return fresh;
}

async function open(link) {
  const fresh = await show(link.href);
  if (!fresh) { location.href = link.href; return; }
  history.replaceState(null, "", link.href);
  const box = fresh.getBoundingClientRect();
  if (box.top < 0 || box.top > innerHeight - 120) fresh.scrollIntoView({ block: "center" });
  fresh.focus({ preventScroll: true });
}

addEventListener("click", (event) => {
  const link = event.target.closest?.("a.cite");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  open(link);
});
