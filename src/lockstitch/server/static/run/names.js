// The width of the names: drag the line beside them, or focus it and use the arrow keys. The browser stores the width.
const WIDTH_ITEM = "lockstitch_name_width", LEAST = 140, MOST = 720, STEP = 20;

export function resizableNames(section, line, redraw) {
  const usual = Number(line.getAttribute("aria-valuenow"));

  function use(width) {
    const value = Math.round(Math.min(MOST, Math.max(LEAST, width)));
    section.style.setProperty("--names", `${value}px`);
    line.setAttribute("aria-valuenow", value);
    localStorage.setItem(WIDTH_ITEM, value);
    redraw();
  }

  const stored = Number(localStorage.getItem(WIDTH_ITEM));
  if (stored) use(stored);
  line.addEventListener("pointerdown", (event) => {
    const left = section.getBoundingClientRect().left;
    const move = (moved) => use(moved.clientX - left);
    line.setPointerCapture(event.pointerId);
    line.addEventListener("pointermove", move);
    line.addEventListener("pointerup", () => line.removeEventListener("pointermove", move), { once: true });
    event.preventDefault();
  });
  line.addEventListener("dblclick", () => use(usual));
  line.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return;
    event.preventDefault();
    event.stopPropagation();
    use(Number(line.getAttribute("aria-valuenow")) + way * STEP);
  });
}
