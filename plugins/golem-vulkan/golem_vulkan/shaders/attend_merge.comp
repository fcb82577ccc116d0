#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "forms.glsl"
// The shares of one head of one column, brought together, in the form that a product after them reads.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FORM = 0;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F2 { vec2 v[]; };
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
  for (uint i4 = gl_LocalInvocationID.x; 4 * i4 < p.dim; i4 += gl_WorkGroupSize.x) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint s = 0; s < 64; s += 4) {
      if (s >= p.shares) break;
      [[unroll]] for (uint j = s; j < s + 4; ++j) {
        uint64_t share = x + 4ul * j * each + 16ul * i4;   // DIM + 2 numbers: a multiple of 8 bytes
        if (j < p.shares) sum += by[j] * vec4(F2(share).v[0], F2(share).v[1]);
      }
    }
    write_row(FORM, p.y, column, p.y_stride, 0, p.heads * p.dim, h * p.dim / 4 + i4, sum);
  }
}
