// One strip for each stream: what has become of its last buckets; and one for each output with a
// live topic: what the first results of these were worth, and which share of the rows they lacked. A
// strip is a slider over its buckets, so the arrow keys and a screen reader go through it as the
// pointer does.

import { made, setText, whenChanged } from "./dom.js";
import { clock, count, duration } from "./words.js";

export const PHASES = {
  stable: "stable",
  tentative: "tentative: input was missing, or rows were left out",
  undone: "undone: void, its correction comes",
  replaced: "replaced: stable, was tentative",
};
const RANK = ["stable", "replaced", "undone", "tentative"];
const HEIGHT = 30;
const BAND = 20;
const MARKS = { drill: "▼", failure: "✕", restart: "↻", move: "→", alarm: "!", state: "" };

export class Strips {
  constructor(element, readout, legend, spans) {
    this.element = element;
    this.readout = readout;
    this.rows = new Map();
    this.spanMs = 120_000;
    this.cursor = null;
    legend.replaceChildren(
      ...Object.entries(PHASES).map(([phase, words]) =>
        made("span", {}, made("i", { class: `swatch ${phase}`, "aria-hidden": "true" }), words)),
      made("span", {}, made("i", { class: "swatch none", "aria-hidden": "true" }), "nothing yet"),
    );
    this.spans = spans;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = null;
    });
  }

  show(feed) {
    this.feed = feed;
    const { pipeline } = feed.known;
    if (this.streams !== pipeline.streams) this.build(pipeline);
    const edge = feed.edge();
    const shown = Math.max(20, Math.min(pipeline.cells_max, Math.round(this.spanMs / pipeline.bucket_ms)));
    for (const row of this.rows.values()) this.draw(row, edge, shown);
    if (this.cursor) this.tell();
  }

  build(pipeline) {
    this.streams = pipeline.streams;
    this.rows.clear();
    this.cursor = null;
    const whole = pipeline.cells_max * pipeline.bucket_ms;
    const choices = [30_000, 120_000, 300_000, 600_000].filter((ms) => ms < whole).concat(whole);
    this.spanMs = choices.includes(120_000) ? 120_000 : choices.at(-1);
    const buttons = choices.map((ms) =>
      made("button", { type: "button", "aria-pressed": ms === this.spanMs, onclick: () => {
        this.spanMs = ms;
        for (const each of buttons) each.setAttribute("aria-pressed", each.dataset.ms === String(ms));
        this.show(this.feed);
      }, "data-ms": ms }, duration(ms)));
    this.spans.replaceChildren(...buttons);
    const outputs = Object.entries(pipeline.live_outputs).flatMap(([stream, names]) =>
      names.map((name, place) => this.row(stream, { name, place })));
    this.element.replaceChildren(...pipeline.streams.map((stream) => this.row(stream)), ...outputs);
  }

  row(stream, output = null) {
    const key = output ? `output ${output.name}` : stream;
    const canvas = made("canvas", {
      tabindex: "0", role: "slider", "aria-orientation": "horizontal",
      "aria-label": output ? `output ${output.name}, utility of the last buckets` : `stream ${stream}, the last buckets`,
      ...(output ? { "data-output": output.name } : { "data-stream": stream }),
      onpointermove: (event) => this.point(row, event),
      onpointerleave: () => { if (document.activeElement !== canvas) this.leave(); },
      onkeydown: (event) => this.step(row, event),
      onfocus: () => this.moveTo(row, this.cursor?.row === row ? this.cursor.bucket : row.last ?? this.feed.edge()),
      onblur: () => this.leave(),
    });
    const state = made("span", { class: "now" });
    const row = { stream, output, canvas, state };
    this.rows.set(key, row);
    return made("div", { class: "strip" },
      made("div", { class: "of" }, made("b", {}, output ? `${output.name}, utility` : stream), state), canvas);
  }

  draw(row, edge, shown) {
    const { canvas, stream } = row;
    const cells = this.feed.cells.get(stream) ?? new Map();
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(HEIGHT * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(HEIGHT * scale);
    }
    Object.assign(row, { edge, shown, first: edge - shown + 1, perCell: width / shown });
    const paint = canvas.getContext("2d");
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, HEIGHT);
    const colours = this.palette();
    const top = HEIGHT - BAND;
    paint.fillStyle = colours.none;
    paint.fillRect(0, top, width, BAND);
    if (row.output) this.paintUtility(paint, row, cells, colours, top);
    else this.paintRuns(paint, row, cells, colours, top);
    this.paintMarks(paint, row, colours, top);
    if (this.cursor) {
      const x = (this.cursor.bucket - row.first + 0.5) * row.perCell;
      paint.fillStyle = colours.ink;
      paint.fillRect(Math.round(x) - 0.5, 2, 1, HEIGHT - 2);
    }
    row.last = cells.size ? Math.min(edge, Math.max(...[...cells.keys()].slice(-4))) : undefined;
    setText(row.state, this.stateOf(row, cells));
    canvas.setAttribute("aria-valuemin", row.first);
    canvas.setAttribute("aria-valuemax", edge);
    if (this.cursor?.row !== row) {
      canvas.setAttribute("aria-valuenow", row.last ?? edge);
      canvas.setAttribute("aria-valuetext", row.state.textContent);
    }
  }

  // As high as the utility; from the top hangs the share of the rows that was left out. Where several
  // buckets share a pixel, the least utility is seen, and the largest share.
  paintUtility(paint, row, cells, colours, top) {
    const columns = new Map();
    for (let bucket = row.first; bucket <= row.edge; bucket += 1) {
      const cell = cells.get(bucket);
      const worth = cell?.worth[row.output.place];
      if (worth === undefined || worth === null) continue;
      const from = Math.floor((bucket - row.first) * row.perCell);
      const to = Math.max(from + 1, Math.floor((bucket - row.first + 1) * row.perCell));
      for (let x = from; x < to; x += 1) {
        const before = columns.get(x) ?? { worth: 1000, shed: 0 };
        columns.set(x, { worth: Math.min(worth, before.worth), shed: Math.max(cell.shed, before.shed) });
      }
    }
    for (const [x, { worth, shed }] of columns) {
      const high = Math.round((BAND * worth) / 1000);
      paint.fillStyle = colours.stable;
      paint.fillRect(x, top + BAND - high, 1, high);
      if (!shed) continue;
      paint.globalAlpha = 0.7;
      paint.fillStyle = colours.tentative;
      paint.fillRect(x, top, 1, Math.max(1, Math.round((BAND * shed) / 1000)));
      paint.globalAlpha = 1;
    }
  }

  // Neighbours of one phase are painted at once; where several share a pixel, the one that needs
  // most attention is seen.
  paintRuns(paint, row, cells, colours, top) {
    const columns = new Map();
    for (let bucket = row.first; bucket <= row.edge; bucket += 1) {
      const phase = cells.get(bucket)?.phase;
      if (!phase) continue;
      const from = Math.floor((bucket - row.first) * row.perCell);
      const to = Math.max(from + 1, Math.floor((bucket - row.first + 1) * row.perCell));
      for (let x = from; x < to; x += 1)
        if (RANK.indexOf(phase) > RANK.indexOf(columns.get(x) ?? "")) columns.set(x, phase);
    }
    let begun = null;
    const width = row.canvas.clientWidth;
    for (let x = 0; x <= width; x += 1) {
      const phase = columns.get(x);
      if (begun && begun.phase !== phase) {
        this.paintRun(paint, begun.phase, begun.x, x - begun.x, top, colours);
        begun = null;
      }
      if (phase && !begun) begun = { phase, x };
    }
  }

  // Each phase differs in shape, too.
  paintRun(paint, phase, x, width, top, colours) {
    paint.save();
    paint.beginPath();
    paint.rect(x, top, width, BAND);
    paint.clip();
    paint.fillStyle = colours[phase];
    if (phase === "stable") paint.fillRect(x, top, width, BAND);
    if (phase === "replaced") {
      paint.fillRect(x, top, width, BAND);
      paint.fillStyle = colours.paper;
      paint.fillRect(x, top + BAND / 2 - 1, width, 2);
    }
    if (phase === "tentative" || phase === "undone") {
      paint.globalAlpha = 0.35;
      paint.fillRect(x, top, width, BAND);
      paint.globalAlpha = 1;
      paint.strokeStyle = colours[phase];
      paint.lineWidth = 2;
      const lean = phase === "tentative" ? 1 : -1;
      for (let at = x - BAND - (x % 7); at < x + width + BAND; at += 7) {
        paint.beginPath();
        paint.moveTo(at, top + BAND);
        paint.lineTo(at + lean * BAND, top);
        paint.stroke();
      }
    }
    paint.restore();
  }

  paintMarks(paint, row, colours, top) {
    paint.font = "10px system-ui, sans-serif";
    paint.textAlign = "center";
    for (const event of this.feed.events) {
      const sign = MARKS[event.kind];
      if (!sign || event.bucket < row.first || (event.stream && event.stream !== row.stream)) continue;
      const x = (event.bucket - row.first) * row.perCell;
      paint.fillStyle = colours[event.kind === "restart" ? "quiet" : "bad"];
      paint.fillRect(Math.round(x), top - 2, 1, BAND + 2);
      paint.fillText(sign, Math.min(Math.max(x, 5), row.canvas.clientWidth - 5), top - 2);
    }
  }

  palette() {
    if (!this.colours) {
      const style = getComputedStyle(document.documentElement);
      const probe = made("span");
      document.body.append(probe);
      this.colours = Object.fromEntries(
        [...RANK, "none", "ink", "paper", "bad", "quiet"].map((name) => {
          probe.style.color = style.getPropertyValue(`--${name}`);
          return [name, getComputedStyle(probe).color];
        }));
      probe.remove();
    }
    return this.colours;
  }

  stateOf(row, cells) {
    const last = row.last === undefined ? undefined : cells.get(row.last);
    if (!last) return "nothing yet";
    const { is_of_now: isOfNow, pipeline } = this.feed.known;
    if (row.output) return worthOf(last, row.output) ?? "not known";
    const old = isOfNow ? this.feed.now() - row.last * pipeline.bucket_ms : 0;
    const words = last.phase === "replaced" ? "stable" : last.phase;
    return old > 10_000 ? "stands still" : words;
  }

  point(row, event) {
    const box = row.canvas.getBoundingClientRect();
    this.moveTo(row, row.first + Math.floor((event.clientX - box.left) / row.perCell));
  }

  step(row, event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -20, PageUp: 20 };
    const at = this.cursor?.row === row ? this.cursor.bucket : row.last ?? row.edge;
    if (event.key in steps) this.moveTo(row, at + steps[event.key]);
    else if (event.key === "Home") this.moveTo(row, row.first);
    else if (event.key === "End") this.moveTo(row, row.edge);
    else return;
    event.preventDefault();
  }

  moveTo(row, bucket) {
    if (row.first === undefined) return;
    this.cursor = { row, bucket: Math.min(row.edge, Math.max(row.first, bucket)) };
    this.show(this.feed);
  }

  leave() {
    this.cursor = null;
    this.show(this.feed);
  }

  tell() {
    const { row, bucket } = this.cursor;
    const text = describe(this.feed, row.stream, bucket, row.output);
    setText(this.readout, text);
    row.canvas.setAttribute("aria-valuenow", bucket);
    row.canvas.setAttribute("aria-valuetext", text);
  }
}

