// Tasks is the table of a job's tasks: sorted by any column, and as many rows as are wanted.
import { css, ownerColor } from "./color.js";
import { $, el, percent, pill, put, rate, span } from "./format.js";

const few = 40;

// Each column has a title, whether it is a number, what it is sorted by, and its text.
const columns = [
  { id: "name", title: "Task", by: (t) => t.name },
  { id: "state", title: "State", by: (t) => t.state },
  { id: "load", title: "Load", by: (t) => t.load, number: true },
  { id: "ofMean", title: "Of mean", by: (t) => t.ofMean, text: (t) => t.ofMean.toFixed(2), number: true, help: "Load by capacity, over the mean of the tasks that run" },
  { id: "weight", title: "Capacity", by: (t) => t.weight, text: (t) => String(t.weight), number: true, help: "Relative to the other tasks" },
  { id: "level", title: "Level", by: (t) => t.refused, text: (t) => level(t), help: "What it has no room for" },
  { id: "warm", title: "Warm", by: (t) => t.warm, text: (t) => (t.warm >= 1 ? "yes" : Math.round(100 * t.warm) + " %"), number: true, help: "How much of its capacity counts while it warms up" },
  { id: "cpu", title: "CPU", by: (t) => t.cpu, text: (t) => (t.cpu > 0 ? percent(t.cpu) : "-"), number: true },
  { id: "slices", title: "Slices", by: (t) => t.slices, text: (t) => t.slices.toLocaleString("en"), number: true },
  { id: "share", title: "Of keys", by: (t) => t.share, text: (t) => percent(t.share), number: true },
  { id: "misrouted", title: "Misrouted", by: (t) => t.misrouted, text: (t) => (t.misrouted >= 0.05 ? rate(t.misrouted) : "-"), number: true, help: "Requests a second for keys that are not its own" },
  { id: "age", title: "Report", by: (t) => t.age, text: (t) => (t.age < 0 ? "none" : span(t.age) + " ago"), number: true },
  { id: "where", title: "Where", by: (t) => t.zone + " " + t.address, text: (t) => (t.zone ? t.zone + " " : "") + t.address },
  { id: "note", title: "Why it has no slices", by: (t) => t.standing, text: (t) => t.standing },
];

function level(t) {
  const refuses = t.refused >= 0.05 ? rate(t.refused) + "/s refused" : "";
  if (t.level) return "refuses " + t.level + (refuses ? ", " + refuses : "");
  return refuses || "room for all";
}

export class Tasks {
  constructor(select) {
    this.select = select;
    this.static = null;
    this.list = [];
    this.rows = new Map();
    this.sort = "load";
    this.down = true;
    this.all = false;
    this.chosen = "";
    for (const c of columns) {
      const button = el("button", { type: "button", title: c.help, onclick: () => this.by(c.id) }, c.title);
      $("taskhead").append(el("th", { scope: "col", class: c.number ? "n" : "", "data-id": c.id }, button));
    }
    $("find").addEventListener("input", () => this.show());
    $("all").addEventListener("click", () => {
      this.all = !this.all;
      this.show();
    });
    this.heads();
  }

  by(id) {
    this.down = this.sort === id ? !this.down : id !== "name";
    this.sort = id;
    this.heads();
    this.show();
  }

  heads() {
    for (const th of $("taskhead").children) {
      if (th.dataset.id === this.sort) th.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  }

  setStatic(m) {
    this.static = m;
  }

  setNumbers(n) {
    const s = this.static;
    if (!s || !n || n.load.length !== s.name.length) return;
    this.list = s.name.map((name, i) => ({
      name, zone: s.zone[i], address: s.address[i], weight: s.weight[i], state: s.state[i], standing: s.standing[i],
      load: n.load[i], ofMean: n.ofMean[i], cpu: n.cpu[i], refused: n.refused[i], misrouted: n.misrouted[i], warm: n.warm[i], level: n.level[i],
      age: n.age[i], gone: n.gone[i], slices: n.slices[i], share: n.share[i],
    }));
    this.show();
  }

  choose(task) {
    this.chosen = this.chosen === task ? "" : task;
    this.select(this.chosen);
    this.show();
  }

  show() {
    const find = $("find").value.trim().toLowerCase();
    const key = columns.find((c) => c.id === this.sort).by;
    let list = this.list.filter((t) => !find || (t.name + " " + t.zone + " " + t.address + " " + t.state).toLowerCase().includes(find));
    const sign = this.down ? -1 : 1;
    list.sort((a, b) => {
      const x = key(a), y = key(b);
      return x < y ? -sign : x > y ? sign : a.name < b.name ? -1 : 1;
    });
    const found = list.length;
    if (!this.all) list = list.slice(0, few);
    const body = $("taskrows");
    const kept = new Set(list.map((t) => t.name));
    for (const [name, row] of this.rows) {
      if (!kept.has(name)) {
        row.element.remove();
        this.rows.delete(name);
      }
    }
    list.forEach((t, i) => {
      let row = this.rows.get(t.name);
      if (!row) {
        row = this.newRow(t);
        this.rows.set(t.name, row);
      }
      if (body.children[i] !== row.element) body.insertBefore(row.element, body.children[i] || null);
      this.fill(row, t);
    });
    $("all").hidden = found <= few;
    put($("all"), this.all ? "Show the first " + few : "Show all " + found.toLocaleString("en"));
    put($("tasksleft"), this.list.length === 0 ? "No task is known." : "");
  }

  newRow(t) {
    const swatch = el("span", { class: "swatch" });
    const name = el("button", { type: "button", title: "Show its slices", "aria-pressed": "false", onclick: () => this.choose(t.name) }, swatch, t.name);
    const state = el("span", {});
    const bar = el("i", {});
    const meter = el("span", { class: "meter", "aria-hidden": "true", title: "Half of the bar is the mean" }, bar, el("u", {}));
    const load = el("span", {});
    const cells = {};
    const element = el("tr", {}, el("th", { scope: "row" }, name));
    for (const c of columns.slice(1)) {
      const td = el("td", { class: c.number ? "n" : c.id === "note" ? "wrap" : "" });
      if (c.id === "state") td.append(state);
      else if (c.id === "load") td.append(meter, load);
      cells[c.id] = td;
      element.append(td);
    }
    return { element, name, swatch, state, bar, meter, load, cells };
  }

  fill(row, t) {
    row.swatch.style.background = css(ownerColor(t.name));
    const words = t.gone && t.state !== "dead" ? t.state + ", no stream" : t.state;
    if (row.state.textContent !== words) row.state.replaceChildren(pill(t.gone && t.state !== "dead" ? "dead" : t.state, words));
    row.bar.style.width = Math.min(100, 50 * t.ofMean).toFixed(1) + "%";
    row.meter.className = t.ofMean > 1.5 ? "meter over" : "meter";
    put(row.load, rate(t.load));
    for (const c of columns) {
      if (c.text) put(row.cells[c.id], c.text(t));
    }
    row.element.className = t.name === this.chosen ? "picked" : "";
    row.name.setAttribute("aria-pressed", String(t.name === this.chosen));
  }
}
