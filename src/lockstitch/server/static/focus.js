// After a swap, move the focus to the element that replaced the focused one.
let before = null;

addEventListener("htmx:beforeSwap", (event) => {
  const had = document.activeElement;
  if (!had || had === document.body || !event.detail.target.contains(had)) { before = null; return; }
  const near = had.closest("[id]");
  before = { target: event.detail.target.id, id: had.id, near: near?.id, row: had.closest("[data-row]")?.dataset.row, name: had.getAttribute("name") };
});

addEventListener("htmx:afterSettle", () => {
  const was = before;
  before = null;
  const now = document.activeElement;
  if (!was || (now && now !== document.body && now.isConnected)) return;
  const by = (id) => id ? document.getElementById(id) : null;
  const wanted = by(was.id) ?? (was.row ? document.querySelector(`[data-row="${CSS.escape(was.row)}"]`) : null)
    ?? by(was.near) ?? by(was.target) ?? document.getElementById("main");
  const first = wanted.matches("a[href], button, input, textarea, select, summary, [tabindex]") ? wanted
    : wanted.querySelector("[data-focus], a[href], button, summary, [tabindex]") ?? wanted;
  if (first === wanted && !wanted.hasAttribute("tabindex") && wanted.tabIndex < 0) wanted.tabIndex = -1;
  first.focus({ preventScroll: true });
});
