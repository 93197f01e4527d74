// Puts the parts together: tabs, the verdict, and what is shown of each change.

import { showDelays } from "./delays.js";
import { made, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { Graph } from "./graph.js";
import { showEvents, Strips } from "./strips.js";
import { showLetters, showMarket, showProcesses } from "./tables.js";
import { duration } from "./words.js";

const at = (id) => document.getElementById(id);
const TABS = [["now", "Now"], ["delay", "Delay"], ["letters", "Dead letters"], ["processes", "Processes"], ["market", "Market"]];
const graph = new Graph(at("graph"));
const strips = new Strips(at("strips"), at("readout"), at("legend"), at("spans"));
let open = "now";
let due = false;

const feed = new Feed(() => {
  // Once for each frame, however many messages have come; and not at all while nobody sees it.
  if (due) return;
  due = true;
  requestAnimationFrame(show);
});

function show() {
  due = false;
  const { known } = feed;
  setText(at("contact"), feed.isConnected ? known?.contact ?? "" : "no connection to the page's server: what is shown is old");
  if (!known) return;
  setText(at("name"), known.pipeline.name);
  document.title = `${known.pipeline.name}: anabranch`;
  const [tone, words] = verdict(known);
  at("verdict").dataset.tone = tone;
  setText(at("verdict"), words);
  at("tab-market").hidden = !known.pipeline.federation;
  setText(at("tab-letters"), lettersTitle(known.rejected));
  if (open === "now") {
    graph.show(feed);
    strips.show(feed);
    showEvents(at("events"), feed.events);
  } else if (open === "delay") showDelays(at("panel-delay"), feed);
  else if (open === "letters") showLetters(at("panel-letters"), known.rejected);
  else if (open === "processes") showProcesses(at("panel-processes"), known.processes);
  else showMarket(at("panel-market"), known.market, known.agent);
}

function lettersTitle(rejected) {
  const many = Object.values(rejected).flatMap((each) => Object.values(each.by_reason)).reduce((a, b) => a + b, 0);
  return many ? `Dead letters (${many})` : "Dead letters";
}

// One sentence about everything; the worst first.
function verdict(known) {
  if (known.contact) return ["bad", "The topics cannot be read"];
  const cards = Object.entries(known.cards).map(([key, card]) => [key.slice(key.indexOf(" ") + 1), card]);
  const named = (tone) => [...new Set(cards.filter(([, card]) => card.tone === tone).map(([name]) => name))].join(", ");
  const missing = [...new Set(cards.flatMap(([, card]) => card.missing))];
  // What is missing further down follows from what is missing at the beginning.
  const first = missing.filter((name) => known.cards[`stream ${name}`]?.missing.length === 0);
  if (missing.length) {
    const without = (first.length ? first : missing).join(", ");
    return ["warn", `Results are tentative, without ${without}, and at most ${duration(known.pipeline.max_delay_ms)} later than usual`];
  }
  const shed = Math.max(0, ...cards.map(([, card]) => card.shed));
  if (shed) return ["warn", `Results are tentative: a stage is overloaded, and they are made from ${(1000 - shed) / 10} % of the rows or more`];
  const lost = cards.flatMap(([name, card]) => card.replicas.filter((each) => each.tone === "bad").map((each) => `${name}.${each.replica}`));
  if (named("bad")) return ["bad", `Failed or silent: ${named("bad")}`];
  if (named("busy")) return ["busy", `Correcting or starting: ${named("busy")}`];
  if (named("off") && cards.every(([, card]) => card.tone === "off")) return ["off", "Nothing is heard of the pipeline"];
  if (lost.length) return ["warn", `All results are stable; without replica ${lost.join(", ")}`];
  return ["good", "All results are stable"];
}

function choose(id, hasFocus = false) {
  open = id;
  for (const [each] of TABS) {
    const tab = at(`tab-${each}`);
    tab.setAttribute("aria-selected", each === id);
    tab.tabIndex = each === id ? 0 : -1;
    at(`panel-${each}`).hidden = each !== id;
  }
  if (hasFocus) at(`tab-${id}`).focus();
  show();
}

at("tabs").replaceChildren(...TABS.map(([id, title]) =>
  made("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => choose(id) }, title)));
at("tabs").addEventListener("keydown", (event) => {
  const ids = TABS.map(([id]) => id).filter((id) => !at(`tab-${id}`).hidden);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  choose(ids[(ids.indexOf(open) + step + ids.length) % ids.length], true);
  event.preventDefault();
});
at("tab-market").hidden = true;
choose("now");
// Ages grow while nothing comes.
setInterval(() => feed.changed(), 1000);
