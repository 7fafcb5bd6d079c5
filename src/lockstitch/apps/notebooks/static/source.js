// A source: the passage that was asked for is in sight.
import "../menus.js";
import { rowKeys } from "../rowkeys.js";

const passages = document.querySelector(".passages"), marked = passages?.querySelector(".marked");
if (passages) rowKeys(passages);
marked?.scrollIntoView({ block: "center" });
