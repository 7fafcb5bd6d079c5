// The end of a conversation: the page follows it while the reader is there, else it shows the number of new messages.
//   const end = ending(document.querySelector(".talk"));  const was = end.reached(); …  end.grown(was);
export function ending(talk) {
  const below = document.getElementById("below");
  let unseen = 0;
  const reached = () => talk.getBoundingClientRect().bottom <= innerHeight + 160;
  const go = () => talk.scrollIntoView({ block: "end" });
  function grown(was, counts = true) {
    if (was) { go(); return; }
    if (!counts || !below) return;
    unseen += 1;
    below.hidden = false;
    below.querySelector("button").textContent = `${unseen} new`;
  }
  addEventListener("scroll", () => { if (unseen && reached()) { unseen = 0; below.hidden = true; } }, { passive: true });
  below?.addEventListener("click", go);
  return { reached, go, grown };
}
