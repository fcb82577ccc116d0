#version 460
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;  // before anything that asks for the size
#include "common.glsl"
#include "reduce.glsl"
#include "turn.glsl"
#include "ring.glsl"
// The key of one head of one column, normed and rotated on the way, and its value, into the ring.
layout(constant_id = 1) const uint PAIRS = 0;
layout(constant_id = 2) const uint NORMED = 0;
layout(push_constant) uniform P {
  uint64_t k, v, keys, values, rows, frequencies, weight;
  uint heads, dim, dims, positions, k_stride, v_stride;
  float eps;
} p;

// Entries 4 i to 4 i + 3; eight consecutive threads have a block of 32.
void put(uint64_t row, uint64_t scales, uint i, vec4 x) {
  vec4 a = abs(x);
  float most = max(max(a.x, a.y), max(a.z, a.w));
  most = max(most, subgroupShuffleXor(most, 1));
  most = max(most, subgroupShuffleXor(most, 2));
  most = max(most, subgroupShuffleXor(most, 4));
  float by = most > 0.0 ? 127.0 / most : 0.0;
  U1(row).v[i] = uint(pack32(i8vec4(roundEven(x * by))));
  if (i % 8 == 0) H1(scales).v[i / 8] = float16_t(most / 127.0);
}

void main() {
  uint column = gl_WorkGroupID.y, h = gl_WorkGroupID.x, start = h * p.dim;
  if (beyond(p.rows, column)) return;
  load_head(p.k + uint64_t(column) * p.k_stride + 4 * start, p.dim, NORMED != 0, p.weight, p.eps);
  uint position = position_of(p.rows, column), slot = slot_of(p.rows, column);
  Ring keys = ring_of(p.keys, slot, p.heads, h, p.positions, p.dim);
  Ring values = ring_of(p.values, slot, p.heads, h, p.positions, p.dim);
  uint64_t key = ring_row(keys, position), value = ring_row(values, position);
  uint64_t v = p.v + uint64_t(column) * p.v_stride + 4 * start;
  if (BYTES != 0) {
    for (uint i = gl_LocalInvocationID.x; i < p.dim / 4; i += gl_WorkGroupSize.x) {
      vec4 k;
      for (uint j = 0; j < 4; ++j) k[j] = turned(4 * i + j, PAIRS, position, p.frequencies, p.dims);
      put(key, ring_scales(keys, position), i, k);
      put(value, ring_scales(values, position), i, F4(v).v[i]);
    }
    return;
  }
  for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
    H1(key).v[i] = float16_t(turned(i, PAIRS, position, p.frequencies, p.dims));
    H1(value).v[i] = float16_t(F1(v).v[i]);
  }
}
