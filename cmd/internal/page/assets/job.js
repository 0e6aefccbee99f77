import { $, clock, digits, el, micros, notices, percent, pill, plural, put, rate, span } from "./format.js";
import { css, onScheme, ownerColor } from "./color.js";
import { follow } from "./stream.js";
import { line } from "./chart.js";
import { Slices, decodeLoads } from "./slices.js";
import { HeatMap, drawScale } from "./heatmap.js";
import { Tasks } from "./tasks.js";
import { Log, roundWords } from "./log.js";
import { ask } from "./ask.js";

const job = new URLSearchParams(location.search).get("name") || "";
document.title = job + " - Slicer";
put($("job"), job);

let slices = null;
let sliceError = "";
let loads = null;
let state = null;
let points = [];

const find = (what) => ask(job, what, (x) => map.showKey(x.key));
const map = new HeatMap($("canvas"), $("tip"), $("at"), (start) => find({ slice: start }));
const tasks = new Tasks((task) => {
  map.select(task);
  put($("selected"), task ? "only the slices of " + task + " are shown in colour" : "");
});
const log = new Log();

$("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  find({ key: $("key").value });
});
put($("ticks"), "⅛ … 64 times");
drawScale($("scale"));
onScheme(() => {
  drawScale($("scale"));
  tasks.show();
  if (loads) tables();
});

function owners(names, many) {
  const td = el("td", { title: names.join(", ") });
  names.slice(0, 3).forEach((n, i) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = css(ownerColor(n));
    td.append(i ? " " : "", swatch, n);
  });
  if (many > 3) td.append(" and " + (many - 3) + " more");
  return td;
}

function fillTable(body, rows, none) {
  const text = JSON.stringify(rows.map((r) => r.id));
  if (body.dataset.shown === text && rows.length) {
    rows.forEach((r, i) => r.update(body.children[i]));
    return;
  }
  body.dataset.shown = text;
  // What has the focus is made anew: the button of the same key takes it, or the one in its place.
  const at = body.contains(document.activeElement) ? document.activeElement : null;
  const row = at ? Array.from(body.children).indexOf(at.closest("tr")) : 0;
  body.replaceChildren(...(rows.length ? rows.map((r) => r.make()) : [el("tr", {}, el("td", { class: "note", colspan: "5" }, none))]));
  if (!at) return;
  const buttons = Array.from(body.querySelectorAll("button"));
  (buttons.find((b) => b.textContent === at.textContent) || buttons[Math.min(row, buttons.length - 1)])?.focus({ preventScroll: true });
}

function tables() {
  const share = (x) => (loads.total > 0 ? percent(x / loads.total) : "-");
  const numbers = (tr, at, x) => {
    put(tr.children[at], rate(x));
    put(tr.children[at + 1], share(x));
  };
  const key = (k) => el("button", { type: "button", title: "Why is it there?", class: "mono", onclick: () => find({ slice: k }) }, k);
  fillTable($("keys"), loads.keys.map((k, i) => ({
    id: [k.key, k.owners, k.many],
    make: () => el("tr", {}, el("td", { class: "n" }, String(i + 1)), el("td", {}, key(k.key)), el("td", { class: "n" }, rate(k.rate)), el("td", { class: "n" }, share(k.rate)), owners(k.owners, k.many)),
    update: (tr) => numbers(tr, 2, k.rate),
  })), "No key stands out.");
  fillTable($("hot"), loads.hot.map((s) => ({
    id: [s.start, s.end, s.owners, s.many],
    make: () => el("tr", {}, el("td", {}, key(s.start)), el("td", { class: "mono" }, s.end), el("td", { class: "n" }, rate(s.load)), el("td", { class: "n" }, share(s.load)), owners(s.owners, s.many)),
    update: (tr) => numbers(tr, 2, s.load),
  })), "No load is known.");
  const top = loads.keys[0];
  put($("mapwords"), slices ? plural(slices.count, "slice") + " of " + plural(slices.tasks.length, "task") + "." + (top ? " The hottest key is " + top.key + " with " + share(top.rate) + " of the load, at " + top.owners.join(", ") + "." : "") + " The tables below have the hottest keys, the hottest slices and all tasks." : "");
}

function overrides(m) {
  const lift = { freeze: "unfreeze " + job, pin: "unpin " + job, exclude: "include " + job, drain: "drain " + job, "roll back": "" };
  $("inforce").replaceChildren(...(m.all.length ? [el("ol", {}, ...m.all.map((o) => {
    const words = [o.kind];
    if (o.task) words.push(o.kind === "pin" ? "[" + o.start + ", " + o.end + ") to " + o.task : o.task);
    if (o.of) words.push("to generation " + o.of);
    const li = el("li", {}, pill(o.kind === "freeze" ? "frozen" : "hot", words.join(" ")), " by " + o.by + " since " + clock(o.since) + (o.until ? ", until " + clock(o.until) : "") + (o.why ? ": " + o.why : ""));
    if (lift[o.kind]) {
      const of = o.kind === "pin" ? " --from " + o.start + " --to " + o.end : o.kind === "exclude" ? " " + o.task : o.kind === "drain" ? " " + o.task + " --undo" : "";
      li.append(el("div", { class: "moves" }, "lifted by ", el("code", {}, "slicerctl " + lift[o.kind] + of)));
    }
    return li;
  }))] : [el("p", { class: "note" }, "None: the assigner decides by itself.")]));
  if (m.more) $("inforce").append(el("p", { class: "note" }, "and " + m.more + " more"));
}

