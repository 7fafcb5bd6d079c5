// The keyboard shortcuts of the other pages, for the dialog. The current page registers its own.
export const PAGES = [
  { group: "Threads", entries: [["j k ↓ ↑", "next, previous row"], ["→ ←", "expand, collapse, go to parent"], ["↵", "open"], ["Home End", "first and last row"], ["a", "action of the row"], ["c", "new thread"]] },
  { group: "Thread", entries: [["j k", "next, previous stitch"], ["a", "approve the focused request"], ["d", "deny the focused request"], ["f", "fork at the focused stitch"], ["o", "expand or collapse calls"], ["⌘ ↵", "send"]] },
  { group: "Run", entries: [["j k ↓ ↑", "next, previous row"], ["→ ←", "expand, collapse, go to parent"], ["1 2 3 4", "tabs of the panel"], ["+ - 0", "zoom"], ["e", "next error"], ["x", "next difference"]] },
  { group: "Annotation", entries: [["u 1", "helpful"], ["d 2", "not helpful"], ["0 … 9", "score, if the criterion is not helpful"], ["c", "comment"], ["a", "add to the dataset"], ["j → s", "next run"], ["k ←", "previous run"]] },
  { group: "Stats", entries: [["← →", "move along the focused chart"], ["↵", "threads of the day, most expensive first"]] },
  { group: "SQL", entries: [["⌘ ↵", "run"], ["e", "focus the editor"], ["Esc", "leave the editor"]] },
];
