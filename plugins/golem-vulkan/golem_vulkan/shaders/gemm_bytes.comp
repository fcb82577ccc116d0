#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
#include "dots.glsl"
// Products of a quantized matrix with many columns in 8-bit blocks, without cooperative matrices: a workgroup of 256
// threads has 64 rows of the matrix and 16 x COLUMNS columns, a thread 4 x COLUMNS results.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint COLUMNS = 4;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint x_stride, y_stride;
  uint x_sums;            // bytes from a row of 8-bit blocks to its scales
} p;
const uint SIZE = 256, STEP = 4;   // units of a row at a time
const uint TILE_ROWS = 64, TILE_COLUMNS = 16 * COLUMNS;
shared uvec4 weights[2 * STEP * TILE_ROWS], columns[2 * STEP * TILE_COLUMNS];
shared vec4 scales[STEP * TILE_ROWS], abouts[STEP * TILE_COLUMNS];

void main() {
  uint tid = gl_LocalInvocationID.x, count = count_of(p.rows);
  // workgroups of the same rows of the matrix come one after another, and find them in the caches
  uint column0 = gl_WorkGroupID.x * TILE_COLUMNS, row0 = gl_WorkGroupID.y * TILE_ROWS;
  if (column0 >= count) return;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  uint across = tid % 16, down = tid / 16;
  float sum[4 * COLUMNS];
  [[unroll]] for (uint i = 0; i < 4 * COLUMNS; ++i) sum[i] = 0.0;
  for (uint b0 = 0; b0 < p.blocks; b0 += STEP) {
    barrier();
    for (uint e = tid; e < STEP * TILE_ROWS; e += SIZE) {
      uint r = e / STEP, b = b0 + e % STEP, at = e % STEP * TILE_ROWS + r;
      Unit t = fetch(w, min(row0 + r, p.outputs - 1) * p.blocks + min(b, p.blocks - 1));
      weights[2 * at] = t.lo;
      weights[2 * at + 1] = t.hi;
      scales[at] = b < p.blocks ? vec4(t.s, t.m) : vec4(0);
    }
    for (uint e = tid; e < STEP * TILE_COLUMNS; e += SIZE) {
      uint c = e / STEP, b = min(b0 + e % STEP, p.blocks - 1), at = e % STEP * TILE_COLUMNS + c;
      uint64_t x = p.x + uint64_t(min(column0 + c, count - 1)) * p.x_stride;
      uvec2 about = U2(x + p.x_sums).v[b];
      columns[2 * at] = U4(x).v[2 * b];
      columns[2 * at + 1] = U4(x).v[2 * b + 1];
      abouts[at] = vec4(uintBitsToFloat(about.x), float(int(about.y << 16) >> 16), float(int(about.y) >> 16), 0);
    }
    barrier();
    [[unroll]] for (uint s = 0; s < STEP; ++s) {
      uvec4 lo[4], hi[4];
      vec4 scale[4];
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        uint at = s * TILE_ROWS + across + 16 * r;
        lo[r] = weights[2 * at];
        hi[r] = weights[2 * at + 1];
        scale[r] = scales[at];
      }
      [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        uint at = s * TILE_COLUMNS + down + 16 * c;
        uvec4 x_lo = columns[2 * at], x_hi = columns[2 * at + 1];
        vec4 about = abouts[at];
        [[unroll]] for (uint r = 0; r < 4; ++r) {
          float block = scale[r].x * float(dot16(lo[r], x_lo)) + scale[r].y * float(dot16(hi[r], x_hi));
#ifdef OFFSETS
          block += scale[r].z * about.y + scale[r].w * about.z;
#endif
          sum[c * 4 + r] += about.x * block;
        }
      }
    }
  }
  [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
    [[unroll]] for (uint r = 0; r < 4; ++r) {
      uint column = column0 + down + 16 * c, row = row0 + across + 16 * r;
      if (column < count && row < p.outputs)
        F1(p.y + uint64_t(column) * p.y_stride).v[row] = sum[c * 4 + r] + (p.bias != 0 ? F1(p.bias).v[row] : 0.0);
    }
}
