// Overview of the run on a canvas: each pixel column shows its worst status. Marks the visible part.
const ORDER = { plain: 1, model: 2, tool: 3, child: 4, wait: 5, fail: 6 };
const LANE = { model: 0, tool: 1, fail: 1, wait: 1, child: 2, plain: 3 }, LANES = 5;

export class Overview {
  constructor(canvas, view) {
    Object.assign(this, { canvas, view });
    new ResizeObserver(() => this.measure()).observe(canvas);
    addEventListener("theme", () => this.colour());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colour());
    this.drag();
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.view.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.place(event));
      this.draw();
    }, { passive: false });
    this.colour();
  }

  // Read the colours from an element of the page.
  colour() {
    const probe = document.createElement("span");
    document.body.append(probe);
    const read = (name) => { probe.className = name; return getComputedStyle(probe).color; };
    this.colours = Object.fromEntries(Object.keys(ORDER).map((look) => [look, read(`k-${look}`)]));
    this.ink = read("soft");
    probe.remove();
    this.draw();
  }

  measure() {
    const ratio = devicePixelRatio || 1, { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    this.gather();
    this.draw();
  }

  gather() {
    const { rows, scale, whole } = this.view, width = this.canvas.width;
    this.lanes = Array.from({ length: LANES }, () => new Uint8Array(width));
    const order = rows.looks.map((look) => ORDER[look] ?? 0), lanes = rows.looks.map((look) => LANE[look] ?? 0);
    for (let row = 0; row < rows.count; row++) {
      const worth = order[rows.look[row]];
      if (!worth) continue;
      // Draw the contents of children below the children.
      const lane = this.lanes[Math.min(LANES - 1, lanes[rows.look[row]] + (rows.thread[row] ? 3 : 0))];
      const first = Math.min(width - 1, Math.floor(scale.place(rows.start[row]) / whole * width));
      const last = Math.min(width - 1, Math.floor(scale.place(rows.start[row] + rows.lengthOf(row)) / whole * width));
      for (let column = first; column <= last; column++) if (lane[column] < worth) lane[column] = worth;
    }
  }

  draw() {
    if (!this.lanes || !this.colours) return;
    const { canvas } = this, { width, height } = canvas, pen = canvas.getContext("2d"), names = Object.keys(ORDER);
    pen.clearRect(0, 0, width, height);
    const step = (height - 4) / LANES;
    this.lanes.forEach((lane, number) => {
      for (let start = 0; start < width;) {
        const worth = lane[start];
        let end = start + 1;
        while (end < width && lane[end] === worth) end++;
        if (worth) { pen.fillStyle = this.colours[names[worth - 1]]; pen.fillRect(start, 2 + number * step, end - start, Math.max(2, step - 3)); }
        start = end;
      }
    });
    const { whole } = this.view, from = this.view.from / whole * width, to = this.view.to / whole * width;
    pen.globalAlpha = 0.08;
    pen.fillStyle = this.ink;
    pen.fillRect(from, 0, to - from, height);
    pen.globalAlpha = 0.6;
    pen.strokeStyle = this.ink;
    pen.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), height - 1);
    pen.globalAlpha = 1;
  }

  // The place of the pointer on the axis.
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * this.view.whole;
  }

  // Dragging selects a part; a click moves the visible part.
  drag() {
    let drag = null;
    this.canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, at: this.place(event) }; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!drag || Math.abs(event.clientX - drag.x) < 4) return;
      const now = this.place(event);
      this.view.zoom(Math.min(drag.at, now), Math.max(drag.at, now));
      this.draw();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (drag && Math.abs(event.clientX - drag.x) < 4) {
        const half = (this.view.to - this.view.from) / 2;
        this.view.zoom(drag.at - half, drag.at + half);
        this.draw();
      }
      drag = null;
    });
    this.canvas.addEventListener("dblclick", () => { this.view.zoom(0, this.view.whole); this.draw(); });
  }
}
