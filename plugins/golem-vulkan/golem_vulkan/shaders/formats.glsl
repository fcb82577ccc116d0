// Weights as kernels read them: units of 32 consecutive entries of a row, split into planes so that every load is
// aligned: q (the low bits), h (high bits), s (scales of a unit), d (scales of several units).
//
// `fetch` gives the 32 entries as signed bytes, eight words of four in order, and for each half of 16 a scale and an
// offset: entry = s * byte + m.  Layouts of float numbers have `fetch_floats` instead.
//
// Nibbles: byte i of a unit's 16 has entry i in its low half and entry 16 + i in its high one.  One more bit: bit
// 8 j + k of a word belongs to entry 4 k + j.  Two bits: of the first word, bits 8 j + 2 k and 8 j + 2 k + 1 belong to
// entry 4 k + j, of the second to entry 16 + 4 k + j.
//
// F8_E4M3 has bytes alone, and in place of an offset the number that all of them are multiplied by.
struct Weights { uint64_t q, h, s, d; };

Weights planes(uint64_t base, uint h, uint s, uint d) {  // offsets in steps of 256 bytes
#ifdef F8_E4M3
  return Weights(base, h, 0, 0);
#else
  return Weights(base, base + 256ul * h, base + 256ul * s, base + 256ul * d);
#endif
}

struct Unit { uvec4 lo, hi; vec2 s, m; };

#if defined(Q4_0) || defined(Q4_1) || defined(Q5_0) || defined(Q5_1) || defined(Q4_K) || defined(Q5_K) || defined(Q6_K)
#define NIBBLES 1
#endif
#if defined(Q5_0) || defined(Q5_1) || defined(Q5_K)
#define FIFTH_BIT 1
#endif
#if defined(IQ4_NL) || defined(IQ4_XS)
#define LEVELS 1
#endif
#if defined(Q2_K) || defined(Q3_K) || defined(PQ2_0)
#define PAIRS_OF_BITS 1
#endif
#if defined(F32) || defined(F16) || defined(BF16) || defined(F8_E4M3)
#define FLOATS 1
#endif
#if !(defined(Q8_0) || defined(LEVELS))
#define OFFSETS 1
#endif

#ifndef FLOATS

uvec4 spread(uint x) { return uvec4(x, x >> 2, x >> 4, x >> 6) & 0x03030303u; }
vec2 signed_bytes(uint x) { return vec2(float(int(x << 24) >> 24), float(int(x << 16) >> 24)); }

