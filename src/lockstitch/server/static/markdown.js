// Markdown as DOM nodes for streamed text: paragraphs, headings, flat lists and code. The server renders the committed text.
// `plain` converts plain text to nodes; apps can replace it.
import { element } from "./nodes.js";

const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*?)\*(?![\w*])|\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()<>"']{1,2000})\)|(https?:\/\/[^\s<>"'`()[\]]{1,2000}[^\s<>"'`()[\].,;:!?])/g;
const link = (name, href) => element("a", { href, rel: "noopener noreferrer nofollow" }, name);

function inlines(text, plain) {
  const found = [];
  let place = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > place) found.push(...plain(text.slice(place, match.index)));
    place = match.index + match[0].length;
    const [, code, bold, soft, name, href, url] = match;
    found.push(code ? element("code", {}, code) : bold ? element("b", {}, bold) : soft ? element("em", {}, soft) : href ? link(name, href) : link(url, url));
  }
  if (place < text.length) found.push(...plain(text.slice(place)));
  return found;
}

// A loop, because a regular expression would backtrack quadratically on a long heading.
function withoutClosingMarks(heading) {
  let end = heading.length;
  while (end && heading[end - 1] === "#") end--;
  return heading.slice(0, end).trimEnd();
}

export function markdown(text, plain = (bare) => [bare]) {
  const found = [], lines = text.split("\n");
  let paragraph = [];
  const end = () => { if (paragraph.length) found.push(element("p", {}, ...inlines(paragraph.join("\n"), plain))); paragraph = []; };
  for (let place = 0; place < lines.length; place++) {
    const line = lines[place], fence = line.match(/^ {0,3}(```+|~~~+)/), heading = line.match(/^ {0,3}#{1,6}\s+(.*)$/);
    const bullet = line.match(/^ {0,3}[-*+]\s+(.*)$/), number = line.match(/^ {0,3}\d{1,9}[.)]\s+(.*)$/);
    if (fence) {
      end();
      const code = [];
      while (++place < lines.length && !lines[place].trim().startsWith(fence[1])) code.push(lines[place]);
      found.push(element("pre", { class: "code" }, element("code", {}, code.join("\n"))));
    } else if (!line.trim()) end();
    else if (heading) { end(); found.push(element("p", { class: "strong" }, ...inlines(withoutClosingMarks(heading[1]), plain))); }
    else if (bullet || number && !paragraph.length) {
      end();
      const kind = bullet ? "UL" : "OL", item = element("li", {}, ...inlines((bullet ?? number)[1], plain));
      if (found.at(-1)?.tagName === kind && lines[place - 1]?.trim()) found.at(-1).append(item); else found.push(element(kind.toLowerCase(), {}, item));
    } else paragraph.push(line);
  }
  end();
  return found;
}
