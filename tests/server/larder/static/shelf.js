import { keys } from "../keys.js";

keys.on("z", () => { document.body.dataset.pressed = "z"; }, "count the jars", { group: "Larder" });
