// The annotation queue: its keyboard shortcuts.
import { keys } from "./keys.js";

const group = "Annotation";
const on = (key, act, says, shown = key) => keys.on(key, act, says, { group, shown });
const press = (selector) => () => {
  const target = document.querySelector(selector);
  if (!target) return false;
  target.click();
};
const focus = (selector) => {
  const field = document.querySelector(selector);
  if (!field) return false;
  field.focus();
};

const score = document.querySelector("[data-score]");
for (const [selector, letter, digit, says] of [["[data-up]", "u", "1", "helpful"], ["[data-down]", "d", "2", "not helpful"]]) {
  if (!document.querySelector(selector)) continue;
  on(letter, press(selector), says, `${letter} ${digit}`);
  on(digit, press(selector), "");
}
if (score) {
  for (const digit of "0123456789") {
    on(digit, () => { score.value = digit; score.form.requestSubmit(); }, digit === "0" ? "score" : "", "0 … 9");
  }
}
on("c", () => focus("[data-comment]"), "comment");
on("a", () => (press("[data-add]")() === false ? focus("[name=dataset]") : true), "add to the dataset, or choose one");
for (const [all, selector, says, shown] of [[["j", "right", "s"], "[rel=next]", "next run", "j → s"], [["k", "left"], "[rel=prev]", "previous run", "k ←"]]) {
  all.forEach((key, at) => on(key, press(selector), at ? "" : says, shown));
}
