#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "keys.glsl"
#include "reduce.glsl"
// The `most` largest entries of a row in descending order, equal ones in order of their index, and the logarithm of the
// sum of the exponentials of all, after `list_peaks`.  A workgroup has a row.  An entry is its key and, below that, its
// index upside down, so that no two are equal.
//
// As many of the peaks as there are entries wanted reach a bound, so the entries wanted do too.  They are brought
// together in shared memory, and each finds its place by counting those above it.  Where they are too many for that, as
// in rows of equal numbers, the least entry wanted is found digit by digit first.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EACH = 8;   // peaks of a thread, at most
layout(push_constant) uniform P {
  uint64_t x, peaks, totals, without, out_, rows;
  uint n, count, groups, most, x_stride, out_stride;
} p;
const uint ROOM = 1024, PEAKS = 1024;
const uint SPARE = 4;  // times as many as are wanted may reach the bound
shared uint64_t listed[ROOM];
shared uint reaching[PEAKS];
shared uint counts[2 * 64];
shared uint digits[256];
shared uint found, peaks_found, digit, left;
uint tid, size, turn = 0;
uint64_t x;

// Halves of `counts` are used in turn, so that one barrier does.
uint workgroup_count(uint n) {
  n = subgroupAdd(n);
  if (subgroupElect()) counts[turn + gl_SubgroupID] = n;
  barrier();
  uint total = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) total += counts[turn + i];
  turn ^= 64;
  return total;
}

uint workgroup_top(uint n) {
  n = subgroupMax(n);
  if (subgroupElect()) counts[turn + gl_SubgroupID] = n;
  barrier();
  uint most = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) most = max(most, counts[turn + i]);
  turn ^= 64;
  return most;
}

// The largest bound found soon that at least `most` of the peaks reach, if so many are above 0.
uint bound_of(uint peak[EACH]) {
  uint high = 0, low = 1, reach = 0;
  [[unroll]] for (uint i = 0; i < EACH; ++i) high = max(high, peak[i]);
  high = workgroup_top(high);
  if (p.most == 1) return max(high, 1);
  [[unroll]] for (uint i = 0; i < EACH; ++i) reach += uint(peak[i] >= low);
  reach = workgroup_count(reach);
  high += 1;
  while (high - low > 1 && reach > SPARE * p.most) {
    uint middle = low + (high - low) / 2, reaching = 0;
    [[unroll]] for (uint i = 0; i < EACH; ++i) reaching += uint(peak[i] >= middle);
    reaching = workgroup_count(reaching);
    if (reaching >= p.most) {
      low = middle;
      reach = reaching;
    } else {
      high = middle;
    }
  }
  return low;
}

uint64_t entry(uint key, uint i) { return uint64_t(key) << 32 | (0xffffffffu - i); }

void put(uint i4, uint64_t least) {
  uvec4 key = four_keys(x, p.n, i4, p.without);
  for (uint j = 0; j < 4; ++j) {
    uint64_t e = entry(key[j], 4 * i4 + j);
    if (key[j] == 0 || e < least) continue;
    uint at = atomicAdd(found, 1);
    if (at < ROOM) listed[at] = e;
  }
}

// The `most`-th largest entry of the row, by digits of 8 bits from the highest.
uint64_t least_wanted() {
  uint64_t known = 0;
  if (tid == 0) left = p.most;
  for (uint shift = 56;; shift -= 8) {
    for (uint i = tid; i < 256; i += size) digits[i] = 0;
    barrier();
    for (uint i4 = tid; 4 * i4 < p.n; i4 += size) {
      uvec4 key = four_keys(x, p.n, i4, p.without);
      for (uint j = 0; j < 4; ++j) {
        uint64_t e = entry(key[j], 4 * i4 + j);
        if (key[j] != 0 && (shift == 56 || e >> (shift + 8) == known >> (shift + 8)))
          atomicAdd(digits[uint(e >> shift) & 255], 1);
      }
    }
    barrier();
    if (tid == 0) {
      uint d = 255;
      while (d > 0 && digits[d] < left) left -= digits[d--];
      digit = d;
    }
    barrier();
    known |= uint64_t(digit) << shift;
    if (shift == 0) return known;
  }
}

void main() {
  uint row = gl_WorkGroupID.x;
  tid = gl_LocalInvocationID.x;
  size = gl_WorkGroupSize.x;
  if (beyond(p.rows, row)) return;
  x = p.x + uint64_t(row) * p.x_stride;
  uint peak[EACH];
  [[unroll]] for (uint i = 0; i < EACH; ++i) {
    uint t = tid + i * size;
    peak[i] = t < p.count ? U1(p.peaks).v[row * p.count + t] : 0;
  }
  uint64_t least = uint64_t(bound_of(peak)) << 32;
  if (tid == 0) found = peaks_found = 0;
  barrier();
  [[unroll]] for (uint i = 0; i < EACH; ++i)
    if (peak[i] >= uint(least >> 32)) {
      uint at = atomicAdd(peaks_found, 1);
      if (at < PEAKS) reaching[at] = tid + i * size;
    }
  barrier();
  uint fours = (p.n + 3) / 4, tall = (fours + p.count - 1) / p.count, n = ROOM + 1;
  if (peaks_found <= PEAKS) {
    for (uint i = tid; i < peaks_found * tall; i += size) {
      uint i4 = reaching[i / tall] + i % tall * p.count;
      if (i4 < fours) put(i4, least);
    }
    barrier();
    n = found;
    barrier();
  }
  if (n > ROOM) {
    least = least_wanted();
    if (tid == 0) found = 0;
    barrier();
    for (uint i4 = tid; i4 < fours; i4 += size) put(i4, least);
    barrier();
    n = found;
  }
  uint64_t out_ = p.out_ + uint64_t(row) * p.out_stride;
  for (uint i = tid; i < n; i += size) {
    uint64_t e = listed[i];
    uint above = 0;
    for (uint j = 0; j < n; ++j) above += uint(listed[j] > e);
    if (above < p.most) {
      U1(out_).v[4 + above] = bits_of(uint(e >> 32));
      U1(out_).v[4 + p.most + above] = 0xffffffffu - uint(e);
    }
  }
  for (uint i = n + tid; i < p.most; i += size) {
    U1(out_).v[4 + i] = bits_of(0);
    U1(out_).v[4 + p.most + i] = 0;
  }
  float top = uintBitsToFloat(0xff800000u), sum = 0.0;
  for (uint i = tid; i < p.groups; i += size) top = max(top, F1(p.totals).v[2 * (row * p.groups + i)]);
  top = workgroup_max(top);
  for (uint i = tid; i < p.groups; i += size) {
    vec2 each = vec2(F1(p.totals).v[2 * (row * p.groups + i)], F1(p.totals).v[2 * (row * p.groups + i) + 1]);
    if (each.y > 0.0) sum += each.y * exp(each.x - top);
  }
  sum = workgroup_sum(sum);
  if (tid == 0) F1(out_).v[0] = top + log(sum);
}
