// A clerk in JavaScript with a driver for the conformance kit, as small as one can be:
//
//	npm install && go run .. clerk -- node clerk.js
//
// It has no cache file.
"use strict";

const path = require("node:path");
const readline = require("node:readline");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const { sliceKey, whole, apply, checksum, find } = require("./bytes.js");

const options = { keepCase: true, longs: String, enums: String, defaults: true, arrays: true };
const protos = path.join(__dirname, "..", "..", "..", "proto");
const definition = loader.loadSync(["subscriber", "refusal"].map((n) => `slicer/v1/${n}.proto`), { ...options, includeDirs: [protos] });
const { SubscriberService } = grpc.loadPackageDefinition(definition).slicer.v1;
const decode = (type, data) => definition[`slicer.v1.${type}`].deserialize(data);

const MAX_ENCODED = 256 << 20;
const FIRST_WORD = 15_000;

let cfg;
let held = null; // the assignment to go by
let conditions = [];
let index = null;
let lost = false; // no Distributor serves
let closing = false;
const streams = new Set();
const random = (ms) => Math.random() * ms;

// follow streams from one of the servers at a time.
class Follower {
  constructor(servers, backup) {
    Object.assign(this, { servers, backup, at: Math.floor(random(servers.length)), fails: 0, stopped: false });
  }

  connect() {
    if (this.stopped || closing || this.servers.length === 0) return;
    const s = { chunks: [], size: 0, base: held, served: false, over: false };
    s.client = new SubscriberService(this.servers[this.at], grpc.credentials.createInsecure(), {
      "grpc.keepalive_time_ms": 10_000, "grpc.keepalive_timeout_ms": 5_000, "grpc.use_local_subchannel_pool": 1,
      "grpc.initial_reconnect_backoff_ms": 100_000, "grpc.max_reconnect_backoff_ms": 100_000,
    });
    s.call = s.client.Watch();
    streams.add(s);
    const end = (error) => {
      if (s.over) return;
      s.over = true;
      clearTimeout(s.timer);
      s.call.cancel();
      s.client.close();
      streams.delete(s);
      this.failed(s, error);
    };
    s.within = FIRST_WORD;
    const patience = () => {
      clearTimeout(s.timer);
      if (s.within > 0) s.timer = setTimeout(() => end(new Error("silent")), s.within);
    };
    patience();
    s.end = end;
    this.stream = s;
    s.call.on("error", end);
    s.call.on("end", () => end(null));
    s.call.on("data", (m) => {
      if (s.over) return;
      s.served = true;
      if (!this.backup) recovered();
      if (m.status) s.within = Math.min(3 * Number(m.status.repeat_ms), 10_000_000);
      this.take(s, m);
      patience();
    });
    const hello = { job: cfg.job, role: "ROLE_CLERK", client_id: cfg.client_id, zone: cfg.zone };
    if (held) Object.assign(hello, { generation: String(held.generation), store_id: String(held.store), checksum: String(checksum(held)) });
    if (index !== null) hello.client_index = index;
    s.call.write({ hello });
  }

  take(s, m) {
    if (m.chunk) {
      s.size += m.chunk.data.length;
      if (s.size > MAX_ENCODED) return s.end(new Error("too many chunks"));
      s.chunks.push(m.chunk.data);
    } else if (m.trailer) {
      s.call.write({ ack: this.offered(s, m.trailer) });
    } else if (m.status) {
      conditions = m.status.conditions.slice(0, 100);
      // Not there is not 0 in an optional field.
      if (m.status.client_index != null && m.status.client_index < 1 << 24) index = m.status.client_index;
    }
  }

  // offered takes an assignment, and is the acknowledgement.
  offered(s, t) {
    const data = Buffer.concat(s.chunks);
    s.chunks = [];
    s.size = 0;
    let refusal = "";
    try {
      if (BigInt(t.size) !== BigInt(data.length)) throw new Error(`${data.length} bytes, the trailer says ${t.size}`);
      count(data);
      const a = t.base === "0" ? whole(decode("Assignment", data)) : apply(held, decode("Delta", data));
      if (a.job !== cfg.job) throw new Error(`an assignment of job ${a.job}`);
      if (checksum(a) !== BigInt(t.checksum) || a.generation !== BigInt(t.generation)) throw new Error("another checksum");
      if (!held || a.store !== held.store || a.generation > held.generation) held = a;
    } catch (e) {
      refusal = String(e.message).slice(0, 500) || "malformed";
    }
    return { generation: held ? String(held.generation) : "0", refusal };
  }

