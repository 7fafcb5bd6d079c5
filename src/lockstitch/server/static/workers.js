// Refresh the page every few seconds while it is visible.
const EVERY = 3000;
const place = document.getElementById("now");

function ask() {
  // Do not replace an element that has the focus or the selection.
  const busy = place.contains(document.activeElement) || !getSelection().isCollapsed;
  if (!document.hidden && !busy) htmx.trigger(place, "refresh");
}

setInterval(ask, EVERY);
document.addEventListener("visibilitychange", ask);
