"use strict";
// The list of trajectories: rows of one height, of which only those in view are elements.
// The first column is drawn where there are several runs.

const MOST = 600_000; // rows: browsers draw no element that is much higher
const COLUMNS = [ // column, title, class
  ["run", "run", "wide run"], ["step", "step", "number"], ["play", "played for", ""], ["task_id", "question", ""],
  ["said", "answer", "wide"], ["answers", "right answer", "wide"], ["correct", "right", ""], ["reward", "reward", "number"],
  ["advantage", "advantage", "number"], ["tokens", "tokens", "number"], ["turns", "turns", "number"], ["end", "end", ""], ["sibling", "episode", ""],
];
const TOLD = 160; // characters of a question, of the end of a last message, and of the right answers
const listed = { text: "", places: [], at: 0, search: 0, telling: 0, rows: new Map() };

const CELLS = new Map([
  ["run", (place) => page.runs[store.get("run", place)]?.label ?? ""],
  ["play", (place) => store.get("play", place) ?? store.get("stage", place) ?? "training"],
  ["sibling", (place) => `${store.get("sequence", place)}.${store.get("sibling", place)}`],
  ["end", (place) => store.get("failure", place) ?? store.get("end", place) ?? ""],
  ["correct", (place) => ({ 1: "\u2713", 0: "\u2717" })[asNumber(store.get("correct", place))] ?? ""],
  ["reward", (place) => fixed(store.get("reward", place))],
  ["advantage", (place) => (store.get("advantage", place) === null ? "" : signed(store.get("advantage", place)))],
]);
const fixed = (value) => (typeof value === "number" ? value.toFixed(2).replace("-", "\u2212") : "");
const cellText = (name, place) => CELLS.get(name)?.(place) ?? brief(store.get(name, place));

function rowOf(place) {
  const row = make("a", { class: "row", href: linkTo("t", store.id(place)) });
  if (store.get("failure", place) !== null) row.classList.add("broken");
  for (const [name, , kind] of COLUMNS) {
    const cell = make("span", { class: `cell of-${name} ${kind}` }, cellText(name, place));
    if (name === "correct") cell.classList.add(asNumber(store.get(name, place)) ? "is-right" : "is-wrong");
    row.append(cell);
  }
  fillTold(row, place);
  return row;
}

// What only the line of a trajectory tells, by column: the task by its question, what the model said last, and the right answers.
function fillTold(row, place) {
  COLUMNS.forEach(([name], at) => {
    const text = store.told.get(place)?.[name];
    if (text) fill(row.children[at], make("span", { title: text }, text));
  });
}

function tell({ task, prompt, messages }) {
  const asked = asText(task.question) || (prompt.at(-1)?.content ?? ""), last = messages.findLast((each) => each.role === "assistant")?.content ?? "";
  const answers = list(task.answers).map(asText).join(" | ") || asText(task.answer);
  const said = last.trim().replace(/<\/[\w-]+>$/, "").slice(-TOLD); // a closing tag tells nothing
  return { task_id: asked.trim().slice(0, TOLD), said, answers: answers.slice(0, TOLD) };
}

// Of the rows in view, block after block; of a list that is spread over many blocks, of the first of them.
async function tellRows() {
  const turn = ++listed.telling, unknown = [...listed.rows.keys()].filter((place) => !store.told.has(place));
  for (const block of [...new Set(unknown.map((place) => store.blockOf(place)))].slice(0, CACHED)) {
    const lines = await store.lines(block).catch(() => []);
    if (turn !== listed.telling) return;
    for (const place of unknown.filter((each) => store.blockOf(each) === block)) {
      const line = lines[place - store.starts[block]];
      if (line === undefined) continue; // the server did not answer: asked again with the next rows
      store.told.set(place, tell(asEpisode(line)));
      fillTold(listed.rows.get(place), place);
    }
  }
}

const linkTo = (kind, id) => `#${kind}/${encodeURIComponent(id).replace(/%(2F|3A)/g, decodeURIComponent)}${listed.text ? "?" + encodeFilter(listed.text) : ""}`;
const encodeFilter = (text) => text.split("&").map((term) => encodeURIComponent(term).replace(/%(3D|3E|3A|2F)/g, decodeURIComponent)).join("&");

const rowHeight = () => parseInt(style("--row"), 10);

function drawRows() {
  const view = byId("rows"), height = view.clientHeight || 600, ROW = rowHeight(); // its first row is the head
  const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 8);
  const last = Math.min(Math.min(listed.places.length, MOST), first + Math.ceil(height / ROW) + 16);
  const shelf = byId("shelf");
  shelf.style.height = `${Math.min(listed.places.length, MOST) * ROW}px`;
  const drawn = [];
  listed.rows = new Map();
  for (let at = first; at < last; at++) {
    const row = rowOf(listed.places[at]);
    listed.rows.set(listed.places[at], row);
    row.style.top = `${at * ROW}px`;
    if (at === listed.at) row.classList.add("current");
    drawn.push(row);
  }
  fill(shelf, drawn);
  tellRows();
}

