"use strict";
// A filter is a text, the same in the box and in the link: step=201-245&correct=0&reward>0.5&failed=any&q=words

const NUMBERS = new Map([["seq", "sequence"], ["version", "first_version"]].concat(
  ["run", "step", "sequence", "sibling", "attempt", "reward", "advantage", "tokens", "turns", "calls", "seconds",
    "first_version", "last_version", "correct", "truncated"].map((name) => [name, name])));
const WORDS = new Map([["task", "task_id"], ["failed", "failure"]].concat(
  ["file", "stage", "play", "when", "task_id", "end", "failure", "worker"].map((name) => [name, name])));
const TERM = /^\s*([\w.\/-]+?)\s*(!=|>=|<=|==|=|>|<)\s*(.*?)\s*$/s;

// {places: test of a place, deep: test of an episode or null, sort: [column, sign] or null, errors: [text]}
function readFilter(text) {
  const filter = { tests: [], deep: [], words: [], sort: null, errors: [] };
  for (const term of text.split("&").filter((each) => each.trim())) {
    const found = TERM.exec(term);
    if (!found) filter.words.push(term.trim());
    else addTerm(filter, found[1], found[2], found[3].replaceAll("%26", "&"));
  }
  return filter;
}

function addTerm(filter, name, operator, value) {
  if (name === "q") filter.words.push(value);
  else if (name === "sort") filter.sort = readSort(value, filter.errors);
  else if (name === "tool") filter.deep.push((episode) => callsOf(episode).has(value.toLowerCase()));
  else if (name === "rule") filter.deep.push((episode) => episode.findings.some((each) => asText(each.rule) === value));
  else if (name.startsWith("part.")) {
    const test = numberTest(operator, value, filter.errors);
    filter.deep.push((episode) => test(episode.parts.find(([part]) => part === name.slice(5))?.[1] ?? null));
  } else if (NUMBERS.has(name)) {
    const test = numberTest(operator, value, filter.errors);
    filter.tests.push([NUMBERS.get(name), test]);
  } else if (WORDS.has(name)) filter.tests.push([WORDS.get(name), wordTest(operator, value)]);
  else filter.errors.push(`no column "${name}"`);
}

function readSort(value, errors) {
  const name = value.replace(/^-/, "");
  const column = NUMBERS.get(name) ?? WORDS.get(name);
  if (!column) errors.push(`no column "${name}" to sort by`);
  return column ? [column, value.startsWith("-") ? -1 : 1] : null;
}

const asNumber = (value) => (value === true ? 1 : value === false ? 0 : value);

// 3, 201-245, -1:0, any, none
function numberTest(operator, value, errors) {
  const negate = operator === "!=";
  if (value === "any" || value === "none") return (own) => (own !== null) === ((value === "any") !== negate);
  const range = /^(-?[\d.e+]+?):(-?[\d.e+-]+)$/.exec(value) ?? /^([\d.]+)-([\d.]+)$/.exec(value);
  const [low, high] = range ? [Number(range[1]), Number(range[2])] : [Number(value), Number(value)];
  if (value === "" || Number.isNaN(low) || Number.isNaN(high)) errors.push(`"${value}" is no number and no range`);
  if (operator === ">") return (own) => own !== null && asNumber(own) > low;
  if (operator === "<") return (own) => own !== null && asNumber(own) < low;
  if (operator === ">=") return (own) => own !== null && asNumber(own) >= low;
  if (operator === "<=") return (own) => own !== null && asNumber(own) <= low;
  return (own) => own !== null && (asNumber(own) >= low && asNumber(own) <= high) !== negate;
}

function wordTest(operator, value) {
  const negate = operator === "!=";
  if (value === "any" || value === "none") return (own) => (own !== null) === ((value === "any") !== negate);
  if (operator === "==") return (own) => own === value;
  const wanted = value.toLowerCase();
  return (own) => (own !== null && String(own).toLowerCase().includes(wanted)) !== negate;
}

// Places that pass what columns tell, in the order of the filter.
function filterColumns(filter) {
  const tests = filter.tests.map(([name, test]) => [store.column(name), test]);
  const places = [];
  for (let place = 0; place < store.size; place++) {
    if (tests.every(([column, test]) => test(column[place] ?? null))) places.push(place);
  }
  return sortPlaces(places, filter.sort);
}

// Without a wish the newest step first.
function sortPlaces(places, sort) {
  sort ??= ["step", -1];
  const column = store.column(sort[0]);
  const key = (place) => asNumber(column[place] ?? null);
  return places.sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    if (one === other) return a - b;
    if (one === null || other === null) return one === null ? 1 : -1;
    return sort[1] * (one < other ? -1 : 1);
  });
}

// Reads the texts of `places`, block after block; `progress` hears how far it is and returns false to stop.
async function searchTexts(filter, places, progress) {
  const wanted = new Set(places), words = filter.words.map((each) => each.toLowerCase());
  const raw = words.map((each) => JSON.stringify(each).slice(1, -1)); // as it stands in a line of JSON
  const blocks = [...new Set(places.map((place) => store.blockOf(place)))].sort((a, b) => a - b);
  const found = new Set();
  for (const [done, block] of blocks.entries()) {
    const text = await unpackedOnce(block);
    const whole = words.length ? text.join("\n").toLowerCase() : "";
    if (raw.every((each) => whole.includes(each))) {
      for (const [at, line] of text.entries()) {
        const place = store.starts[block] + at;
        if (!wanted.has(place) || !raw.every((each) => line.toLowerCase().includes(each))) continue;
        const episode = asEpisode(line);
        if (filter.deep.every((test) => test(episode)) && words.every((each) => says(episode, each))) found.add(place);
      }
    }
    if (progress(done + 1, blocks.length, found.size) === false) break;
    await new Promise((resolve) => setTimeout(resolve));
  }
  return places.filter((place) => found.has(place));
}

// A search passes all blocks once: it neither fills the cache nor empties it.
const unpackedOnce = async (block) =>
  store.blocks.get(block) ?? (await unpacked(`block-${block}`)).split("\n");

function says(episode, words) {
  const texts = [...episode.prompt, ...episode.messages].map((each) => each.content);
  texts.push(asText(episode.task.question), asText(episode.failure?.detail), ...episode.judgements);
  return texts.some((text) => text.toLowerCase().includes(words));
}
