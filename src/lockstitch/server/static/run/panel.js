// The panel next to the rows: loaded when a row is selected, cached by row, keeps the selected tab.
import { part } from "../nodes.js";
import { announce, toast } from "../toast.js";

const KEPT = 60;

export class Panel {
  constructor(place, base) {
    Object.assign(this, { place, base, known: new Map(), wanted: "", tab: 0, timer: 0 });
    place.addEventListener("click", (event) => this.click(event));
    place.addEventListener("keydown", (event) => this.key(event));
  }

  // Fetch only the row where the user stops.
  show(at, { open = true } = {}) {
    this.wanted = at;
    this.place.classList.toggle("chosen", open);
    clearTimeout(this.timer);
    const known = this.known.get(at);
    if (known) { this.put(known); return; }
    this.timer = setTimeout(async () => {
      let got = null;
      try { got = await part(`${this.base}/panel?at=${encodeURIComponent(at)}`); } catch { /* reported below */ }
      if (!got) { if (this.wanted === at) this.fail(); return; }
      const nodes = [...got.childNodes];
      this.known.set(at, nodes);
      if (this.known.size > KEPT) this.known.delete(this.known.keys().next().value);
      if (this.wanted === at) this.put(nodes);
    }, 60);
  }

  put(nodes) {
    this.place.replaceChildren(...nodes);
    this.place.scrollTop = 0;
    this.pick(this.tab, false);
  }

  fail() {
    const note = document.createElement("p");
    note.className = "body soft";
    note.setAttribute("role", "alert");
    note.textContent = "Loading failed. Select the row again to retry.";
    this.place.replaceChildren(note);
  }

  forget() { this.known.clear(); }

  get tabs() { return [...this.place.querySelectorAll("[role=tab]")]; }

  // If a row has fewer tabs, show the nearest one and remember the selected tab.
  pick(number, wished = true) {
    const { tabs } = this;
    if (!tabs.length) return false;
    if (wished) this.tab = number;
    const wanted = Math.min(number, tabs.length - 1);
    tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", place === wanted ? "true" : "false");
      tab.tabIndex = place === wanted ? 0 : -1;
      this.place.querySelector(`#${CSS.escape(tab.getAttribute("aria-controls"))}`)?.toggleAttribute("hidden", place !== wanted);
    });
    return true;
  }

  async click(event) {
    const tab = event.target.closest("[role=tab]");
    if (tab) this.pick(this.tabs.indexOf(tab));
    const close = event.target.closest("[data-close-panel]");
    if (close) { event.preventDefault(); this.place.classList.remove("chosen"); this.place.dispatchEvent(new CustomEvent("closed")); }
    const whole = event.target.closest("[data-whole]");
    if (whole) {
      event.preventDefault();
      const text = await this.text(whole.href);
      if (text === null) return;
      const shown = whole.parentElement.querySelector("[data-text]");
      shown.textContent = pretty(text, shown);
      whole.remove();
    }
    const copy = event.target.closest("[data-copy-from]");
    if (copy) {
      const text = await this.text(copy.dataset.copyFrom);
      if (text === null) return;
      try { await navigator.clipboard.writeText(text); announce("Copied"); copy.dataset.copied = ""; setTimeout(() => delete copy.dataset.copied, 1200); }
      catch { toast("The browser blocked copying."); }
    }
  }

  async text(href) {
    try { const answer = await fetch(href, { headers: { "HX-Request": "true" } }); if (answer.ok) return await answer.text(); } catch { /* reported below */ }
    toast("The text could not be loaded.");
    return null;
  }

  key(event) {
    if (event.target.getAttribute("role") !== "tab") return;
    const { tabs } = this, here = tabs.indexOf(event.target);
    const wanted = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (wanted === undefined || !tabs[wanted]) return;
    event.preventDefault();
    event.stopPropagation();
    this.pick(wanted);
    tabs[wanted].focus();
  }
}

// Format full JSON over several lines, unless that would change a number.
function pretty(text, shown) {
  if (!shown.closest("pre") || !/^[[{]/.test(text) || /\d{16}/.test(text)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
