#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "fragments.glsl"
// Which entries of a 16 x 16 matrix an invocation holds: of each use eight numbers, 16 * row + column.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P { uint64_t y; } p;
shared float16_t halves[256];
shared float floats[256];

void main() {
  uint lane = gl_SubgroupInvocationID;
  for (uint i = gl_LocalInvocationID.x; i < 256; i += gl_WorkGroupSize.x) {
    halves[i] = float16_t(i);
    floats[i] = float(i);
  }
  barrier();
  LEFT a;
  RIGHT b;
  SUMS c;
  coopMatLoad(a, halves, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, halves, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(c, floats, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    F1(p.y).v[lane * 8 + i] = i < a.length() ? float(a[i]) : -1.0;
    F1(p.y).v[256 + lane * 8 + i] = i < b.length() ? float(b[i]) : -1.0;
    F1(p.y).v[512 + lane * 8 + i] = i < c.length() ? c[i] : -1.0;
  }
}
