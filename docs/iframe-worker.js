// Two things for the site's search, whose script the theme starts with `new Worker(url)`.

// The theme searches each word as the beginning of one, so `i` would find every word that begins with an i: words that
// say nothing of a question's subject are left out, and the s of a plural, which the singular lacks.
const EMPTY = new Set(("a an and are can cannot do does for from how i if in is it me my of on or own should the there " +
  "this to use want what when where which who why will with you").split(" "));
const QUERY = 2;  // the type of the theme's messages that ask

function plain(message) {
  if (message.type !== QUERY) return message;
  const words = message.data.split(/\s+/).filter(word => !EMPTY.has(word.toLowerCase()));
  return words.length ? { ...message, data: words.map(word => word.replace(/(\w{2}[^\Wsu])s$/, "$1")).join(" ") } : message;
}

class Asked extends Worker {
  postMessage(message) { super.postMessage(plain(message)); }
}

// From the disk a browser starts no worker: its script runs in a hidden frame of the page.
class Frame extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = frame.contentDocument.createElement("script");
    script.src = new URL(url, document.baseURI);
    this.ready = new Promise(resolve => { script.onload = resolve; });
    frame.contentDocument.body.append(script);
  }

  async postMessage(message) {
    await this.ready;
    this.inside.dispatchEvent(new MessageEvent("message", { data: plain(message) }));
  }
}

window.Worker = location.protocol === "file:" ? Frame : Asked;
