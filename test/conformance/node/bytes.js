// What a clerk has to know of bytes: keys, assignments and deltas, and their checksums
// (deploy/docs/CONFORMANCE.md#bytes). Numbers of 64 bits are BigInts.
"use strict";

const MASK = (1n << 64n) - 1n;
const [P1, P2, P3, P4, P5] = [0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n];
const mul = (a, b) => BigInt.asUintN(64, a * b);
const rotl = (x, r) => BigInt.asUintN(64, (x << r) | (x >> (64n - r)));
const round = (acc, input) => mul(rotl(BigInt.asUintN(64, acc + mul(input, P2)), 31n), P1);

// xxh64 is XXH64 with seed 0 of a Buffer.
function xxh64(b) {
  let i = 0;
  let h;
  if (b.length >= 32) {
    const v = [BigInt.asUintN(64, P1 + P2), P2, 0n, BigInt.asUintN(64, -P1)];
    for (; i + 32 <= b.length; i += 32) {
      for (let j = 0; j < 4; j++) v[j] = round(v[j], b.readBigUInt64LE(i + 8 * j));
    }
    h = BigInt.asUintN(64, rotl(v[0], 1n) + rotl(v[1], 7n) + rotl(v[2], 12n) + rotl(v[3], 18n));
    for (const x of v) h = BigInt.asUintN(64, mul(h ^ round(0n, x), P1) + P4);
  } else {
    h = P5;
  }
  h = BigInt.asUintN(64, h + BigInt(b.length));
  for (; i + 8 <= b.length; i += 8) h = BigInt.asUintN(64, mul(rotl(h ^ round(0n, b.readBigUInt64LE(i)), 27n), P1) + P4);
  if (i + 4 <= b.length) {
    h = BigInt.asUintN(64, mul(rotl(h ^ mul(BigInt(b.readUInt32LE(i)), P1), 23n), P2) + P3);
    i += 4;
  }
  for (; i < b.length; i++) h = mul(rotl(h ^ mul(BigInt(b[i]), P5), 11n), P1);
  h ^= h >> 33n;
  h = mul(h, P2);
  h ^= h >> 29n;
  h = mul(h, P3);
  return (h ^ (h >> 32n)) & MASK;
}

const sliceKey = (key) => xxh64(Buffer.from(key, "utf8")) >> 1n;

const END = 1n << 63n;
const limits = { tasks: 1 << 17, slices: 1 << 22, owners: 1 << 23, replicas: 1 << 10 };

function need(ok, what) {
  if (!ok) throw new Error(what);
}

// columns are slices as { start, owners: [{ at, since }] }, at a position in the table of tasks.
// counts has the number of slices in each part whose first start is left out, null for none.
function columns(c, m, counts) {
  const shift = BigInt(c.shift);
  need(shift < 63n, "shift");
  const table = [];
  let g = BigInt(m.generation);
  for (const d of c.since_delta) table.push((g -= BigInt(d)));
  const out = [];
  const n = counts ? counts.reduce((a, b) => a + b, 0) : c.start_delta.length;
  need(n <= limits.slices && c.owner.length <= limits.owners, "too many slices or owners");
  need(c.replicas.length === 0 || c.replicas.length === n, "replicas");
  need(c.since.length === 0 || c.since.length === c.owner.length, "since");
  const first = new Set();
  if (counts) counts.reduce((at, k) => (first.add(at), at + k), 0);
  let start = 0n;
  let d = 0;
  let o = 0;
  for (let i = 0; i < n; i++) {
    const slice = { start: null, owners: [] };
    if (!first.has(i)) {
      need(d < c.start_delta.length, "too few starts");
      start += BigInt(c.start_delta[d++]);
      slice.start = start << shift;
    }
    const replicas = c.replicas.length ? c.replicas[i] : 1;
    need(replicas >= 1 && replicas <= limits.replicas && o + replicas <= c.owner.length, "replicas");
    for (let j = 0; j < replicas; j++, o++) {
      const s = c.since.length ? c.since[o] : 0;
      need(s <= table.length, "since entry");
      slice.owners.push({ at: c.owner[o], since: s ? table[s - 1] : BigInt(m.horizon) });
    }
    out.push(slice);
  }
  need(d === c.start_delta.length && o === c.owner.length, "starts or owners are left");
  return out;
}

