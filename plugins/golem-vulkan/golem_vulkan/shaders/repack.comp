#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Blocks as they lie in a file -> the planes of `formats.glsl`, one unit of 32 entries to a thread.  The file's layouts
// are those of golem_core/files/quants.py.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t raw;    // the blocks of unit `first` and those after it
  uint64_t w;
  uint wh, ws, wd; // offsets of planes, in steps of 256 bytes
  uint first;      // unit
  uint units;      // to repack
  uint width;      // entries of a row
} p;

uint at(uint64_t block, uint i) { return uint(U8(block).v[i]); }
uint two(uint64_t block, uint i) { return uint(U16(block).v[i >> 1]); }

uvec4 nibbles(uint v[32]) {
  uvec4 q = uvec4(0);
  [[unroll]] for (uint i = 0; i < 16; ++i) q[i / 4] |= ((v[i] & 15) | (v[i + 16] & 15) << 4) << (8 * (i % 4));
  return q;
}

uint single_bits(uint v[32], uint shift) {
  uint h = 0;
  [[unroll]] for (uint i = 0; i < 32; ++i) h |= ((v[i] >> shift) & 1) << (8 * (i % 4) + i / 4);
  return h;
}

uvec2 pairs_of_bits(uint v[32], uint shift) {
  uvec2 h = uvec2(0);
  [[unroll]] for (uint i = 0; i < 32; ++i) h[i / 16] |= ((v[i] >> shift) & 3) << (8 * (i % 4) + 2 * ((i % 16) / 4));
  return h;
}

