// Live reasoning: committed steps, streamed text, and the plan at the end.
import { follow } from "../live.js";
import { element, part } from "../nodes.js";
import { announce } from "../toast.js";

const base = document.body.dataset.base;

export function grow(plan, changed) {
  if (!plan.hasAttribute("data-live-plan")) return;
  const path = `${base}/plans/${plan.dataset.plan}`;
  let timer = 0, saying = null, done = false;

  // Reload the steps shortly after a commit.
  const soon = () => { clearTimeout(timer); timer = setTimeout(steps, 60); };
  async function steps() {
    const fresh = (await part(`${path}/trace`))?.querySelector("#reasoning");
    if (!fresh || done) return;
    const old = document.getElementById("reasoning"), before = old.querySelectorAll("#steps > li:not(.live-text)").length;
    old.replaceWith(fresh);
    const thoughts = fresh.querySelectorAll("#steps > li");
    if (thoughts.length > before) announce(`Step ${thoughts.length}`);
    if (saying) show();
  }

  // Streamed text of the current step, until the step is committed.
  const key = (data) => `${data.run_id}/${data.step_number}/${data.attempt}`;
  function delta(data) {
    if (saying?.key !== key(data)) saying = { key: key(data), text: "", number: 0 };
    if (data.number <= saying.number) return;
    saying.number = data.number;
    saying.text += data.text;
    show();
  }
  function show() {
    const list = document.getElementById("steps");
    document.getElementById("no-steps")?.remove();
    let node = list.querySelector(".live-text");
    if (!node) list.append(node = element("li", { class: "open live-text" }, element("span", { class: "n", "aria-hidden": "true" }, "…"), element("div", {}, element("p", { class: "thought" })), element("span")));
    // The last response is the plan as JSON, so do not show it.
    const plain = !/^\s*(```|\{)/.test(saying.text);
    node.querySelector("p").textContent = plain ? saying.text.slice(-1200) : "Writing the plan.";
  }
  function stitch(data) { if (data.type === "llm_call") saying = null; soon(); }

  async function finish() {
    const fresh = (await part(path))?.querySelector("#plan");
    if (!fresh || done) return;
    if (fresh.hasAttribute("data-live-plan")) { soon(); return; }
    done = true;
    clearTimeout(timer);
    stream.close();
    const held = plan.contains(document.activeElement);
    plan.replaceWith(fresh);
    if (held) document.getElementById("main").focus({ preventScroll: true });
    announce(fresh.querySelector(".chip")?.textContent.trim() === "completed" ? "The plan is ready." : "No plan.");
    changed();
  }
  const stream = follow(`${base}/api/threads/${plan.dataset.plan}/events`, {
    stitch, delta, end: finish,
    status: (data) => { if (!["pending", "running"].includes(data.status)) finish(); else soon(); },
  }, plan.dataset.position);
}
