"use strict";
// One trajectory: what it was, what it got and why, and the conversation as the policy saw it.

const CARDS = 200; // messages that are drawn at a time
const MARKS = 200; // findings that are underlined in one of them
const KINDS = new Map([["assistant", "model"], ["tool", "result"], ["user", "result"], ["system", "prompt"]]);
let mode = "text";
let shownEpisode = null; // {place, episode}
let asked = 0; // trajectories and groups so far: what is asked for last is shown, whichever is read first

const fact = (label, value) => (value === "" || value === null ? null
  : make("div", { class: "fact" }, make("span", { class: "label" }, label), make("span", { class: "value" }, value)));

function factsOf(place) {
  const get = (name) => store.get(name, place);
  const correct = asNumber(get("correct"));
  const versions = get("first_version") === null ? "" : get("first_version") === get("last_version") ? get("last_version")
    : `${get("first_version")}\u2013${get("last_version")}`;
  return [
    fact("reward", get("reward") === null ? "none" : brief(get("reward"))), fact("right", correct === null ? "" : correct ? "yes" : "no"),
    fact("advantage", get("advantage") === null ? "not trained" : signed(get("advantage"))), fact("tokens", brief(get("tokens"))),
    fact("turns", brief(get("turns"))), fact("calls", brief(get("calls"))),
    fact("end", (get("end") ?? "") + (get("truncated") ? ", cut off" : "")), fact("failure", get("failure")),
    fact("step", brief(get("step"))), fact("played for", get("play") ? `${get("play")} ${get("when") ?? ""}` : get("stage") ?? "training"),
    fact("version", String(versions)), fact("worker", get("worker")), fact("seconds", brief(get("seconds"))),
  ];
}

