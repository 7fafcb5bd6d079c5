// What goes on is asked again every few seconds, but only while somebody can see it.
const EVERY = 3000;
const place = document.getElementById("now");

function ask() {
  // Not under somebody's hand: what has the focus, or is being selected, stays.
  const busy = place.contains(document.activeElement) || !getSelection().isCollapsed;
  if (!document.hidden && !busy) htmx.trigger(place, "refresh");
}

setInterval(ask, EVERY);
document.addEventListener("visibilitychange", ask);
