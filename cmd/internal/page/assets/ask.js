// Asks why a key is where it is.
import { $, clock, el } from "./format.js";
import { entry } from "./log.js";

// ask shows the answer for a key, or with slice for a slice key, and calls found with it.
export async function ask(job, { key, slice }, found) {
  const into = $("answer");
  const query = new URLSearchParams({ job });
  if (slice !== undefined) query.set("slice", slice);
  else query.set("key", key);
  let x;
  try {
    const answer = await fetch("explain?" + query);
    if (!answer.ok) throw new Error(await answer.text());
    x = await answer.json();
  } catch (e) {
    into.replaceChildren(el("p", { class: "notice bad", role: "alert" }, String(e.message || e).trim().slice(0, 300)));
    into.hidden = false;
    return;
  }
  found(x);
  const facts = el("dl", { class: "facts" });
  const fact = (name, ...what) => facts.append(el("dt", {}, name), el("dd", {}, ...what));
  if (key !== undefined && slice === undefined) fact("Key", el("span", { class: "mono" }, key));
  fact("Slice key", el("span", { class: "mono" }, x.key));
  fact("In slice", el("span", { class: "mono" }, "[" + x.start + ", " + x.end + ")"), " of generation " + x.generation);
  for (const o of x.owners) {
    fact("Owner", el("b", {}, o.task), " since " + clock(o.since) + " (generation " + o.since + "): " + (o.why || "why is not kept"));
  }
  if (x.pin) fact("Pinned", "to " + x.pin + " " + x.pinWhy);
  const changes = el("ol", {}, ...x.changes.map((e) => entry(e, true)));
  into.replaceChildren(facts, el("h2", { class: "second" }, x.changes.length ? "What was done to it, the newest first" : "Nothing was done to it, as far back as the history goes"), changes);
  if (x.leftOut) into.append(el("p", { class: "note" }, x.leftOut + " older changes are kept."));
  into.hidden = false;
  into.focus({ preventScroll: true });
  document.body.dataset.answers = 1 + Number(document.body.dataset.answers || 0);
}
