// The pipeline as cards in columns, a lane for each participant and its nodes, with a line for each
// stream.

import { drawn, made, setText, whenChanged } from "./dom.js";
import { clock, duration, rate } from "./words.js";

const KINDS = { source: "source", stage: "stage", output: "output", binding: "bound stream" };

export class Graph {
  constructor(element) {
    this.element = element;
    this.cards = new Map();
    this.sizes = new ResizeObserver(() => this.drawLines());
    this.sizes.observe(element);
  }

  show(feed) {
    const { pipeline, cards } = feed.known;
    if (this.places !== pipeline.places) this.build(pipeline);
    for (const [key, card] of Object.entries(cards)) this.fill(key, card, feed);
  }

  build({ places, nodes }) {
    this.places = places;
    this.cards.clear();
    this.lines = drawn("svg", { class: "lines", "aria-hidden": "true" });
    const lanes = new Map();
    for (const place of places) {
      const lane = lanes.get(place.participant) ?? { first: place.row, last: place.row };
      lane.first = Math.min(lane.first, place.row);
      lane.last = Math.max(lane.last, place.row + place.rows - 1);
      lanes.set(place.participant, lane);
    }
    const columns = 1 + Math.max(...places.map((place) => place.column));
    const bands = [...lanes].map(([name, lane]) => {
      const band = made("div", { class: "lane" }, made("span", {}, laneTitle(name, nodes[name])));
      band.style.gridRow = `${lane.first + 1} / ${lane.last + 2}`;
      band.style.gridColumn = `1 / ${columns + 2}`;
      return band;
    });
    const cards = places.map((place) => this.card(place));
    // A card grows when something is missing, which the graph as a whole need not.
    for (const card of cards) this.sizes.observe(card);
    this.element.style.gridTemplateColumns = `26px repeat(${columns}, minmax(190px, 280px))`;
    this.element.replaceChildren(this.lines, ...bands, ...cards);
    this.drawLines();
  }

  card(place) {
    const parts = {
      state: made("span", { class: "chip" }),
      flow: made("p", { class: "flow" }),
      missing: made("p", { class: "missing" }),
      replicas: made("ul", { class: "replicas" }),
    };
    const element = made(
      "article",
      { class: `card ${place.kind}`, "data-key": place.key },
      made("header", {}, made("h3", {}, place.name), parts.state),
      made("p", { class: "quiet detail", title: place.detail }, `${KINDS[place.kind]}, ${place.detail}`),
      parts.flow,
      parts.missing,
      parts.replicas,
    );
    element.style.gridColumn = place.column + 2;
    element.style.gridRow = `${place.row + 1} / span ${place.rows}`;
    this.cards.set(place.key, { element, parts });
    return element;
  }

  fill(key, card, feed) {
    const found = this.cards.get(key);
    if (!found) return;
    const { element, parts } = found;
    element.dataset.tone = card.tone;
    parts.state.dataset.tone = card.tone;
    setText(parts.state, card.word);
    setText(parts.flow, flow(card, feed));
    const missing = [
      card.missing.length ? `made without ${card.missing.join(", ")}` : "",
      card.shed ? `made from ${(1000 - card.shed) / 10} % of the rows` : "",
      card.missed_by.length ? `missed by ${card.missed_by.join(", ")}` : "",
    ].filter(Boolean);
    setText(parts.missing, missing.join("; "));
    parts.missing.hidden = !missing.length;
    parts.replicas.hidden = !card.replicas.length;
    whenChanged(parts.replicas, card.replicas, () => card.replicas.map((each) =>
      made("li", { class: each.is_read ? "is-read" : null },
        made("span", { class: "dot", "data-tone": each.tone, "aria-hidden": "true" }),
        made("span", { class: "which" }, `replica ${each.replica}${each.node ? ` on ${each.node}` : ""}`),
        made("span", { class: "word" }, `${each.word}${each.is_read ? ", read" : ""}`))));
  }

  drawLines() {
    if (!this.lines) return;
    // Else the lines themselves would keep the graph as large as it once was.
    this.lines.setAttribute("width", 0);
    this.lines.setAttribute("height", 0);
    const origin = this.element.getBoundingClientRect();
    const paths = [];
    for (const place of this.places) {
      const to = this.cards.get(place.key).element;
      for (const key of place.reads) {
        const from = this.cards.get(key)?.element;
        if (!from) continue;
        const [a, b] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
        const dx = this.element.scrollLeft - origin.left;
        const dy = this.element.scrollTop - origin.top;
        const [x1, y1] = [a.right + dx, a.top + a.height / 2 + dy];
        const [x2, y2] = [b.left + dx, b.top + b.height / 2 + dy];
        const middle = (x1 + x2) / 2;
        paths.push(drawn("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
      }
    }
    this.lines.setAttribute("width", this.element.scrollWidth);
    this.lines.setAttribute("height", this.element.scrollHeight);
    this.lines.replaceChildren(...paths);
  }
}

function laneTitle(participant, nodes = []) {
  return nodes.length ? `${participant}: ${nodes.join(", ")}` : participant || "nobody's";
}

function flow(card, feed) {
  if (card.newest_ms === null) return "no bucket yet";
  const age = feed.known.is_of_now
    ? `newest ${duration(feed.now() - card.newest_ms)} old`
    : `newest bucket ${clock(card.newest_ms)}`;
  const bound = card.bound_ms === null ? "" : `, bound ${duration(card.bound_ms)}`;
  return `${rate(card.rows_per_s)}, ${age}${bound}`;
}
