// One chart: reads its table and draws it with uPlot in the colours of the current theme.
const root = document.documentElement;
const HEIGHTS = { axis: 22 };

/** Read the table: times, and a column of values for each series. */
export function readTable(table) {
  const heads = [...table.querySelectorAll("th[data-series]")];
  const rows = [...table.querySelectorAll("tbody tr")];
  return {
    names: heads.map((head) => head.dataset.series),
    colours: heads.map((head) => head.dataset.colour),
    at: rows.map((row) => Number(row.dataset.at)),
    labels: rows.map((row) => row.cells[0].textContent),
    links: rows.map((row) => row.querySelector("a")),
    values: heads.map((_, place) => rows.map((row) => {
      const text = row.cells[place + 1].dataset.value;
      return text === "" ? null : Number(text);
    })),
    shown: rows.map((row) => [...row.cells].slice(1).map((cell) => cell.textContent)),
  };
}

/** The colour for a name in the table. */
function colour(name) {
  const tokens = { ink1: "ink", ink2: "ink-3", ink3: "edge", ink4: "line-2", line1: "ink", line2: "ink-3", line3: "ink-3" };
  return token(tokens[name] || name);
}

// Tokens are light-dark(…), so read the computed value of a property.
const probe = document.createElement("i");
probe.hidden = true;
function token(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });

function shortTime(seconds, per) {
  const moment = new Date(seconds * 1000);
  return per === "hour" ? HOUR.format(moment) : DAY.format(moment);
}

/** The label of a value on an axis. */
export function short(value, unit) {
  if (value == null) return "";
  if (value === 0 && unit !== "share") return unit === "cost" ? "$0" : unit === "ms" ? "0 s" : "0";
  if (unit === "cost") return `$${value >= 1 ? +value.toFixed(2) : value >= 0.01 ? value.toFixed(2) : +value.toPrecision(2)}`;
  if (unit === "ms") return value >= 1000 ? `${+(value / 1000).toFixed(1)} s` : `${value} ms`;
  if (unit === "share") return `${+(value * 100).toFixed(1)} %`;
  for (const [size, word] of [[1e9, "bn"], [1e6, "M"], [1e3, "k"]]) if (value >= size) return `${+(value / size).toFixed(1)}${word}`;
  return String(value);
}

/** Each series plus the series below it, to be drawn from last to first. Zero bars are omitted. */
function stack(values, bars) {
  const sums = values[0].map(() => 0);
  return values.map((series) => series.map((value, place) => (sums[place] += value || 0) || (bars ? null : 0)));
}

export class Chart {
  constructor(plot, onMove, onOpen) {
    this.plot = plot;
    this.table = readTable(document.getElementById(plot.dataset.table));
    this.onMove = onMove;
    this.onOpen = onOpen;
    this.index = null;
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.tip.setAttribute("role", "status");
    plot.append(this.tip);
    this.draw();
    new ResizeObserver(() => this.resize()).observe(plot);
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("mouseleave", () => this.leave());
    plot.addEventListener("blur", () => this.leave());
    plot.addEventListener("click", (event) => { if (event.target.closest(".u-over") && this.index != null) this.open(); });
  }

  get width() {
    const style = getComputedStyle(this.plot);
    return this.plot.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  }

