#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "delta_chunks.glsl"
// The gated delta rule for one head of one conversation, chunk after chunk, with the numbers of delta_factors.comp.
// STEPS threads share VALUES columns of the state S, which they keep in registers throughout, and each of them has the
// sums of one column of the chunk.  With f and b the last two of its numbers:
//   u = T (v - f S^T k),  y = f S^T q scale + M u,  S = f[last] S + sum of k b u.
// Register i of a thread is for the chunk's column i ^ (its own).  So what a thread keeps, when of all that is summed
// over the threads it gives half away, then half of the rest and half of that, stands in the same registers in each.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EACH = 4;    // fours of a state's column that a thread has: dk = 4 * STEPS * EACH, or less
layout(constant_id = 2) const uint VALUES = 2;
layout(constant_id = 3) const uint MOST_STEPS = 0;
layout(constant_id = 8) const uint ALIGNED = 0;
layout(push_constant) uniform P {
  uint64_t q, k, v, y, state, factors, runs, columns;
  uint key_heads, heads, dk, dv;
  uint q_stride, k_stride, v_stride, y_stride, factor_stride;
  float scale;
} p;
const uint THREADS = gl_WorkGroupSize.x;
const uint PIECES = STEPS * EACH, STAGED = 2 * STEPS * PIECES, OWN = (STAGED + THREADS - 1) / THREADS;
shared vec4 staged[STAGED];   // keys, then queries

// Of the staged entries the one that this thread brings as its `turn`th, from the chunk that begins at `first`.
vec4 fetch(uint turn, uint first, uint end, uint head_at) {
  uint e = gl_LocalInvocationID.x + turn * THREADS, step = e / PIECES % STEPS, at = e % PIECES;
  uint64_t t = first + step;
  bool is_key = e < STAGED / 2;
  uint64_t row = is_key ? p.k + t * p.k_stride : p.q + t * p.q_stride;
  return four_at(row, head_at, at, p.dk, e < STAGED && first + step < end, ALIGNED != 0);
}

void add_product(inout float sum, vec4 a, vec4 b) {
  sum = fma(a.x, b.x, sum);
  sum = fma(a.y, b.y, sum);
  sum = fma(a.z, b.z, sum);
  sum = fma(a.w, b.w, sum);
}

float parts[VALUES][STEPS];   // sums of a thread's own entries; then those of all STEPS threads in [...][0]

#define GIVE(steps) \
  [[unroll]] for (uint c = 0; c < VALUES; ++c) \
    [[unroll]] for (uint i = 0; i < (steps); ++i) parts[c][i] += subgroupShuffleXor(parts[c][i + (steps)], steps);

void sum_parts() {
  GIVE(4)
  GIVE(2)
  GIVE(1)
}

