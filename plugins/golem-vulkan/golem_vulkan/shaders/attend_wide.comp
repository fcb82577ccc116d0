#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "forms.glsl"
#include "ring.glsl"
// Attention of many columns on cooperative matrices.  A workgroup has HEADS query heads that share a key head, for
// ROWS / HEADS columns: ROWS rows, each sees a stretch of its slot's ring, or (BETWEEN) of the pass's own columns, whose
// keys and values come as float16 rows.  It goes through the positions twice: first
// for the largest score of each row, then for the sums, which so need no correction.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEADS = 1;
layout(constant_id = 2) const uint DIM = 64;
layout(constant_id = 3) const uint ROWS = 64;
layout(constant_id = 4) const uint CAPPED = 0;
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(constant_id = 6) const uint SPANS = 0;   // a column sees on to its last visible position
layout(constant_id = 7) const uint TILE = 32;   // positions at a time
layout(constant_id = 9) const uint FORM = 0;    // of the result: float32 or float16
layout(push_constant) uniform P {
  uint64_t q, keys, values, y, rows;
  uint kv_heads, groups, window;
  uint positions;       // that the ring holds; or the bytes from one column's keys to the next's
  uint value_stride;    // likewise of values
  uint q_stride, y_stride;
  float scale, cap;
} p;
const uint STRIPS = ROWS / 16;             // one to a subgroup
const uint COLUMNS = ROWS / HEADS;
const uint PAD = 8;
const uint PIECES = DIM / 8, PITCH = (DIM + PAD) / 8;  // uvec4 of a row, and with padding, in shared memory
shared uvec4 query[ROWS * PITCH];
shared uvec4 cached[TILE * PITCH];         // keys, then values
shared float score[ROWS * (TILE + 4)];
shared float16_t share[ROWS * (TILE + PAD)];
shared float most[ROWS], total[ROWS];
shared uint row_low[ROWS], row_at[ROWS];   // the positions that a row sees
shared uint slots[COLUMNS];

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>

// Brings the keys or values of a tile into shared memory: of a ring, or of the columns up to `last`.
#ifdef BETWEEN
struct Rows16 { uint64_t base; uint stride, last; };
#define PLACE Rows16
uvec4 load(Rows16 x, uint row, uint i) { return U4(x.base + uint64_t(min(row, x.last)) * x.stride).v[i]; }
#else
#define PLACE Ring
uvec4 load(Ring x, uint position, uint i) {
  uvec4 found = ring_load(x, position, i);
  if (BYTES == 0) return found;
  vec4 a = low_of(found), b = high_of(found);
  return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}
#endif
void stage(PLACE x, uint tile) {
  barrier();
  for (uint e = gl_LocalInvocationID.x; e < TILE * PIECES; e += gl_WorkGroupSize.x)
    cached[e / PIECES * PITCH + e % PIECES] = load(x, tile + e / PIECES, e % PIECES);
  barrier();
}

