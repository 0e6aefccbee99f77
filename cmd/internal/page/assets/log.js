// Log lists what was decided and ordered, the newest first, as it comes.
import { $, clock, digits, el, percent, short, when } from "./format.js";

export function entry(e, full) {
  const li = el("li", { "data-id": id(e) });
  const what = el("div", { class: "entry" }, when(e.at));
  if (e.action) {
    what.append(el("b", {}, e.action), el("span", {}, "by " + e.by));
  } else {
    what.append(el("span", { class: "mono", title: "generation" }, String(e.generation)));
    if (e.kinds?.length || e.keyChurn) {
      what.append(el("span", {}, counts(e.kinds) + ", " + percent(e.keyChurn || 0) + " of keys, " + percent(e.loadChurn || 0) + " of load"));
    } else {
      what.append(el("span", {}, "the table of tasks"));
    }
    if (e.why) what.append(el("span", { class: "note" }, "for: " + e.why));
    if (e.before && e.after) what.append(el("span", {}, "imbalance " + digits(e.before) + " → " + digits(e.after)));
    if (e.by && !e.by.startsWith("assigner ")) what.append(el("span", {}, "by " + e.by));
  }
  li.append(what);
  if (e.why && e.action) li.append(el("div", { class: "moves" }, e.why));
  const shown = (e.decisions || []).slice(0, full ? 8 : 4);
  for (const d of shown) li.append(decision(d));
  const more = (e.kinds || []).reduce((n, k) => n + k.count, 0) + (e.leftOut || 0) - shown.length;
  if (more > 0 && shown.length) li.append(el("div", { class: "moves" }, "and " + more + " more"));
  return li;
}

// counts says how many decisions there were of each kind.
function counts(kinds) {
  return (kinds || []).map((k) => k.count + " " + k.kind).join(", ") || "no decision";
}

function decision(d) {
  const row = el("div", { class: "moves" }, el("b", {}, d.kind), " ");
  if (d.from && d.to) row.append(d.from + " → " + d.to);
  else if (d.to) row.append("to " + d.to);
  else if (d.from) row.append("from " + d.from);
  const range = el("span", { class: "mono", title: "[" + d.start + ", " + d.end + ")" }, " " + short(d.start));
  row.append(range, " " + d.reason + ((d.keyChurn || d.loadChurn) ? ", " + percent(d.keyChurn) + " of keys, " + percent(d.loadChurn) + " of load" : ""));
  return row;
}

function id(e) {
  return [e.at, e.generation || 0, e.order || 0, e.action || ""].join("|");
}

export class Log {
  constructor() {
    this.held = null;
    $("follow").addEventListener("change", () => {
      if ($("follow").checked && this.held) this.show(this.held);
    });
  }

  show(history) {
    this.held = history;
    this.orders(history.entries.filter((e) => e.action));
    if (!$("follow").checked) return;
    const list = $("entries");
    const before = new Map(Array.from(list.children, (li) => [li.dataset.id, li]));
    const first = before.size === 0;
    const items = history.entries.map((e) => {
      const old = before.get(id(e));
      if (old) return old;
      const li = entry(e, false);
      if (!first) li.classList.add("new");
      return li;
    });
    if (items.length === 0) items.push(el("li", { class: "note" }, "Nothing has been done yet."));
    if (items.length === list.children.length && items.every((li, i) => li === list.children[i])) return;
    list.replaceChildren(...items);
  }

  orders(all) {
    const text = all.map(id).join();
    const list = $("orders");
    if (list.dataset.shown === text) return;
    list.dataset.shown = text;
    list.replaceChildren(...(all.length ? all.map((e) => entry(e, true)) : [el("li", { class: "note" }, "None, as far back as is shown.")]));
  }
}

export function roundWords(r) {
  if (!r) return "No round has been held yet.";
  const ago = "Last round at " + clock(r.at) + ": ";
  if (r.skipped) return ago + r.skipped;
  return ago + (r.kinds?.length ? counts(r.kinds) + ", " + percent(r.keyChurn) + " of keys and " + percent(r.loadChurn) + " of load to other tasks" : "nothing to do");
}
