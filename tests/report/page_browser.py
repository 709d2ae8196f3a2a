"""A page in Chromium: what a reader would stumble over, found by a script."""

import io
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.image import imread

SCRIPT = """() => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide, not ${root.clientWidth}`);
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth || !image.alt)
      found.push(`picture without size or description: ${image.alt}`);
  const lines = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, range = document.createRange();
    if (!node.textContent.trim() || !node.parentElement.checkVisibility({contentVisibilityAuto: true})) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects())
      if (box.width > 1 && box.height > 1) lines.push([box, node]);
  }
  lines.sort((a, b) => a[0].top - b[0].top);
  for (let i = 0; i < lines.length; i++)
    for (let j = i + 1; j < lines.length && lines[j][0].top < lines[i][0].bottom - 3; j++) {
      const [a, p] = lines[i], [b, q] = lines[j];
      if (p !== q && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
          && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        found.push(`texts overlap: ${p.textContent.trim().slice(0, 30)} | ${q.textContent.trim().slice(0, 30)}`);
    }
  return found;
}"""
FOLDED = """() => [...document.querySelectorAll("details:not([open]) table, details:not([open]) img")]
    .filter(part => !part.checkVisibility({contentVisibilityAuto: true}) || !part.getBoundingClientRect().height)
    .length"""
COLOURS = """() => [document.body, document.querySelector("section"), document.querySelector("h1")]
    .map(part => [getComputedStyle(part).backgroundColor, getComputedStyle(part).color])"""


def find_chromium():
    """The browser named by an environment variable, that of the distribution, or that of playwright; None for none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    named = os.environ.get("PYRO_HOIM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if named:
        return named
    with sync_playwright() as play:
        path = play.chromium.executable_path
    return path if Path(path).exists() else None


@contextmanager
def opened(path):
    """A browser; leave it to end it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def problems(browser, html, width, scheme="light"):
    """What is wrong with a page at a width, as it opens and with everything unfolded: a list of sentences."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = []
    page.on("console", lambda message: found.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: found.append(f"script: {error}"))
    page.on("requestfailed", lambda request: found.append(f"request failed: {request.url[:60]}"))
    page.on("request", lambda request: None if inside(request.url) else found.append(f"request: {request.url[:60]}"))
    page.goto(Path(html).resolve().as_uri(), wait_until="load")
    found += page.evaluate(SCRIPT)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    found += page.evaluate(SCRIPT)
    page.close()
    return found


def inside(address):
    """Whether an address needs no network."""
    return address.startswith(("file:", "data:"))


def printed(browser, html):
    """How many folded tables and pictures paper would lose, and the colours of page, card and text there."""
    page = browser.new_page(color_scheme="dark")
    page.goto(Path(html).resolve().as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = page.evaluate(FOLDED), page.evaluate(COLOURS)
    page.close()
    return found


def colours(browser, html, scheme):
    """Colours of page, card and text on a screen."""
    page = browser.new_page(color_scheme=scheme)
    page.goto(Path(html).resolve().as_uri())
    found = page.evaluate(COLOURS)
    page.close()
    return found


def hidden_width(browser, html, width):
    """By how many pixels at most a table or picture is wider than its place, at a width of the page."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(Path(html).resolve().as_uri())
    found = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.scroll')].map(part => part.scrollWidth - part.clientWidth))"
    )
    page.close()
    return found


def layout(browser, html, width):
    """Screens of 800 pixels, where the limits begin, and the smallest scale and largest end of a picture."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(Path(html).resolve().as_uri())
    found = page.evaluate(
        """() => [document.documentElement.scrollHeight / 800,
        document.querySelector(".limits").getBoundingClientRect().top,
        Math.min(...[...document.images].filter(image => image.width).map(image => image.width / image.naturalWidth)),
        Math.max(...[...document.images].map(image => image.getBoundingClientRect().right))]"""
    )
    page.close()
    return found


def edge_shades(browser, html, width):
    """Mean brightness right and left beside the first table that scrolls: at its beginning, and at its end."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
    page.goto(Path(html).resolve().as_uri())
    places = page.query_selector_all(".scroll")
    place = next(part for part in places if part.evaluate("part => part.scrollWidth > part.clientWidth + 20"))
    found = []
    for move in ("0", "part.scrollWidth"):
        place.evaluate(f"part => {{ part.scrollLeft = {move}; }}")
        pixels = 255 * imread(io.BytesIO(place.screenshot()))[..., :3].mean(2)
        right, left = (np.median(pixels[:, side], axis=0).mean() for side in (slice(-8, -3), slice(3, 8)))
        found.append((right, left))
    page.close()
    return found