function drawHead(filter) {
  const head = byId("columns");
  fill(head, COLUMNS.map(([name, title, kind]) => {
    if (name === "said" || name === "answers") return make("span", { class: `cell quiet of-${name} ${kind}` }, title);
    const sign = filter.sort?.[0] === name ? filter.sort[1] : 0;
    const cell = button(title + (sign > 0 ? " \u2191" : sign < 0 ? " \u2193" : ""), () => {
      const rest = listed.text.split("&").filter((term) => term && !term.startsWith("sort="));
      const other = sign ? (sign < 0 ? `sort=${name}` : null) : `sort=-${name}`;
      showFilter([...rest, other].filter(Boolean).join("&"));
    }, `sort by ${title}`);
    cell.className = `cell of-${name} ${kind}`;
    return cell;
  }));
}

const showFilter = (text) => { location.hash = text ? `#t?${encodeFilter(text)}` : "#t"; };

// Columns at once; words and what only the texts tell, block after block.
async function showList(text, top = null) {
  await store.open();
  const search = ++listed.search;
  const filter = readFilter(text);
  listed.text = text;
  byId("filter").value = text;
  drawHead(filter);
  let places = filterColumns(filter);
  const deep = filter.words.length || filter.deep.length;
  if (deep) {
    say(`reading ${count(places.length)} trajectories`, true);
    places = await searchTexts(filter, places, (done, all, found) => {
      if (search === listed.search) say(`block ${done} of ${all}, ${count(found)} found`, true);
      return search === listed.search;
    });
  }
  if (search !== listed.search && deep && listed.text !== text) return;
  Object.assign(listed, { places, at: Math.max(0, Math.min(listed.at, places.length - 1)) });
  const beyond = places.length > MOST ? `; the first ${count(MOST)} are drawn` : "";
  const stopped = deep && search !== listed.search ? "; stopped before the end" : "";
  say([`${count(places.length)} of ${count(store.size)}${beyond}${stopped}`, ...filter.errors].join("; "), false);
  drawRows();
  byId("rows").scrollTop = top ?? Math.max(0, listed.at * rowHeight() - byId("rows").clientHeight / 2);
}

function say(text, stoppable) {
  const stop = button("stop", () => { listed.search++; });
  fill(byId("found"), make("span", {}, text), stoppable ? stop : null);
}

function keptSentence() {
  const reasons = store.reasons.map(([reason, rows]) => `${reason} ${count(rows)}`).join(", ");
  if (!store.total) return "No trajectories are in this page.";
  return store.size === store.total ? `All ${count(store.total)} that were written are here.`
    : `${count(store.size)} of ${count(store.total)} that were written are here, in whole groups: ${reasons}.`;
}

// Of a link whose trajectory or group is not here: what is, of the same file where there is any.
function drawMissing(id, what) {
  const file = id.replace(/:[^:]*$/, ""), such = store.names?.find((each) => each.startsWith(`${file}:`));
  return [make("p", { class: "empty" }, `${shorten(id, 200)} is not among the ${what} of this page.`),
    such ? make("p", {}, make("a", { href: `#t?${encodeFilter(`file=${file.replace(/^r\d+\//, "")}`)}` }, `those of ${file}`), `, such as ${such}`) : null,
    make("p", { class: "quiet" }, keptSentence())];
}

// Where the list stands while one of these places is read: at the first of them that it has.
function findInList(places) {
  if (!listed.places.length) listed.places = sortPlaces(filterColumns(readFilter(listed.text)), readFilter(listed.text).sort);
  const wanted = new Set(places);
  listed.at = Math.max(0, listed.places.findIndex((place) => wanted.has(place)));
}

function moveInList(by) {
  listed.at = Math.max(0, Math.min(listed.places.length - 1, listed.at + by));
  const view = byId("rows"), ROW = rowHeight(), top = listed.at * ROW;
  if (top < view.scrollTop) view.scrollTop = top;
  const last = view.clientHeight - 2 * ROW; // the head stays in view
  if (top > view.scrollTop + last) view.scrollTop = top - last;
  drawRows();
}

function openList() {
  byId("rows").addEventListener("scroll", () => requestAnimationFrame(drawRows));
  byId("filter-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (listed.text === byId("filter").value.trim()) showList(listed.text);
    else showFilter(byId("filter").value.trim());
  });
}