void main() {
  uint n = gl_GlobalInvocationID.x;
  if (n >= p.units) return;
  uint u = p.first + n;
  uint64_t h = p.w + 256ul * p.wh, s = p.w + 256ul * p.ws, d = p.w + 256ul * p.wd;
  uint v[32];

#if defined(F32) || defined(F16) || defined(BF16) || defined(F8_E4M3)
  uint per_row = (p.width + 31) / 32, row = n / per_row, start = 32 * (n % per_row);
  for (uint i = 0; i < 32; ++i) {
    bool inside = start + i < p.width;
    uint from = row * p.width + start + i;
#ifdef F32
    U1(p.w).v[32 * u + i] = inside ? U1(p.raw).v[from] : 0;
#elif defined(F8_E4M3)
    U8(p.w).v[32 * u + i] = inside ? U8(p.raw).v[from] : uint8_t(0);
#else
    U16(p.w).v[32 * u + i] = inside ? U16(p.raw).v[from] : uint16_t(0);
#endif
  }
#endif

#if defined(Q4_0) || defined(IQ4_NL)
  uint64_t b = p.raw + 18ul * n;
  for (uint i = 0; i < 16; ++i) { uint x = at(b, 2 + i); v[i] = x & 15; v[16 + i] = x >> 4; }
  U4(p.w).v[u] = nibbles(v);
  U16(s).v[u] = uint16_t(two(b, 0));
#elif defined(Q4_1)
  uint64_t b = p.raw + 20ul * n;
  for (uint i = 0; i < 16; ++i) { uint x = at(b, 4 + i); v[i] = x & 15; v[16 + i] = x >> 4; }
  U4(p.w).v[u] = nibbles(v);
  U1(s).v[u] = two(b, 0) | two(b, 2) << 16;
#elif defined(Q5_0)
  uint64_t b = p.raw + 22ul * n;
  uint high = two(b, 2) | two(b, 4) << 16;
  for (uint i = 0; i < 16; ++i) { uint x = at(b, 6 + i); v[i] = x & 15; v[16 + i] = x >> 4; }
  for (uint i = 0; i < 32; ++i) v[i] |= ((high >> i) & 1) << 4;
  U4(p.w).v[u] = nibbles(v);
  U1(h).v[u] = single_bits(v, 4);
  U16(s).v[u] = uint16_t(two(b, 0));
#elif defined(Q5_1)
  uint64_t b = p.raw + 24ul * n;
  uint high = two(b, 4) | two(b, 6) << 16;
  for (uint i = 0; i < 16; ++i) { uint x = at(b, 8 + i); v[i] = x & 15; v[16 + i] = x >> 4; }
  for (uint i = 0; i < 32; ++i) v[i] |= ((high >> i) & 1) << 4;
  U4(p.w).v[u] = nibbles(v);
  U1(h).v[u] = single_bits(v, 4);
  U1(s).v[u] = two(b, 0) | two(b, 2) << 16;
#elif defined(Q8_0)
  uint64_t b = p.raw + 34ul * n;
  for (uint k = 0; k < 2; ++k) {
    uvec4 q;
    for (uint i = 0; i < 4; ++i) q[i] = two(b, 2 + 16 * k + 4 * i) | two(b, 4 + 16 * k + 4 * i) << 16;
    U4(p.w).v[2 * u + k] = q;
  }
  U16(s).v[u] = uint16_t(two(b, 0));
#elif defined(PQ2_0)
  uint64_t b = p.raw + 34ul * (n / 4);
  uint j = n % 4;
  for (uint i = 0; i < 32; ++i) v[i] = (at(b, 2 + 8 * j + i / 4) >> (2 * (i % 4))) & 3;
  U2(p.w).v[u] = pairs_of_bits(v, 0);
  if (j == 0) U16(d).v[u / 4] = uint16_t(two(b, 0));
#elif defined(PTQ1_0)
  uint64_t b = p.raw + 28ul * (n / 4);
  uint j = n % 4;
  for (uint i = 0; i < 32; ++i) {
    uint e = 32 * j + i, byte, digit;
    if (e < 80) { digit = e / 16; byte = e % 16; }
    else if (e < 120) { digit = (e - 80) / 8; byte = 16 + (e - 80) % 8; }
    else { digit = (e - 120) / 2; byte = 24 + (e - 120) % 2; }
    uint x = at(b, byte);
    for (uint k = 0; k < digit; ++k) x = (3 * x) & 255;
    v[i] = (3 * x) >> 8;
  }
  U2(p.w).v[u] = pairs_of_bits(v, 0);
  if (j == 0) U16(d).v[u / 4] = uint16_t(two(b, 26));
#elif defined(Q2_K)
  uint64_t b = p.raw + 84ul * (n / 8);
  uint j = n % 8;
  for (uint i = 0; i < 32; ++i) v[i] = (at(b, 16 + 32 * (j / 4) + i) >> (2 * (j % 4))) & 3;
  U2(p.w).v[u] = pairs_of_bits(v, 0);
  U16(s).v[u] = uint16_t(two(b, 2 * j));
  if (j == 0) U1(d).v[u / 8] = two(b, 80) | two(b, 82) << 16;
#elif defined(Q3_K)
  uint64_t b = p.raw + 110ul * (n / 8);
  uint j = n % 8, both = 0;
  for (uint i = 0; i < 32; ++i)
    v[i] = ((at(b, 32 + 32 * (j / 4) + i) >> (2 * (j % 4))) & 3) | ((at(b, i) >> j) & 1) << 2;
  U2(p.w).v[u] = pairs_of_bits(v, 0);
  U1(h).v[u] = single_bits(v, 2);
  for (uint k = 0; k < 2; ++k) {
    uint i = 2 * j + k;
    uint low = i < 8 ? at(b, 96 + i) & 15 : at(b, 88 + i) >> 4;
    uint high = (at(b, 104 + i % 4) >> (2 * (i / 4))) & 3;
    both |= (((low | high << 4) - 32) & 255) << (8 * k);
  }
  U16(s).v[u] = uint16_t(both);
  if (j == 0) U16(d).v[u / 8] = uint16_t(two(b, 108));
#elif defined(Q4_K) || defined(Q5_K)
#ifdef Q4_K
  uint64_t b = p.raw + 144ul * (n / 8);
  const uint low = 16;
#else
  uint64_t b = p.raw + 176ul * (n / 8);
  const uint low = 48;
#endif
  uint j = n % 8;
  for (uint i = 0; i < 32; ++i) v[i] = (at(b, low + 32 * (j / 2) + i) >> (4 * (j % 2))) & 15;
#ifdef Q5_K
  for (uint i = 0; i < 32; ++i) v[i] |= ((at(b, 16 + i) >> j) & 1) << 4;
  U1(h).v[u] = single_bits(v, 4);
#endif
  U4(p.w).v[u] = nibbles(v);
  uint scale, minimum;
  if (j < 4) {
    scale = at(b, 4 + j) & 63;
    minimum = at(b, 8 + j) & 63;
  } else {
    scale = (at(b, 8 + j) & 15) | (at(b, j) >> 6) << 4;
    minimum = at(b, 8 + j) >> 4 | (at(b, 4 + j) >> 6) << 4;
  }
  U16(s).v[u] = uint16_t(scale | minimum << 8);
  if (j == 0) U1(d).v[u / 8] = two(b, 0) | two(b, 2) << 16;
#elif defined(Q6_K)
  uint64_t b = p.raw + 210ul * (n / 8);
  uint j = n % 8, half_ = j / 4, g = j % 4;
  for (uint i = 0; i < 32; ++i) {
    uint low = at(b, 64 * half_ + 32 * (g & 1) + i);
    v[i] = (g < 2 ? low & 15 : low >> 4) | ((at(b, 128 + 32 * half_ + i) >> (2 * g)) & 3) << 4;
  }
  U4(p.w).v[u] = nibbles(v);
  U2(h).v[u] = pairs_of_bits(v, 4);
  U16(s).v[u] = uint16_t(two(b, 192 + 2 * j));
  if (j == 0) U16(d).v[u / 8] = uint16_t(two(b, 208));
#elif defined(IQ4_XS)
  uint64_t b = p.raw + 136ul * (n / 8);
  uint j = n % 8;
  for (uint i = 0; i < 16; ++i) { uint x = at(b, 8 + 16 * j + i); v[i] = x & 15; v[16 + i] = x >> 4; }
  U4(p.w).v[u] = nibbles(v);
  uint scale = (((at(b, 4 + j / 2) >> (4 * (j % 2))) & 15) | ((two(b, 2) >> (2 * j)) & 3) << 4) - 32;
  U16(s).v[u] = uint16_t((scale & 255) | (scale & 255) << 8);
  if (j == 0) U16(d).v[u / 8] = uint16_t(two(b, 0));
#endif
}
