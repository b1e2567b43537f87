"""What a page must look like in every theme: a script that returns what is wrong with the page that is open."""

from __future__ import annotations

from typing import Any

# Texts need a contrast of 4.5 with their background, borders and surfaces of controls a contrast of 3 (WCAG 2.2 AA).
# A button must not be covered by another element, and the page must not be wider than the window.
SCRIPT = r"""
() => {
  document.getAnimations().filter(each => each instanceof CSSTransition).forEach(each => each.finish());
  const pen = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true}), known = new Map();
  const parse = text => {
    if (!known.has(text)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, i) => value * a + under[i] * (1 - a)).concat(1);
  const channel = value => (value /= 255) <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const contrast = (a, b) => {
    const [dark, bright] = [light(a), light(b)].sort((x, y) => x - y);
    return (bright + .05) / (dark + .05);
  };
  const surfaces = new Map();
  const surface = element => {
    if (!element) return [255, 255, 255, 1];
    if (!surfaces.has(element)) {
      const own = parse(getComputedStyle(element).backgroundColor);
      surfaces.set(element, own[3] === 1 ? own : over(own, surface(element.parentElement)));
    }
    return surfaces.get(element);
  };
  // An element is as transparent as all that it is in.
  const opacity = element => element ? getComputedStyle(element).opacity * opacity(element.parentElement) : 1;
  const fields = 'select, textarea, input:not([type=hidden], [type=checkbox], [type=radio])';
  const problems = new Set();
  const name = element => `<${element.localName} class="${element.getAttribute('class') || ''}">`;
  const report = (element, what, text = '') => problems.add(`${what}: ${name(element)} ${text.slice(0, 40)}`);
  const own = document.querySelectorAll('.gw-page, .gw-page *');
  const textOf = element => element.matches(fields) ? element.value
    : [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
  for (const element of own) {
    const text = textOf(element);
    if (!text || !element.checkVisibility({visibilityProperty: true}) || element.localName === 'option') continue;
    if (element.closest('.visually-hidden, :disabled, datalist, title')) continue;
    const style = getComputedStyle(element), behind = surface(element);
    const [r, g, b, a] = parse(element.ownerSVGElement ? style.fill : style.color);
    const ratio = contrast(over([r, g, b, a * opacity(element)], behind), behind);
    if (ratio < 4.5) report(element, `contrast ${ratio.toFixed(2)}`, text);
  }
  for (const element of document.querySelectorAll(`.gw-page :is(.gw-button, .gw-segments, ${fields})`)) {
    if (!element.checkVisibility({visibilityProperty: true}) || element.disabled) continue;
    const style = getComputedStyle(element), behind = surface(element.parentElement);
    const border = parseFloat(style.borderTopWidth) ? contrast(over(parse(style.borderTopColor), behind), behind) : 1;
    const ratio = Math.max(border, contrast(surface(element), behind));
    if (ratio < 3) report(element, `border ${ratio.toFixed(2)}`, element.textContent.trim());
    if (style.borderTopStyle === 'none') report(element, 'no border');
  }
  for (const element of document.querySelectorAll('.gw-page .gw-button')) {
    if (!element.checkVisibility({visibilityProperty: true})) continue;
    element.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const box = element.getBoundingClientRect();
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    const cover = hit ? name(hit) : 'nothing';
    if (!element.contains(hit)) report(element, `covered by ${cover}`, element.textContent.trim());
    if (box.height < 22 || box.width < 22) report(element, `small ${box.width} x ${box.height}`);
  }
  for (const element of document.querySelectorAll('.gw-page :is(code, pre, .gw-payload, textarea.gw-code)'))
    if (!/mono|courier/i.test(getComputedStyle(element).fontFamily)) report(element, 'not monospaced');
  for (const group of document.querySelectorAll('.gw-page :is(.gw-segments, .gw-tabs, .gw-nav)')) {
    const current = group.querySelector('[aria-current]');
    const other = [...group.querySelectorAll('a')].find(link => !link.hasAttribute('aria-current'));
    const [a, b] = [current, other].map(link => link && getComputedStyle(link));
    if (a && b && a.backgroundColor === b.backgroundColor && a.borderBottomColor === b.borderBottomColor)
      report(current, 'looks like the links beside it');
  }
  scrollTo({top: 0, left: 0, behavior: 'instant'});
  const width = document.scrollingElement.scrollWidth;
  if (width > innerWidth) problems.add(`the page is ${width} wide`);
  return [...problems];
}"""


# The rows of a table are alike. axe-core compares each link with all others, so a long list takes it seconds.
SHORTEN = """() => document.querySelectorAll('.gw-table tbody').forEach(
    body => [...body.rows].slice(6).forEach(row => row.remove()))"""


def problems(page: Any) -> list[str]:
    """Return what is wrong with the page that is open."""
    found: list[str] = page.evaluate(SCRIPT)
    if not found:
        return []
    # A page that is still being laid out has problems that the next frame does not have.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    again: list[str] = page.evaluate(SCRIPT)
    return [each for each in again if each in found]
