#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// One feature to PARTS threads, each of which goes through a stretch of a conversation's columns in order.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TAPS = 4;
layout(constant_id = 2) const uint PARTS = 1;
layout(push_constant) uniform P {
  uint64_t x, y, weight, bias, window, runs, columns;
  uint features, x_stride, y_stride;
} p;

void main() {
  uint run = gl_WorkGroupID.y, together = gl_WorkGroupSize.x / PARTS;
  uint f = gl_WorkGroupID.x * together + gl_LocalInvocationID.x % together, part = gl_LocalInvocationID.x / together;
  if (beyond(p.runs, run)) return;
  uint first = first_of(p.runs, run), end = end_of(p.runs, run), each = (end - first + PARTS - 1) / PARTS;
  uint start = min(first + part * each, end), stop = f < p.features ? min(start + each, end) : start;
  uint64_t window = p.window + 4ul * share_of(p.runs, run) * (TAPS - 1) * p.features;
  float past[TAPS], by[TAPS], bias = 0.0;
  if (start < stop) {
    [[unroll]] for (uint j = 0; j < TAPS; ++j) by[j] = F1(p.weight).v[f * TAPS + j];
    [[unroll]] for (uint j = 0; j + 1 < TAPS; ++j) {
      uint at = start - first + j;   // among the window's columns and the conversation's
      if (at < TAPS - 1) past[j] = F1(window).v[at * p.features + f];
      else past[j] = F1(p.x + uint64_t(first + at - (TAPS - 1)) * p.x_stride).v[f];
    }
    if (p.bias != 0) bias = F1(p.bias).v[f];
  }
  if (PARTS > 1) barrier();   // the window that the last part leaves may be the one that the first parts read
  for (uint t = start; t < stop; ++t) {
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
