// The dependency lines of the selected task. If waves are next to each other, all lines exist and these become bold.
// If waves are below each other, only these lines are drawn, from the measured positions of the cards.
const SVG = "http://www.w3.org/2000/svg";
const KINDS = { s: "", i: "weak", b: "broken" };

const after = (card) => card.dataset.after.split(" ").filter(Boolean).map((one) => ({ number: one.slice(0, -1), mark: one.slice(-1) }));

function edges(graph, card) {
  const number = card.dataset.row, found = [];
  for (const one of after(card)) found.push({ from: graph.querySelector(`#task-${one.number}`), to: card, mark: one.mark });
  for (const other of graph.querySelectorAll(".task[data-after]")) {
    for (const one of after(other)) if (one.number === number) found.push({ from: card, to: other, mark: one.mark });
  }
  return found.filter((edge) => edge.from && edge.to);
}

// Mark the cards before and after the selected card.
export function sides(graph, card) {
  for (const one of graph.querySelectorAll("[data-side]")) delete one.dataset.side;
  if (!card || !graph.classList.contains("bands")) return;
  for (const { from, to, mark } of edges(graph, card)) {
    if (mark === "b") continue;
    if (to === card) from.dataset.side = "after"; else to.dataset.side = "before";
  }
}

export function drawn(graph, card) {
  const place = graph.querySelector(":scope > svg");
  if (graph.classList.contains("bands")) { place.replaceChildren(...card ? edges(graph, card).map((edge, index) => below(graph, edge, index)).filter(Boolean) : []); return; }
  for (const line of place.querySelectorAll("path")) {
    const hot = card && (line.dataset.source === card.dataset.row || line.dataset.target === card.dataset.row);
    line.classList.toggle("hot", Boolean(hot) && line.dataset.mark !== "b");
  }
}

// Lines run between the cards, which have the same columns in all waves: down from the upper card, sideways, down next to
// the column of the lower card, sideways, and into the lower card.
const ROUND = 4;
function below(graph, { from, to, mark }, index) {
  const frame = graph.getBoundingClientRect(), a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
  if (!a.width || !b.width) return null;                    // the search hides one of the cards
  const [upper, lower] = a.top <= b.top ? [a, b] : [b, a];
  const x1 = upper.left + upper.width / 2 - frame.left, y1 = upper.bottom - frame.top;
  const x2 = lower.left + lower.width / 2 - frame.left, y2 = lower.top - frame.top;
  const shift = index % 3 - 1, out = y1 + 4 + shift, back = y2 - 4 + shift;
  const beside = (x1 > x2 + 1 ? lower.right + 5 : lower.left - 5) - frame.left + shift * 2;
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("class", KINDS[mark]);
  if (y2 <= y1) line.setAttribute("d", through([[x1, y1], [x1, out], [x2, out], [x2, y1]]));
  else if (x1 === x2 && y2 - y1 < 20) line.setAttribute("d", `M${x1} ${y1}V${y2}`);
  else line.setAttribute("d", through([[x1, y1], [x1, out], [beside, out], [beside, back], [x2, back], [x2, y2]]));
  return line;
}

// Return the path through these points with rounded corners.
function through(points) {
  let path = `M${points[0].join(" ")}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [x, y] = points[at], near = ([px, py]) => {
      const far = Math.hypot(px - x, py - y), step = far ? Math.min(ROUND, far / 2) / far : 0;
      return `${x + (px - x) * step} ${y + (py - y) * step}`;
    };
    path += `L${near(points[at - 1])}Q${x} ${y} ${near(points[at + 1])}`;
  }
  return `${path}L${points.at(-1).join(" ")}`;
}
