import { $, digits, el, notices, pill, plural, put, rate, span } from "./format.js";
import { follow } from "./stream.js";
import { line } from "./chart.js";

const rows = new Map();
const shownAtMost = 500;
let jobs = [];

function show() {
  const find = $("find").value.trim().toLowerCase();
  const found = jobs.filter((j) => !find || (j.name + " " + j.state).toLowerCase().includes(find));
  const list = found.slice(0, shownAtMost);
  const body = $("rows");
  const kept = new Set(list.map((j) => j.name));
  for (const [name, row] of rows) {
    if (!kept.has(name)) {
      row.element.remove();
      rows.delete(name);
    }
  }
  list.forEach((j, i) => {
    let row = rows.get(j.name);
    if (!row) {
      row = newRow(j);
      rows.set(j.name, row);
    }
    if (body.children[i] !== row.element) body.insertBefore(row.element, body.children[i] || null);
    fill(row, j);
  });
  put($("more"), jobs.length === 0 ? "There is no job that you may read." : found.length > list.length ? "And " + plural(found.length - list.length, "more job") + ": find them by name." : "");
  summarize();
}

function summarize() {
  const counts = new Map();
  for (const j of jobs) counts.set(j.state, 1 + (counts.get(j.state) || 0));
  const ill = jobs.length - (counts.get("ok") || 0) - (counts.get("empty") || 0);
  const words = jobs.length === 0 ? "No jobs" : ill === 0 ? "All is well: " + plural(jobs.length, "job") : plural(ill, "job") + " of " + jobs.length + (ill === 1 ? " needs" : " need") + " attention";
  put($("summary"), words);
  document.title = (ill ? "(" + ill + ") " : "") + "Slicer";
  const text = [...counts].map(([s, n]) => s + n).join();
  if ($("counts").dataset.shown !== text) {
    $("counts").dataset.shown = text;
    $("counts").replaceChildren(...[...counts].map(([s, n]) => el("li", {}, pill(s, n + " " + s))));
  }
}

function newRow(j) {
  const link = el("a", { href: "job?" + new URLSearchParams({ name: j.name }) }, j.name);
  const cell = (kind) => el("td", { class: kind || "" });
  const r = { state: cell(), tasks: cell("n"), load: cell("n"), imbalance: cell("n"), line: cell(), generation: cell("n"), assigner: cell(), words: cell("wrap") };
  r.element = el("tr", {}, el("th", { scope: "row" }, link), r.state, r.tasks, r.load, r.imbalance, r.line, r.generation, r.assigner, r.words);
  return r;
}

function fill(r, j) {
  if (r.state.textContent !== j.state) r.state.replaceChildren(pill(j.state));
  put(r.tasks, j.tasks === j.running ? String(j.tasks) : j.running + " of " + j.tasks);
  put(r.load, rate(j.load));
  put(r.imbalance, j.imbalance ? digits(j.imbalance) : "-");
  put(r.generation, j.generation ? span(Date.now() - j.made) + " old" + (j.converged ? "" : ", spreading") : "none");
  put(r.assigner, j.assigner || "none");
  const words = [j.why, j.alarm, j.overrides ? plural(j.overrides, "override") + " in force" : ""].filter(Boolean);
  put(r.words, words.join("; "));
  const text = (j.spark || []).join();
  if (r.shown !== text) {
    r.shown = text;
    const s = j.spark || [];
    r.line.replaceChildren(s.length > 1 ? line(s, null, j.floor, "imbalance from " + digits(Math.min(...s)) + " to " + digits(Math.max(...s)) + ", now " + digits(s[s.length - 1])) : "");
  }
}

$("find").addEventListener("input", show);
follow("events", {
  process(m) {
    put($("process"), m.kind + " " + m.id);
    const list = [];
    if (m.error) list.push(["bad", "The jobs cannot be listed: " + m.error]);
    for (const s of m.unanswered || []) list.push(["bad", "Store " + s + " does not answer: its jobs are routed as before, and not rebalanced."]);
    notices($("notices"), list);
    $("assigners").replaceChildren(...m.assigners.map((a) => el("tr", {}, el("th", { scope: "row" }, a.id), el("td", {}, a.address), el("td", {}, a.zone || "-"), el("td", {}, (a.stores || []).join(", ") || "-"), el("td", { class: "n" }, String(a.jobs ?? "-")))));
    put($("distributors"), m.distributors.length ? "Attached here: " + plural(m.distributors.length, "distributor") + ", " + m.distributors.slice(0, 30).join(", ") : "");
  },
  jobs(m) {
    jobs = m.jobs;
    show();
  },
});
