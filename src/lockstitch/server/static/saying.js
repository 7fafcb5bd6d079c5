// Streamed text of a model call, shown until its stitch is committed.
//   const said = saying(end, { place: seam, by: (data) => [nodes above the text], plain: (text) => [nodes for bare text] });
import { markdown } from "./markdown.js";
import { element } from "./nodes.js";

const key = (data) => `${data.run_id}/${data.step_number}`;

export function saying(end, { place, by = () => [], plain }) {
  const all = new Map();

  function begin(data) {
    const say = element("div", { class: "say" }), think = element("div", { class: "pre" });
    const thinks = element("details", { class: "think", hidden: true }, element("summary", {}, "Thinking"), think);
    const node = element("li", { class: "open live-text", "data-run": data.run_id }, element("span", { class: "pos" }),
      element("span", { class: "knot k-model", "aria-hidden": "true" }), element("div", { class: "cell" }, ...by(data), thinks, say));
    const one = { node, say, think, thinks, text: "", thought: "", number: 0, attempt: data.attempt, due: 0 };
    all.set(key(data), one);
    place.append(node);
    return one;
  }

  function draw(one, was) {
    one.due = 0;
    one.thinks.hidden = !one.thought;
    // Reasoning is open until the answer begins.
    if (one.thought && !one.opened) one.thinks.open = one.opened = true;
    if (one.text && !one.closed) { one.thinks.open = false; one.closed = true; }
    one.think.textContent = one.thought;
    one.say.replaceChildren(...markdown(one.text.slice(-20000), plain));
    const last = one.say.lastElementChild;
    (last?.matches("ul, ol, pre") ? last.lastElementChild : last ?? one.say).append(element("span", { class: "caret", "aria-hidden": "true" }));
    end.grown(was, false);
  }

  // Append a piece of text. A new attempt discards the text of the failed attempt.
  function delta(data) {
    const was = end.reached(), known = all.get(key(data));
    if (known?.done || known && data.number <= known.number) return;
    const one = known ?? begin(data);
    if (data.attempt !== one.attempt) Object.assign(one, { text: "", thought: "", attempt: data.attempt });
    one.number = data.number;
    if (data.kind === "thinking") one.thought += data.text; else one.text += data.text;
    one.due ||= requestAnimationFrame(() => draw(one, was));
  }

  // The stitch is committed: stop adding text, and keep the text until the stitch replaces it.
  function ends(data) { const one = all.get(key(data)); if (one) one.done = true; }
  // The stitch is shown. Text of a committed response that arrives late is ignored.
  function gone(data) {
    all.get(key(data))?.node?.remove();
    if (data.type === "llm_call") all.set(key(data), { done: true }); else all.delete(key(data));
  }
  // The run has ended. A call that was cancelled has no stitch, so its text is not recorded.
  function over(run) {
    for (const [name, one] of all) if (name.startsWith(`${run}/`)) { one.node?.remove(); all.set(name, { done: true }); }
  }

  return { delta, ends, gone, over };
}
