// The list of plans: keyboard shortcuts.
import { keys } from "../keys.js";
import { rowKeys } from "../rowkeys.js";

rowKeys(document.body);
keys.on("c", () => { const link = document.querySelector('a[href$="/plans/new"]'); if (!link) return false; link.click(); }, "new plan", { group: "Plans" });
