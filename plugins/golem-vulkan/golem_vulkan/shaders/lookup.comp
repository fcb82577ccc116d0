#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Entries of a vector by ids.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t weight, ids, y, rows;
  uint n, ids_stride, y_stride;
} p;

void main() {
  uint column = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (beyond(p.rows, column) || i >= p.n) return;
  uint id = uint(F1(p.ids + uint64_t(column) * p.ids_stride).v[i]);
  F1(p.y + uint64_t(column) * p.y_stride).v[i] = F1(p.weight).v[id];
}
