// HeatMap draws the keyspace on a canvas, in lines as a page of text has them. Loads that fall
// on one pixel are added up, so that its cost is that of the pixels and of one pass over the
// slices.
import { background, css, entry, isDark, loadTable, onScheme, ownerColor, pixel, unknown } from "./color.js";
import { digits, percent, put, rate, short } from "./format.js";
import { place } from "./slices.js";

const room = 15; // above a line, for the names of hot keys
const loadBand = 22;
const ownerBand = 11;
const gap = 5;
const lineHeight = room + loadBand + ownerBand + gap;
const named = 8; // hot keys
const reach = 2; // pixels to each side, of up to so many slices that are hot and narrow
const wider = 400;

export class HeatMap {
  // ask is called with the start of a slice, chosen with the task that is chosen or "".
  constructor(canvas, tip, status, ask) {
    Object.assign(this, { canvas, tip, status, ask });
    this.slices = null;
    this.loads = null;
    this.total = 0;
    this.keys = [];
    this.task = "";
    this.cursor = -1;
    this.mark = -1; // place of a key that was asked about
    canvas.heatmap = this;
    const later = () => this.draw();
    new ResizeObserver(later).observe(canvas.parentElement);
    onScheme(later);
    canvas.addEventListener("pointermove", (e) => this.hover(e));
    canvas.addEventListener("pointerleave", () => (tip.hidden = true));
    canvas.addEventListener("click", (e) => this.click(e));
    canvas.addEventListener("keydown", (e) => this.press(e));
    canvas.addEventListener("blur", () => this.move(-1));
  }

  setSlices(slices) {
    this.slices = slices;
    this.loads = null;
    this.cursor = Math.min(this.cursor, slices.count - 1);
    this.draw();
  }

  // setLoads takes loads that are parallel to the slices.
  setLoads(loads, total, keys) {
    this.loads = loads.length === this.slices?.count ? loads : null;
    this.total = total;
    this.keys = keys;
    this.draw();
  }

  select(task) {
    this.task = task;
    this.draw();
  }

  showKey(key) {
    this.mark = place(key);
    this.draw();
  }

  // draw does so once before the next frame.
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  layout() {
    const scale = window.devicePixelRatio || 1;
    const width = Math.max(200, Math.floor(this.canvas.parentElement.clientWidth));
    const lines = width > 800 ? 8 : 16;
    return { scale, width, lines, across: Math.floor(width * scale), height: lines * lineHeight };
  }

  paint() {
    const l = (this.at = this.layout());
    const { canvas } = this;
    const high = Math.round(l.height * l.scale);
    if (canvas.width !== l.across || canvas.height !== high) {
      canvas.width = l.across;
      canvas.height = high;
      canvas.style.height = l.height + "px";
    }
    const c = canvas.getContext("2d");
    c.clearRect(0, 0, canvas.width, canvas.height);
    if (!this.slices || this.slices.count === 0) return;
    this.gather(l);
    this.fill(c, l);
    this.nameKeys(c, l);
    this.outline(c, l);
  }

  // gather adds up the loads that fall on each pixel, and finds the slice that weighs most there.
  gather(l) {
    const n = l.lines * l.across;
    const { at, count } = this.slices;
    const sum = new Float64Array(n);
    const best = new Float64Array(n).fill(-1);
    const which = new Int32Array(n);
    const narrow = [];
    const much = (4 * this.total) / n;
    for (let i = 0; i < count; i++) {
      const from = at[i] * n;
      const to = at[i + 1] * n;
      const load = this.loads ? Math.max(this.loads[i], 0) : 0;
      const dense = to > from ? load / (to - from) : 0;
      if (to - from < 2 * reach && load > much) narrow.push(i);
      const last = Math.min(n - 1, Math.max(Math.ceil(to) - 1, Math.floor(from)));
      for (let p = Math.min(n - 1, Math.floor(from)); p <= last; p++) {
        const part = Math.min(to, p + 1) - Math.max(from, p);
        const here = dense * part || (to - from < 1e-9 ? load : 0);
        sum[p] += here;
        const weight = here + 1e-9 * part;
        if (weight > best[p]) {
          best[p] = weight;
          which[p] = i;
        }
      }
    }
    this.sum = sum;
    this.which = which;
    const widen = (i, by) => {
      const p = Math.min(n - 1, Math.floor(at[i] * n));
      const line = Math.floor(p / l.across);
      for (let x = Math.max(p - by, line * l.across); x <= Math.min(p + by, (line + 1) * l.across - 1); x++) {
        sum[x] = Math.max(sum[p], this.loads ? this.loads[i] : 0);
        which[x] = i;
      }
    };
    const chosen = this.task ? this.slices.tasks.indexOf(this.task) : -1;
    for (let i = 0; chosen >= 0 && i < count; i++) {
      const { first, owners } = this.slices;
      if ((at[i + 1] - at[i]) * n < reach && has(owners, first[i], first[i + 1] - first[i], chosen)) widen(i, 1);
    }
    // What is hot and too narrow to be seen is drawn wider, the hottest above the others.
    narrow.sort((a, b) => this.loads[a] - this.loads[b]);
    for (const i of narrow.slice(-wider)) widen(i, reach);
  }

