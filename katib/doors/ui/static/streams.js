// Everything that the pages of a browser follow, over one connection: a browser has six to a server over HTTP/1.1.
// A SharedWorker runs it for all pages. A browser without these, as on phones, runs it in each page.

(() => {
  const AGAIN_MILLISECONDS = 1000;
  const IDLE_MILLISECONDS = 2000; // a page that is followed by another one in its window
  const root = globalThis.document?.baseURI ?? new URL("../../", globalThis.location);
  const ports = new Set();
  const followed = new Map(); // by key: its port, its address, and the id of its last event
  let source = null;
  let id = "";
  let ready = false;
  let lost = null; // since when there is no connection
  let waiting = null;

  async function change(body) {
    if (!ready) return; // all is asked for once it is
    const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(new URL(`data/live/${id}`, root), options).catch(() => null); // the stream notices, too
    if (answer && !answer.ok && ready) again();
  }

  const wanted = (keys) => Object.fromEntries([...keys].filter((key) => followed.has(key))
    .map((key) => [key, { address: followed.get(key).address, last: followed.get(key).last }]));

  function tell(since) {
    if (since && lost) return;
    lost = since;
    for (const port of ports) port.postMessage({ lost });
  }

  function hear({ to, name, data, id: last }) {
    const one = followed.get(to);
    if (!one) return;
    one.last = last || one.last;
    one.port.postMessage({ to, name, data, id: last });
    if (name === "over" || name === "cut") {
      setTimeout(() => { if (followed.has(to)) change({ open: wanted([to]) }); }, AGAIN_MILLISECONDS);
    }
  }

  function close() {
    clearTimeout(waiting);
    source?.close();
    source = null;
    ready = false;
  }

  function again() {
    close();
    waiting = setTimeout(connect, AGAIN_MILLISECONDS);
  }

  function connect() {
    close();
    if (!followed.size) return;
    id = [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("");
    source = new EventSource(new URL(`data/live?id=${id}`, root));
    source.addEventListener("ready", () => {
      ready = true;
      tell(null);
      change({ open: wanted(followed.keys()) });
    });
    source.onmessage = ({ data }) => hear(JSON.parse(data));
    source.onerror = () => { tell(Date.now()); again(); };
  }

  function take(port, { open, close: closed, address, last }) {
    if (open) {
      followed.set(open, { port, address, last });
      port.postMessage({ lost });
      clearTimeout(waiting);
      if (source) change({ open: wanted([open]) });
      else connect();
    } else if (followed.delete(closed)) {
      change({ close: [closed] });
      if (!followed.size) waiting = setTimeout(() => { if (!followed.size) close(); }, IDLE_MILLISECONDS);
    }
  }

  function leave(port) { // a page that is gone, also by a crash
    ports.delete(port);
    for (const [key, one] of [...followed]) if (one.port === port) take(port, { close: key });
  }

  function serve(port) {
    ports.add(port);
    port.onclose = () => leave(port);
    port.onmessage = ({ data }) => take(port, data);
  }

  if (globalThis.document) globalThis.serveStreams = serve;
  else globalThis.onconnect = ({ ports: [port] }) => serve(port);
})();
