#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
#include "dots.glsl"
#include "forms.glsl"
#include "activations.glsl"
// activate(gate * x) * (up * x) for two quantized matrices of one shape and a few columns in 8-bit blocks.  LANES threads
// share a row of both, each group of them has ROWS rows, a workgroup 32: a block of what the next product reads.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 32;
layout(constant_id = 2) const uint ROWS = 2;
layout(constant_id = 3) const uint COLUMNS = 1;
layout(constant_id = 4) const uint KIND = 0;
layout(constant_id = 5) const uint FORM = 0;
layout(push_constant) uniform P {
  uint64_t gate, up, x, y, rows;
  uint gh, gs, gd, uh, us, ud;
  uint outputs, blocks;   // rows of each matrix and units in each
  uint x_stride, y_stride;
  uint x_sums;            // bytes from a row of 8-bit blocks to its scales
  uint room;              // columns that there is room for
} p;
shared vec4 results[COLUMNS * 8];

float dot_block(Unit t, uvec4 lo, uvec4 hi, uvec2 about) {
  float block = t.s.x * float(dot16(t.lo, lo)) + t.s.y * float(dot16(t.hi, hi));
#ifdef OFFSETS
  block += t.m.x * float(int(about.y << 16) >> 16) + t.m.y * float(int(about.y) >> 16);
#endif
  return uintBitsToFloat(about.x) * block;
}

void main() {
  uint lane = gl_LocalInvocationID.x % LANES, row0 = gl_LocalInvocationID.x / LANES * ROWS;
  uint column0 = gl_WorkGroupID.y * COLUMNS, first = gl_WorkGroupID.x * 32 + row0;
  if (column0 > 0 && column0 >= count_of(p.rows)) return;
  Weights gate = planes(p.gate, p.gh, p.gs, p.gd), up = planes(p.up, p.uh, p.us, p.ud);
  float sum[2 * ROWS * COLUMNS];
  [[unroll]] for (uint i = 0; i < 2 * ROWS * COLUMNS; ++i) sum[i] = 0.0;
  for (uint b = lane; b < p.blocks; b += LANES) {
    Unit t[2 * ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      t[2 * r] = fetch(gate, (first + r) * p.blocks + b);
      t[2 * r + 1] = fetch(up, (first + r) * p.blocks + b);
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
      uint64_t x = p.x + uint64_t(min(column0 + c, p.room - 1)) * p.x_stride;
      uvec4 lo = U4(x).v[2 * b], hi = U4(x).v[2 * b + 1];
      uvec2 about = U2(x + p.x_sums).v[b];
      [[unroll]] for (uint r = 0; r < 2 * ROWS; ++r) sum[r * COLUMNS + c] += dot_block(t[r], lo, hi, about);
    }
  }
  [[unroll]] for (uint i = 0; i < 2 * ROWS * COLUMNS; ++i)
    for (uint o = LANES / 2; o > 0; o >>= 1) sum[i] += subgroupShuffleXor(sum[i], o);
  if (lane == 0)
    [[unroll]] for (uint r = 0; r < ROWS; ++r)
      [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
        results[c * 8 + (row0 + r) / 4][(row0 + r) % 4] =
          activate(KIND, sum[2 * r * COLUMNS + c], 0.0, 0.0) * sum[(2 * r + 1) * COLUMNS + c];
  barrier();
  uint at = gl_LocalInvocationID.x, column = column0 + at / 8;
  if (at < COLUMNS * 8 && !beyond(p.rows, column))
    write_row(FORM, p.y, column, p.y_stride, 0, p.outputs, gl_WorkGroupID.x * 8 + at % 8, results[at]);
}
