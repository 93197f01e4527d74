// Elements made from values. Whatever comes from a log or a process becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (value === false && !name.startsWith("aria-")) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function made(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function drawn(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

// Replaces what is in `element` only when `value` is not what it was made from: who reads or
// has the focus there is not disturbed.
const shown = new WeakMap();
export function whenChanged(element, value, make) {
  const text = JSON.stringify(value);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  element.replaceChildren(...[make()].flat());
  if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function table(caption, titles, rows, empty) {
  if (!rows.length) return made("p", { class: "quiet" }, empty);
  return made(
    "div",
    { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption, "data-key": caption },
    made(
      "table",
      {},
      made("caption", {}, caption),
      made("thead", {}, made("tr", {}, titles.map(([title, kind]) =>
        made("th", { scope: "col", class: kind }, title)))),
      made("tbody", {}, rows.map((cells) =>
        made("tr", {}, cells.map((cell, place) =>
          made(place ? "td" : "th", { scope: place ? null : "row", class: titles[place][1] },
            cell === null || cell === undefined ? "–" : cell))))),
    ),
  );
}