// What the first results of a bucket are worth at an output; null: their delay is not known.
function worthOf(cell, output) {
  const worth = cell.worth[output.place];
  return worth === null ? null : `worth ${worth / 1000}`;
}

export function describe(feed, stream, bucket, output = null) {
  const { pipeline } = feed.known;
  const cell = feed.cells.get(stream)?.get(bucket);
  const words = [`${output ? output.name : stream}, bucket ${bucket} (until ${clock(bucket * pipeline.bucket_ms, true)})`];
  if (!cell) words.push("not closed yet");
  else {
    if (output) words.push(worthOf(cell, output) ?? "worth not known");
    words.push(cell.phase, `${count(cell.rows)} rows${cell.writer ? ` of replica ${cell.writer}` : ""}`);
    if (cell.missing.length) words.push(`made without ${cell.missing.join(", ")}`);
    if (cell.shed) words.push(`made from ${(1000 - cell.shed) / 10} % of the rows`);
    if (cell.tentativeMs !== null) words.push(`tentative after ${duration(cell.tentativeMs)}`);
    if (cell.stableMs !== null) words.push(`stable after ${duration(cell.stableMs)}`);
  }
  const marks = feed.events.filter((event) => Math.abs(event.bucket - bucket) <= 1 &&
    (!event.stream || event.stream === stream));
  words.push(...marks.map((event) => `${event.target}: ${event.text}`));
  return words.join(" · ");
}

export function showEvents(element, events) {
  whenChanged(element, events, () => {
    if (!events.length) return made("li", { class: "quiet" }, "Nothing has happened since the server of this page was started.");
    return [...events].reverse().slice(0, 60).map((event) =>
      made("li", { "data-kind": event.kind },
        made("time", {}, clock(event.at_ms)),
        made("span", { class: "kind" }, event.kind),
        made("b", {}, event.target),
        made("span", {}, event.text)));
  });
}
