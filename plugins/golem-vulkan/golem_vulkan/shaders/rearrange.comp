#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Entries of a row in another order: entry (a, b, c), b of `bs` and c of `cs`, goes from a * a_step + b * b_step + c
// to a * a_to + b * b_to + c.  GATHER: row i of the result comes from row index[i].
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint GATHER = 0;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint n, bs, cs, a_step, b_step, a_to, b_to, x_stride, y_stride;
} p;

void main() {
  uint column = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (beyond(p.rows, column) || i >= p.n) return;
  uint from = GATHER != 0 ? index_of(p.rows, column) : column;
  uint a = i / (p.bs * p.cs), b = i / p.cs % p.bs, c = i % p.cs;
  F1(p.y + uint64_t(column) * p.y_stride).v[a * p.a_to + b * p.b_to + c] =
    F1(p.x + uint64_t(from) * p.x_stride).v[a * p.a_step + b * p.b_step + c];
}
