// Optional notifications of the browser. While the tab is hidden, it asks the server for threads that need the user.
import { toast } from "./toast.js";

const ON = "lockstitch_notify", KNOWN = "lockstitch_notified", SECONDS = 20, MOST = 10;
const base = document.body.dataset.base, button = document.getElementById("notify-toggle");
const isOn = () => localStorage.getItem(ON) === "1" && Notification.permission === "granted";
const known = () => new Set(JSON.parse(localStorage.getItem(KNOWN) ?? "[]"));
const nameOf = (thread) => thread.title || thread.key || thread.goal || thread.id;

let last = Promise.resolve();

/** Ask for threads that need the user. Show those that were not shown before. Requests follow one another in their order. */
export const ask = ({ silent = false } = {}) => last = last.then(() => request(silent));

async function request(silent) {
  let waiting;
  try {
    const response = await fetch(`${base}/api/inbox?limit=${MOST}`);
    if (!response.ok) return;
    waiting = (await response.json()).threads.map((entry) => entry.thread);
  } catch { return; }   // the server is unreachable, the next request follows
  const before = known();
  localStorage.setItem(KNOWN, JSON.stringify(waiting.map((thread) => `${thread.id} ${thread.position}`)));
  if (silent) return;
  for (const thread of waiting) {
    if (before.has(`${thread.id} ${thread.position}`)) continue;
    const shown = new Notification("Needs you", { body: `${nameOf(thread)}${thread.agent ? `, ${thread.agent}` : ""}`, tag: thread.id });
    shown.onclick = () => { window.focus(); location.href = `${base}/threads/${thread.id}#needs`; };
  }
}

function show() {
  button.setAttribute("aria-pressed", isOn() ? "true" : "false");
  button.title = isOn() ? "Notifications are on" : "Notify me about threads that need me";
}

async function toggle() {
  if (isOn()) localStorage.removeItem(ON);
  else if (await Notification.requestPermission() === "granted") {
    localStorage.setItem(ON, "1");
    await ask({ silent: true });
    toast("A hidden tab now shows a notification when a thread needs you.");
  } else toast("The browser does not allow notifications of this site.");
  show();
}

// Notifications need https or this machine. One tab asks for all tabs of the browser.
if (button && "Notification" in window && isSecureContext) {
  button.hidden = false;
  show();
  button.addEventListener("click", toggle);
  addEventListener("storage", show);
  navigator.locks.request(ON, () => new Promise(() => {
    setInterval(() => { if (document.visibilityState === "hidden" && isOn()) ask(); }, SECONDS * 1000);
    // The user has seen what needed them before.
    document.addEventListener("visibilitychange", () => { if (isOn()) ask({ silent: true }); });
  }));
}
