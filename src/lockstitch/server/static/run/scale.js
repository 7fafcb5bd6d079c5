// The time axis of a run, on which long waits are short. The server computes the same places, see time_scale.py.
export class Scale {
  constructor(end, waits, width) {
    Object.assign(this, { end, width });
    let removed = 0;
    this.waits = waits.map(([start, until]) => {
      const wait = { start, until, removed };
      removed += until - start - width;
      return wait;
    });
    this.length = this.place(end);
  }

  // The last wait that starts at or before a value; `at` gives the start of a wait in the unit of the value.
  wait(value, at) {
    let low = 0, high = this.waits.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at(this.waits[middle]) <= value) low = middle + 1; else high = middle;
    }
    return this.waits[low - 1];
  }

  // The place of a time on the axis.
  place(ms) {
    const wait = this.wait(ms, (one) => one.start);
    if (!wait) return ms;
    const length = wait.until - wait.start;
    if (ms < wait.until) return wait.start - wait.removed + (ms - wait.start) / length * this.width;
    return ms - wait.removed - (length - this.width);
  }

  // The time of a place.
  time(place) {
    const wait = this.wait(place, (one) => one.start - one.removed);
    if (!wait) return place;
    const length = wait.until - wait.start, inside = place - (wait.start - wait.removed);
    return inside < this.width ? wait.start + inside / this.width * length : wait.until + inside - this.width;
  }
}
