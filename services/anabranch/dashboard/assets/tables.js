// Dead letters, processes and the market as tables.

import { made, table, whenChanged } from "./dom.js";
import { clock, count, duration } from "./words.js";

export function showLetters(panel, rejected) {
  whenChanged(panel, rejected, () => [
    made("h2", {}, "Dead letters"),
    made("p", { class: "quiet" }, "Records that cannot be used. What one holds is not fetched until you ask for it."),
    ...Object.entries(rejected).flatMap(([source, found]) => letters(source, found)),
  ]);
}

function letters(source, found) {
  const reasons = Object.entries(found.by_reason);
  return [
    made("h3", {}, `${source} `, made("span", { class: "quiet" }, `in topic ${found.topic}`)),
    made("p", {}, reasons.length
      ? reasons.map(([reason, many]) => made("span", { class: "chip", "data-tone": "warn" }, `${reason}: ${count(many)}`))
      : made("span", { class: "quiet" }, "none counted since the process began")),
    table(`The newest dead letters of ${source}`,
      [["time"], ["reason"], ["why"], ["from"], ["bytes", "number"], ["content"]],
      found.samples.map((each) => [
        clock(each.at_ms), each.reason, each.error, each.from, count(each.bytes), content(source, each),
      ]), "The topic is empty."),
  ];
}

// Content that was shown once stays while newer dead letters come.
const contents = new Map();

function content(source, letter) {
  const box = made("div", { class: "content", "aria-live": "polite" });
  const key = `${source}/${letter.place}`;
  if (contents.has(key)) {
    box.append(made("pre", {}, contents.get(key)));
    return box;
  }
  const button = made("button", { type: "button", "aria-label": `show the content of the dead letter ${letter.place} of ${source}`,
    "data-key": key,
    onclick: async () => {
      button.disabled = true;
      try {
        const answer = await fetch(`/api/dead-letter/${encodeURIComponent(source)}/${letter.place}`);
        if (!answer.ok) throw new Error(await answer.text());
        const { text, base64 } = await answer.json();
        if (contents.size > 20) contents.clear();
        contents.set(key, text ?? `base64: ${base64}`);
        box.replaceChildren(made("pre", {}, contents.get(key)));
        button.hidden = true;
      } catch (error) {
        box.replaceChildren(String(error.message));
        button.disabled = false;
      }
    } }, "show");
  return made("div", {}, button, box);
}

const TONES = { running: "good", waiting: "good", standby: "good", starting: "busy", restarting: "busy",
  stopping: "off", paused: "warn", silent: "bad", failed: "bad" };

export function showProcesses(panel, processes) {
  whenChanged(panel, processes, () => [
    made("h2", {}, "Processes"),
    processes === null
      ? made("p", { class: "quiet" }, "Nothing is known of the processes: none runs here, and none is named by --process.")
      : table("Processes, and the replicas on each node",
        [["service"], ["name"], ["state"], ["lag", "number"], ["restarts", "number"], ["what it says"]],
        processes.map((each) => [
          each.service === "replica" ? made("span", { class: "quiet" }, "replica") : each.service,
          each.name,
          made("span", { class: "chip", "data-tone": TONES[each.state] ?? "off" }, each.state),
          duration(each.lag_ms), each.restarts,
          [each.cut, each.reported, each.waiting_for ? `waits for ${each.waiting_for}` : ""].filter(Boolean).join("; ") || each.address,
        ]), "There is none."),
  ]);
}

export function showMarket(panel, market, agent) {
  whenChanged(panel, [market, agent], () => [made("h2", {}, "Market"), ...own(agent), ...tables(market)]);
}

function own(agent) {
  if (!agent) return [];
  return [
    made("p", {}, "This participant's agent: ",
      made("b", {}, `load ${count(agent.load_units)} of ${count(agent.capacity_units)} units`),
      `, one more would cost ${count(agent.next_unit_micro)} micro-units a second. As a seller of load it is ${agent.phase}.`),
    table("Tasks that the agent knows", [["task"], ["where"], ["units", "number"]],
      agent.tasks.map(([name, place, units]) => [name, place, count(units)]), "It knows none."),
  ];
}

function tables(market) {
  if (market === null) return [made("p", { class: "quiet" }, "The contracts are being read.")];
  if (market.error) return [made("p", { class: "bad" }, market.error)];
  return [
    made("p", { class: "quiet" }, "What this participant may see. Prices are in micro-units per unit of load and second."),
    table("Participants",
      [["participant"], ["units it runs for others", "number"], ["units that run elsewhere", "number"], ["balance", "number"]],
      market.participants.map((each) => [each.participant, count(each.runs_for_others), count(each.runs_elsewhere), each.balance]),
      "No contract names anybody."),
    table("Contracts",
      [["contract"], ["version", "number"], ["state"], ["buyer"], ["seller"], ["price from", "number"], ["to", "number"], ["valid to"], ["waits for"]],
      market.contracts.map((each) => [each.contract, each.version, each.state, each.buyer, each.seller,
        count(each.price_lowest_micro), count(each.price_highest_micro), each.valid_to, each.waits_for_signature_of.join(", ")]),
      "There is no contract."),
    table("Who runs whose stage",
      [["task"], ["of"], ["run by"], ["contract"], ["units", "number"], ["price", "number"], ["from"], ["to"], ["why it ended"]],
      market.movements.map((each) => [each.task, each.of, each.run_by, each.contract, count(each.units), count(each.price_micro),
        each.from, each.to, each.why]),
      "No load has moved."),
    table("Offers as they pass",
      [["time"], ["contract"], ["by"], ["what"], ["tasks"]],
      market.offers.map((each) => [clock(each.at_ms), each.contract, each.by, each.what, each.text]),
      "Nobody has offered anything in the last hour."),
    made("p", {}, `Disputed measurements: ${count(market.disputes)}. Records that changed nothing: ${count(market.ignored)}.`),
  ];
}
