"use strict";
// What the page holds: base64 of gzip in elements of the file, or the same from the server that the page came from.

const page = { charts: new Map(), runs: [], live: "" };
const CACHED = 12; // blocks of lines that stay decoded

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

async function unpacked(name) {
  const element = byId(`data-${name}`);
  if (!element) {
    const answer = await fetch(`data/${page.live}/${name}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.text();
  }
  const plain = new Blob([bytesOf(element.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).text();
}

const store = {
  size: 0, total: 0, paid: 0, reasons: [], columns: new Map(), starts: [], places: new Map(), groups: new Map(), told: new Map(),
  blocks: new Map(), opening: null, pieces: null,

  // Columns and where to find each line; the lines themselves are read when they are looked at.
  open() {
    this.opening ??= this.read();
    return this.opening;
  },
  async read() {
    const index = JSON.parse(await unpacked("index"));
    Object.assign(this, { size: index.count, total: index.total, reasons: index.reasons, starts: index.starts, paid: index.paid });
    this.columns = new Map(Object.entries(index.columns).map(([name, own]) => [name, own]));
    const [runs, files, sequences, siblings] = ["run", "file", "sequence", "sibling"].map((name) => this.column(name));
    const stems = new Map();
    for (let place = 0; place < this.size; place++) {
      let stem = stems.get(files[place]);
      if (stem === undefined) stems.set(files[place], (stem = files[place].replace(/\.jsonl(\.gz)?$/, "")));
      const group = `${page.runs.length > 1 ? `r${runs[place]}/` : ""}${stem}:${sequences[place]}`;
      if (!this.groups.has(group)) this.groups.set(group, []);
      this.groups.get(group).push(place);
      this.places.set(`${group}.${siblings[place]}`, place);
    }
    this.names = [...this.places.keys()];
    return this;
  },
  column(name) { return this.columns.get(name) ?? []; },
  get(name, place) { return this.column(name)[place] ?? null; },
  id(place) {
    const file = this.get("file", place).replace(/\.jsonl(\.gz)?$/, "");
    const run = page.runs.length > 1 ? `r${this.get("run", place)}/` : "";
    return `${run}${file}:${this.get("sequence", place)}.${this.get("sibling", place)}`;
  },
  groupOf(place) { return this.id(place).replace(/\.[^.]*$/, ""); },

  blockOf(place) {
    let low = 0, high = this.starts.length;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= place) low = middle; else high = middle;
    }
    return low;
  },
  async lines(block) {
    if (!this.blocks.has(block)) {
      this.blocks.set(block, unpacked(`block-${block}`).then((text) => text.split("\n")));
      if (this.blocks.size > CACHED) this.blocks.delete(this.blocks.keys().next().value);
    }
    return this.blocks.get(block);
  },
  async episode(place) {
    const block = this.blockOf(place);
    const lines = await this.lines(block);
    return asEpisode(lines[place - this.starts[block]]);
  },
  // By token id its bytes as letters, or the reason why they are unknown.
  async texts() {
    if (this.pieces === null) {
      const found = JSON.parse(await unpacked("pieces"));
      this.pieces = typeof found === "string" ? found : new Map(found[0].map((token, at) => [token, found[1][at]]));
    }
    return this.pieces;
  },
};

// Another's file: each part is what it should be, or absent.
function asEpisode(line) {
  let found;
  try {
    found = JSON.parse(line);
  } catch (error) {
    found = { unreadable: String(error) };
  }
  if (!isObject(found)) found = { unreadable: "not an object" };
  const message = (each) => ({ role: asText(each?.role), content: asText(each?.content), inline: each?.inline === true });
  const prompt = list(found.prompt).map(message);
  return {
    line: found, prompt, messages: list(found.messages).map(message), task: isObject(found.task) ? found.task : {},
    parts: isObject(found.parts) ? Object.entries(found.parts) : [], findings: list(found.findings).filter(isObject),
    judgements: list(found.judgements).map(asText), failure: isObject(found.failure) ? found.failure : null,
    retried: list(found.retried).filter(isObject), turns: list(found.turns).filter(isObject),
    tokens: list(found.token_ids).map((turn) => list(turn).filter(Number.isInteger)), unreadable: found.unreadable ?? null,
    versions: list(found.weight_versions), logprobs: list(found.logprobs), advantages: list(found.token_advantages),
  };
}

function halfFloats(base64) {
  const view = new DataView(bytesOf(base64).buffer);
  const found = new Float32Array(view.byteLength >> 1);
  for (let at = 0; at < found.length; at++) {
    const bits = view.getUint16(2 * at, true);
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24
      : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
    found[at] = bits & 0x8000 ? -size : size;
  }
  return found;
}
