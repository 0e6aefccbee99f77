MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161,
                      9650029242287828579, 2870177450012600261)


def _rotl(x, r):
    return ((x << r) | (x >> (64 - r))) & MASK


def _round(acc, value):
    return _rotl((acc + value * P2) & MASK, 31) * P1 & MASK


def slice_key(key):
    """XXH64 of the key's bytes, shifted right by one, as 16 hex digits."""
    b = key.encode()
    i, h = 0, P5
    if len(b) >= 32:
        v = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while i + 32 <= len(b):
            for k in range(4):
                v[k] = _round(v[k], int.from_bytes(b[i + 8 * k:i + 8 * k + 8], "little"))
            i += 32
        h = (_rotl(v[0], 1) + _rotl(v[1], 7) + _rotl(v[2], 12) + _rotl(v[3], 18)) & MASK
        for x in v:
            h = ((h ^ _round(0, x)) * P1 + P4) & MASK
    h = (h + len(b)) & MASK
    while i + 8 <= len(b):
        h = (_rotl(h ^ _round(0, int.from_bytes(b[i:i + 8], "little")), 27) * P1 + P4) & MASK
        i += 8
    if i + 4 <= len(b):
        h = (_rotl(h ^ int.from_bytes(b[i:i + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        i += 4
    for c in b[i:]:
        h = _rotl(h ^ c * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    h ^= h >> 32
    return "%016x" % (h >> 1)
