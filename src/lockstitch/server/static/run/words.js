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

// About six round times between two times.
export function ticks(from, to) {
  const whole = Math.max(to - from, 1e-3);
  let step = STEPS.find((one) => whole / one <= 7) ?? 72e5;
  while (whole / step > 7) step *= 2;
  const short = (n) => String(+n.toFixed(3));
  const says = (ms) => step < 1000 ? `${short(ms)} ms` : step < 6e4 ? `${short(ms / 1000)} s` : step < 36e5 ? `${short(ms / 6e4)} m` : `${short(ms / 36e5)} h`;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push({ at, says: says(at) });
  return found;
}
