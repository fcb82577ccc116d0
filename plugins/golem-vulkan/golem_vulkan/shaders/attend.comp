#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "ring.glsl"
// Attention of HEADS query heads that share a key head, for one column, over a share of the positions that it sees:
// those in its slot's ring, or (COLUMNS) the pass's own columns, float32, before and after it.
// Scores of TILE positions, a running softmax, and the mix, in one kernel.  With one share the result is written;
// with several each leaves its maximum, its sum and its unfinished mix for `attend_merge`.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEADS = 1;
layout(constant_id = 2) const uint DIM = 64;
layout(constant_id = 3) const uint TILE = 32;
layout(constant_id = 4) const uint CAPPED = 0;
layout(constant_id = 5) const uint SPANS = 0;   // a column sees on to its last visible position
layout(constant_id = 6) const uint PARTS = 1;   // share a tile's values
layout(push_constant) uniform P {
  uint64_t q, keys, values, y, rows;
  uint kv_heads, groups, window;  // groups: how many workgroups share a key head
  uint positions;                 // that the ring holds; or the bytes from one column's keys to the next's
  uint value_stride;
  uint q_stride, y_stride, shares;
  float scale, cap;
} p;
const uint LANES = 8;           // share a key
shared float query[HEADS * DIM];
shared float score[HEADS * TILE];
shared float most[HEADS], total[HEADS], rescale[HEADS];
#ifdef COLUMNS
const uint WIDE = 4;            // entries of a load
#else
const uint WIDE = 8;
#endif
const uint LOADS = DIM / WIDE;
shared float mixed[PARTS * HEADS * DIM];