function convergence(s) {
  const p = s.progress;
  const facts = [];
  const fact = (name, words) => facts.push(el("dt", {}, name), el("dd", {}, words));
  fact("Newest", s.generation ? s.generation + ", made " + clock(s.made) : "none yet");
  fact("Held by all", p.converged ? String(p.converged) : "none");
  fact("Connected", [plural(p.distributors, "distributor"), plural(p.clerks, "clerk"), plural(p.slicelets, "slicelet")].join(", "));
  for (const h of p.holders || []) fact(h.role, h.count.toLocaleString("en") + (h.generation ? " hold " + h.generation + (h.generation === s.generation ? ", the newest" : "") : " hold none, or an older one"));
  for (const x of p.spreads || []) fact("Spread to " + x.role, x.reached + " have it" + (x.waiting ? ", " + x.waiting + " not yet" : "") + "; half after " + micros(x.p50) + ", 99 % after " + micros(x.p99) + ", the last after " + micros(x.last));
  if (p.slow?.length) fact("Slow", p.slow.map((x) => x.name + (x.distributor ? " at " + x.distributor : "") + " for " + span(x.waiting)).join(", ") + (p.slowTotal > p.slow.length ? " and " + (p.slowTotal - p.slow.length) + " more" : ""));
  if (p.stragglers?.length) fact("Behind", p.stragglers.join(", "));
  if (s.leases) fact("Leases", s.leases);
  fact("Decided by", (s.assigner || "none") + (s.preferred ? "" : ", which is not preferred"));
  const text = facts.map((f) => f.textContent).join("\n");
  if ($("convergence").dataset.shown === text) return;
  $("convergence").dataset.shown = text;
  $("convergence").replaceChildren(el("dl", { class: "facts" }, ...facts));
}

function tiles(s) {
  const p = s.progress;
  put($("imbalance"), s.imbalance ? digits(s.imbalance) : "-");
  put($("floor"), s.floor ? "least that there could be: " + digits(s.floor) : "no load is known");
  put($("load"), rate(s.load));
  put($("metric"), (s.metric === "requests" ? "requests" : s.metric + " units") + " a second");
  const t = s.tasks || { age: [], warm: [], refused: [] };
  const running = tasks.static ? tasks.static.state.filter((x) => x === "running").length : 0;
  put($("running"), running.toLocaleString("en"));
  const dead = tasks.static ? tasks.static.state.length - running : 0;
  const warming = t.warm.filter((w) => w < 1).length;
  const refusing = t.refused.filter((r) => r >= 0.05).length;
  put($("tasknote"), [dead ? dead + " not running" : "all running", warming ? warming + " warming" : "", refusing ? refusing + " refusing" : ""].filter(Boolean).join(", "));
  put($("slices"), slices && slices.count ? slices.count.toLocaleString("en") : "-");
  put($("slicenote"), sliceError || (slices && slices.count ? slices.owners.length.toLocaleString("en") + " ownerships, " + s.minReplicas + " to " + s.maxReplicas + " replicas" : "no assignment yet"));
  put($("age"), s.generation ? span(s.at - s.made) : "none");
  put($("generation"), s.generation ? String(s.generation) : "");
  const behind = (p.holders || []).filter((h) => h.generation !== s.generation).reduce((n, h) => n + h.count, 0);
  put($("converged"), !s.generation ? "-" : p.converged >= s.generation ? "all have it" : behind ? plural(behind, "subscriber") + " behind" : "spreading");
  const last = Math.max(-1, ...(p.spreads || []).map((x) => x.last));
  put($("spread"), plural(p.clerks + p.slicelets, "subscriber") + (last >= 0 ? ", the last after " + micros(last) : ""));
}

function chart() {
  const values = points.filter((_, i) => i % 2 === 1);
  const times = points.filter((_, i) => i % 2 === 0);
  if (state?.imbalance) {
    values.push(state.imbalance);
    times.push(state.at);
  }
  if (values.length < 2) return;
  const words = "imbalance since " + clock(times[0]) + ": " + digits(Math.min(...values)) + " to " + digits(Math.max(...values));
  const svg = line(values, times, state?.floor || 0, words);
  $("chart").title = words;
  $("chart").replaceChildren(svg);
}

follow("events?" + new URLSearchParams({ job }), {
  slices(m) {
    slices = new Slices(m);
    sliceError = m.error || "";
    map.setSlices(slices);
  },
  loads(m) {
    loads = m;
    if (slices && m.generation === slices.generation) map.setLoads(decodeLoads(m), m.total, m.keys);
    tables();
  },
  tasks: (m) => tasks.setStatic(m),
  overrides,
  history: (m) => log.show(m),
  chart(m) {
    points = m;
    chart();
  },
  state(s) {
    state = s;
    if ($("state").textContent !== s.state) $("state").replaceChildren(pill(s.state));
    put($("process"), s.process || "");
    put($("kind"), s.mode ? s.mode + " mode" + (s.store ? ", store " + s.store : "") : "");
    const list = [];
    if (s.why) list.push([{ frozen: "cold", ok: "", hot: "", refusing: "", slow: "", undecided: "" }[s.state] ?? "bad", s.why.startsWith(s.state) ? s.why : s.state + ": " + s.why]);
    if (s.alarm) list.push(["bad", s.alarm]);
    if (s.mode && !s.preferred) list.push(["cold", "This assigner does not decide for the job, so that loads are not known here. Look at the page of the one that does, or at a distributor's."]);
    if (sliceError) list.push(["", "The heat map is missing: " + sliceError]);
    notices($("notices"), list);
    if (!s.mode) return;
    tasks.setNumbers(s.tasks);
    tiles(s);
    chart();
    convergence(s);
    put($("round"), roundWords(s.round));
  },
});