#ifdef LEVELS
const int LEVEL[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
uint level4(uint x) {
  return uint(LEVEL[x & 15] & 255) | uint(LEVEL[(x >> 8) & 15] & 255) << 8 | uint(LEVEL[(x >> 16) & 15] & 255) << 16
    | uint(LEVEL[(x >> 24) & 15] & 255) << 24;
}
uvec4 levels(uvec4 x) { return uvec4(level4(x.x), level4(x.y), level4(x.z), level4(x.w)); }
#endif

Unit fetch(Weights w, uint u) {
  Unit t;
#ifdef NIBBLES
  uvec4 q = U4(w.q).v[u];
  t.lo = q & 0x0f0f0f0fu;
  t.hi = (q >> 4) & 0x0f0f0f0fu;
#endif
#ifdef FIFTH_BIT
  uint h = U1(w.h).v[u];
  t.lo |= (uvec4(h, h >> 1, h >> 2, h >> 3) & 0x01010101u) << 4;
  t.hi |= (uvec4(h >> 4, h >> 5, h >> 6, h >> 7) & 0x01010101u) << 4;
#endif
#ifdef LEVELS
  uvec4 q = U4(w.q).v[u];
  t.lo = levels(q);
  t.hi = levels(q >> 4);
#endif
#ifdef PAIRS_OF_BITS
  uvec2 q = U2(w.q).v[u];
  t.lo = spread(q.x);
  t.hi = spread(q.y);
#endif
#ifdef Q3_K
  uint h = U1(w.h).v[u];
  t.lo |= (uvec4(h, h >> 1, h >> 2, h >> 3) & 0x01010101u) << 2;
  t.hi |= (uvec4(h >> 4, h >> 5, h >> 6, h >> 7) & 0x01010101u) << 2;
#endif
#ifdef Q6_K
  uvec2 h = U2(w.h).v[u];
  t.lo |= spread(h.x) << 4;
  t.hi |= spread(h.y) << 4;
#endif
#ifdef Q8_0
  t.lo = U4(w.q).v[2 * u];
  t.hi = U4(w.q).v[2 * u + 1];
#endif

#if defined(Q4_0) || defined(Q5_0) || defined(Q8_0) || defined(IQ4_NL)
  t.s = vec2(float(H1(w.s).v[u]));
#elif defined(Q4_1) || defined(Q5_1)
  vec2 both = unpackHalf2x16(U1(w.s).v[u]);
  t.s = both.xx;
  t.m = both.yy;
#elif defined(Q4_K) || defined(Q5_K)
  uint both = uint(U16(w.s).v[u]);
  vec2 d = unpackHalf2x16(U1(w.d).v[u >> 3]);
  t.s = vec2(d.x * float(both & 255));
  t.m = vec2(-d.y * float(both >> 8));
#elif defined(Q2_K)
  uint both = uint(U16(w.s).v[u]);
  vec2 d = unpackHalf2x16(U1(w.d).v[u >> 3]);
  t.s = d.x * vec2(float(both & 15), float((both >> 8) & 15));
  t.m = -d.y * vec2(float((both >> 4) & 15), float(both >> 12));
#elif defined(PQ2_0)
  t.s = vec2(float(H1(w.d).v[u >> 2]));
#else
  t.s = float(H1(w.d).v[u >> 3]) * signed_bytes(uint(U16(w.s).v[u]));
#endif

#if defined(Q4_0)
  t.m = -8.0 * t.s;
#elif defined(Q5_0)
  t.m = -16.0 * t.s;
#elif defined(Q3_K)
  t.m = -4.0 * t.s;
#elif defined(Q6_K)
  t.m = -32.0 * t.s;
#elif defined(PQ2_0)
  t.m = -t.s;
#elif !defined(OFFSETS)
  t.m = vec2(0);
#endif
  return t;
}

vec4 four_bytes(uint x) {
  return vec4(float(int(x << 24) >> 24), float(int(x << 16) >> 24), float(int(x << 8) >> 24), float(int(x) >> 24));
}

// What is taken off a byte before it is scaled, where that is the same for the whole format.
#if defined(Q4_0)
#define OFF 8
#elif defined(Q5_0)
#define OFF 16
#elif defined(Q3_K)
#define OFF 4
#elif defined(Q6_K)
#define OFF 32
#elif defined(PQ2_0)
#define OFF 1
#else
#define OFF 0
#endif

// Entries 4 k to 4 k + 3 of a unit as float16, without a conversion: the bits of 1024 + byte are 0x6400 | byte.
uvec2 halves_of(Unit t, uint k) {
  uint bytes = k < 4 ? t.lo[k] : t.hi[k - 4];
#ifdef OFFSETS
  const float16_t off = float16_t(1024 + OFF);
#else
  const float16_t off = float16_t(1024 + 128);   // signed bytes
  bytes ^= 0x80808080u;
#endif
  f16vec2 low = unpackFloat2x16((bytes & 0xffu) | (bytes & 0xff00u) << 8 | 0x64006400u) - off;
  f16vec2 high = unpackFloat2x16((bytes >> 16 & 0xffu) | (bytes >> 8 & 0xff0000u) | 0x64006400u) - off;
  float16_t s = float16_t(k < 4 ? t.s.x : t.s.y);
#if defined(OFFSETS) && OFF == 0
  float16_t m = float16_t(k < 4 ? t.m.x : t.m.y);
  return uvec2(packFloat2x16(low * s + m), packFloat2x16(high * s + m));
#else
  return uvec2(packFloat2x16(low * s), packFloat2x16(high * s));
#endif
}

// Entries 4 k to 4 k + 3 of a unit.
vec4 four_of(Unit t, uint k) {
  return k < 4 ? four_bytes(t.lo[k]) * t.s.x + t.m.x : four_bytes(t.hi[k - 4]) * t.s.y + t.m.y;
}

#else

// Bits of two float16 out of the bytes 0 and 1, and 2 and 3, of a word of F8_E4M3: a 256th of each number, since the
// exponents of these are 8 less.
uvec2 halves_of_bytes(uint x) {
  uint low = (x & 0xffu) | (x & 0xff00u) << 8, high = (x >> 16 & 0xffu) | (x >> 8 & 0xff0000u);
  return uvec2((low & 0x800080u) << 8 | (low & 0x7f007fu) << 7, (high & 0x800080u) << 8 | (high & 0x7f007fu) << 7);
}

// Entries 4 k to 4 k + 3 of unit u.
vec4 fetch_floats(Weights w, uint u, uint k) {
#if defined(F8_E4M3)
  uvec2 x = halves_of_bytes(U1(w.q).v[8 * u + k]);
  return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)) * (256.0 * uintBitsToFloat(uint(w.h)));
#elif defined(F32)
  return uintBitsToFloat(U4(w.q).v[8 * u + k]);
#else
  uvec2 x = U2(w.q).v[8 * u + k];
#if defined(F16)
  return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
#else
  return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
#endif
#endif
}

#endif
