// Menus are native <details>: Esc and a click outside close them.
import { keys } from "./keys.js";

const open = () => [...document.querySelectorAll("details.menu[open]")];

keys.on("Escape", () => {
  const [menu] = open();
  if (!menu) return false;
  menu.open = false;
  menu.querySelector("summary").focus();
}, "");
addEventListener("click", (event) => {
  for (const menu of open()) if (!menu.contains(event.target)) menu.open = false;
});
