// Details of the row under the pointer. With the keyboard, the panel shows them.
import { dollars, duration } from "./words.js";

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export class Tip {
  constructor(grid, view) {
    Object.assign(this, { grid, view, row: -1 });
    this.box = Object.assign(document.createElement("div"), { className: "tip row-tip", hidden: true });
    this.box.setAttribute("aria-hidden", "true");
    grid.after(this.box);
    grid.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerleave", "click"]) grid.addEventListener(name, () => this.hide());
    addEventListener("scroll", () => this.hide(), { passive: true });
  }

  hide() {
    this.row = -1;
    this.box.hidden = true;
  }

  move(event) {
    const row = event.pointerType === "mouse" ? event.target.closest(".wf")?.row ?? -1 : -1;
    if (row < 0) { this.hide(); return; }
    if (row !== this.row) this.fill(row);
    // Below the pointer, on the side with more space.
    const { innerWidth, innerHeight } = window, { offsetHeight } = this.box;
    const left = event.clientX < innerWidth / 2;
    this.box.style.left = left ? `${event.clientX + 14}px` : "auto";
    this.box.style.right = left ? "auto" : `${innerWidth - event.clientX + 14}px`;
    this.box.style.top = `${Math.min(event.clientY + 16, innerHeight - offsetHeight - 8)}px`;
  }

  fill(row) {
    const { rows } = this.view, start = rows.start[row];
    const facts = [
      ["status", rows.statusOf(row)],
      ["start", `${duration(start)}, ${CLOCK.format(new Date(rows.origin + start))}`],
      [rows.lengthOf(row) === rows.length[row] ? "time" : "time so far", duration(rows.lengthOf(row))],
      ["first token", rows.early[row] > 0 ? `after ${duration(rows.early[row])}` : ""],
      ["pause after it", rows.pause[row] > 0 ? duration(rows.pause[row]) : ""],
      ["cost", dollars(rows.cost[row])],
    ];
    const title = Object.assign(document.createElement("p"), { className: "strong", textContent: rows.nameOf(row) });
    const note = Object.assign(document.createElement("p"), { className: "faint", textContent: rows.noteOf(row) });
    const list = Object.assign(document.createElement("dl"), { className: "facts" });
    for (const [name, value] of facts) {
      if (!value) continue;
      list.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
    }
    this.box.replaceChildren(title, ...(note.textContent ? [note] : []), list);
    this.row = row;
    this.box.hidden = false;
  }
}
