// Keyboard shortcuts of the list of notebooks: j and k move, ↵ opens, c creates a notebook.
import { keys } from "../keys.js";
import { rowKeys } from "../rowkeys.js";

const rows = document.getElementById("rows");
if (rows) rowKeys(rows);
if (document.getElementById("new")) keys.on("c", () => { document.getElementById("new").showModal(); }, "new notebook", { group: "Notebooks" });
