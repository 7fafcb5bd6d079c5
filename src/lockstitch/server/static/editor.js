// SQL editor: a textarea above text nodes that show the highlighted syntax.
import { element } from "./nodes.js";

const WORDS = new Set(("select from where group by order having limit offset join left right inner outer full cross on as and or not in is null "
  + "case when then else end distinct union all with recursive asc desc between like exists cast explain query plan values table interval "
  + "over partition using lateral ordinality").split(" "));
const TOKEN = /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*(?:'|$))|([A-Za-z_]\w*)/g;

/** Nodes for each line of a text, with highlighted comments, strings and keywords. */
export function dressed(text) {
  const rows = [element("span", { class: "row" })];
  let last = 0;
  const say = (piece, tag) => piece.split("\n").forEach((line, place) => {
    if (place) rows.push(element("span", { class: "row" }));
    if (line) rows.at(-1).append(tag ? element(tag, {}, line) : line);
  });
  for (const found of text.matchAll(TOKEN)) {
    const [whole, comment, string, word] = found;
    const tag = comment ? "em" : string ? "i" : WORDS.has(word.toLowerCase()) ? "b" : null;
    if (!tag) continue;
    say(text.slice(last, found.index));
    say(whole, tag);
    last = found.index + whole.length;
  }
  say(text.slice(last));
  // An empty row needs content to have a height.
  for (const row of rows) if (!row.hasChildNodes()) row.append(" ");
  return rows;
}

export class Editor {
  constructor(box) {
    this.box = box;
    this.field = box.querySelector("textarea");
    this.behind = box.querySelector("pre");
    this.lines = box.querySelector(".lines");
    box.classList.add("dressed");
    this.field.addEventListener("input", () => this.draw());
    this.draw();
    new ResizeObserver(() => this.number()).observe(this.behind);
  }

  get text() { return this.field.value; }

  set text(value) {
    this.field.value = value;
    this.draw();
  }

  /** Insert text at the caret, so that the browser's undo works. */
  insert(word) {
    const { field } = this, { selectionStart: start, value } = field;
    const apart = start && /\w$/.test(value.slice(0, start)) ? " " : "";
    field.focus();
    if (!document.execCommand?.("insertText", false, apart + word)) field.setRangeText(apart + word, start, field.selectionEnd, "end");
    this.draw();
  }

  draw() {
    this.behind.replaceChildren(...dressed(this.field.value));
    this.number();
  }

  /** Show the line numbers. A wrapped line has one number. */
  number() {
    const height = parseFloat(getComputedStyle(this.behind).lineHeight);
    const said = [...this.behind.children].flatMap((row, place) =>
      [place + 1, ...Array(Math.max(0, Math.round(row.offsetHeight / height) - 1)).fill("")]);
    this.lines.textContent = said.join("\n");
  }
}