  fill(c, l) {
    const { across, scale, lines } = l;
    const image = c.createImageData(across, this.canvas.height);
    const out = new Uint32Array(image.data.buffer);
    const table = loadTable();
    const none = unknown();
    const mean = this.total / (lines * across);
    const colors = this.slices.tasks.map((t) => pixel(ownerColor(t)));
    const chosen = this.task ? this.slices.tasks.indexOf(this.task) : -1;
    const dim = this.task ? pixel(background().map((v) => v + (isDark() ? 14 : -14))) : 0;
    const { first, owners } = this.slices;
    for (let line = 0; line < lines; line++) {
      const top = Math.round((line * lineHeight + room) * scale);
      const middle = Math.round((line * lineHeight + room + loadBand) * scale);
      const bottom = Math.round((line * lineHeight + room + loadBand + ownerBand) * scale);
      for (let x = 0; x < across; x++) {
        const p = line * across + x;
        const i = this.which[p];
        const from = first[i];
        const many = first[i + 1] - from;
        let hue = this.loads && this.loads[i] >= 0 ? table[entry(this.sum[p] / mean)] : none;
        if (chosen >= 0 && !has(owners, from, many, chosen)) hue = dim;
        for (let y = top; y < middle - 1; y++) out[y * across + x] = hue;
        const tall = bottom - middle;
        for (let y = middle; y < bottom; y++) {
          const owner = owners[from + Math.floor(((y - middle) * many) / tall)];
          out[y * across + x] = chosen >= 0 && owner !== chosen ? dim : colors[owner];
        }
      }
    }
    c.putImageData(image, 0, 0);
  }

  nameKeys(c, l) {
    c.font = Math.round(11 * l.scale) + "px system-ui, sans-serif";
    c.textBaseline = "alphabetic";
    const ink = isDark() ? "#e6ebef" : "#16202a";
    const taken = Array.from({ length: l.lines }, () => []);
    const marks = this.keys.slice(0, named).map((k, i) => ({ at: place(k.key), words: [i + 1 + "  " + short(k.key) + (this.total > 0 ? "  " + percent(k.rate / this.total) : ""), String(i + 1)] }));
    if (this.mark >= 0) marks.unshift({ at: this.mark, words: ["this key"], mine: true });
    const s = l.scale;
    for (const m of marks) {
      const p = m.at * l.lines * l.across;
      const line = Math.min(l.lines - 1, Math.floor(p / l.across));
      const x = p - line * l.across;
      const y = (line * lineHeight + room) * s;
      c.fillStyle = m.mine ? (isDark() ? "#63c3cd" : "#0b6b75") : ink;
      c.beginPath();
      c.moveTo(x - 4 * s, y - 6 * s);
      c.lineTo(x + 4 * s, y - 6 * s);
      c.lineTo(x, y);
      c.fill();
      this.write(c, m.words, x, y - 3 * s, s, l.across, taken[line]);
    }
  }

  // write puts the first of the words beside a place for which there is room.
  write(c, words, x, y, s, across, taken) {
    const free = (from, to) => from >= 0 && to <= across && taken.every(([a, b]) => to < a || from > b);
    for (const text of words) {
      const wide = c.measureText(text).width;
      for (const left of [x + 7 * s, x - 7 * s - wide]) {
        if (free(left, left + wide)) {
          c.fillText(text, left, y);
          taken.push([Math.min(left, x - 5 * s), Math.max(left + wide, x + 5 * s)]);
          return;
        }
      }
    }
    taken.push([x - 5 * s, x + 5 * s]);
  }