void main() {
  uint run = gl_WorkGroupID.z, h = gl_WorkGroupID.y, tid = gl_LocalInvocationID.x;
  if (beyond(p.runs, run)) return;
  uint start = first_of(p.runs, run), end = end_of(p.runs, run);
  if (!by_chunks(p.columns, start, end, MOST_STEPS)) return;
  uint own = tid % STEPS, j = (gl_WorkGroupID.x * (THREADS / STEPS) + tid / STEPS) * VALUES;
  uint head_at = h % p.key_heads * p.dk;
  uint64_t state = p.state + 4ul * (uint64_t(share_of(p.runs, run) * p.heads + h) * p.dv + j) * p.dk;
  vec4 s[VALUES][EACH], next[OWN];
  [[unroll]] for (uint c = 0; c < VALUES; ++c)
    [[unroll]] for (uint e = 0; e < EACH; ++e) {
      uint at = own + e * STEPS;
      s[c][e] = j + c < p.dv && 4 * at < p.dk ? A4(state).v[c * (p.dk / 4) + at] : vec4(0.0);
    }
  [[unroll]] for (uint r = 0; r < OWN; ++r) next[r] = fetch(r, start, end, head_at);

  for (uint first = start; first < end; first += STEPS) {
    uint n = min(STEPS, end - first);
    barrier();
    [[unroll]] for (uint r = 0; r < OWN; ++r)
      if (tid + r * THREADS < STAGED) staged[tid + r * THREADS] = next[r];
    barrier();
    [[unroll]] for (uint r = 0; r < OWN; ++r) next[r] = fetch(r, first + STEPS, end, head_at);
    bool mine = own < n;
    uint64_t t = min(first + own, end - 1);
    A4 factors = A4(p.factors + t * p.factor_stride + 4 * FACTORS * h);
    vec4 solve[2], mix[2];
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      solve[i] = mine ? factors.v[i] : vec4(0.0);
      mix[i] = factors.v[2 + i];
    }
    vec2 fades = factors.v[4].xy;
    float faded = F1(p.factors + uint64_t(first + n - 1) * p.factor_stride + 4 * FACTORS * h).v[2 * STEPS];
    float value[VALUES], u[VALUES], found[VALUES];
    [[unroll]] for (uint c = 0; c < VALUES; ++c)
      value[c] = mine && j + c < p.dv ? F1(p.v + t * p.v_stride).v[h * p.dv + j + c] : 0.0;

    vec4 key[STEPS][EACH];
    [[unroll]] for (uint c = 0; c < VALUES; ++c)
      [[unroll]] for (uint i = 0; i < STEPS; ++i) parts[c][i] = 0.0;
    [[unroll]] for (uint e = 0; e < EACH; ++e)
      [[unroll]] for (uint i = 0; i < STEPS; ++i) {
        key[i][e] = staged[(i ^ own) * PIECES + e * STEPS + own];
        [[unroll]] for (uint c = 0; c < VALUES; ++c) add_product(parts[c][i], key[i][e], s[c][e]);
      }
    sum_parts();
    [[unroll]] for (uint c = 0; c < VALUES; ++c) {
      float rest = value[c] - fades.x * parts[c][0];
      u[c] = 0.0;
      [[unroll]] for (uint i = 0; i < STEPS; ++i) u[c] = fma(solve[i / 4][i % 4], subgroupShuffleXor(rest, i), u[c]);
    }

    [[unroll]] for (uint c = 0; c < VALUES; ++c)
      [[unroll]] for (uint i = 0; i < STEPS; ++i) parts[c][i] = 0.0;
    [[unroll]] for (uint e = 0; e < EACH; ++e)
      [[unroll]] for (uint i = 0; i < STEPS; ++i) {
        vec4 query = staged[(STEPS + (i ^ own)) * PIECES + e * STEPS + own];
        [[unroll]] for (uint c = 0; c < VALUES; ++c) add_product(parts[c][i], query, s[c][e]);
      }
    sum_parts();
    [[unroll]] for (uint c = 0; c < VALUES; ++c) found[c] = fades.x * p.scale * parts[c][0];

    [[unroll]] for (uint c = 0; c < VALUES; ++c)
      [[unroll]] for (uint e = 0; e < EACH; ++e) s[c][e] *= faded;
    [[unroll]] for (uint i = 0; i < STEPS; ++i) {
      float behind = subgroupShuffleXor(fades.y, i);
      [[unroll]] for (uint c = 0; c < VALUES; ++c) {
        float change = subgroupShuffleXor(u[c], i);
        found[c] = fma(mix[i / 4][i % 4], change, found[c]);
        change *= behind;
        [[unroll]] for (uint e = 0; e < EACH; ++e) s[c][e] += key[i][e] * change;
      }
    }
    [[unroll]] for (uint c = 0; c < VALUES; ++c)
      if (mine && j + c < p.dv) F1(p.y + t * p.y_stride).v[h * p.dv + j + c] = found[c];
  }
  state = p.state + 4ul * (uint64_t(share_of(p.columns, end - 1) * p.heads + h) * p.dv + j) * p.dk;
  [[unroll]] for (uint c = 0; c < VALUES; ++c)
    [[unroll]] for (uint e = 0; e < EACH; ++e) {
      uint at = own + e * STEPS;
      if (j + c < p.dv && 4 * at < p.dk) A4(state).v[c * (p.dk / 4) + at] = s[c][e];
    }
}
