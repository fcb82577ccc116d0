#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
// Rows of a matrix as fragments (`fragments.glsl`) of float16, F8_E4M3 as a 256th of its codes' numbers.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TOGETHER = 1;  // sixteens of rows whose fragments take turns
layout(push_constant) uniform P {
  uint64_t w, y;
  uint wh, ws, wd;
  uint outputs, blocks;  // rows of the matrix and units in each
  uint first, rows;      // of those that are wanted
} p;

// Where the two fragments of a unit of sixteen rows lie, and bytes from the first to the second.
uint64_t place(uint sixteen, uint b) {
  return p.y + (uint64_t(sixteen / TOGETHER) * p.blocks + b) * (TOGETHER * 1024) + sixteen % TOGETHER * 512;
}
const uint HALF = TOGETHER * 512;

#ifdef FLOATS
const uint EACH = 4;

// Four entries.
uvec2 four(Weights w, uint u, uint k) {
#if defined(F8_E4M3)
  return halves_of_bytes(U1(w.q).v[8 * u + k]);
#elif defined(F16)
  return U2(w.q).v[8 * u + k];
#else
  vec4 x = clamp(fetch_floats(w, u, k), -65504.0, 65504.0);
  return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
#endif
}

// A thread has the share of one invocation in `EACH` units of sixteen rows.
void main() {
  uint i = gl_GlobalInvocationID.x, lane = i % 32, parts = (p.blocks + EACH - 1) / EACH, sixteen = i / 32 / parts;
  if (16 * sixteen >= p.rows) return;
  uint first = i / 32 % parts * EACH, row = p.first + 16 * sixteen + lane / 4, k = lane % 4;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  uint upper = min(row, p.outputs - 1) * p.blocks, lower = min(row + 8, p.outputs - 1) * p.blocks;
  uvec4 found[2 * EACH];
  [[unroll]] for (uint e = 0; e < EACH; ++e) {
    uint b = min(first + e, p.blocks - 1);
    [[unroll]] for (uint h = 0; h < 2; ++h)
      found[2 * e + h] = uvec4(four(w, upper + b, 4 * h + k), four(w, lower + b, 4 * h + k));
  }
  [[unroll]] for (uint e = 0; e < EACH; ++e)
    if (first + e < p.blocks)
      [[unroll]] for (uint h = 0; h < 2; ++h) U4(place(sixteen, first + e) + h * HALF).v[lane] = found[2 * e + h];
}
#else
// A thread has one unit of two rows.
void main() {
  uint i = gl_GlobalInvocationID.x, g = i % 8, b = i / 8 % p.blocks, sixteen = i / 8 / p.blocks;
  if (16 * sixteen >= p.rows) return;
  uint row = p.first + 16 * sixteen + g;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  Unit upper = fetch(w, min(row, p.outputs - 1) * p.blocks + b);
  Unit lower = fetch(w, min(row + 8, p.outputs - 1) * p.blocks + b);
  uint64_t y = place(sixteen, b);
  [[unroll]] for (uint k = 0; k < 8; ++k)
    U4(y + k / 4 * HALF).v[4 * g + k % 4] = uvec4(halves_of(upper, k), halves_of(lower, k));
}
#endif