function drawParts(episode) {
  if (!episode.parts.length) return null;
  const rows = episode.parts.slice(0, 60).map(([name, value]) =>
    make("tr", {}, make("td", {}, shorten(name, 80)), make("td", { class: "number" }, brief(value))));
  const more = episode.parts.length > 60 ? make("p", { class: "quiet" }, `and ${count(episode.parts.length - 60)} more parts`) : null;
  return make("section", {}, make("h3", {}, "Parts of the reward"), make("table", { class: "parts" }, rows), more);
}
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most)}\u2026 (${count(text.length)} characters)` : text);

function drawFailure(failure, title) {
  if (!failure) return null;
  const where = failure.where ? ` in ${shorten(asText(failure.where), 200)}` : "";
  return make("section", { class: "failure" }, make("h3", {}, `${title}: ${asText(failure.kind)}${where}`), drawText(asText(failure.detail)));
}

// What an agent left behind, in an episode of one.
const agentOf = ({ line: { state } }) => (isObject(state) && "exit" in state && "conversations" in state ? state : null);
const nameOf = (episode, number) => `${agentOf(episode) ? "request" : "turn"} ${Number.isInteger(number) ? number + 1 : "?"}`;

function drawAgent(episode) {
  const agent = agentOf(episode);
  if (!agent) return null;
  const entry = (name, ...value) => make("p", {}, make("span", { class: "label" }, `${name} `), ...value);
  return make("section", {}, make("h3", {}, "Agent"), entry("exit code", asText(agent.exit ?? "none, it was ended")),
    entry("returned", "returned" in agent ? shorten(JSON.stringify(agent.returned), 600) : "nothing"),
    agent.output ? [entry("the end of its output"), drawText(asText(agent.output))] : null);
}

const BEGINS = new Map([
  ["conversation", () => "new conversation"],
  ["retold", () => "history retold: the assistant's messages in it are context, not trained"],
  ["again", (other) => `continues ${other} once more`],
  ["rewritten", (other) => `continues ${other} in other tokens than were sampled`],
]);

// By the number of the message that it begins with, what is said of a training sample; none where all is one.
function samplesOf(episode) {
  const samples = new Map(), { turns, prompt } = episode;
  const said = episode.messages.flatMap((own, at) => (own.role === "assistant" ? [prompt.length + at] : []));
  const starts = turns.flatMap((own, turn) => (BEGINS.has(own.begins) ? [turn] : []));
  const reset = starts.slice(1).some((turn) => turns[turn].begins !== "rewritten");
  if (said.length !== turns.length || !(reset || agentOf(episode))) return samples;
  starts.forEach((turn, at) => {
    const { number, after, begins } = turns[turn], first = number === 0;
    const reason = BEGINS.get(begins)(nameOf(episode, after)) + (first && turn ? ", which begins with the prompt above" : "");
    samples.set(turn ? said[turn - 1] + 1 : first ? 0 : prompt.length, [`sample ${at + 1}`, reason, trainedOf(episode, turn, starts[at + 1])]);
  });
  return samples;
}

function trainedOf(episode, start, end) {
  const sampled = episode.tokens.slice(start, end).flat().length;
  const told = episode.advantages.slice(start, end).flatMap((_, at) => [...numbersOf(episode.advantages, start + at)]);
  const trained = told.length ? told.filter((each) => !Number.isNaN(each)).length : (episode.line.advantage ?? null) === null ? 0 : sampled;
  return `${count(sampled)} tokens, ${!trained ? "not " : trained < sampled ? `${count(trained)} of them ` : ""}trained`;
}

function marksOf(episode, number, text) {
  return episode.findings.filter((each) => each.message === number && Number.isInteger(each.start) && Number.isInteger(each.end))
    .slice(0, MARKS).map((each) => ({ start: offsetAt(text, each.start), end: offsetAt(text, each.end), class: `finding ${kindOf(each)}`, title: findingText(each) }));
}
const quoteOf = (each, text) => {
  const said = typeof each.text === "string" ? each.text : text.slice(offsetAt(text, each.start ?? 0), offsetAt(text, each.end ?? 0));
  return said ? `\u201c${shorten(said, 200)}\u201d` : "";
};
const kindOf = (each) => (each.value > 0 ? "is-right" : "is-wrong");
const findingText = (each) => `${asText(each.rule)} ${typeof each.value === "number" ? signed(each.value) : asText(each.value)}`;

// A card for each message: who said it stands in colour, edge and word.
function drawCard(episode, number, prompt, turn, tokens, most) {
  const own = number < prompt ? episode.prompt[number] : episode.messages[number - prompt];
  const kind = number < prompt ? "prompt" : KINDS.get(own.role) ?? "result";
  const word = kind === "model" ? `model, ${nameOf(episode, episode.turns[turn]?.number ?? turn)}` : kind === "prompt" ? `prompt, ${own.role}` : own.role === "tool" ? "tool result" : "environment";
  const marks = marksOf(episode, number, own.content);
  const call = kind === "model" ? callAt(episode.messages, number - prompt) : null;
  if (call) marks.push({ ...call, class: "call", title: `call of ${call.name}` });
  const body = tokens ? drawTokens(tokens, mode, most) : drawText(own.content, marks);
  const size = kind === "model" && episode.tokens[turn] ? `${count(episode.tokens[turn].length)} tokens` : `${count(own.content.length)} characters`;
  const label = make("div", { class: "who" }, make("b", {}, word), make("span", {}, size), call ? make("span", { class: "called" }, `calls ${call.name}`) : null);
  const findings = episode.findings.filter((each) => each.message === number);
  const under = findings.length ? make("ul", { class: "findings" }, findings.slice(0, 50).map((each) =>
    make("li", {}, make("b", { class: kindOf(each) }, findingText(each)), ` ${quoteOf(each, own.content)}`))) : null;
  const judged = kind === "model" && episode.judgements[turn] ? make("p", { class: "judged" }, "judge: ", shorten(episode.judgements[turn], FOLD)) : null;
  return make("article", { class: `card ${kind}` }, label, make("div", { class: "said" }, body, under, judged));
}

const drawSample = ([name, reason, tokens]) =>
  make("p", { class: "sample" }, make("b", {}, name), ` ${reason} \u00b7 `, make("span", { class: "quiet" }, tokens));

function drawCards(episode, tokens, most) {
  const holder = make("div", { class: "cards" }), samples = samplesOf(episode);
  const prompt = episode.prompt.length, all = prompt + episode.messages.length;
  let drawn = 0, turn = 0;
  const more = button("", draw);
  function draw() {
    more.remove();
    for (const end = Math.min(drawn + CARDS, all); drawn < end; drawn++) {
      const isModel = drawn >= prompt && episode.messages[drawn - prompt].role === "assistant";
      if (samples.has(drawn)) holder.append(drawSample(samples.get(drawn)));
      holder.append(drawCard(episode, drawn, prompt, turn, isModel && tokens ? tokens[turn] ?? null : null, most));
      if (isModel) turn++;
    }
    if (drawn < all) {
      more.textContent = `${count(all - drawn)} more messages`;
      holder.append(more);
    }
  }
  draw();
  return holder;
}

async function showEpisode(id) {
  await store.open();
  const place = store.places.get(id);
  const view = byId("episode");
  if (place === undefined) {
    fill(view, drawMissing(id, "trajectories"));
    return;
  }
  const turn = ++asked, episode = await store.episode(place);
  if (turn !== asked) return;
  shownEpisode = { place, episode };
  findInList([place]);
  await drawEpisode();
}

async function drawEpisode() {
  const { place, episode } = shownEpisode;
  const pieces = mode === "text" ? null : await store.texts();
  const known = pieces instanceof Map;
  const turns = known ? episode.tokens.map((_, turn) => tokensOf(episode, turn, pieces)) : null;
  const all = turns?.flat() ?? [];
  const most = all.reduce((largest, each) => Math.max(largest, Math.abs(each.advantage ?? 0)), 0);
  const group = store.groupOf(place), siblings = store.groups.get(group).length;
  const link = (by, text, title) => {
    const next = listed.places[listed.at + by];
    return next === undefined ? make("span", { class: "quiet" }, text) : make("a", { href: linkTo("t", store.id(next)), title }, text);
  };
  const modes = [...MODES].map(([name, title]) => {
    const one = button(title, () => { mode = name; drawEpisode(); });
    one.setAttribute("aria-pressed", String(name === mode));
    return one;
  });
  fill(byId("episode"),
    make("div", { class: "bar" },
      make("a", { href: listed.text ? `#t?${encodeFilter(listed.text)}` : "#t" }, "\u2190 list"), link(-1, "previous", "k"), link(1, "next", "j"),
      make("h2", {}, store.id(place)), make("a", { href: linkTo("g", group) }, siblings > 1 ? `all ${siblings} siblings` : "group"),
      make("span", { class: "grow" }),
      make("span", { class: "choice", title: "colour of the model's tokens" }, modes),
      make("span", { class: "choice" }, "copy as", [...COPIES].map(([name, make_]) => button(name, () => copy(make_(place, episode), name))))),
    make("div", { class: "facts" }, factsOf(place)),
    mode === "text" ? null : make("p", { class: "legend" }, known ? drawLegend(mode, all, most) : String(pieces)),
    episode.unreadable === null ? null : make("section", { class: "failure" }, make("h3", {}, "This line cannot be read"), drawText(`${asText(episode.unreadable)}\n${asText(episode.line.line)}`)),
    drawFailure(episode.failure, "Failed"), episode.retried.slice(0, 20).map((each) => drawFailure(each, "Failed before, and was played again")),
    make("div", { class: "columns" }, drawCards(episode, turns, most),
      make("aside", {}, drawParts(episode), drawAgent(episode), drawSiblings(store.groups.get(group), place), drawTask(episode), drawMore(episode))));
}

