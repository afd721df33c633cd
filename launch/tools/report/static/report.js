"use strict";
// The report's own controls: sections that draw when they open, the x axis, the numbers' filter, and news of a run.

const POLL = [2000, 30000]; // milliseconds between two looks at a run: at first, and at most

function openReport() {
  for (const part of document.querySelectorAll("[data-share]")) {
    part.style.flexGrow = part.dataset.share;
  }
  for (const key of document.querySelectorAll("button.key")) key.addEventListener("click", () => copy(key.textContent, "the key"));
  for (const section of document.querySelectorAll("details.section")) {
    section.addEventListener("toggle", () => { if (section.open) section.querySelectorAll(".chart").forEach(drawChart); });
  }
  for (const figure of document.querySelectorAll(".chart")) figure.querySelector(".data").addEventListener("click", () => toggleData(figure));
  byId("number-filter")?.addEventListener("input", filterNumbers);
  drawAxes();
}

function filterNumbers() {
  const wanted = byId("number-filter").value.toLowerCase();
  for (const row of byId("number-rows").children) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

function toggleData(figure) {
  const old = figure.querySelector("textarea");
  if (old) return old.remove();
  const area = make("textarea", { readOnly: true, rows: 8 });
  area.value = asCsv(page.charts.get(figure.dataset.chart));
  figure.append(area);
  area.select();
}

function drawAxes() {
  const known = (name) => name === "step" || [...page.charts.values()].some((chart) => list(chart.series).some((own) => Array.isArray(own[name])));
  const names = [...AXES].filter(([name]) => known(name));
  fill(byId("axes"), names.length < 2 ? [] : names.map(([name, title]) => {
    const one = button(title, () => { axis = name; zoom = null; drawAxes(); drawCharts(); });
    one.setAttribute("aria-pressed", String(name === axis));
    return one;
  }));
}

// While the run is in progress: ask whether there is news, and then take the whole report again, so that rows which a resume
// dropped are gone here too. What is open, zoomed and chosen stays.
function follow() {
  let wait = POLL[0], timer = 0, looking = false;
  const look = async () => {
    if (looking || document.hidden) return;
    looking = true;
    try {
      const state = await (await fetch("state")).json();
      sayLive(state.running ? "running: what it plays now" : "", state.running);
      wait = state.revision === page.live ? Math.min(wait * 1.5, POLL[1]) : POLL[0];
      if (state.revision !== page.live) await renew();
    } catch {
      sayLive("the server does not answer", false);
      wait = Math.min(wait * 2, POLL[1]);
    }
    looking = false;
    clearTimeout(timer);
    timer = setTimeout(look, wait);
  };
  document.addEventListener("visibilitychange", () => { wait = POLL[0]; look(); });
  timer = setTimeout(look, wait);
}

// A link only where it leads somewhere: without an address it is in no order of tabs.
function sayLive(text, leads) {
  byId("live").textContent = text;
  if (leads) byId("live").href = "#now";
  else byId("live").removeAttribute("href");
}

// An episode of each engine, as far as it is: asked for again as long as somebody looks. Of two loops the newer one goes on.
async function showNow() {
  const turn = ++now.turn, isAsked = () => turn === now.turn && document.body.dataset.view === "now";
  clearTimeout(now.timer);
  try {
    if (document.hidden) return;
    const lines = page.live ? await readPlaying() : [];
    if (isAsked()) drawNow(lines);
  } finally {
    if (isAsked() && page.live) now.timer = setTimeout(showNow, POLL[0]);
  }
}
const now = { turn: 0, timer: 0, sections: new Map() }; // by run and worker: {text, said, section, cards}

// null where the server does not answer.
async function readPlaying() {
  try {
    const answer = await fetch("playing");
    return answer.ok ? list(await answer.json()) : null;
  } catch {
    return null;
  }
}

function drawNow(lines) {
  const says = lines === null ? "the server does not answer" : "one episode of each engine, message by message";
  if (!byId("now").children.length) {
    fill(byId("now"), make("div", { class: "bar" }, make("h2", {}, "playing now"), make("span", { class: "quiet" })),
      make("div", { class: "siblings" }), make("p", { class: "empty" }, "No episode is being played, or the run has ended."));
  }
  const [head, holder, empty] = byId("now").children;
  head.querySelector("span").textContent = says;
  if (lines === null) return;
  empty.hidden = lines.length > 0;
  const before = now.sections;
  now.sections = new Map(lines.map((line) => {
    const run = page.runs.length > 1 ? `${asText(page.runs[line?.run]?.name)} ` : "", key = `${line?.run} ${asText(line?.worker)}`;
    const text = JSON.stringify(line), last = before.get(key);
    return [key, last?.text === text ? last : drawPlaying(`${run}${asText(line?.worker)}`, text, last)];
  }));
  const sections = [...now.sections.values()].map((own) => own.section);
  if (sections.length !== holder.children.length || sections.some((own, at) => own !== holder.children[at])) holder.replaceChildren(...sections);
}

// last: the same section before. A message that was in it keeps its card, opened or not, but for what may now be a call.
function drawPlaying(title, text, last) {
  const episode = asEpisode(text), cards = drawCards(episode, null, 0), messages = [...episode.prompt, ...episode.messages];
  const said = messages.map((own, at) => JSON.stringify([at < episode.prompt.length, own]));
  for (const [at, card] of last ? [...last.cards.children].slice(0, CARDS).entries() : []) {
    const mayCall = at === last.said.length - 1 && messages[at]?.role === "assistant";
    if (said[at] !== last.said[at] || mayCall) break;
    cards.children[at].replaceWith(card);
  }
  return { text, said, cards, section: make("section", { class: "sibling" }, make("p", { class: "bar" }, make("b", {}, title)), cards) };
}

async function renew() {
  const text = await (await fetch("./")).text();
  const news = new DOMParser().parseFromString(text, "text/html"); // scripts in it do not run
  const wanted = byId("number-filter")?.value ?? "", [left, top] = [scrollX, scrollY];
  const open = new Set([...document.querySelectorAll("details.section[open]")].map((each) => each.id));
  byId("report").replaceChildren(...document.importNode(news.getElementById("report"), true).childNodes);
  for (const section of document.querySelectorAll("details.section")) section.open = open.has(section.id);
  document.querySelector("h1 a").textContent = news.querySelector("h1 a").textContent;
  byId("data-page").textContent = news.getElementById("data-page").textContent;
  charts.forEach(({ plot }) => plot.destroy());
  charts.clear();
  Object.assign(store, { opening: null, size: 0, pieces: null, places: new Map(), groups: new Map(), told: new Map(), blocks: new Map() });
  await openPage();
  const view = document.body.dataset.view; // who reads a trajectory keeps reading it
  if (view === "report") {
    drawCharts(); // a link to a chart has led there once
    if (byId("number-filter")) {
      byId("number-filter").value = wanted;
      filterNumbers();
    }
    scrollTo(left, top);
  }
  else if (view === "list") await showList(listed.text, byId("rows").scrollTop);
}
