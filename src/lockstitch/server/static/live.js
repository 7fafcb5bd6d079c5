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
  function close() { ended = true; clearTimeout(timer); source?.close(); }
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => { if (event.persisted && !ended) open(); });
  open();
  return { close };
}
