#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "forms.glsl"
#include "activations.glsl"
// y = f(a), f(a) + b or f(a) * b; four entries to a thread.  b is a value, a vector of `last` entries, or one number.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KIND = 0;
layout(constant_id = 2) const uint WITH = 0;     // 0 nothing, 1 add, 2 multiply
layout(constant_id = 3) const uint OTHER = 0;    // 0 a value, 1 a vector, 2 a number
layout(constant_id = 4) const uint FORM = 0;
layout(constant_id = 5) const uint OF_RUN = 0;   // b is the row of the column's conversation
layout(push_constant) uniform P {
  uint64_t a, b, y, rows;
  uint n, last, a_stride, b_stride, y_stride;
  float by, most;
} p;

void main() {
  uint column = gl_WorkGroupID.y, i4 = gl_GlobalInvocationID.x;
  if (4 * i4 >= p.n) return;
  if (beyond(p.rows, column)) {  // what reads float16 rows may multiply these by nought
    if (FORM == 2 || FORM == 4) write_row(FORM, p.y, column, p.y_stride, 0, p.n, i4, vec4(0));
    return;
  }
  vec4 x = activate4(KIND, read_row(p.a + uint64_t(column) * p.a_stride, p.n, i4), p.by, p.most);
  if (WITH != 0) {
    vec4 b;
    uint from = OF_RUN != 0 ? run_of(p.rows, column) : column;
    if (OTHER == 0) b = read_row(p.b + uint64_t(from) * p.b_stride, p.n, i4);
    if (OTHER == 1) for (uint j = 0; j < 4; ++j) b[j] = F1(p.b).v[(4 * i4 + j) % p.last];
    if (OTHER == 2) b = vec4(F1(p.b).v[0]);
    x = WITH == 1 ? x + b : x * b;
  }
  write_row(FORM, p.y, column, p.y_stride, 0, p.n, i4, x);
}