const head = (m) => ({
  job: m.job, store: BigInt(m.store_id), generation: BigInt(m.generation), previous: BigInt(m.previous), horizon: BigInt(m.horizon),
});

// whole is the assignment of a message.
function whole(m) {
  need(m.tasks.length <= limits.tasks && m.slices, "too many tasks, or no slices");
  return check({ ...head(m), tasks: m.tasks, slices: columns(m.slices, m, null) });
}

// apply is what a Delta makes of an assignment.
function apply(base, m) {
  need(base && BigInt(m.base) === base.generation && m.job === base.job && BigInt(m.store_id) === base.store, "a delta on another assignment");
  need(m.keep.length === m.old.length && m.keep.length === m.new.length, "edits");
  const put = new Map(m.put_tasks.map((t) => [t.index, t]));
  const drop = new Set(m.drop_tasks);
  const tasks = base.tasks.filter((t) => !drop.has(t.index) && !put.has(t.index)).concat(m.put_tasks);
  tasks.sort((a, b) => a.index - b.index);
  const at = new Map(tasks.map((t, i) => [t.index, i]));
  const h = head(m);
  const stays = (s) => ({
    start: s.start,
    owners: s.owners.map((o) => ({ at: at.get(base.tasks[o.at].index), since: o.since > h.horizon ? o.since : h.horizon })),
  });
  const fresh = m.slices ? columns(m.slices, m, m.new) : [];
  const slices = [];
  let i = 0;
  let f = 0;
  m.keep.forEach((keep, e) => {
    need(i + keep + m.old[e] <= base.slices.length && m.old[e] > 0 && m.new[e] > 0 && f + m.new[e] <= fresh.length, "edit past the end");
    for (const end = i + keep; i < end; i++) slices.push(stays(base.slices[i]));
    fresh[f].start = base.slices[i].start;
    for (const end = f + m.new[e]; f < end; f++) slices.push(fresh[f]);
    i += m.old[e];
  });
  for (; i < base.slices.length; i++) slices.push(stays(base.slices[i]));
  return check({ ...h, tasks, slices });
}

// check throws if an assignment makes no sense.
function check(a) {
  need(a.generation > 0n && a.slices.length > 0 && a.slices[0].start === 0n, "no generation, or no slice at 0");
  need(new Set(a.tasks.map((t) => t.name)).size === a.tasks.length, "two tasks of one name");
  a.tasks.forEach((t, i) => need(i === 0 || t.index > a.tasks[i - 1].index, "order of tasks"));
  a.slices.forEach((s, i) => {
    need(s.start < END && (i === 0 || s.start > a.slices[i - 1].start), "order of slices");
    need(s.owners.every((o) => o.at < a.tasks.length) && new Set(s.owners.map((o) => o.at)).size === s.owners.length, "owners");
  });
  return a;
}

const states = { TASK_STATE_UNSPECIFIED: 0, TASK_STATE_STARTING: 1, TASK_STATE_RUNNING: 2, TASK_STATE_DRAINING: 3, TASK_STATE_DEAD: 4 };

function checksum(a) {
  const parts = [];
  const number = (v) => {
    const b = Buffer.alloc(8);
    b.writeBigUInt64LE(BigInt.asUintN(64, BigInt(v)));
    parts.push(b);
  };
  const text = (s) => {
    const b = Buffer.from(s, "utf8");
    number(b.length);
    parts.push(b);
  };
  text(a.job);
  [a.store, a.generation, a.previous, a.horizon, a.tasks.length].forEach(number);
  for (const t of a.tasks) {
    text(t.name);
    number(t.incarnation);
    text(t.address);
    text(t.zone);
    number(t.index);
    const weight = Buffer.alloc(8);
    weight.writeDoubleLE(t.weight);
    parts.push(weight);
    number(states[t.state]);
  }
  number(a.slices.length);
  for (const s of a.slices) {
    number(s.start);
    for (const o of s.owners) {
      number((BigInt(o.at) << 32n) | BigInt(s.owners.length));
      number(o.since);
    }
  }
  return xxh64(Buffer.concat(parts));
}

// find is the slice that has a key.
function find(a, k) {
  let lo = 0;
  let hi = a.slices.length - 1;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (a.slices[mid].start <= k) lo = mid;
    else hi = mid - 1;
  }
  return a.slices[lo];
}

module.exports = { sliceKey, whole, apply, checksum, find };
