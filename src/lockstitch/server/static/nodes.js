// DOM nodes without innerHTML: text is always inserted as text.
import { local } from "./times.js";

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, ""); else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";
export function icon(name) {
  const drawn = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
  drawn.setAttribute("class", "i");
  drawn.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#${name}`);
  drawn.append(use);
  return drawn;
}

// Fetch a part of a page as nodes. null: the request failed or the user has left the page.
export async function part(path) {
  const answer = await fetch(path, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!answer?.ok || answer.status === 204) return null;
  const parsed = new DOMParser().parseFromString(`<template>${await answer.text()}</template>`, "text/html");
  const nodes = document.importNode(parsed.querySelector("template").content, true);
  local(nodes);
  return nodes;
}
