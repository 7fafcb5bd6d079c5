// The rows of a run: columns of numbers from the server, and the list of visible rows.
const TYPES = { d: Float64Array, i: Int32Array, H: Uint16Array, h: Int16Array, B: Uint8Array };

export class Rows {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    Object.assign(this, JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))));
    this.count = this.rows;
    let place = 4 + length;
    for (const [name, kind] of this.columns) {
      const Type = TYPES[kind];
      this[name] = new Type(buffer, place, this.count);
      place += this.count * Type.BYTES_PER_ELEMENT;
    }
    this.levels = new Uint16Array(this.count);
    this.ends = new Int32Array(this.count);        // the first row after all descendants of this row
    this.last = new Uint8Array(this.count);        // 1 if the row is the last child of its parent
    for (let row = 0; row < this.count; row++) this.levels[row] = row ? this.levels[this.parent[row]] + 1 : 1;
    const lastOf = new Int32Array(this.count).fill(-1);
    for (let row = this.count - 1; row >= 0; row--) {
      if (!this.ends[row]) this.ends[row] = row + 1;
      const parent = this.parent[row];
      if (parent < 0) continue;
      if (lastOf[parent] < 0) { lastOf[parent] = row; this.last[row] = 1; }
      this.ends[parent] = Math.max(this.ends[parent], this.ends[row]);
    }
    this.folded = new Uint8Array(this.count);
    this.see();
  }

  // One pass: skip the descendants of folded rows.
  see() {
    const seen = new Int32Array(this.count);
    let count = 0;
    for (let row = 0; row < this.count; row = this.folded[row] ? this.ends[row] : row + 1) seen[count++] = row;
    this.seen = seen.subarray(0, count);
  }

  // The index of a row among the visible rows, or the index of the folded row that hides it.
  placeOf(row) {
    let low = 0, high = this.seen.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.seen[middle] <= row) low = middle; else high = middle - 1;
    }
    return low;
  }

  hasBelow(row) { return this.ends[row] > row + 1; }

  fold(row, folded) {
    if (!this.hasBelow(row) || Boolean(this.folded[row]) === folded) return false;
    this.folded[row] = folded ? 1 : 0;
    this.see();
    return true;
  }

  foldAll(folded) {
    for (let row = 1; row < this.count; row++) this.folded[row] = folded && this.hasBelow(row) ? 1 : 0;
    this.see();
  }

  // Unfold the rows that hide a row.
  reveal(row) {
    let changed = false;
    for (let above = this.parent[row]; above >= 0; above = this.parent[above]) if (this.folded[above]) { this.folded[above] = 0; changed = true; }
    if (changed) this.see();
  }

  lookOf(row) { return this.looks[this.look[row]]; }
  nameOf(row) { return this.names[this.name[row]]; }
  noteOf(row) { return this.notes[this.note[row]]; }
  statusOf(row) { return this.statuses[this.status[row]]; }
  lengthOf(row) { return this.length[row] < 0 ? Math.max(0, this.end - this.start[row]) : this.length[row]; }

  // The name of the row in URLs, as on the server.
  at(row) {
    const position = this.position[row], call = this.call[row];
    if (position < 0) return row ? `run-${this.runs[call]}` : "run";
    const own = this.thread[row] ? `${this.threads[this.thread[row]]}.` : "";
    return call >= 0 ? `${own}${position}-${call}` : `${own}${position}`;
  }

  // A step has the same name as its model call, so search the call first.
  find(at) {
    const position = Number.parseInt(at.split(".").pop(), 10);
    let found = -1;
    for (let row = 0; row < this.count; row++) {
      if (!at.startsWith("run") && this.position[row] !== position) continue;
      if (this.at(row) !== at) continue;
      if (this.lookOf(row) !== "step") return row;
      found = row;
    }
    return found;
  }

  // The next row after `row`, with wrap-around, that matches; -1 if none does.
  next(from, holds, way = 1) {
    for (let step = 1; step <= this.count; step++) {
      const row = (((from + way * step) % this.count) + this.count) % this.count;
      if (holds(row)) return row;
    }
    return -1;
  }
}
