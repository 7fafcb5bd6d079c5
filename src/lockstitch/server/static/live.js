// Server-sent events. While the connection is lost, the page shows "reconnecting".
//   follow("/api/events", { status: (data, event) => … })
const shown = () => document.querySelectorAll("[data-live]");

function tell(live) {
  for (const place of shown()) {
    place.hidden = false;
    place.classList.toggle("cut", !live);
    const word = place.querySelector("[data-live-word]");
    if (word.textContent !== (live ? "live" : "reconnecting")) word.textContent = live ? "live" : "reconnecting";
  }
}

// A browser opens six connections to a server over HTTP/1.1. At most three tabs keep a stream. The other ones poll.
const STREAMS = 3, SECONDS = 3, ENDED = ["completed", "failed", "cancelled", "deleted"];

// Return a function that frees the place of a stream, or null if all places are taken. Browsers have locks on https and on
// this machine. Without them, each visible tab has a stream.
async function placed() {
  if (!navigator.locks) return () => {};
  for (let number = 0; number < STREAMS; number++) {
    const free = await new Promise((found) => navigator.locks.request(`lockstitch_stream_${number}`, { ifAvailable: true },
      (lock) => lock ? new Promise(found) : found(null)).catch(() => found(() => {})));
    if (free) return free;
  }
  return null;
}

export function follow(path, handlers, last = null) {
  let source = null, timer = 0, wait = 1000, ended = false, opened = 0, free = null;
  async function open() {
    pause();
    const number = opened, place = await placed();
    if (number !== opened) { place?.(); return; }
    free = place;
    const polls = !place, address = new URL(path, location.origin);
    if (last !== null) address.searchParams.set("after", last);
    if (polls) address.searchParams.set("until", "now");
    source = new EventSource(address);
    let live = false;
    source.onopen = () => { live = true; wait = 1000; tell(true); };
    source.onerror = () => {
      if (ended) return;
      // The response to a poll ends. The next one can be a stream.
      if (polls && live) { pause(); timer = setTimeout(open, SECONDS * 1000); return; }
      tell(false);
      // The browser reconnects unless the response was not an event stream.
      if (source.readyState === EventSource.CLOSED) { timer = setTimeout(open, wait); wait = Math.min(wait * 2, 30000); }
    };
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        const data = event.data ? JSON.parse(event.data) : {};
        // The response to a poll has this event also if the thread continues.
        if (!polls || name !== "end" || ENDED.includes(data.status)) act(data, event);
      });
    }
  }
  function pause() { opened++; clearTimeout(timer); source?.close(); source = null; free?.(); free = null; }
  function close() { ended = true; pause(); }
  // A hidden tab closes its stream, and continues after the last event when it is shown.
  function follows() { if (document.visibilityState === "hidden") pause(); else if (!source && !ended) open(); }
  document.addEventListener("visibilitychange", follows);
  addEventListener("pagehide", pause);
  addEventListener("pageshow", (event) => { if (event.persisted) follows(); });
  follows();
  return { close };
}
