// Slices of one generation, in columns.

export class Slices {
  constructor(m) {
    this.generation = m.generation || 0;
    this.tasks = m.tasks || [];
    const high = words(m.high, 4);
    const low = words(m.low, 4);
    const many = words(m.replicas, 2);
    this.owners = words(m.owners, m.ownerBytes || 2);
    const n = high.length;
    this.count = n;
    this.high = high;
    this.low = low;
    // at is where each slice begins, as a share of the keyspace, and has one entry more.
    this.at = new Float64Array(n + 1);
    this.first = new Uint32Array(n + 1); // of its owners
    for (let i = 0; i < n; i++) {
      this.at[i] = high[i] / 2 ** 32 + (low.length ? low[i] / 2 ** 63 : 0);
      this.first[i + 1] = this.first[i] + (many.length ? many[i] : 1);
    }
    this.at[n] = 1;
  }

  start(i) {
    if (i >= this.count) return "8000000000000000";
    const key = (BigInt(this.high[i]) << 31n) | BigInt(this.low.length ? this.low[i] : 0);
    return key.toString(16).padStart(16, "0");
  }

  end(i) {
    return this.start(i + 1);
  }

  ownersOf(i) {
    return Array.from(this.owners.subarray(this.first[i], this.first[i + 1]), (o) => this.tasks[o]);
  }

  // find is the slice that holds a share of the keyspace.
  find(x) {
    let lo = 0;
    let hi = this.count;
    while (hi - lo > 1) {
      const mid = (lo + hi) >> 1;
      if (this.at[mid] <= x) lo = mid;
      else hi = mid;
    }
    return lo;
  }
}

// place is where a slice key lies, as a share of the keyspace.
export function place(key) {
  return Number(BigInt("0x" + key)) / 2 ** 63;
}

// decodeLoads makes loads of levels; -1 stands for one that is not known.
export function decodeLoads(m) {
  const levels = bytes(m.levels);
  const table = new Float64Array(256);
  for (let x = 1; x < 255; x++) table[x] = m.top * 2 ** ((x - 254) / 8);
  table[255] = -1;
  const loads = new Float64Array(levels.length);
  for (let i = 0; i < levels.length; i++) loads[i] = table[levels[i]];
  return loads;
}

function bytes(text) {
  if (!text) return new Uint8Array(0);
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

// words are little-endian, as all machines with a browser are.
function words(text, size) {
  const b = bytes(text);
  const kind = size === 4 ? Uint32Array : Uint16Array;
  return new kind(b.buffer, b.byteOffset, b.byteLength / size);
}