// A row for each, and all of them on the screen: those whose reward is rare come first. place: the one that is shown.
function drawSiblings(places, place) {
  if (places.length < 2) return null;
  const rows = rarestFirst(places).slice(0, 64).map((other) => {
    const name = `sibling ${store.get("sibling", other)}`, right = asNumber(store.get("correct", other));
    return make("tr", {}, make("td", {}, other === place ? make("b", {}, name) : make("a", { href: linkTo("t", store.id(other)) }, name)),
      make("td", { class: right ? "is-right" : "is-wrong" }, cellText("correct", other)), make("td", { class: "number" }, fixed(store.get("reward", other))),
      make("td", {}, cellText("end", other)), place === null ? ["tokens", "turns"].map((name) => make("td", { class: `number of-${name}` }, `${cellText(name, other)} ${name}`)) : null,
      place === null ? make("td", { class: "cell of-said" }, make("span", {}, store.told.get(other)?.said ?? "")) : null);
  });
  return make("section", {}, make("h3", {}, "Siblings"), make("table", { class: "parts each" }, rows));
}

function drawTask(episode) {
  const { task_id, question, answers, ...rest } = episode.task;
  const other = Object.keys(rest).length ? make("details", {}, make("summary", {}, "all of the task"), drawText(JSON.stringify(rest, null, 1))) : null;
  return make("section", {}, make("h3", {}, "Task"), make("p", { class: "quiet" }, shorten(asText(task_id), 200)),
    list(answers).length ? make("p", {}, make("span", { class: "label" }, "answers "), shorten(answers.map(asText).join(" | "), 600)) : null, other);
}