  draw() {
    this.chart?.destroy();
    const { plot, table } = this, { unit, per } = plot.dataset, shape = plot.dataset.plot;
    const stacked = shape !== "lines", step = per === "hour" ? 3600 : 86400;
    const drawn = stacked ? stack(table.values, shape === "bars") : table.values;
    const order = drawn.map((_, place) => place);
    if (stacked) order.reverse();
    const ink = token("ink-3"), line = token("line"), cloth = token("cloth"), sans = getComputedStyle(document.body).fontFamily;
    const axis = { stroke: ink, font: `11px ${sans}`, ticks: { show: false } };
    this.chart = new uPlot({
      width: this.width, height: Number(plot.dataset.height), padding: [8, shape === "lines" ? 34 : 12, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
      scales: {
        x: { time: true, range: (_, least, most) => [least - step / 2, most + step / 2] },
        y: { range: (_, __, most) => [0, most ? most * 1.06 : 1] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: HEIGHTS.axis, gap: 6, space: 64, incrs: (per === "hour" ? [1, 2, 3, 4, 6, 12] : [1, 2, 7, 14, 30, 60, 90, 180, 360]).map((one) => one * step), values: (_, splits) => splits.map((at) => shortTime(at, per)) },
        { ...axis, grid: { stroke: line, width: 1 }, size: 44, gap: 6, space: 34, values: (_, splits) => splits.map((value) => short(value, unit)) },
      ],
      series: [{}, ...order.map((place) => this.series(shape, place, cloth))],
      hooks: {
        setCursor: [(chart) => this.moved(chart.cursor.idx)],
        draw: [(chart) => this.sayLines(chart, sans)],
      },
    }, [table.at, ...order.map((place) => drawn[place])], plot);
    this.plot.dataset.drawn = root.dataset.theme || "system";
  }

  series(shape, place, cloth) {
    const name = this.table.colours[place], shade = colour(name);
    const points = { show: this.table.at.length < 2, size: 5, fill: shade };
    if (shape === "bars") return { fill: shade, stroke: cloth, width: 1, points: { show: false }, paths: uPlot.paths.bars({ size: [0.74, 48], radius: 0.06 }) };
    if (shape === "areas") return { fill: shade, stroke: cloth, width: 1, points };
    return { stroke: shade, width: 2, dash: name === "line3" ? [2, 4] : undefined, points, spanGaps: true };
  }

  /** Write the name of a line at its end instead of a legend. */
  sayLines(chart, sans) {
    if (this.plot.dataset.plot !== "lines") return;
    const { ctx } = chart, ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `600 ${11 * ratio}px ${sans}`;
    ctx.fillStyle = token("ink");
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    let above = Infinity;
    this.table.values.forEach((values, place) => {
      const last = values.findLast((value) => value != null);
      if (last == null) return;
      const y = Math.min(chart.valToPos(last, "y", true), above - 12 * ratio);
      above = y;
      ctx.fillText(this.table.names[place], chart.bbox.left + chart.bbox.width + 6 * ratio, y);
    });
    ctx.restore();
  }

  resize() {
    const width = this.width;
    if (width > 0 && Math.abs(width - this.chart.width) > 1) this.chart.setSize({ width, height: Number(this.plot.dataset.height) });
  }

  moved(index) {
    if (!this.active && !this.plot.matches(":hover")) return;
    this.index = index ?? null;
    this.say();
    this.onMove(this, this.index == null ? null : this.table.at[this.index]);
  }

  /** Move the cursor to the position of the cursor in another panel. */
  follow(at) {
    const left = at == null ? -10 : this.chart.valToPos(at, "x");
    this.chart.setCursor({ left, top: at == null ? -10 : 1 }, false);
  }

  key(event) {
    const last = this.table.at.length - 1, here = this.index;
    const to = { ArrowLeft: Math.max(0, (here ?? last + 1) - 1), ArrowRight: Math.min(last, (here ?? -1) + 1), Home: 0, End: last }[event.key];
    if (to != null) {
      event.preventDefault();
      this.active = true;
      this.index = to;
      this.chart.setCursor({ left: this.chart.valToPos(this.table.at[to], "x"), top: 1 }, false);
      this.say();
      this.onMove(this, this.table.at[to]);
    } else if (event.key === "Enter" && here != null) {
      event.preventDefault();
      this.open();
    }
  }

  leave() {
    this.active = false;
    this.index = null;
    this.tip.hidden = true;
    this.follow(null);
    this.onMove(this, null);
  }

  open() {
    this.onOpen(this.table.links[this.index]);
  }

  say() {
    const { tip, table, index } = this;
    tip.hidden = index == null;
    if (index == null) return;
    const total = table.shown[index].length > table.names.length ? `, ${table.shown[index].at(-1)}` : "";
    const title = Object.assign(document.createElement("p"), { className: "strong", textContent: table.labels[index] + total });
    const facts = Object.assign(document.createElement("dl"), { className: "facts sum" });
    table.names.forEach((name, place) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.append(Object.assign(document.createElement("i"), { className: `swatch c-${table.colours[place]}` }), Object.assign(document.createElement("span"), { textContent: name }));
      dd.textContent = table.shown[index][place] || "–";
      facts.append(dt, dd);
    });
    const hint = Object.assign(document.createElement("p"), { className: "faint", textContent: "↵ lists the threads, most expensive first" });
    tip.replaceChildren(title, facts, hint);
    // Beside the point, on the side with more space.
    const inside = this.plot.getBoundingClientRect(), over = this.chart.over.getBoundingClientRect();
    const x = over.left - inside.left + this.chart.valToPos(table.at[index], "x"), toTheLeft = x > inside.width / 2;
    tip.style.left = toTheLeft ? "auto" : `${x + 12}px`;
    tip.style.right = toTheLeft ? `${inside.width - x + 12}px` : "auto";
  }
}
