#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The sum of a column's `count` rows, weighted by its shares.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, shares, y, rows;
  uint count, n, x_stride, shares_stride, y_stride;
} p;

void main() {
  uint column = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (beyond(p.rows, column) || i >= p.n) return;
  uint64_t x = p.x + uint64_t(column) * p.x_stride, shares = p.shares + uint64_t(column) * p.shares_stride;
  float sum = 0.0;
  for (uint k = 0; k < p.count; ++k) sum += F1(shares).v[k] * F1(x).v[k * p.n + i];
  F1(p.y + uint64_t(column) * p.y_stride).v[i] = sum;
}