function drawMore(episode) {
  const shown = ["metrics", "state", "seconds"].filter((name) => isObject(episode.line[name]) && Object.keys(episode.line[name]).length);
  return make("section", {}, shown.map((name) => make("details", {}, make("summary", {}, name), drawText(JSON.stringify(episode.line[name], null, 1)))));
}

const quoted = (text) => (/^[\w@%+=:,.\/-]+$/.test(text) ? text : `'${shown(text).replaceAll("'", `'\\''`)}'`);
const runOf = (place) => quoted(`runs/${page.runs[store.get("run", place) ?? 0]?.name ?? "RUN"}`);
const plainId = (place) => quoted(store.id(place).replace(/^r\d+\//, ""));
const COPIES = new Map([
  ["link", () => location.href],
  ["JSON", (_, episode) => JSON.stringify(episode.line)],
  ["score", (place) => `rlsys show ${runOf(place)} ${plainId(place)} --json | rlsys score ${runOf(place)}/config.yaml --input - --explain`],
  ["play", (place, episode) => `rlsys play ${runOf(place)}/config.yaml --split all --task ${quoted(asText(episode.task.task_id))}`],
  ["Markdown", (place, episode) => asMarkdown(place, episode)],
]);

const ROLES = ["system", "user", "assistant", "tool", "environment"];

// For an issue: each message in a fence that no line of it can close.
function asMarkdown(place, episode) {
  const samples = samplesOf(episode);
  const said = [...episode.prompt, ...episode.messages].map((each, number) => {
    const longest = Math.max(2, ...[...each.content.matchAll(/`+/g)].map((found) => found[0].length));
    const fence = "`".repeat(longest + 1);
    const sample = samples.has(number) ? `*${samples.get(number).join("; ")}*\n\n` : "";
    return `${sample}${number < episode.prompt.length ? "prompt, " : ""}${ROLES.includes(each.role) ? each.role : "other"}:\n\n${fence}\n${shown(each.content)}\n${fence}`;
  });
  const facts = ["reward", "correct", "advantage", "tokens", "end", "failure"].filter((name) => store.get(name, place) !== null)
    .map((name) => `${name} ${shown(store.get(name, place))}`);
  return [`**${shown(store.id(place))}**: ${facts.join(", ")}`, ...said].join("\n\n");
}
