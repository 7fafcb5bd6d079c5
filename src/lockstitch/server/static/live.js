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

export function follow(path, handlers, last = null) {
  let source = null, timer = 0, wait = 1000, ended = false;
  function open() {
    const address = new URL(path, location.origin);
    if (last !== null) address.searchParams.set("after", last);
    source = new EventSource(address);
    source.onopen = () => { wait = 1000; tell(true); };
    source.onerror = () => {
      if (ended) return;
      tell(false);
      // The browser reconnects unless the response was not an event stream.
      if (source.readyState === EventSource.CLOSED) { timer = setTimeout(open, wait); wait = Math.min(wait * 2, 30000); }
    };
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        act(event.data ? JSON.parse(event.data) : {}, event);
      });
    }
  }
  function pause() { clearTimeout(timer); source?.close(); source = null; }
  function close() { ended = true; pause(); }
  // A browser opens six connections to a server over HTTP/1.1. A hidden tab closes its stream, so that any number of
  // tabs can load, and continues after the last event when it is shown.
  function follows() { if (document.visibilityState === "hidden") pause(); else if (!source && !ended) open(); }
  document.addEventListener("visibilitychange", follows);
  addEventListener("pagehide", pause);
  addEventListener("pageshow", follows);
  follows();
  return { close };
}
