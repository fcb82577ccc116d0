#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "forms.glsl"
#include "fragments.glsl"
// Attention among the columns of a pass, out of fragments (`fragments.glsl`): a subgroup has sixteen columns of one
// query head and goes through the positions that they see once, its scores, shares and mix in registers.  Queries and
// keys come as rows of fragments, values turned: sixteen components by sixteen positions.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint DIM = 128;
layout(constant_id = 2) const uint TILE = 32;  // positions at a time
layout(constant_id = 3) const uint KEEP = 1;   // queries stay in registers
layout(constant_id = 4) const uint AHEAD = 2;  // parts of keys and values that are on their way; divides 2 * PARTS
layout(push_constant) uniform P {
  uint64_t q, keys, values, y, rows;
  uint heads, kv_heads, window;
  uint sixteens;        // of columns that there is room for
  uint y_stride;
  float scale;          // of scores, to powers of two
} p;
const uint PARTS = DIM / 16, TILES = TILE / 16;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F2 { vec2 v[]; };

void main() {
  uint lane = gl_SubgroupInvocationID, count = count_of(p.rows), h = gl_WorkGroupID.x, kv = h / (p.heads / p.kv_heads);
  uint column0 = 16 * (gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID);
  if (column0 >= count) return;
  uint low[2], high[2];  // of the two rows that an invocation has a part of: the columns that they see
  [[unroll]] for (uint r = 0; r < 2; ++r) {
    uint row = min(column0 + 8 * r + lane / 4, count - 1);
    uint self = index_of(p.rows, row), first = first_of(p.rows, row), end = end_of(p.rows, row);
    low[r] = p.window < self - first ? self - p.window : first;
    high[r] = p.window < end - 1 - self ? self + p.window + 1 : end;
  }
  uint begin = subgroupMin(min(low[0], low[1])) / 16, end = (subgroupMax(max(high[0], high[1])) + 15) / 16;
  uint all_low = subgroupMax(max(low[0], low[1])), all_high = subgroupMin(min(high[0], high[1]));

  uint64_t queries = p.q + (uint64_t(column0 / 16) * p.heads + h) * (PARTS * 512) + 16 * lane;
  uint64_t keys = p.keys + uint64_t(kv) * (PARTS * 512) + 16 * lane, key_step = p.kv_heads * (PARTS * 512);
  uint64_t values = p.values + uint64_t(kv) * PARTS * p.sixteens * 512 + 16 * lane;
  uvec4 query[KEEP != 0 ? PARTS : 1];
  if (KEEP != 0) [[unroll]] for (uint d = 0; d < PARTS; ++d) query[d] = U4(queries + d * 512).v[0];
  SUMS mix[PARTS];
  [[unroll]] for (uint d = 0; d < PARTS; ++d) mix[d] = SUMS(0.0);
  float most[2] = float[2](-1e30, -1e30), total[2] = float[2](0.0, 0.0);

  // Sixteen components of a tile's keys, or of its values: part q of 2 * PARTS, into its place among those on their way.
  uvec4 coming[AHEAD * TILES];
#define ASK(q, j) \
  [[unroll]] for (uint i = 0; i < TILES; ++i) { \
    uint sixteen = min((j) + i, p.sixteens - 1); \
    uint64_t at = (q) < PARTS ? keys + sixteen * key_step + (q) * 512 \
                              : values + (uint64_t((q) - PARTS) * p.sixteens + sixteen) * 512; \
    coming[(q) % AHEAD * TILES + i] = U4(at).v[0]; \
  }
#define ASK_AHEAD(q, j) \
  if ((q) + AHEAD < 2 * PARTS) ASK((q) + AHEAD, j) \
  else ASK((q) + AHEAD - 2 * PARTS, (j) + TILES)
  [[unroll]] for (uint q = 0; q < AHEAD; ++q) ASK(q, begin)

  for (uint j = begin; j < end; j += TILES) {
    SUMS score[TILES];
    [[unroll]] for (uint i = 0; i < TILES; ++i) score[i] = SUMS(0.0);
    [[unroll]] for (uint q = 0; q < PARTS; ++q) {
      LEFT a = left(KEEP != 0 ? query[q] : U4(queries + q * 512).v[0]);
      [[unroll]] for (uint i = 0; i < TILES; ++i)
        score[i] = coopMatMulAdd(a, right(coming[q % AHEAD * TILES + i]), score[i]);
      ASK_AHEAD(q, j)
    }
    if (16 * j < all_low || 16 * (j + TILES) > all_high) {
      [[unroll]] for (uint i = 0; i < TILES; ++i)
        [[unroll]] for (uint e = 0; e < 8; ++e) {
          uint at = 16 * (j + i) + 8 * (e / 2 % 2) + lane % 4 * 2 + e % 2;
          if (at < low[e / 4] || at >= high[e / 4]) score[i][e] = -1e30;
        }
    }
    LEFT share[TILES];
    float shrink[2];
    [[unroll]] for (uint r = 0; r < 2; ++r) {
      float top = -1e30, sum = 0.0;
      [[unroll]] for (uint i = 0; i < TILES; ++i)
        [[unroll]] for (uint e = 0; e < 4; ++e) top = max(top, score[i][4 * r + e]);
      top = max(top, subgroupShuffleXor(top, 1));
      top = max(most[r], max(top, subgroupShuffleXor(top, 2)) * p.scale);
      shrink[r] = exp2(most[r] - top);
      most[r] = top;
      [[unroll]] for (uint i = 0; i < TILES; ++i)
        [[unroll]] for (uint e = 0; e < 4; ++e) {
          float x = exp2(score[i][4 * r + e] * p.scale - top);
          sum += x;
          share[i][4 * r + e] = float16_t(x);
        }
      total[r] = total[r] * shrink[r] + sum;
    }
    [[unroll]] for (uint d = 0; d < PARTS; ++d) {
      uint q = PARTS + d;
      [[unroll]] for (uint e = 0; e < 8; ++e) mix[d][e] *= shrink[e / 4];
      [[unroll]] for (uint i = 0; i < TILES; ++i)
        mix[d] = coopMatMulAdd(share[i], right(coming[q % AHEAD * TILES + i]), mix[d]);
      ASK_AHEAD(q, j)
    }
  }
  [[unroll]] for (uint r = 0; r < 2; ++r) {
    float sum = total[r] + subgroupShuffleXor(total[r], 1);
    sum += subgroupShuffleXor(sum, 2);
    uint column = column0 + 8 * r + lane / 4;
    if (column >= count) continue;
    uint64_t y = p.y + uint64_t(column) * p.y_stride + 4 * (h * DIM + lane % 4 * 2);
    [[unroll]] for (uint d = 0; d < PARTS; ++d)
      [[unroll]] for (uint k = 0; k < 2; ++k)
        F2(y).v[8 * d + 4 * k] = vec2(mix[d][4 * r + 2 * k], mix[d][4 * r + 2 * k + 1]) * (HALF_SCALE / sum);
  }
}
