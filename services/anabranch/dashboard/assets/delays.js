// How late results come, hop by hop, against the bound; how many; how long batches take.

import { drawn, made, table, whenChanged } from "./dom.js";
import { duration, rate } from "./words.js";

const BAR = 9;
const HEIGHT = 34;

export function showDelays(panel, feed) {
  const { hops, pipeline, is_of_now: isOfNow } = feed.known;
  whenChanged(panel, [hops, isOfNow], () => [
    made("h2", {}, "Delay"),
    made("p", { class: "quiet" },
      isOfNow
        ? `From the end of a bucket to its first result, over the last buckets. A failure may add max_delay, which is ${duration(pipeline.max_delay_ms)} or less. The bound is that and what is normal.`
        : "The event times are not those of the clock (simulated, or a backlog): delays say nothing of it."),
    table("Delay, throughput and batch times by hop",
      [["hop"], ["kind"], ["half within", "number"], ["95 %", "number"], ["99 %", "number"], ["slowest", "number"],
        ["bound", "number"], ["against it"], ["how many"], ["rows", "number"], ["batch: half, 95 %", "number"]],
      hops.map((hop) => line(hop, feed)), "No stream yet."),
    made("h2", {}, "Throughput"),
    made("p", { class: "quiet" }, "Rows of each bucket, the newest at the right."),
    made("div", { class: "throughput" }, pipeline.streams.map((stream) => throughput(stream, feed))),
  ]);
}

function line(hop, feed) {
  const found = hop.delays;
  const [half, most, nearlyAll] = found
    ? [found.p50_ms, found.p95_ms, found.p99_ms]
    : hop.upto_ms ?? [null, null, null];
  const upto = hop.upto_ms ? "up to " : "";
  return [
    hop.name, hop.kind,
    half === null ? null : upto + duration(half),
    most === null ? null : upto + duration(most),
    nearlyAll === null ? null : upto + duration(nearlyAll),
    found ? duration(found.max_ms) : null,
    hop.bound_ms === null ? null : duration(hop.bound_ms),
    verdict(hop, found ? found.max_ms : nearlyAll),
    found ? histogram(found, hop.bound_ms, feed.known.pipeline.delay_bounds_ms, hop.name) : null,
    rate(hop.rows_per_s),
    hop.batch_ms ? hop.batch_ms.map(duration).join(", ") : null,
  ];
}

function verdict(hop, slowest) {
  if (hop.bound_ms === null || slowest === null || slowest === undefined) return null;
  const within = slowest <= hop.bound_ms;
  return made("span", { class: "chip", "data-tone": within ? "good" : "warn" }, within ? "within" : "slowest is over");
}

function histogram(delays, boundMs, bounds, name) {
  const highest = Math.max(...delays.bars, 1);
  const over = bounds.findIndex((ms) => boundMs !== null && ms >= boundMs);
  const words = delays.bars
    .map((many, place) => (many ? `${many} ${place < bounds.length ? `up to ${duration(bounds[place])}` : "above"}` : ""))
    .filter(Boolean).join(", ");
  return drawn("svg", { width: delays.bars.length * BAR, height: HEIGHT, role: "img", "aria-label": `${name}: ${words}`, class: "histogram" },
    drawn("title", {}, words),
    delays.bars.map((many, place) => {
      const height = many ? Math.max(2, (many / highest) * (HEIGHT - 2)) : 0;
      return drawn("rect", { x: place * BAR, y: HEIGHT - 1 - height, width: BAR - 2, height,
        class: boundMs !== null && over >= 0 && place > over ? "over" : "within" });
    }),
    drawn("line", { x1: 0, x2: delays.bars.length * BAR, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    boundMs !== null && over >= 0
      ? drawn("line", { x1: (over + 1) * BAR - 1, x2: (over + 1) * BAR - 1, y1: 0, y2: HEIGHT, class: "bound" })
      : null);
}

function throughput(stream, feed) {
  const cells = [...(feed.cells.get(stream)?.values() ?? [])].sort((a, b) => a.bucket - b.bucket).slice(-240);
  const highest = Math.max(...cells.map((cell) => cell.rows), 1);
  const width = 240;
  const points = cells.map((cell, place) => `${width - cells.length + place},${(40 - (cell.rows / highest) * 38).toFixed(1)}`);
  return made("figure", {},
    made("figcaption", {}, made("b", {}, stream), ` at most ${highest} rows in a bucket`),
    drawn("svg", { width, height: 42, role: "img", "aria-label": `${stream}: rows of the last ${cells.length} buckets, at most ${highest}`, class: "spark" },
      drawn("polyline", { points: points.join(" ") })));
}
