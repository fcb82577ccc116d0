#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "fragments.glsl"
// Products of rows of a matrix with many columns, both as fragments of float16 (`fragments.glsl`): a workgroup has
// TILE_COLUMNS x TILE_ROWS results, a subgroup COLUMNS x ROWS of them, which it keeps to itself; nothing is shared but
// the caches.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_COLUMNS = 96;
layout(constant_id = 2) const uint TILE_ROWS = 128;
layout(constant_id = 3) const uint COLUMNS = 48;
layout(constant_id = 4) const uint ROWS = 64;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F2 { vec2 v[]; };
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint outputs, blocks;  // rows of the matrix, and units of 32 entries in each
  uint y_stride;
  float by;              // what sums are multiplied by
} p;
const uint ACROSS = COLUMNS / 16, DOWN = ROWS / 16;

void main() {
  uint lane = gl_SubgroupInvocationID, count = count_of(p.rows);
  if (gl_WorkGroupID.x * TILE_COLUMNS >= count) return;
  uint column0 = gl_WorkGroupID.x * TILE_COLUMNS + (gl_SubgroupID % (TILE_COLUMNS / COLUMNS)) * COLUMNS;
  uint row0 = gl_WorkGroupID.y * TILE_ROWS + (gl_SubgroupID / (TILE_COLUMNS / COLUMNS)) * ROWS;
  SUMS sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i) sum[i] = SUMS(0.0);
  uint64_t next = p.blocks * 1024ul;  // from sixteen rows to the sixteen after them
  uint64_t x = p.x + column0 / 16 * next + 16 * lane, w = p.w + row0 / 16 * next + 16 * lane;
  for (uint b = 0; b < p.blocks; ++b) {
    [[unroll]] for (uint half_ = 0; half_ < 2; ++half_) {
      LEFT a[ACROSS];
      RIGHT c[DOWN];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i) a[i] = left(U4(x + i * next).v[0]);
      [[unroll]] for (uint j = 0; j < DOWN; ++j) c[j] = right(U4(w + j * next).v[0]);
      [[unroll]] for (uint j = 0; j < DOWN; ++j)
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c[j], sum[i * DOWN + j]);
      x += 512;
      w += 512;
    }
  }
  [[unroll]] for (uint j = 0; j < DOWN; ++j)
    [[unroll]] for (uint right_ = 0; right_ < 2; ++right_) {
      uint row = row0 + 16 * j + 8 * right_ + 2 * (lane % 4);
      if (row >= p.outputs) continue;
      bool both = row + 1 < p.outputs;
      vec2 bias = vec2(0);
      if (p.bias != 0) bias = vec2(F1(p.bias).v[row], both ? F1(p.bias).v[row + 1] : 0.0);
      [[unroll]] for (uint i = 0; i < ACROSS; ++i)
        [[unroll]] for (uint lower = 0; lower < 2; ++lower) {
          uint column = column0 + 16 * i + 8 * lower + lane / 4, e = 4 * lower + 2 * right_;
          if (column >= count) continue;
          vec2 result = vec2(sum[i * DOWN + j][e], sum[i * DOWN + j][e + 1]) * p.by + bias;
          uint64_t y = p.y + uint64_t(column) * p.y_stride + 4 * row;
          if (both) F2(y).v[0] = result;
          else F1(y).v[0] = result.x;
        }
    }
}
