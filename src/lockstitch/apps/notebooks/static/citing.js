// Citations: numbers in brackets, as links to the cited place, which opens beside the answer.
import { element, part } from "../nodes.js";

const MARK = /\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\](?!\()/g;

// In text that is still being said: numbers only, for nobody knows yet where they will lead.
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

// Which citation is shown, and which source it is in.
export function mark() {
  const { cite, source } = document.getElementById("place").dataset;
  for (const link of links()) current(link, named(link) === cite);
  for (const link of document.querySelectorAll("#sources a[data-source]")) current(link, link.dataset.source === source);
}

// The place takes that of the one that was shown. False: there was none to take.
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
