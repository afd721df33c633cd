"use strict";
// The views and their links: #, #t, #t?FILTER, #t/ID, #g/ID, #chart/NAME, #now; and the keys.

const VIEWS = ["report", "list", "episode", "group", "now"];

function show(view) {
  for (const each of VIEWS) byId(each).hidden = each !== view;
  document.body.dataset.view = view;
  for (const link of document.querySelectorAll(".top nav a")) {
    link.toggleAttribute("aria-current", link.dataset.view === (view === "report" ? "report" : "list"));
  }
}

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

async function route() {
  const hash = location.hash.slice(1), cut = hash.indexOf("?");
  const [path, query] = cut < 0 ? [hash, ""] : [hash.slice(0, cut), hash.slice(cut + 1)];
  const filter = query.split("&").map((term) => decoded(term).replaceAll("&", "%26")).join("&");
  const [kind, id] = [path.split("/")[0], decoded(path.slice(path.indexOf("/") + 1))];
  try {
    if (kind === "t" || kind === "g") {
      if (listed.text !== filter) Object.assign(listed, { text: filter, places: [], at: 0 });
      if (path === "t") {
        show("list");
        await showList(filter);
      } else if (kind === "t") {
        show("episode");
        await showEpisode(id);
      } else {
        show("group");
        await showGroup(id);
      }
      if (path !== "t") scrollTo(0, 0);
    } else if (kind === "now") {
      show("now");
      await showNow();
    } else {
      show("report");
      if (!charts.size) drawCharts();
      if (kind === "chart") showChart(id);
      else if (path && byId("report").contains(byId(path))) bring(byId(path));
    }
  } catch (error) {
    note(`this cannot be shown: ${error.message}`);
  }
}

function bring(element) {
  const section = element.closest("details");
  if (section) section.open = true;
  element.scrollIntoView({ block: "center" });
}

function showChart(name) {
  const figure = [...document.querySelectorAll(".chart")].find((each) => each.dataset.chart === name);
  if (!figure) return;
  bring(figure);
  figure.classList.add("current");
}

// The place in `places` of the next one for which `test` holds, in the direction of `by`.
function seek(by, test) {
  for (let at = listed.at + by; at >= 0 && at < listed.places.length; at += by) {
    if (test(listed.places[at])) return listed.places[at];
  }
  return undefined;
}

function go(kind, place) {
  if (place === undefined) return note("there is no further one in this list");
  location.hash = linkTo(kind, kind === "g" ? store.groupOf(place) : store.id(place));
}

const KEYS = new Map([
  ["?", () => byId("help").showModal()], ["r", () => { location.hash = "#"; }], ["t", () => showFilter(listed.text)],
  ["/", () => { if (byId("list").hidden) showFilter(listed.text); setTimeout(() => byId("filter").focus()); }],
  ["c", () => copy(location.href, "the link")],
  ["Enter", (view) => { if (view === "list") go("t", listed.places[listed.at]); }],
  ["g", (view) => { if (view === "episode") go("g", shownEpisode?.place); }],
  ["m", (view) => {
    if (view !== "episode" || !shownEpisode) return;
    const names = [...MODES.keys()];
    mode = names[(names.indexOf(mode) + 1) % names.length];
    drawEpisode();
  }],
  ...[["j", 1], ["k", -1]].map(([key, by]) => [key, (view) => {
    if (view === "list") moveInList(by);
    else if (view === "episode") go("t", seek(by, () => true));
  }]),
  ...[["n", 1], ["p", -1]].map(([key, by]) => [key, (view) => {
    if (view === "report" || view === "list" || !shownEpisode) return;
    const own = store.groupOf(shownEpisode.place);
    go(view === "group" ? "g" : "t", seek(by, (place) => store.groupOf(place) !== own));
  }]),
  ...[["]", 1], ["[", -1]].map(([key, by]) => [key, (view) => {
    if (view === "report" || !store.size) return;
    const step = store.get("step", view === "list" ? listed.places[listed.at] : shownEpisode?.place);
    const distance = (place) => by * (store.get("step", place) - step); // in whichever direction the list is sorted
    const nearest = Math.min(...new Set(listed.places.map(distance).filter((far) => far > 0)));
    const other = listed.places.find((place) => distance(place) === nearest);
    if (view === "list") moveInList(other === undefined ? 0 : listed.places.indexOf(other) - listed.at);
    else go(view === "group" ? "g" : "t", other);
  }]),
]);

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]") || (event.key === "Enter" && event.target.closest("a, button, summary"))) return;
  const act = KEYS.get(event.key);
  if (!act) return;
  event.preventDefault();
  act(document.body.dataset.view);
}

async function openPage() {
  Object.assign(page, JSON.parse(await unpacked("page")));
  document.body.classList.toggle("several", page.runs.length > 1);
  page.charts = new Map(Object.entries(page.charts));
  openReport();
  await store.open();
  byId("kept").textContent = byId("kept-list").textContent = keptSentence();
  byId("paid").href = `#t?${encodeFilter(`play=none&reward>${store.paid}&correct=0`)}`;
  document.querySelector("nav a[data-view=list]").textContent = `Trajectories ${count(store.size)}`;
}

async function start() {
  await openPage();
  openList();
  addEventListener("hashchange", route);
  addEventListener("keydown", pressed);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => (document.body.dataset.view === "report" ? drawCharts() : drawRows()), 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
  for (const [name, on] of [["beforeprint", true], ["afterprint", false]]) addEventListener(name, () => { printing = on; drawCharts(); });
  await route();
  document.body.dataset.ready = "yes";
  if (page.live) follow();
}

start();
