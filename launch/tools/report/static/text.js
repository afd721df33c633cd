"use strict";
// The text of a message: folded where it is long, with calls and findings marked, or as tokens with a colour each.

const FOLD = 4000; // characters that are shown at first
const SPANS = 2000; // tokens that are drawn at a time
const MODES = new Map([["text", "text"], ["logprob", "log-prob"], ["version", "version"], ["trained", "trained"], ["advantage", "advantage"]]);

// Offsets of findings count characters, a browser's count halves of surrogate pairs.
function offsetAt(text, offset) {
  let index = 0;
  for (let passed = 0; passed < offset && index < text.length; passed++) index += text.codePointAt(index) > 0xffff ? 2 : 1;
  return index;
}

// What the model wrote to call a tool: the last <name>..</name>, at the end of a message that was answered by one.
function callSpan(text) {
  const end = text.trimEnd().length;
  const close = text.lastIndexOf("</", end);
  const name = close < 0 || text[end - 1] !== ">" ? "" : text.slice(close + 2, end - 1);
  if (!/^[\w-]{1,40}$/.test(name)) return null;
  const start = text.lastIndexOf(`<${name}>`, close);
  return start < 0 ? null : { start, end, name };
}
function callAt(messages, at) {
  const answered = messages[at + 1] && messages[at + 1].role !== "assistant";
  return answered && messages[at].role === "assistant" ? callSpan(messages[at].content) : null;
}
const callsOf = (episode) => new Set(episode.messages.map((_, at) => callAt(episode.messages, at)?.name.toLowerCase()).filter(Boolean));

// marks: [{start, end, class, title}], which may overlap.
function drawText(text, marks = [], limit = FOLD) {
  const element = make("div", { class: "text" });
  const end = text.length > limit ? limit - (text.codePointAt(limit - 1) > 0xffff ? 1 : 0) : text.length;
  const cuts = [...new Set([0, end, ...marks.flatMap((each) => [each.start, each.end])])].filter((cut) => cut <= end).sort((a, b) => a - b);
  for (let cut = 0; cut + 1 < cuts.length; cut++) {
    const [from, to] = [cuts[cut], cuts[cut + 1]];
    const over = marks.filter((each) => each.start <= from && each.end >= to);
    const part = text.slice(from, to);
    if (over.length) element.append(make("span", { class: over.map((each) => each.class).join(" "), title: over.map((each) => each.title).filter(Boolean).join("; ") }, part));
    else put(element, part);
  }
  if (end < text.length) {
    element.append(button(`show all ${count(text.length)} characters`, () => element.replaceWith(drawText(text, marks, Infinity))));
  }
  return element;
}

// Each token's text: bytes of a character that continues in the next token are shown with that one.
function tokenTexts(ids, pieces) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return ids.map((id) => {
    const letters = pieces.get(id);
    if (letters === undefined) return `\u27e8${id}\u27e9`;
    return decoder.decode(Uint8Array.from(letters, (letter) => letter.charCodeAt(0)), { stream: true });
  });
}

function numbersOf(own, turn) {
  try {
    return typeof own?.[turn] === "string" ? halfFloats(own[turn]) : [];
  } catch {
    return []; // no base64
  }
}

// Of each token of a turn: text, id, log-probability, version, advantage, where they are known.
function tokensOf(episode, turn, pieces) {
  const ids = episode.tokens[turn] ?? [];
  const [logprobs, advantages] = [numbersOf(episode.logprobs, turn), numbersOf(episode.advantages, turn)];
  const versions = new Array(ids.length).fill(null);
  for (const span of list(episode.versions[turn])) {
    const end = Math.min(span?.[2] | 0, ids.length);
    for (let token = Math.max(0, span?.[1] | 0); token < end; token++) versions[token] = Number.isInteger(span[0]) ? span[0] : null;
  }
  const whole = episode.line.advantage ?? null;
  return tokenTexts(ids, pieces).map((text, token) => ({
    text, id: ids[token], logprob: logprobs[token] ?? null, version: versions[token], advantage: advantages[token] ?? whole,
  }));
}

const rgb = (hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16)).join(", ");
const tint = (hex, share) => `rgba(${rgb(hex)}, ${Math.max(0, Math.min(1, share)).toFixed(3)})`;
// By mode the colour of a token, from the page's colours as they are now: asking for one takes longer than drawing a token.
function makePalette() {
  const [warn, policy, bad, good] = ["--warn", "--policy", "--bad", "--good"].map(style), versions = [3, 4, 5, 6, 7, 8].map(colourOf);
  return {
    logprob: (token) => (token.logprob === null ? "" : tint(warn, Math.sqrt(Math.max(0, -token.logprob) / 5))),
    version: (token) => (token.version === null ? "" : tint(versions[Math.abs(token.version) % 6], 0.4)),
    trained: (token) => (token.advantage === null ? "" : tint(policy, 0.35)),
    advantage: (token, most) => (token.advantage === null ? "" : tint(token.advantage < 0 ? bad : good, (0.75 * Math.abs(token.advantage)) / (most || 1))),
  };
}

function drawTokens(tokens, mode, most) {
  const element = make("div", { class: "text tokens" }), colourIn = makePalette()[mode];
  let drawn = 0;
  const more = button("", draw);
  function draw() {
    more.remove();
    for (const token of tokens.slice(drawn, drawn + SPANS)) {
      const facts = [`token ${token.id}`, token.logprob === null ? null : `log-prob ${brief(token.logprob)}`,
        token.version === null ? null : `version ${token.version}`, token.advantage === null ? "not trained" : `advantage ${signed(token.advantage)}`];
      const span = make("span", { title: facts.filter(Boolean).join(" \u00b7 ") }, token.text || "\u00b7");
      span.style.backgroundColor = colourIn(token, most);
      if (token.advantage === null && mode !== "logprob" && mode !== "version") span.className = "untrained";
      element.append(span);
    }
    drawn = Math.min(drawn + SPANS, tokens.length);
    if (drawn < tokens.length) {
      more.textContent = `${count(tokens.length - drawn)} more tokens`;
      element.append(more);
    }
  }
  draw();
  return element;
}

function drawLegend(mode, tokens, most) {
  const palette = makePalette();
  const swatch = (colour, text) => {
    const box = make("span", { class: "swatch" });
    box.style.backgroundColor = colour;
    return make("span", { class: "key" }, box, text);
  };
  if (mode === "logprob") {
    if (tokens.every((each) => each.logprob === null)) return make("span", {}, "log-probabilities were not recorded (trajectories.logprobs)");
    return make("span", {}, ["0", "\u22121", "\u22122", "\u22123", "\u22124", "\u22125 nats or less"].map((text, at) => swatch(palette.logprob({ logprob: -at }), text)));
  }
  if (mode === "version") {
    const versions = [...new Set(tokens.map((each) => each.version))].filter((each) => each !== null).slice(0, 12);
    return make("span", {}, versions.map((each) => swatch(palette.version({ version: each }), `version ${each}`)));
  }
  if (mode === "trained") return make("span", {}, swatch(tint(style("--policy"), 0.35), "in the loss"), swatch("transparent", "not in the loss: prompt, results, groups without signal"));
  if (mode === "advantage") return make("span", {}, swatch(tint(style("--good"), 0.75), signed(most)), swatch(tint(style("--bad"), 0.75), signed(-most)));
  return make("span", {});
}
