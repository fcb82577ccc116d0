#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
// Rows of a matrix as fragments (`fragments.glsl`) of float16, F8_E4M3 as a 256th of its codes' numbers: a thread has
// one unit of two rows.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t w, y;
  uint wh, ws, wd;
  uint outputs, blocks;  // rows of the matrix and units in each
  uint first, rows;      // of those that are wanted
} p;

#ifdef FLOATS
struct Taken { uvec2 four[8]; };
Taken take(Weights w, uint u) {
  Taken t;
  [[unroll]] for (uint k = 0; k < 8; ++k) {
#if defined(F8_E4M3)
    t.four[k] = halves_of_bytes(U1(w.q).v[8 * u + k]);
#elif defined(F16)
    t.four[k] = U2(w.q).v[8 * u + k];
#else
    vec4 x = clamp(fetch_floats(w, u, k), -65504.0, 65504.0);
    t.four[k] = uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
#endif
  }
  return t;
}
#define four_at(t, k) t.four[k]
#else
#define Taken Unit
#define take fetch
#define four_at(t, k) halves_of(t, k)
#endif

void main() {
  uint i = gl_GlobalInvocationID.x, g = i % 8, b = i / 8 % p.blocks, sixteen = i / 8 / p.blocks;
  if (16 * sixteen >= p.rows) return;
  uint row = p.first + 16 * sixteen + g;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  Taken upper = take(w, min(row, p.outputs - 1) * p.blocks + b), lower = take(w, min(row + 8, p.outputs - 1) * p.blocks + b);
  U4 y = U4(p.y + (uint64_t(sixteen) * p.blocks + b) * 1024);
  [[unroll]] for (uint k = 0; k < 8; ++k) y.v[k / 4 * 32 + 4 * g + k % 4] = uvec4(four_at(upper, k), four_at(lower, k));
}
