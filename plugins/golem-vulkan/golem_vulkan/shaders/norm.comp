#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "forms.glsl"
#include "reduce.glsl"
// Norms of the `parts` rows of n entries in each column, with what comes before: a residual sum s = x + y,
// s = x + rms_norm(y) * post, or s = x + y * gate, which is written as well; and with what follows: norm * scale + shift.
// Gate, scale and shift are rows of the column's conversation.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KIND = 0;   // 0 root mean square, 1 length, 2 mean and variance
layout(constant_id = 2) const uint BRANCH = 0; // 0 none, 1 added, 2 normed and added, 3 gated and added
layout(constant_id = 3) const uint FORM = 0;
layout(constant_id = 4) const uint MODULATED = 0;
layout(constant_id = 5) const uint SECOND = 0;   // the form in which the result is written to `second`, if that is there
layout(push_constant) uniform P {
  uint64_t x, y, s, out_, rows, weight, bias, post;  // the last may be the gate
  uint64_t scale, shift, second;
  uint n, x_stride, y_stride, s_stride, out_stride;
  float eps;
  uint gate_stride, scale_stride, shift_stride, second_stride;
} p;

void main() {
  uint part = gl_WorkGroupID.x, column = gl_WorkGroupID.y, tid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x;
  if (beyond(p.rows, column)) return;
  uint start = part * p.n * 4;
  uint64_t x = p.x + uint64_t(column) * p.x_stride + start;
  uint groups = (p.n + 3) / 4, run = BRANCH == 3 || MODULATED != 0 ? run_of(p.rows, column) : 0;
  if (BRANCH != 0) {
    uint64_t y = p.y + uint64_t(column) * p.y_stride, s = p.s + uint64_t(column) * p.s_stride;
    float by = 1.0;
    if (BRANCH == 2) {
      float squares = 0.0;
      for (uint i = tid; i < groups; i += size) { vec4 v = read_row(y, p.n, i); squares += dot(v, v); }
      by = inversesqrt(workgroup_sum(squares) / float(p.n) + p.eps);
    }
    for (uint i = tid; i < groups; i += size) {
      vec4 v = read_row(y, p.n, i);
      if (BRANCH == 2) v *= by * read_row(p.post, p.n, i);
      if (BRANCH == 3) v *= read_row(p.post + uint64_t(run) * p.gate_stride, p.n, i);
      write_floats(s, p.n, i, read_row(x, p.n, i) + v);
    }
    x = s;  // every thread reads again what it has written itself
  }
  float mean = 0.0, squares = 0.0;
  if (KIND == 2) {
    float total = 0.0;
    for (uint i = tid; i < groups; i += size) { vec4 v = read_row(x, p.n, i); total += v.x + v.y + v.z + v.w; }
    mean = workgroup_sum(total) / float(p.n);
    for (uint i = tid; i < groups; i += size) {
      vec4 v = read_row(x, p.n, i);
      for (uint j = 0; j < 4 && 4 * i + j < p.n; ++j) squares += (v[j] - mean) * (v[j] - mean);
    }
  } else {
    for (uint i = tid; i < groups; i += size) { vec4 v = read_row(x, p.n, i); squares += dot(v, v); }
  }
  squares = workgroup_sum(squares);
  float by = inversesqrt((KIND == 1 ? squares : squares / float(p.n)) + p.eps);
  for (uint i = tid; i < groups; i += size) {
    vec4 v = (read_row(x, p.n, i) - mean) * by;
    if (p.weight != 0) v *= read_row(p.weight, p.n, i);
    if (p.bias != 0) v += read_row(p.bias, p.n, i);
    if (MODULATED != 0) {
      v *= read_row(p.scale + uint64_t(run) * p.scale_stride, p.n, i);
      v += read_row(p.shift + uint64_t(run) * p.shift_stride, p.n, i);
    }
    write_row(FORM, p.out_, column, p.out_stride, start, p.n, i, v);
    if (p.second != 0) write_row(SECOND, p.second, column, p.second_stride, start, p.n, i, v);
  }
}
