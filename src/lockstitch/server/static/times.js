// Times on pages: in the time zone of the browser, with UTC in the title. Elapsed times count on.
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit" });

/** Write the times below a node in the local time zone. */
export function local(root) {
  for (const time of root.querySelectorAll("time[data-clock], time[data-moment]")) {
    const at = new Date(time.dateTime);
    time.textContent = "clock" in time.dataset ? CLOCK.format(at) : MOMENT.format(at).replace(" at ", ", ");
  }
}

function elapsed(at) {
  const seconds = Math.max(0, Math.floor((Date.now() - new Date(at)) / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} m ${seconds % 60} s` : `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} m`;
}
setInterval(() => {
  if (document.visibilityState === "hidden") return;
  for (const time of document.querySelectorAll("time[data-elapsed]")) time.textContent = elapsed(time.dateTime);
}, 1000);
