// Numbers as unsigned keys of the same order: 0 for an entry that isn't there, then minus infinity up to infinity, and
// above all a NaN.  Both zeros are one.
const uint NAN_KEY = 0xfffffffeu;

uint key_of(uint bits) {
  uint size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return NAN_KEY;
  if (size == 0) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

uint bits_of(uint key) {
  if (key == 0) return 0xff800000u;
  if (key == NAN_KEY) return 0x7fc00000u;
  return (key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key;
}

layout(constant_id = 2) const uint WHOLE = 0;   // rows begin at multiples of 16 bytes

// Keys of entries 4 i4 to 4 i4 + 3 of a row of n, without those whose bits are set in `without`.
uvec4 four_keys(uint64_t row, uint n, uint i4, uint64_t without) {
  uvec4 bits = uvec4(0), key = uvec4(0);
  if (WHOLE != 0) bits = U4(row).v[i4];   // rows have room for whole fours
  uint gone = without != 0 ? U1(without).v[i4 >> 3] >> (4 * (i4 & 7)) : 0;
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (4 * i4 + j < n && (gone >> j & 1) == 0) key[j] = key_of(WHOLE != 0 ? bits[j] : U1(row).v[4 * i4 + j]);
  return key;
}
