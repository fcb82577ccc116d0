#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The shares of one head of one column, brought together.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint heads, dim, shares, y_stride;
} p;

void main() {
  uint h = gl_WorkGroupID.x, column = gl_WorkGroupID.y;
  if (beyond(p.rows, column)) return;
  uint64_t x = p.x + 4ul * (uint64_t(column) * p.heads + h) * p.shares * (p.dim + 2);
  uint64_t y = p.y + uint64_t(column) * p.y_stride;
  float most = -1e30, total = 0.0;
  for (uint s = 0; s < p.shares; ++s) most = max(most, F1(x).v[s * (p.dim + 2) + p.dim]);
  for (uint s = 0; s < p.shares; ++s) {
    uint at = s * (p.dim + 2) + p.dim;
    total += F1(x).v[at + 1] * exp(F1(x).v[at] - most);
  }
  for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
    float sum = 0.0;
    for (uint s = 0; s < p.shares; ++s) {
      uint at = s * (p.dim + 2);
      sum += F1(x).v[at + i] * exp(F1(x).v[at + p.dim] - most);
    }
    F1(y).v[h * p.dim + i] = sum / total;
  }
}
