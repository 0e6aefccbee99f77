// line draws a small line of values, over times if there are any.
export function line(values, times, floor, words) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "line");
  svg.setAttribute("viewBox", "0 0 100 26");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", words);
  if (values.length < 2) return svg;
  const top = Math.max(2, floor || 0, ...values);
  const low = Math.min(1, ...values);
  const y = (v) => (25 - (24 * (v - low)) / (top - low)).toFixed(1);
  const x = times
    ? (i) => ((100 * (times[i] - times[0])) / Math.max(1, times[times.length - 1] - times[0])).toFixed(1)
    : (i) => ((100 * i) / (values.length - 1)).toFixed(1);
  const path = (d, kind) => {
    const p = document.createElementNS("http://www.w3.org/2000/svg", "path");
    p.setAttribute("d", d);
    if (kind) p.setAttribute("class", kind);
    svg.append(p);
  };
  if (floor > 0) path("M0 " + y(floor) + "H100", "floor");
  path(values.map((v, i) => (i ? "L" : "M") + x(i) + " " + y(v)).join(""));
  return svg;
}
