#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The Hadamard transform of one block of one row, in shared memory.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint block, x_stride, y_stride;
  float scale;
} p;
shared float entry[4096];

void main() {
  uint column = gl_WorkGroupID.y, start = gl_WorkGroupID.x * p.block, tid = gl_LocalInvocationID.x;
  if (beyond(p.rows, column)) return;
  uint64_t x = p.x + uint64_t(column) * p.x_stride, y = p.y + uint64_t(column) * p.y_stride;
  for (uint i = tid; i < p.block; i += gl_WorkGroupSize.x) entry[i] = F1(x).v[start + i];
  for (uint half_ = 1; half_ < p.block; half_ *= 2) {
    barrier();
    for (uint i = tid; i < p.block / 2; i += gl_WorkGroupSize.x) {
      uint at = i / half_ * 2 * half_ + i % half_;
      float a = entry[at], b = entry[at + half_];
      entry[at] = a + b;
      entry[at + half_] = a - b;
    }
  }
  barrier();
  for (uint i = tid; i < p.block; i += gl_WorkGroupSize.x) F1(y).v[start + i] = entry[i] * p.scale;
}