void main() {
  uint tid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x, column = gl_WorkGroupID.y, share = gl_WorkGroupID.z;
  if (beyond(p.rows, column)) return;
  uint h = gl_WorkGroupID.x / p.groups, first_head = gl_WorkGroupID.x * HEADS;
#ifdef COLUMNS
  uint self = index_of(p.rows, column), low = first_of(p.rows, column), high = end_of(p.rows, column);
  if (p.window < self - low) low = self - p.window;
  if (p.window < high - 1 - self) high = self + p.window + 1;
#else
  uint at = position_of(p.rows, column), slot = slot_of(p.rows, column);
  Ring keys = ring_of(p.keys, slot, p.kv_heads, h, p.positions, DIM);
  Ring values = ring_of(p.values, slot, p.kv_heads, h, p.positions, DIM);
  uint low = at + 1 > p.window ? at + 1 - p.window : 0, high = 1 + (SPANS != 0 ? last_of(p.rows, column) : at);
#endif
  uint each = (high - low + p.shares - 1) / p.shares;
  uint begin = low + share * each, end = min(begin + each, high);
  uint64_t q = p.q + uint64_t(column) * p.q_stride;
  for (uint i = tid; i < HEADS * DIM; i += size) query[i] = F1(q).v[first_head * DIM + i] * p.scale;
  for (uint g = tid; g < HEADS; g += size) {
    most[g] = -1e30;
    total[g] = 0.0;
  }
  uint load = tid % LOADS, part = tid / LOADS;
  vec4 mix_low[HEADS], mix_high[HEADS];
  [[unroll]] for (uint g = 0; g < HEADS; ++g) mix_low[g] = mix_high[g] = vec4(0);
  barrier();

  for (uint tile = begin; tile < end; tile += TILE) {
    uint here = min(TILE, end - tile), lane = tid % LANES;
#ifndef COLUMNS
    uvec4 ahead[(TILE + PARTS - 1) / PARTS];  // the tile's values, asked for while its scores are worked out
    if (part < PARTS)
      [[unroll]] for (uint n = 0; n * PARTS < TILE; ++n) {
        uint j = part + n * PARTS;
        if (j < here) ahead[n] = ring_load(values, tile + j, load);
      }
#endif
    for (uint j = tid / LANES; j < TILE; j += size / LANES) {
      float s[HEADS];
      [[unroll]] for (uint g = 0; g < HEADS; ++g) s[g] = 0.0;
      if (j < here) {
#ifdef COLUMNS
        uint64_t key = p.keys + uint64_t(tile + j) * p.positions + 4 * h * DIM;
#endif
        for (uint o = lane; o < LOADS; o += LANES) {
#ifdef COLUMNS
          vec4 a = F4(key).v[o];
#else
          uvec4 k = ring_load(keys, tile + j, o);
          vec4 a = low_of(k), b = high_of(k);
#endif
          [[unroll]] for (uint g = 0; g < HEADS; ++g) {
            uint i = g * DIM + WIDE * o;
            s[g] += dot(a, vec4(query[i], query[i + 1], query[i + 2], query[i + 3]));
#ifndef COLUMNS
            s[g] += dot(b, vec4(query[i + 4], query[i + 5], query[i + 6], query[i + 7]));
#endif
          }
        }
      }
      [[unroll]] for (uint g = 0; g < HEADS; ++g) {
        s[g] += subgroupShuffleXor(s[g], 1);
        s[g] += subgroupShuffleXor(s[g], 2);
        s[g] += subgroupShuffleXor(s[g], 4);
        if (lane == 0) score[g * TILE + j] = CAPPED != 0 ? p.cap * tanh(s[g] / p.cap) : s[g];
      }
    }
    barrier();
    for (uint g = gl_SubgroupID; g < HEADS; g += gl_NumSubgroups) {
      float top = most[g];
      for (uint j = gl_SubgroupInvocationID; j < here; j += gl_SubgroupSize) top = max(top, score[g * TILE + j]);
      top = subgroupMax(top);
      float sum = 0.0;
      for (uint j = gl_SubgroupInvocationID; j < here; j += gl_SubgroupSize) {
        float e = exp(score[g * TILE + j] - top);
        score[g * TILE + j] = e;
        sum += e;
      }
      sum = subgroupAdd(sum);
      if (subgroupElect()) {
        rescale[g] = exp(most[g] - top);
        total[g] = total[g] * rescale[g] + sum;
        most[g] = top;
      }
    }
    barrier();
    if (part < PARTS) {
      [[unroll]] for (uint g = 0; g < HEADS; ++g) {
        mix_low[g] *= rescale[g];
        mix_high[g] *= rescale[g];
      }
      [[unroll]] for (uint n = 0; n * PARTS < TILE; ++n) {
        uint j = part + n * PARTS;
        if (j >= here) break;
#ifdef COLUMNS
        vec4 a = F4(p.values + uint64_t(tile + j) * p.value_stride + 4 * h * DIM).v[load];
        [[unroll]] for (uint g = 0; g < HEADS; ++g) mix_low[g] += score[g * TILE + j] * a;
#else
        vec4 a = low_of(ahead[n]), b = high_of(ahead[n]);
        [[unroll]] for (uint g = 0; g < HEADS; ++g) {
          mix_low[g] += score[g * TILE + j] * a;
          mix_high[g] += score[g * TILE + j] * b;
        }
#endif
      }
    }
    barrier();
  }

  if (part < PARTS) {
    [[unroll]] for (uint g = 0; g < HEADS; ++g)
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        uint i = (part * HEADS + g) * DIM + WIDE * load + j;
        mixed[i] = mix_low[g][j];
#ifndef COLUMNS
        mixed[i + 4] = mix_high[g][j];
#endif
      }
  }
  barrier();
  for (uint i = tid; i < HEADS * DIM; i += size) {  // read and written by one thread
    float sum = mixed[i];
    for (uint other = 1; other < PARTS; ++other) sum += mixed[other * HEADS * DIM + i];
    mixed[i] = sum;
  }
  barrier();
  if (p.shares == 1) {
    uint64_t y = p.y + uint64_t(column) * p.y_stride;
    for (uint i = tid; i < HEADS * DIM; i += size) F1(y).v[first_head * DIM + i] = mixed[i] / total[i / DIM];
  } else {  // (column, head, share): DIM + 2 numbers
    uint heads = p.kv_heads * p.groups * HEADS;
    for (uint g = 0; g < HEADS; ++g) {
      uint64_t y = p.y + 4ul * ((uint64_t(column) * heads + first_head + g) * p.shares + share) * (DIM + 2);
      for (uint i = tid; i < DIM; i += size) F1(y).v[i] = mixed[g * DIM + i];
      if (tid == 0) {
        F1(y).v[DIM] = most[g];
        F1(y).v[DIM + 1] = total[g];
      }
    }
  }
}
