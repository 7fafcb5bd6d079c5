// The source page: scrolls to the requested passage.
import "../menus.js";
import { rowKeys } from "../rowkeys.js";

const passages = document.querySelector(".passages"), marked = passages?.querySelector(".marked");
if (passages) rowKeys(passages);
marked?.scrollIntoView({ block: "center" });
