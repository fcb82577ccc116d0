#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Entries of a row in another order: entry (a, b, c) of the result, b of `bs` and c of `cs`, is entry
// a * a_step + b * b_step + c of the source.  GATHER: row i of the result comes from row index[i].
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint GATHER = 0;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint n, bs, cs, a_step, b_step, x_stride, y_stride;
} p;

void main() {
  uint column = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (column >= count_of(p.rows) || i >= p.n) return;
  uint from = GATHER != 0 ? index_of(p.rows, column) : column;
  uint at = (i / (p.bs * p.cs)) * p.a_step + (i / p.cs % p.bs) * p.b_step + i % p.cs;
  F1(p.y + uint64_t(column) * p.y_stride).v[i] = F1(p.x + uint64_t(from) * p.x_stride).v[at];
}
