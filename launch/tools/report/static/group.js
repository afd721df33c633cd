"use strict";
// The siblings of a task side by side: what they got, and where they part.

// {message, characters}: the first of the messages after the prompt that not all have alike, and how much of it they do.
function parting(episodes) {
  const most = Math.max(...episodes.map((each) => each.messages.length));
  for (let number = 0; number < most; number++) {
    const texts = episodes.map((each) => each.messages[number]?.content ?? "");
    if (texts.some((text) => text !== texts[0])) {
      let alike = 0;
      while (alike < texts[0].length && texts.every((text) => text[alike] === texts[0][alike])) alike++;
      return { message: number, characters: alike };
    }
  }
  return null;
}

// Those that say and get the same are one: [place, episode, places of the others].
function kindsOf(places, episodes) {
  const kinds = new Map();
  places.forEach((place, at) => {
    const key = JSON.stringify([store.get("reward", place), store.get("failure", place), episodes[at].messages]);
    if (kinds.has(key)) kinds.get(key)[2].push(place);
    else kinds.set(key, [place, episodes[at], []]);
  });
  return [...kinds.values()];
}

// What is rare comes first: of eight siblings the one that is wrong, or the one that is right.
function rarestFirst(places) {
  const reward = (place) => store.get("reward", place), counts = new Map();
  for (const place of places) counts.set(reward(place), (counts.get(reward(place)) ?? 0) + 1);
  return [...places].sort((a, b) => counts.get(reward(a)) - counts.get(reward(b)) || (reward(b) ?? -Infinity) - (reward(a) ?? -Infinity) || a - b);
}

function drawSibling(place, episode, part, equal) {
  const cards = drawCards(episode, null, 0);
  const drawn = [...cards.querySelectorAll(".card")], card = part && drawn[episode.prompt.length + part.message];
  if (card) {
    card.classList.add("parts-here");
    const alike = part.characters ? `, after ${count(part.characters)} equal characters` : "";
    card.querySelector(".who").append(make("span", { class: "parting" }, `siblings part here${alike}`));
  }
  for (const prompt of drawn.slice(0, episode.prompt.length)) prompt.remove();
  return make("section", { class: "sibling" },
    make("a", { class: "bar", href: linkTo("t", store.id(place)) }, make("b", {}, `sibling ${[place, ...equal].map((each) => store.get("sibling", each)).join(", ")} \u2192`),
      make("span", { class: "number" }, store.get("reward", place) === null ? "no reward" : `reward ${brief(store.get("reward", place))}`)),
    episode.parts.length ? make("p", { class: "quiet" }, episode.parts.slice(0, 8).map(([name, value]) => `${shorten(name, 40)} ${brief(value)}`).join(" \u00b7 ")) : null,
    drawFailure(episode.failure, "Failed"), cards);
}

async function showGroup(id) {
  await store.open();
  const places = store.groups.get(id);
  const view = byId("group");
  if (!places) {
    fill(view, drawMissing(id, "groups"));
    return;
  }
  findInList(places);
  const chosen = rarestFirst(places).slice(0, 64); // siblings side by side
  const turn = ++asked, episodes = await Promise.all(chosen.map((place) => store.episode(place)));
  if (turn !== asked) return;
  chosen.forEach((place, at) => store.told.set(place, tell(episodes[at])));
  const kinds = kindsOf(chosen, episodes), part = kinds.length > 1 ? parting(episodes) : null;
  const first = chosen[0], prompt = episodes[0].prompt, { answers } = store.told.get(first);
  fill(view,
    make("div", { class: "bar" }, make("a", { href: listed.text ? `#t?${encodeFilter(listed.text)}` : "#t" }, "\u2190 list"),
      make("h2", {}, `group ${id}`), make("span", { class: "quiet" }, `${places.length} ${places.length === 1 ? "trajectory" : "siblings"} of one task${answers ? `; right answer: ${answers}` : ""}`)),
    drawSiblings(chosen, null), make("div", { class: "cards shared" }, prompt.slice(0, 20).map((message) => make("article", { class: "card prompt" },
      make("div", { class: "who" }, make("b", {}, `prompt, ${message.role}`)), make("div", { class: "said" }, drawText(message.content, [], 1500))))),
    make("div", { class: "siblings" }, kinds.map(([place, episode, equal]) => drawSibling(place, episode, part, equal))),
    drawOthers(first));
  shownEpisode = { place: first, episode: episodes[0] };
}

// The same task at other steps, or in other runs.
function drawOthers(place) {
  const task = store.get("task_id", place), own = store.groupOf(place), groups = new Map();
  store.column("task_id").forEach((each, other) => {
    if (each !== task || task === null) return;
    const group = store.groupOf(other);
    if (group !== own) groups.set(group, [...(groups.get(group) ?? []), other]);
  });
  if (!groups.size) return null;
  const rows = [...groups].slice(0, 60).map(([group, places]) => {
    const rewards = places.map((other) => store.get("reward", other)).filter((each) => each !== null);
    const mean = rewards.length ? rewards.reduce((sum, each) => sum + each, 0) / rewards.length : null;
    return make("tr", {}, make("td", {}, make("a", { href: linkTo("g", group) }, group)),
      make("td", { class: "number" }, places.length), make("td", { class: "number" }, mean === null ? "" : brief(mean)));
  });
  return make("section", { class: "others" }, make("h3", {}, "The same task elsewhere in this page"),
    make("table", { class: "parts" }, make("tr", {}, make("th", {}, "group"), make("th", {}, "siblings"), make("th", {}, "mean reward")), rows));
}
