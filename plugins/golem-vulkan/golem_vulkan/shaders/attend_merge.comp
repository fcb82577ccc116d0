#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The shares of one head of one column, brought together.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint heads, dim, shares, y_stride;
} p;

shared float by[64];

void main() {
  uint h = gl_WorkGroupID.x, column = gl_WorkGroupID.y, lane = gl_SubgroupInvocationID;
  if (beyond(p.rows, column)) return;
  uint each = p.dim + 2;
  uint64_t x = p.x + 4ul * (uint64_t(column) * p.heads + h) * p.shares * each;
  uint64_t y = p.y + uint64_t(column) * p.y_stride;
  if (gl_SubgroupID == 0) {
    float most = -1e30, total = 0.0;
    for (uint s = lane; s < p.shares; s += gl_SubgroupSize) most = max(most, F1(x).v[s * each + p.dim]);
    most = subgroupMax(most);
    for (uint s = lane; s < p.shares; s += gl_SubgroupSize) {
      by[s] = exp(F1(x).v[s * each + p.dim] - most);
      total += by[s] * F1(x).v[s * each + p.dim + 1];
    }
    total = subgroupAdd(total);
    subgroupBarrier();
    for (uint s = lane; s < p.shares; s += gl_SubgroupSize) by[s] /= total;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
    float sum = 0.0;
    [[unroll]] for (uint s = 0; s < 64; s += 4) {
      if (s >= p.shares) break;
      [[unroll]] for (uint j = s; j < s + 4; ++j) sum += j < p.shares ? by[j] * F1(x).v[j * each + i] : 0.0;
    }
    F1(y).v[h * p.dim + i] = sum;
  }
}
