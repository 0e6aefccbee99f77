import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

final class SliceKey {
  private static final long P1 = 0x9E3779B185EBCA87L, P2 = 0xC2B2AE3D27D4EB4FL, P3 = 0x165667B19E3779F9L,
      P4 = 0x85EBCA77C2B2AE63L, P5 = 0x27D4EB2F165667C5L;

  private static long round(long acc, long input) {
    return Long.rotateLeft(acc + input * P2, 31) * P1;
  }

  /** XXH64 of the key's bytes, shifted right by one, as 16 hex digits. */
  static String of(String key) {
    ByteBuffer b = ByteBuffer.wrap(key.getBytes(StandardCharsets.UTF_8)).order(ByteOrder.LITTLE_ENDIAN);
    long length = b.remaining(), h = P5;
    if (length >= 32) {
      long[] v = {P1 + P2, P2, 0, -P1};
      while (b.remaining() >= 32) {
        for (int k = 0; k < 4; k++) v[k] = round(v[k], b.getLong());
      }
      h = Long.rotateLeft(v[0], 1) + Long.rotateLeft(v[1], 7) + Long.rotateLeft(v[2], 12) + Long.rotateLeft(v[3], 18);
      for (long x : v) h = (h ^ round(0, x)) * P1 + P4;
    }
    h += length;
    while (b.remaining() >= 8) h = Long.rotateLeft(h ^ round(0, b.getLong()), 27) * P1 + P4;
    if (b.remaining() >= 4) h = Long.rotateLeft(h ^ (b.getInt() & 0xffffffffL) * P1, 23) * P2 + P3;
    while (b.hasRemaining()) h = Long.rotateLeft(h ^ (b.get() & 0xff) * P5, 11) * P1;
    h = (h ^ h >>> 33) * P2;
    h = (h ^ h >>> 29) * P3;
    h ^= h >>> 32;
    return String.format("%016x", h >>> 1);
  }

  public static void main(String[] keys) {
    for (String key : keys) System.out.println(of(key));
  }
}
