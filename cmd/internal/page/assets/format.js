// Numbers, times and elements. All text goes into the page as text, never as markup.

export const $ = (id) => document.getElementById(id);

// el makes an element. Attributes that are false or undefined are left out; children are
// nodes or text.
export function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") e.className = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}

// put sets the text of an element, if it is another.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// rate is a load, in units a second.
export function rate(x) {
  if (!x) return "0";
  for (const [unit, of] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (x >= of) return digits(x / (unit === "k" ? 1e3 : of)) + unit;
  }
  return digits(x);
}

export function digits(x) {
  if (x >= 100) return x.toFixed(0);
  if (x >= 10) return x.toFixed(1);
  return x >= 0.01 || x === 0 ? x.toFixed(2) : x.toPrecision(1);
}

export function percent(x) {
  const p = 100 * x;
  if (p === 0) return "0 %";
  if (p < 0.01) return "<0.01 %";
  return (p >= 10 ? p.toFixed(0) : p.toFixed(p >= 1 ? 1 : 2)) + " %";
}

// span is a time in milliseconds.
export function span(ms) {
  const s = Math.max(ms, 0) / 1000;
  if (s < 1) return Math.round(Math.max(ms, 0)) + " ms";
  if (s < 60) return s.toFixed(0) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d";
}

// micros is a time in microseconds, -1 if it is not known yet.
export function micros(us) {
  if (us < 0) return "not yet";
  return us < 10000 ? (us / 1000).toFixed(1) + " ms" : span(us / 1000);
}

export function clock(ms) {
  const d = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const time = two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds());
  const today = new Date().toDateString() === d.toDateString();
  return today ? time : d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + time;
}

export function when(ms) {
  return el("time", { class: "when", datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, clock(ms));
}

export function plural(n, one) {
  return n.toLocaleString("en") + " " + one + (n === 1 ? "" : "s");
}

// short is a slice key whose end is left out.
export function short(key) {
  return key.slice(0, 8) + "…";
}

export function pill(state, text) {
  return el("span", { class: "pill " + state }, text || state);
}

// notices shows the sentences that matter now.
export function notices(into, list) {
  const text = JSON.stringify(list);
  if (into.dataset.shown === text) return;
  into.dataset.shown = text;
  into.replaceChildren(...list.map(([kind, words]) => el("p", { class: "notice " + kind, role: kind === "bad" ? "alert" : "status" }, words)));
}
