// The page without threads: when the first thread exists, the list replaces this page.
import { keys } from "./keys.js";
import { follow } from "./live.js";

const base = document.body.dataset.base;
keys.on("c", () => { const sheet = document.getElementById("begin"); if (!sheet) return false; sheet.showModal(); }, "new thread", { group: "Threads" });
let leaving = false;
addEventListener("submit", () => { leaving = true; });           // the form already leads to the new thread
for (const name of ["htmx:responseError", "htmx:sendError"]) addEventListener(name, () => { leaving = false; });
follow(`${base}/api/events`, { status: () => { if (!leaving) location.reload(); } });
