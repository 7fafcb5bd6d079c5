// Numbers formatted as on the server, so both render rows identically.
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), two = (n) => String(n).padStart(2, "0");
  return minutes >= 60 ? `${Math.floor(minutes / 60)}h ${two(minutes % 60)}m` : `${minutes}m ${two(whole % 60)}s`;
}

export function dollars(amount) {
  if (amount < 0) return "";
  if (amount >= 1) return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return amount >= 0.0005 || amount === 0 ? `$${amount.toFixed(3)}` : `$${amount.toFixed(5)}`;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5];

const PIXELS = 6.3, MOST = 7;

function moment(ms, step) {
  const short = (n) => String(+n.toFixed(3));
  if (step < 1000 && ms < 1000) return `${short(ms)} ms`;
  if (ms < 6e4) return `${short(ms / 1000)} s`;
  const whole = Math.floor(ms / 6e4), hours = Math.floor(whole / 60), minutes = whole % 60;
  const seconds = step < 6e4 ? ` ${short((ms % 6e4) / 1000)}s` : "";
  if (hours) return `${hours}h${step < 36e5 ? ` ${String(minutes).padStart(2, "0")}m${seconds}` : ""}`;
  return seconds ? `${minutes}m${seconds}` : `${minutes} m`;
}

// About six round times between two places of the axis, and the collapsed waits with their lengths. Their texts do not
// touch on an axis of this width.
export function ticks(scale, from, to, pixels) {
  const whole = Math.max(to - from, 1e-3);
  let step = STEPS.find((one) => whole / one <= MOST) ?? 72e5;
  while (whole / step > MOST) step *= 2;
  const marks = scale.waits.map(({ start, until }) => ({ place: scale.place((start + until) / 2), says: duration(until - start), wait: true }));
  const until = scale.time(to);
  let start = scale.time(from);
  for (const wait of [...scale.waits, { start: until, until }]) {
    if (wait.until < start) continue;
    for (let at = Math.ceil(start / step) * step; at <= Math.min(wait.start, until); at += step) marks.push({ place: scale.place(at), says: moment(at, step), wait: false });
    start = wait.until;
  }
  const shown = [];
  for (const mark of marks) {
    if (mark.place < from || mark.place > to) continue;
    const free = (one) => Math.abs(one.place - mark.place) / whole * pixels >= (one.says.length + mark.says.length + 4) / 2 * PIXELS;
    if (shown.every(free)) shown.push(mark);
  }
  return shown.sort((a, b) => a.place - b.place);
}
