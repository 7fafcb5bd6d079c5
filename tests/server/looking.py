"""Checks of pages: accessibility with axe, horizontal overflow, and screenshots in light and dark."""

import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Page

PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 900}


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


async def problems(
    page: Page, within: str | None = None, *, ignore: Sequence[str] = (), colours: bool = False
) -> list[str]:
    """Return the serious and critical problems that axe finds on the page or in a part of it.

    With `colours`, check only colours.
    """
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(_axe())
    violations: Any = await page.evaluate(_VIOLATIONS, [within, colours])
    return [
        f"{violation['id']}: {node['target']} {node['html'][:160]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical") and violation["id"] not in ignore
        for node in violation["nodes"]
    ]


_VIOLATIONS = """async ([within, coloursOnly]) => {
  // The pages have no media and no styles of other origins to load.
  const options = { resultTypes: ["violations"], preload: false };
  const backgrounds = new Map([[null, ""]]);
  const background = (element) => {
    if (!backgrounds.has(element)) {
      const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(element);
      const own = [backgroundColor, backgroundImage, opacity, filter].join(" ");
      const plain = own === "rgba(0, 0, 0, 0) none 1 none";
      backgrounds.set(element, background(element.parentElement) + (plain ? "" : `${own}|`));
    }
    return backgrounds.get(element);
  };
  const look = (element) => {
    const { color, fontSize, fontWeight, textShadow, position, clip, clipPath } = getComputedStyle(element);
    const disabled = element.closest(":disabled, [aria-disabled=true], [inert], [aria-hidden=true]") !== null;
    const own = [element.tagName, color, fontSize, fontWeight, textShadow, position, clip, clipPath, disabled];
    return background(element) + own.join(" ");
  };
  const roots = within ? document.querySelectorAll(within) : [document.body];
  const first = new Map(), last = new Map();
  for (const root of roots) {
    for (const element of [root, ...root.querySelectorAll("*")]) {
      const text = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
      if (!(text || "value" in element) || !element.checkVisibility()) continue;
      if (!first.has(look(element))) first.set(look(element), element);
      last.set(look(element), element);
    }
  }
  const distinct = [...new Set([...first.values(), ...last.values()])];
  const rules = coloursOnly
    ? { runOnly: { type: "rule", values: ["link-in-text-block"] } }
    : { rules: { "color-contrast": { enabled: false } } };
  const { violations } = await axe.run(within ?? document, { ...options, ...rules });
  const contrast = { runOnly: { type: "rule", values: ["color-contrast"] } };
  if (!distinct.length) return violations;
  return [...violations, ...(await axe.run({ include: distinct }, { ...options, ...contrast })).violations];
}"""
"""The violations that axe finds. The contrast of all texts takes four times as long as all other rules, so two texts of
each combination of colours, backgrounds and fonts are checked."""


async def sticks_out(page: Page) -> list[str]:
    """Return the elements that cause horizontal scrolling, and links of the navigation bar that are cut."""
    return await page.evaluate(_WIDER)


_WIDER = """() => {
  const page = document.documentElement, width = page.clientWidth;
  const outside = ({ left, right }) => left < -1 || right > width + 1;
  const links = [...document.querySelectorAll(".nav a")].filter((one) => outside(one.getBoundingClientRect()));
  if (page.scrollWidth <= width) return links.map((one) => `NAV: ${one.textContent.trim()}`);
  const wide = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > width + 1);
  const told = (one) => `${one.tagName} ${one.getAttribute("class")}: ${one.textContent.trim().slice(0, 40)}`;
  return [...wide.slice(0, 8).map(told), `scrollWidth ${page.scrollWidth}`];
}"""


async def look(page: Page, name: str = "", within: str | None = None, *, ignore: Sequence[str] = ()) -> None:
    """Fail if the page has serious problems in light or dark, or scrolls sideways on a phone.

    `within` limits the check to a part of the page. If LOCKSTITCH_PICTURES names a folder, save screenshots there under
    `name`.
    """
    folder = os.environ.get("LOCKSTITCH_PICTURES")
    before = page.viewport_size
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)
        # The layout does not depend on the colours.
        for size in (WIDE, PHONE) if folder or theme == "light" else (WIDE,):
            await page.set_viewport_size(size)  # type: ignore[arg-type]
            where = f"{name or page.url}, {theme}, {size['width']} px"
            if folder and name:
                path = Path(folder, f"{name}-{theme}-{size['width']}.png")
                await page.screenshot(path=path, full_page=True, caret="initial")
            wide = await sticks_out(page)
            assert not wide, f"{where}: {wide}"
            if size is WIDE:
                wrong = await problems(page, within, ignore=ignore, colours=theme == "dark")
                assert not wrong, f"{where}: {wrong}"
    await page.emulate_media(color_scheme="light")
    if before is not None:
        await page.set_viewport_size(before)