  failed(s, error) {
    if (this.stopped || closing) return;
    if (s.served) this.fails = 0;
    this.fails++;
    this.at = (this.at + 1) % this.servers.length;
    const after = retryAfter(error);
    const all = this.fails >= this.servers.length;
    if (all && !this.backup && after === 0 && !(error && error.code === grpc.status.NOT_FOUND)) desert();
    let wait = random(50);
    if (all && after > 0) {
      wait = after + random(after / 2);
    } else if (all) {
      const most = Math.min(250 * 2 ** Math.min(Math.ceil(this.fails / this.servers.length) - 1, 10), 5000);
      wait = most / 2 + random(most / 2);
    }
    this.timer = setTimeout(() => this.connect(), wait);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    if (this.stream) this.stream.end(null);
  }
}

// count bounds the bytes of an assignment before it is decoded, which makes much more of them.
function count(data) {
  if (data.length > 64 << 20) throw new Error("too large for this clerk");
}

// retryAfter is how long a Distributor asks to stay away, ms; 0 if it does not.
function retryAfter(error) {
  const [details] = (error && error.metadata && error.metadata.get("grpc-status-details-bin")) || [];
  if (!details) return 0;
  try {
    for (const any of statusDetails(details)) {
      if (any.type.endsWith("/slicer.v1.RetryAfter")) return Math.min(Math.max(Number(decode("RetryAfter", any.value).after_ms), 1), 30_000);
    }
  } catch {
    // as if there were none
  }
  return 0;
}

// statusDetails are those of a google.rpc.Status: its field 3 has Any messages, of type and value.
function statusDetails(b) {
  return fields(b).filter((f) => f.number === 3).map((f) => {
    const any = Object.fromEntries(fields(f.data).map((g) => [g.number, g.data]));
    return { type: String(any[1]), value: any[2] || Buffer.alloc(0) };
  });
}

// fields are those of a message that are bytes.
function fields(b) {
  const out = [];
  let i = 0;
  const varint = () => {
    let v = 0;
    for (let f = 1; ; f *= 128) {
      v += (b[i] & 127) * f;
      if (b[i++] < 128) return v;
      if (i >= b.length) throw new Error("ends early");
    }
  };
  while (i < b.length) {
    const tag = varint();
    const n = varint();
    if (tag % 8 === 2) {
      out.push({ number: tag >> 3, data: b.subarray(i, i + n) });
      i += n;
    }
  }
  return out;
}

let distributors;
let backups = null;

function desert() {
  if (lost || cfg.backups.length === 0) return;
  lost = true;
  backups = new Follower(cfg.backups, true);
  backups.connect();
}

function recovered() {
  if (!lost) return;
  lost = false;
  backups.stop();
}

function owners(key) {
  return held ? find(held, sliceKey(key)).owners.map((o) => held.tasks[o.at]) : [];
}

function pick(key) {
  const all = owners(key);
  const drains = (t) => conditions.some((c) => c.draining && c.task === t.name && c.incarnation === t.incarnation);
  const free = all.filter((t) => !drains(t));
  const from = free.length ? free : all;
  return from[Math.floor(random(from.length))].name;
}

const ops = {
  start(q) {
    if (q.cache_file) return { unsupported: true };
    cfg = { distributors: [], backups: [], ...q };
    distributors = new Follower(cfg.distributors, false);
    distributors.connect();
    return {};
  },
  state: () => ({ generation: held ? Number(held.generation) : 0 }),
  hash: (q) => ({ slice_keys: q.keys.map((k) => sliceKey(k).toString(16).padStart(16, "0")) }),
  lookup: (q) => ({ owners: q.keys.map((k) => owners(k).map((t) => t.name)) }),
  pick(q) {
    const picked = {};
    for (let i = 0; i < q.n; i++) {
      const name = pick(q.key);
      picked[name] = (picked[name] || 0) + 1;
    }
    return { picked };
  },
  close() {
    closing = true;
    for (const f of [distributors, backups]) if (f) f.stop();
    return {};
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (text) => {
  const q = JSON.parse(text);
  const op = ops[q.op];
  process.stdout.write(JSON.stringify(op ? op(q) : { unsupported: true }) + "\n");
  if (q.op === "close") lines.close();
});
lines.on("close", () => {
  if (!closing) ops.close();
});
