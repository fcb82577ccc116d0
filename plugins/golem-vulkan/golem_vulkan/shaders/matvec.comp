#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
#include "dots.glsl"
// Products of a matrix with a few columns: LANES threads share a row of the matrix, each group of them has ROWS rows,
// for COLUMNS columns at once.  Quantized weights meet 8-bit blocks, the others float32.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint ROWS = 1;
layout(constant_id = 3) const uint COLUMNS = 1;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t extra;        // a bias, or the ids of the chosen experts
  uint wh, ws, wd;
  uint outputs, blocks;  // rows of the matrix and units in each
  uint width;            // entries of a row
  uint x_stride, y_stride;
  uint x_sums;           // bytes from a row of 8-bit blocks to its scales
  uint experts;          // 0 none, 1: a column's one row for each expert, 2: a row of its own for each
  uint chosen, ids_stride;
  uint room;             // columns that there is room for, times steps
  uint steps, step;      // products of a column, and the bytes from the input of one to that of the next
} p;

void main() {
  uint lane = gl_LocalInvocationID.x % LANES;
  uint row0 = (gl_WorkGroupID.x * (gl_WorkGroupSize.x / LANES) + gl_LocalInvocationID.x / LANES) * ROWS;
  uint column0 = gl_WorkGroupID.y * COLUMNS, first_row = 0, part = 0;
  if (p.experts != 0) {
    part = column0 % p.chosen;
    column0 /= p.chosen;
  }
  if (column0 > 0 && column0 >= count_of(p.rows) * p.steps) return;
  if (p.experts != 0) first_row = uint(F1(p.extra + uint64_t(column0) * p.ids_stride).v[part]) * p.outputs;
  uint x_start = p.experts == 2 ? part * p.blocks : 0;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  float sum[ROWS * COLUMNS];
  [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i) sum[i] = 0.0;
  uint64_t x[COLUMNS];
  [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
    uint i = min(column0 + c, p.room - 1);
    x[c] = p.x + uint64_t(i / p.steps) * p.x_stride + i % p.steps * p.step;
#ifdef FLOATS
    if (p.experts == 2) x[c] += 4ul * part * p.width;
#endif
  }

  if (row0 < p.outputs) {
    for (uint b = lane; b < p.blocks; b += LANES) {
#ifdef FLOATS
      [[unroll]] for (uint k = 0; k < 8; ++k) {
        vec4 f[COLUMNS];
        uint i = 32 * b + 4 * k;
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
          if (i + 4 <= p.width) {
            f[c] = F4(x[c]).v[i / 4];
          } else {
            f[c] = vec4(0);
            for (uint j = 0; j < 4 && i + j < p.width; ++j) f[c][j] = F1(x[c]).v[i + j];
          }
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          vec4 a = fetch_floats(w, (first_row + min(row0 + r, p.outputs - 1)) * p.blocks + b, k);
          [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sum[r * COLUMNS + c] += dot(a, f[c]);
        }
      }
#else
      Unit t[ROWS];
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        t[r] = fetch(w, (first_row + min(row0 + r, p.outputs - 1)) * p.blocks + b);
      [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        uvec4 lo = U4(x[c]).v[2 * (x_start + b)], hi = U4(x[c]).v[2 * (x_start + b) + 1];
        uvec2 about = U2(x[c] + p.x_sums).v[x_start + b];
        float d = uintBitsToFloat(about.x), sum_lo = float(int(about.y << 16) >> 16), sum_hi = float(int(about.y) >> 16);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          float block = t[r].s.x * float(dot16(t[r].lo, lo)) + t[r].s.y * float(dot16(t[r].hi, hi));
#ifdef OFFSETS
          block += t[r].m.x * sum_lo + t[r].m.y * sum_hi;
#endif
          sum[r * COLUMNS + c] += d * block;
        }
      }
#endif
    }
  }
  [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i)
    for (uint o = LANES / 2; o > 0; o >>= 1) sum[i] += subgroupShuffleXor(sum[i], o);
  if (lane != 0) return;
  uint count = count_of(p.rows) * p.steps;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (row0 + r >= p.outputs) break;
    float bias = p.experts == 0 && p.extra != 0 ? F1(p.extra).v[row0 + r] : 0.0;
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
      if (column0 + c < count)
        F1(p.y + uint64_t((column0 + c) / p.steps) * p.y_stride)
          .v[(part + (column0 + c) % p.steps) * p.outputs + row0 + r] = sum[r * COLUMNS + c] + bias;
  }
}
