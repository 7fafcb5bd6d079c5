// A list of things by keys: j and k go from one to the next, ↵ opens it, c begins a new one.
import { keys } from "../keys.js";
import { rowKeys } from "../rowkeys.js";

const rows = document.getElementById("rows");
if (rows) rowKeys(rows);
if (document.getElementById("new")) keys.on("c", () => { document.getElementById("new").showModal(); }, "new notebook", { group: "Notebooks" });
