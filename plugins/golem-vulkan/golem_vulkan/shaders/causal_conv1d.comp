#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// One feature to a thread, through the columns of a conversation in order.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TAPS = 4;
layout(push_constant) uniform P {
  uint64_t x, y, weight, bias, window, runs, columns;
  uint features, x_stride, y_stride;
} p;

void main() {
  uint run = gl_WorkGroupID.y, f = gl_GlobalInvocationID.x;
  if (beyond(p.runs, run) || f >= p.features) return;
  uint first = first_of(p.runs, run), n = end_of(p.runs, run) - first;
  uint64_t window = p.window + 4ul * share_of(p.runs, run) * (TAPS - 1) * p.features;
  float past[TAPS], by[TAPS];
  [[unroll]] for (uint j = 0; j < TAPS; ++j) by[j] = F1(p.weight).v[f * TAPS + j];
  [[unroll]] for (uint j = 0; j + 1 < TAPS; ++j) past[j] = F1(window).v[j * p.features + f];
  float bias = p.bias != 0 ? F1(p.bias).v[f] : 0.0;
  for (uint t = first; t < first + n; ++t) {
    past[TAPS - 1] = F1(p.x + uint64_t(t) * p.x_stride).v[f];
    float sum = bias;
    [[unroll]] for (uint j = 0; j < TAPS; ++j) sum += past[j] * by[j];
    F1(p.y + uint64_t(t) * p.y_stride).v[f] = sum;
    [[unroll]] for (uint j = 0; j + 1 < TAPS; ++j) past[j] = past[j + 1];
    uint share = share_of(p.columns, t);
    if (share != NOWHERE) {
      window = p.window + 4ul * share * (TAPS - 1) * p.features;
      [[unroll]] for (uint j = 0; j + 1 < TAPS; ++j) F1(window).v[j * p.features + f] = past[j];
    }
  }
}
