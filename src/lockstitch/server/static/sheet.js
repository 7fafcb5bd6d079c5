// The dialog that lists the keyboard shortcuts and can disable single-key shortcuts.
import { keys } from "./keys.js";
import { element } from "./nodes.js";
import { PAGES } from "./pagekeys.js";

const sheet = document.getElementById("keys");

function draw() {
  const body = sheet.querySelector("[data-keys]");
  const here = keys.list(), known = new Set(here.map(({ group }) => group));
  const remaining = PAGES.filter(({ group }) => !known.has(group)).map(({ group, entries }) =>
    ({ group: `${group} page`, entries: entries.map(([shown, says]) => ({ shown, says })) }));
  body.replaceChildren(...[...here, ...remaining].map(({ group, entries }) =>
    element("section", {}, element("h3", {}, group), element("dl", {}, ...entries.flatMap(({ shown, says }) => [
      element("dt", {}, ...shown.split(" ").flatMap((key) => [element("kbd", {}, key), " "])), element("dd", {}, says),
    ])))));
  sheet.querySelector("#keys-on").checked = !keys.off();
}

export function openSheet() { draw(); sheet.showModal(); }

sheet.querySelector("#keys-on").addEventListener("change", (event) => keys.turn(event.target.checked));
