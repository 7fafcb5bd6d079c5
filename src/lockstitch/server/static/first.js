// The first run: when the first thread is there, the list takes this page's place.
import { keys } from "./keys.js";
import { follow } from "./live.js";

const base = document.body.dataset.base;
keys.on("c", () => { const sheet = document.getElementById("begin"); if (!sheet) return false; sheet.showModal(); }, "new thread", { group: "Threads" });
let leaving = false;
addEventListener("submit", () => { leaving = true; });           // whoever begins a thread is on the way to it
follow(`${base}/api/events`, { status: () => { if (!leaving) location.reload(); } });