  // outline shows where the keyboard is.
  outline(c, l) {
    if (this.cursor < 0) return;
    const n = l.lines * l.across;
    const from = this.slices.at[this.cursor] * n;
    const to = Math.max(this.slices.at[this.cursor + 1] * n, from + 3);
    c.strokeStyle = isDark() ? "#fff" : "#000";
    c.lineWidth = 2 * l.scale;
    for (let line = Math.floor(from / l.across); line <= Math.min(l.lines - 1, Math.floor((to - 1e-6) / l.across)); line++) {
      const x0 = Math.max(from - line * l.across, 0);
      const x1 = Math.min(to - line * l.across, l.across);
      c.strokeRect(x0, (line * lineHeight + room) * l.scale, Math.max(x1 - x0, 2), (loadBand + ownerBand) * l.scale);
    }
  }

  // under is the slice at a point of the canvas, -1 for none.
  under(e) {
    if (!this.at || !this.slices?.count) return -1;
    const line = Math.floor(e.offsetY / lineHeight);
    const x = Math.floor((e.offsetX / this.canvas.clientWidth) * this.at.across);
    const p = line * this.at.across + x;
    return this.which && p >= 0 && p < this.which.length && e.offsetY - line * lineHeight >= room - 8 ? this.which[p] : -1;
  }

  hover(e) {
    const i = this.under(e);
    this.tip.hidden = i < 0;
    if (i < 0) return;
    put(this.tip, this.describe(i));
    const left = Math.min(e.offsetX + 12, this.canvas.clientWidth - this.tip.offsetWidth);
    this.tip.style.left = Math.max(left, 0) + "px";
    this.tip.style.top = e.offsetY + 18 + "px";
  }

  click(e) {
    const i = this.under(e);
    if (i >= 0) this.ask(this.slices.start(i));
  }

  press(e) {
    const last = (this.slices?.count || 0) - 1;
    if (last < 0) return;
    const to = { ArrowRight: this.cursor + 1, ArrowLeft: this.cursor - 1, Home: 0, End: last, ArrowDown: this.lineOn(1), ArrowUp: this.lineOn(-1) }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      this.move(Math.max(0, Math.min(last, to)));
    } else if (e.key === "Enter" && this.cursor >= 0) {
      this.ask(this.slices.start(this.cursor));
    } else if (e.key === "Escape") {
      this.move(-1);
    }
  }

  lineOn(by) {
    const x = this.slices.at[Math.max(this.cursor, 0)] + by / this.layout().lines;
    return this.slices.find(Math.max(0, Math.min(x, 1 - 1e-9)));
  }

  move(to) {
    if (to === this.cursor) return;
    this.cursor = to;
    put(this.status, to < 0 ? "" : this.describe(to));
    this.draw();
  }

  describe(i) {
    const s = this.slices;
    const wide = s.at[i + 1] - s.at[i];
    const words = ["[" + s.start(i) + ", " + s.end(i) + "), " + percent(wide) + " of keys"];
    const load = this.loads ? this.loads[i] : -1;
    if (load < 0) words.push("load not known");
    else words.push("load " + rate(load) + ", " + digits(this.total > 0 ? (load * s.count) / this.total : 0) + " times the mean slice's");
    const owners = s.ownersOf(i);
    words.push(owners.slice(0, 8).join(", ") + (owners.length > 8 ? " and " + (owners.length - 8) + " more" : ""));
    return words.join("; ");
  }

  // list is all slices, for tests and for the curious at the console.
  list() {
    return Array.from({ length: this.slices.count }, (_, i) => ({ start: this.slices.start(i), end: this.slices.end(i), tasks: this.slices.ownersOf(i) }));
  }

  // shown is the colour of the first owner of a slice, as drawn and as meant, null where
  // another slice has the pixel in its middle.
  shown(i) {
    const l = this.at;
    const p = Math.floor(((this.slices.at[i] + this.slices.at[i + 1]) / 2) * l.lines * l.across);
    if (this.which[p] !== i) return null;
    const line = Math.floor(p / l.across);
    const y = Math.round((line * lineHeight + room + loadBand) * l.scale);
    const [r, g, b] = this.canvas.getContext("2d").getImageData(p % l.across, y, 1, 1).data;
    return { drawn: css([r, g, b]), meant: css(ownerColor(this.slices.ownersOf(i)[0])) };
  }
}

function has(owners, from, many, task) {
  for (let k = from; k < from + many; k++) if (owners[k] === task) return true;
  return false;
}

// scale draws the legend.
export function drawScale(canvas) {
  const c = canvas.getContext("2d");
  const image = c.createImageData(canvas.width, canvas.height);
  const out = new Uint32Array(image.data.buffer);
  const table = loadTable();
  for (let i = 0; i < out.length; i++) out[i] = table[Math.floor((255 * (i % canvas.width)) / canvas.width)];
  c.putImageData(image, 0, 0);
}
