// Colours of loads and of owners, in light and in dark.

const loadStops = {
  light: ["#edf1f4", "#f7e7b5", "#f8bf57", "#e8743b", "#b32a3c", "#5d0d35"],
  dark: ["#1d252c", "#35305c", "#6f3a86", "#c14a73", "#f58b54", "#fff0ae"],
};

const dark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => dark.matches;
export const onScheme = (f) => dark.addEventListener("change", f);

export const least = 1 / 8;
export const most = 64;

// loadTable has 256 colours, as pixels, from the least load to the most; the first is no load.
export function loadTable() {
  const stops = loadStops[isDark() ? "dark" : "light"].map(rgb);
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    const f = at - k;
    table[i] = pixel(stops[k].map((c, j) => c + f * (stops[k + 1][j] - c)));
  }
  return table;
}

// entry is the place in the table of a load that is so many times the mean.
export function entry(ratio) {
  if (!(ratio > 0)) return 0;
  const t = Math.log2(ratio / least) / Math.log2(most / least);
  return Math.max(1, Math.min(255, Math.round(255 * t)));
}

export function unknown() {
  return pixel(isDark() ? [52, 60, 67] : [205, 211, 216]);
}

export function background() {
  return isDark() ? [23, 30, 36] : [255, 255, 255];
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

export function pixel([r, g, b]) {
  return (255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r);
}

const seen = new Map();

// ownerColor is that of a task, the same as long as the page is open.
export function ownerColor(name) {
  if (!seen.has(name)) seen.set(name, seen.size);
  const i = seen.get(name);
  const light = isDark() ? [58, 70, 48] : [52, 42, 64];
  return hsl((200 + i * 137.508) % 360, 58, light[i % 3]);
}

export function css([r, g, b]) {
  return "rgb(" + Math.round(r) + " " + Math.round(g) + " " + Math.round(b) + ")";
}

function hsl(h, s, l) {
  const a = (s / 100) * Math.min(l / 100, 1 - l / 100);
  return [0, 8, 4].map((n) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (l / 100 - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}
