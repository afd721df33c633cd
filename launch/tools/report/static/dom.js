"use strict";
// Texts are data. They become text nodes, and characters that hide or reorder others become marks that can be seen.

const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
const NAMES = new Map([
  [0x202a, "LRE"], [0x202b, "RLE"], [0x202c, "PDF"], [0x202d, "LRO"], [0x202e, "RLO"], [0x2066, "LRI"],
  [0x2067, "RLI"], [0x2068, "FSI"], [0x2069, "PDI"], [0x200e, "LRM"], [0x200f, "RLM"], [0x61c, "ALM"],
  [0x200b, "ZWSP"], [0x200c, "ZWNJ"], [0x200d, "ZWJ"], [0x2060, "WJ"], [0xfeff, "BOM"], [0xad, "SHY"],
]);

function mark(character) {
  const code = character.codePointAt(0);
  if (code < 32) return String.fromCharCode(0x2400 + code);
  if (code === 127) return "\u2421";
  return `\u27e8${NAMES.get(code) ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

const shown = (text) => String(text).replace(HIDDEN, mark);

function put(element, text) {
  let last = 0;
  for (const found of text.matchAll(HIDDEN)) {
    element.append(text.slice(last, found.index));
    const control = document.createElement("span");
    control.className = "control";
    control.textContent = mark(found[0]);
    element.append(control);
    last = found.index + found[0].length;
  }
  element.append(text.slice(last));
  return element;
}

// make("a", {class: "link", href: "#t"}, "text", otherElement): properties are set, never markup.
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === "class") element.className = value;
    else if (name === "click") element.addEventListener("click", value);
    else element[name] = typeof value === "string" && name !== "href" ? shown(value) : value;
  }
  for (const child of children.flat()) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined) put(element, String(child));
  }
  return element;
}

const byId = (id) => document.getElementById(id);
const button = (text, click, title = "") => make("button", { type: "button", click, title }, text);
const fill = (element, ...children) => (element.replaceChildren(...children.flat().filter((each) => each !== null)), element);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const list = (value) => (Array.isArray(value) ? value : []);
const asText = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));
const count = (number) => number.toLocaleString("en-US");

// 0.9341 as 0.934, 9.5e-6 as 9.5e-6, 12720 as 12,720: as many digits as tell something.
function brief(value) {
  if (typeof value !== "number") return asText(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return count(value);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}
const signed = (value) => (typeof value === "number" && value > 0 ? "+" : "") + brief(value).replace("-", "\u2212");

function note(text) {
  const element = byId("note");
  element.textContent = shown(text);
  element.hidden = false;
  clearTimeout(note.timer);
  note.timer = setTimeout(() => { element.hidden = true; }, 2500);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    note(`copied: ${what}`);
  } catch {
    const area = make("textarea", { readOnly: true });
    area.value = text;
    const dialog = make("dialog", {}, make("p", {}, `${what}: select all and copy`), area);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    area.select();
  }
}
