#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
// Products of a matrix of float numbers with many columns, float32 throughout: a workgroup of 256 threads has 64 x 64
// results, a thread 4 x 4 of them.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint width;             // entries of a row
  uint x_stride, y_stride;
} p;
const uint TILE = 64, STEP = 32, PITCH = TILE + 4;
shared float columns[STEP * PITCH];
shared float weights[STEP * PITCH];

void main() {
  uint tid = gl_LocalInvocationID.x, count = count_of(p.rows);
  uint column0 = gl_WorkGroupID.y * TILE, row0 = gl_WorkGroupID.x * TILE;
  if (column0 >= count) return;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  uint across = tid % 16, down = tid / 16;
  vec4 sum[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) sum[i] = vec4(0);
  for (uint b = 0; b < p.blocks; ++b) {
    barrier();
    for (uint e = tid; e < TILE * 8; e += 256) {  // four entries each
      uint r = e / 8, k = e % 8, i = 32 * b + 4 * k;
      vec4 a = fetch_floats(w, min(row0 + r, p.outputs - 1) * p.blocks + b, k), x = vec4(0);
      uint64_t column = p.x + uint64_t(min(column0 + r, count - 1)) * p.x_stride;
      for (uint j = 0; j < 4; ++j) {
        if (i + j < p.width) x[j] = F1(column).v[i + j];
        weights[(4 * k + j) * PITCH + r] = a[j];
        columns[(4 * k + j) * PITCH + r] = x[j];
      }
    }
    barrier();
    vec4 part[4];   // sums of few numbers lose less
    [[unroll]] for (uint i = 0; i < 4; ++i) part[i] = vec4(0);
    for (uint k = 0; k < STEP; ++k) {
      vec4 a;
      [[unroll]] for (uint i = 0; i < 4; ++i) a[i] = weights[k * PITCH + across + 16 * i];
      [[unroll]] for (uint i = 0; i < 4; ++i) part[i] += columns[k * PITCH + down + 16 * i] * a;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) sum[i] += part[i];
  }
  [[unroll]] for (uint i = 0; i < 4; ++i)
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      uint c = column0 + down + 16 * i, r = row0 + across + 16 * j;
      if (c < count && r < p.outputs)
        F1(p.y + uint64_t(c) * p.y_stride).v[r] = sum[i][j] + (p.bias != 0 ? F1(p.bias).v[r] : 0.0);
    }
}
