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

void main() {
  uint column = gl_WorkGroupID.y, h = gl_WorkGroupID.x, start = h * p.dim;
  if (beyond(p.rows, column)) return;
  load_head(p.k + uint64_t(column) * p.k_stride + 4 * start, p.dim, NORMED != 0, p.weight, p.eps);
  uint position = position_of(p.rows, column), slot = slot_of(p.rows, column);
  uint64_t key = ring_row(p.keys, slot, p.heads, h, p.positions, p.dim, position);
  uint64_t value = ring_row(p.values, slot, p.heads, h, p.positions, p.dim, position);
  uint64_t v = p.v + uint64_t(column) * p.v_stride + 4 * start;
  for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
    H1(key).v[i] = float16_t(turned(i, PAIRS, position, p.frequencies, p.dims));
    H1(value).v[i] = float16_t(F1(v).v[i]);
  }
}
