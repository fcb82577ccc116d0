#version 460
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;  // before anything that asks for the size
#include "common.glsl"
#include "reduce.glsl"
#include "turn.glsl"
#include "forms.glsl"
// One head of one column: normed (if NORMED), rotated; written as float32 or float16.
layout(constant_id = 1) const uint PAIRS = 1;
layout(constant_id = 2) const uint NORMED = 0;
layout(constant_id = 3) const uint FORM = 0;
layout(push_constant) uniform P {
  uint64_t x, y, rows, frequencies, weight;
  uint dim, dims, x_stride, y_stride;
  float eps;
} p;

void main() {
  uint column = gl_WorkGroupID.y, start = gl_WorkGroupID.x * p.dim;
  if (beyond(p.rows, column)) return;
  load_head(p.x + uint64_t(column) * p.x_stride + 4 * start, p.dim, NORMED != 0, p.weight, p.eps);
  uint position = position_of(p.rows, column);
  uint64_t y = p.y + uint64_t(column) * p.y_stride + (FORM == 2 ? 2 : 4) * start;
  for (uint i = gl_LocalInvocationID.x; i < p.dim; i += gl_WorkGroupSize.x) {
    float x = turned(i, PAIRS, position, p.frequencies, p.dims);
    if (FORM == 2) write_half(y, i, x);
    else F1(y).v[i] = x;
  }
}
