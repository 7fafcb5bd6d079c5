// The keys of all pages, for the sheet: what the page at hand has registered stands there by itself.
export const PAGES = [
  { group: "Threads", entries: [["j k ↓ ↑", "from row to row"], ["→ ←", "open, close, to parent"], ["↵", "go in"], ["Home End", "first and last row"], ["a", "act on the row"], ["c", "new thread"]] },
  { group: "Thread", entries: [["j k", "from stitch to stitch"], ["a", "approve"], ["d", "deny"], ["f", "fork at the stitch in focus"], ["o", "open or close calls"], ["⌘ ↵", "send"]] },
  { group: "Run", entries: [["j k ↓ ↑", "from row to row"], ["→ ←", "open, close, to parent"], ["1 2 3 4", "tabs of the panel"], ["+ - 0", "zoom"], ["e", "next error"], ["x", "next difference"]] },
  { group: "Stats", entries: [["← →", "along a chart that has the focus"], ["↵", "threads of the day, dearest first"]] },
  { group: "SQL", entries: [["⌘ ↵", "run"], ["e", "into the editor"], ["Esc", "out of it"]] },
];
