const mask = (1n << 64n) - 1n;
const P = [11400714785074694791n, 14029467366897019727n, 1609587929392839161n, 9650029242287828579n, 2870177450012600261n];
const rotl = (x, r) => ((x << r) | (x >> (64n - r))) & mask;
const round = (acc, input) => (rotl((acc + input * P[1]) & mask, 31n) * P[0]) & mask;

// sliceKey is XXH64 of the key's bytes, shifted right by one, as 16 hex digits.
export function sliceKey(key) {
  const b = Buffer.from(key, 'utf8');
  let i = 0, h = P[4];
  if (b.length >= 32) {
    const v = [(P[0] + P[1]) & mask, P[1], 0n, (mask + 1n - P[0]) & mask];
    for (; i + 32 <= b.length; i += 32) {
      for (let k = 0; k < 4; k++) v[k] = round(v[k], b.readBigUInt64LE(i + 8 * k));
    }
    h = (rotl(v[0], 1n) + rotl(v[1], 7n) + rotl(v[2], 12n) + rotl(v[3], 18n)) & mask;
    for (const x of v) h = ((h ^ round(0n, x)) * P[0] + P[3]) & mask;
  }
  h = (h + BigInt(b.length)) & mask;
  for (; i + 8 <= b.length; i += 8) h = (rotl(h ^ round(0n, b.readBigUInt64LE(i)), 27n) * P[0] + P[3]) & mask;
  if (i + 4 <= b.length) {
    h = (rotl(h ^ ((BigInt(b.readUInt32LE(i)) * P[0]) & mask), 23n) * P[1] + P[2]) & mask;
    i += 4;
  }
  for (; i < b.length; i++) h = (rotl(h ^ ((BigInt(b[i]) * P[4]) & mask), 11n) * P[0]) & mask;
  h = ((h ^ (h >> 33n)) * P[1]) & mask;
  h = ((h ^ (h >> 29n)) * P[2]) & mask;
  h ^= h >> 32n;
  return (h >> 1n).toString(16).padStart(16, '0');
}
