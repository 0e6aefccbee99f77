#include <cstdint>
#include <cstdio>
#include <string>

namespace {
const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9,
               P4 = 0x85EBCA77C2B2AE63, P5 = 0x27D4EB2F165667C5;

uint64_t rotl(uint64_t x, int r) { return x << r | x >> (64 - r); }
uint64_t round(uint64_t acc, uint64_t input) { return rotl(acc + input * P2, 31) * P1; }

// Little-endian, whatever the machine is.
uint64_t number(const unsigned char* p, int n) {
  uint64_t x = 0;
  while (n-- > 0) x = x << 8 | p[n];
  return x;
}
}  // namespace

// XXH64 of the key's bytes, shifted right by one, as 16 hex digits.
std::string slice_key(const std::string& key) {
  const unsigned char* p = reinterpret_cast<const unsigned char*>(key.data());
  const unsigned char* end = p + key.size();
  uint64_t h = P5;
  if (end - p >= 32) {
    uint64_t v[4] = {P1 + P2, P2, 0, 0 - P1};
    for (; end - p >= 32; p += 32) {
      for (int k = 0; k < 4; k++) v[k] = round(v[k], number(p + 8 * k, 8));
    }
    h = rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18);
    for (uint64_t x : v) h = (h ^ round(0, x)) * P1 + P4;
  }
  h += key.size();
  for (; end - p >= 8; p += 8) h = rotl(h ^ round(0, number(p, 8)), 27) * P1 + P4;
  if (end - p >= 4) {
    h = rotl(h ^ number(p, 4) * P1, 23) * P2 + P3;
    p += 4;
  }
  for (; p < end; p++) h = rotl(h ^ *p * P5, 11) * P1;
  h = (h ^ h >> 33) * P2;
  h = (h ^ h >> 29) * P3;
  h ^= h >> 32;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h >> 1));
  return text;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) std::puts(slice_key(argv[i]).c_str());
}
