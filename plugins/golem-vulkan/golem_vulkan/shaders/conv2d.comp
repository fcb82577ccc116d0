#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
// A convolution over a map, float32 throughout: a product of the matrix with the square around each place, whose
// numbers are read where they lie.  A workgroup of 256 threads has 64 places x 64 outputs, a thread 4 x 4 of them.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint height, width, channels, taps;
  uint x_stride, y_stride;
} p;
const uint TILE = 64, STEP = 32, PITCH = TILE + 4;
shared float places[STEP * PITCH];
shared float weights[STEP * PITCH];

// Entry i of the square around a place.
float around(uint64_t map, uint place, uint i) {
  uint tap = i / p.channels, channel = i % p.channels, reach = p.taps / 2;
  int row = int(place / p.width + tap / p.taps) - int(reach), column = int(place % p.width + tap % p.taps) - int(reach);
  if (tap >= p.taps * p.taps || row < 0 || row >= int(p.height) || column < 0 || column >= int(p.width)) return 0.0;
  return F1(map).v[(uint(row) * p.width + uint(column)) * p.channels + channel];
}

void main() {
  uint tid = gl_LocalInvocationID.x, count = p.height * p.width, map = gl_WorkGroupID.z;
  uint place0 = gl_WorkGroupID.y * TILE, row0 = gl_WorkGroupID.x * TILE;
  if (beyond(p.rows, map)) return;
  uint64_t x = p.x + uint64_t(map) * p.x_stride, y = p.y + uint64_t(map) * p.y_stride;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  uint across = tid % 16, down = tid / 16;
  vec4 sum[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) sum[i] = vec4(0);
  for (uint b = 0; b < p.blocks; ++b) {
    barrier();
    for (uint e = tid; e < TILE * 8; e += 256) {  // four entries each
      uint r = e / 8, k = e % 8;
      vec4 a = fetch_floats(w, min(row0 + r, p.outputs - 1) * p.blocks + b, k);
      for (uint j = 0; j < 4; ++j) {
        weights[(4 * k + j) * PITCH + r] = a[j];
        places[(4 * k + j) * PITCH + r] = around(x, min(place0 + r, count - 1), 32 * b + 4 * k + j);
      }
    }
    barrier();
    vec4 part[4];   // sums of few numbers lose less
    [[unroll]] for (uint i = 0; i < 4; ++i) part[i] = vec4(0);
    for (uint k = 0; k < STEP; ++k) {
      vec4 a;
      [[unroll]] for (uint i = 0; i < 4; ++i) a[i] = weights[k * PITCH + across + 16 * i];
      [[unroll]] for (uint i = 0; i < 4; ++i) part[i] += places[k * PITCH + down + 16 * i] * a;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) sum[i] += part[i];
  }
  [[unroll]] for (uint i = 0; i < 4; ++i)
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      uint place = place0 + down + 16 * i, r = row0 + across + 16 * j;
      if (place < count && r < p.outputs)
        F1(y).v[place * p.outputs + r] = sum[i][j] + (p.bias != 0 ? F1(p.bias).v[r] : 0.0);
    }
}