void main() {
  uint tid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x, count = count_of(p.rows);
  uint column0 = gl_WorkGroupID.y * COLUMNS, h = gl_WorkGroupID.x / p.groups, first_head = gl_WorkGroupID.x * HEADS;
  if (column0 >= count) return;
  uint last = min(column0 + COLUMNS, count) - 1;
  for (uint e = tid; e < ROWS * DIM / 8; e += size) {
    uint r = e / (DIM / 8), d = e % (DIM / 8), column = min(column0 + r / HEADS, last);
    uint64_t q = p.q + uint64_t(column) * p.q_stride + 4 * ((first_head + r % HEADS) * DIM + 8 * d);
    vec4 a = clamp(F4(q).v[0], -65504.0, 65504.0), b = clamp(F4(q).v[1], -65504.0, 65504.0);
    query[r * PITCH + d] = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
  }
  for (uint r = tid; r < ROWS; r += size) {
    uint column = min(column0 + r / HEADS, last), at = position_of(p.rows, column);
#ifdef BETWEEN
    uint self = index_of(p.rows, column), low = first_of(p.rows, column), high = end_of(p.rows, column);
    row_low[r] = p.window < self - low ? self - p.window : low;
    row_at[r] = p.window < high - 1 - self ? self + p.window : high - 1;
#else
    row_at[r] = SPANS != 0 ? last_of(p.rows, column) : at;
    row_low[r] = at + 1 > p.window ? at + 1 - p.window : 0;
#endif
    if (r % HEADS == 0) slots[r / HEADS] = slot_of(p.rows, column);
    most[r] = -1e30;
    total[r] = 0.0;
  }
  barrier();
  uint strip = gl_SubgroupID * 16;
  ACCUMULATOR mix[DIM / 16];
  [[unroll]] for (uint d = 0; d < DIM / 16; ++d) mix[d] = ACCUMULATOR(0.0);

  for (uint turn = 0; turn < 2; ++turn) {
    // the columns of one slot after another: `begin` and `end` are rows
    for (uint c = column0; c <= last;) {
      uint slot = slots[c - column0], begin = (c - column0) * HEADS, next = last + 1;
      for (uint i = c + gl_SubgroupInvocationID; i <= last && next > last; i += SUBGROUP)
        if (slots[i - column0] != slot) next = i;
      c = subgroupMin(next);
      uint end = (c - column0) * HEADS;
      uint low = row_low[begin], high = 0;   // rows may come in any order
      for (uint r = begin + gl_SubgroupInvocationID * HEADS; r < end; r += SUBGROUP * HEADS) {
        low = min(low, row_low[r]);
        high = max(high, row_at[r] + 1);
      }
      low = subgroupMin(low);
      high = subgroupMax(high);
#ifdef BETWEEN
      // what lies behind is not theirs, and may be no column at all
      Rows16 keys = Rows16(p.keys + 2 * h * DIM, p.positions, high - 1);
      Rows16 values = Rows16(p.values + 2 * h * DIM, p.value_stride, high - 1);
#else
      low = low / TILE * TILE;
      Ring keys = ring_of(p.keys, slot, p.kv_heads, h, p.positions, DIM);
      Ring values = ring_of(p.values, slot, p.kv_heads, h, p.positions, DIM);
#endif
      for (uint tile = low; tile < high; tile += TILE) {
        ACCUMULATOR s[TILE / 16];
        [[unroll]] for (uint j = 0; j < TILE / 16; ++j) s[j] = ACCUMULATOR(0.0);
        stage(keys, tile);
        for (uint d = 0; d < DIM / 8; d += 2) {
          LEFT a;
          coopMatLoad(a, query, strip * PITCH + d, PITCH, gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (uint j = 0; j < TILE / 16; ++j) {
            RIGHT b;
            coopMatLoad(b, cached, 16 * j * PITCH + d, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
            s[j] = coopMatMulAdd(a, b, s[j]);
          }
        }
        [[unroll]] for (uint j = 0; j < TILE / 16; ++j)
          coopMatStore(s[j], score, strip * (TILE + 4) + 16 * j, TILE + 4, gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        // two lanes to a row of the strip
        uint r = strip + gl_SubgroupInvocationID / (SUBGROUP / 16), lane = gl_SubgroupInvocationID % (SUBGROUP / 16);
        bool mine = r >= begin && r < end;
        float found = turn == 0 ? most[r] : 0.0, top = most[r];
        for (uint j = lane; j < TILE; j += SUBGROUP / 16) {
          uint at = tile + j;
          float x = score[r * (TILE + 4) + j] * p.scale;
          if (CAPPED != 0) x = p.cap * tanh(x / p.cap);
          bool seen = mine && at >= row_low[r] && at <= row_at[r];
          if (turn == 0) {
            if (seen) found = max(found, x);
          } else {
            float e = seen ? exp(x - top) : 0.0;
            found += e;
            share[r * (TILE + PAD) + j] = float16_t(e);
          }
        }
        for (uint o = 1; o < SUBGROUP / 16; o *= 2) {
          float other = subgroupShuffleXor(found, o);
          found = turn == 0 ? max(found, other) : found + other;
        }
        subgroupBarrier();
        if (lane == 0) {
          if (turn == 0) most[r] = found;
          else total[r] += found;
        }
        subgroupBarrier();
        if (turn == 1) {
          stage(values, tile);
          [[unroll]] for (uint j = 0; j < TILE / 16; ++j) {
            LEFT a;
            coopMatLoad(a, share, strip * (TILE + PAD) + 16 * j, TILE + PAD, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = 0; d < DIM / 16; ++d) {
              RIGHT b;
              coopMatLoad(b, cached, 16 * j * PITCH + 2 * d, PITCH, gl_CooperativeMatrixLayoutRowMajor);
              mix[d] = coopMatMulAdd(a, b, mix[d]);
            }
          }
        }
        subgroupBarrier();
      }
    }
  }
  [[unroll]] for (uint d = 0; d < DIM / 16; ++d) {
    subgroupBarrier();
    coopMatStore(mix[d], score, strip * (TILE + 4), TILE + 4, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    for (uint e = gl_SubgroupInvocationID; e < 256; e += SUBGROUP) {
      uint r = strip + e / 16, column = column0 + r / HEADS;
      if (column > last) continue;
      uint entry = (first_head + r % HEADS) * DIM + 16 * d + e % 16;
      float x = score[r * (TILE + 4) + e % 16] / total[r];
#ifdef BETWEEN
      x *= HALF_SCALE;
#endif
      uint64_t y = p.y + uint64_t(column) * p.y_stride;
      if (FORM == 2) write_half(y, entry, x);
      else F1(y).v[entry] = x;
    }
  }
}
