#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "forms.glsl"
#include "formats.glsl"
// Products of a matrix with many columns on cooperative matrices: a workgroup has TILE_COLUMNS × TILE_ROWS results, a
// subgroup COLUMNS × ROWS of them.  Columns come as float16, weights are decoded to float16 on the way into shared
// memory, sums are float32.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_COLUMNS = 128;
layout(constant_id = 2) const uint TILE_ROWS = 128;
layout(constant_id = 3) const uint COLUMNS = 64;
layout(constant_id = 4) const uint ROWS = 64;
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint x_stride, y_stride;
  uint capacity;          // columns that there is room for
} p;
const uint STEP = 32;                 // entries of a row at a time
const uint WIDTH = STEP / 8 + 1;      // uvec4 of a row in shared memory; one more keeps rows on different banks
const uint ACROSS = COLUMNS / 16, DOWN = ROWS / 16;
const uint SIZE = SUBGROUP * (TILE_COLUMNS / COLUMNS) * (TILE_ROWS / ROWS);
const uint LOADS = (TILE_COLUMNS * 4 + SIZE - 1) / SIZE;
shared uvec4 columns[TILE_COLUMNS * WIDTH];
shared uvec4 weights[TILE_ROWS * WIDTH];
shared float edge[SIZE / SUBGROUP * 256];

void main() {
  uint tid = gl_LocalInvocationID.x, count = count_of(p.rows);
  uint column0 = gl_WorkGroupID.y * TILE_COLUMNS, row0 = gl_WorkGroupID.x * TILE_ROWS;
  if (column0 >= count) return;
  uint my_column = (gl_SubgroupID % (TILE_COLUMNS / COLUMNS)) * COLUMNS;
  uint my_row = (gl_SubgroupID / (TILE_COLUMNS / COLUMNS)) * ROWS;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i)
    sum[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);

  uvec4 ahead[LOADS];
  [[unroll]] for (uint i = 0; i < LOADS; ++i) {
    uint e = tid + i * SIZE;
    ahead[i] = U4(p.x + uint64_t(min(column0 + e / 4, count - 1)) * p.x_stride).v[e & 3];
  }
  for (uint b = 0; b < p.blocks; ++b) {
    barrier();
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
      uint e = tid + i * SIZE;
      if (e < TILE_COLUMNS * 4) columns[(e / 4) * WIDTH + (e & 3)] = ahead[i];
    }
    for (uint e = tid; e < TILE_ROWS; e += SIZE) {
      uint u = min(row0 + e, p.outputs - 1) * p.blocks + b;
#ifndef FLOATS
      Unit t = fetch(w, u);
#endif
      [[unroll]] for (uint k = 0; k < 4; ++k) {
#ifdef FLOATS
        vec4 first = fetch_floats(w, u, 2 * k), second = fetch_floats(w, u, 2 * k + 1);
#else
        vec4 first = four_of(t, 2 * k), second = four_of(t, 2 * k + 1);
#endif
        weights[e * WIDTH + k] = uvec4(packHalf2x16(first.xy), packHalf2x16(first.zw), packHalf2x16(second.xy),
          packHalf2x16(second.zw));
      }
    }
    barrier();
    if (b + 1 < p.blocks) {
      [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint e = tid + i * SIZE;
        ahead[i] = U4(p.x + uint64_t(min(column0 + e / 4, count - 1)) * p.x_stride).v[4 * (b + 1) + (e & 3)];
      }
    }
    [[unroll]] for (uint k = 0; k < STEP / 16; ++k) {
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[ACROSS];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i)
        coopMatLoad(a[i], columns, (my_column + i * 16) * WIDTH + k * 2, WIDTH, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < DOWN; ++j) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> c;
        coopMatLoad(c, weights, (my_row + j * 16) * WIDTH + k * 2, WIDTH, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c, sum[i * DOWN + j]);
      }
    }
  }

  [[unroll]] for (uint i = 0; i < ACROSS; ++i)
    [[unroll]] for (uint j = 0; j < DOWN; ++j) {
      uint column = column0 + my_column + i * 16, row = row0 + my_row + j * 16;
      coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> result = sum[i * DOWN + j] * HALF_SCALE;
      if (p.bias == 0 && column + 16 <= p.capacity && row + 16 <= p.outputs) {
        coopMatStore(result, F1(p.y + uint64_t(column) * p.y_stride).v, row, p.y_stride / 4,
          gl_CooperativeMatrixLayoutRowMajor);
      } else if (column < count && row < p.outputs) {
        uint start = gl_SubgroupID * 256;
        subgroupBarrier();
        coopMatStore(result, edge, start, 16, gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID; e < 256; e += SUBGROUP) {
          uint c = column + e / 16, r = row + e % 16;
          float bias = p.bias != 0 && r < p.outputs ? F1(p.bias).v[r] : 0.0;
          if (c < count && r < p.outputs) F1(p.y + uint64_t(c) * p.y_stride).v[r] = edge[start + e] + bias;
        }
      }
    }
}
