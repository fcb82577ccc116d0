// Writes four entries of a row in the form that its readers want.
//   0  float32
//   1  8-bit blocks of 32: the bytes of the whole row, then for each block its scale d (float32) and the sums of its
//      two halves (int16); x = d * byte
//   2  float16, of x / HALF_SCALE, which keeps the large activations of some models finite
// Eight consecutive threads must call it for the eight parts of a block of 32.
const float HALF_SCALE = 16.0;
const float HALF_MOST = 65504.0;

layout(constant_id = 8) const uint ALIGNED = 0;  // rows begin at multiples of 16 bytes and have whole fours of entries
layout(buffer_reference, std430, buffer_reference_align = 16) buffer A4 { vec4 v[]; };

void write_bytes(uint64_t row, uint blocks, uint i4, vec4 x) {
  vec4 a = abs(x);
  float most = max(max(a.x, a.y), max(a.z, a.w));
  most = max(most, subgroupShuffleXor(most, 1));
  most = max(most, subgroupShuffleXor(most, 2));
  most = max(most, subgroupShuffleXor(most, 4));
  float d = most / 127.0, inverse = most > 0.0 ? 127.0 / most : 0.0;
  ivec4 q = ivec4(roundEven(x * inverse));
  U1(row).v[i4] = uint(q.x & 255) | uint(q.y & 255) << 8 | uint(q.z & 255) << 16 | uint(q.w & 255) << 24;
  int sum = q.x + q.y + q.z + q.w;
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  int other = subgroupShuffleXor(sum, 4);
  if ((i4 & 7) == 0)
    U2(row + 32ul * blocks).v[i4 >> 3] = uvec2(floatBitsToUint(d), uint(sum & 0xffff) | uint(other & 0xffff) << 16);
}

void write_floats(uint64_t row, uint n, uint i4, vec4 x) {
  uint i = 4 * i4;
  if (ALIGNED != 0) {
    A4(row).v[i4] = x;
  } else if (i + 4 <= n) {
    F4(row).v[i4] = x;
  } else {
    for (uint j = 0; i + j < n; ++j) F1(row).v[i + j] = x[j];
  }
}

void write_halves(uint64_t row, uint i4, vec4 x) {
  vec4 y = clamp(x / HALF_SCALE, -HALF_MOST, HALF_MOST);
  U2(row).v[i4] = uvec2(packHalf2x16(y.xy), packHalf2x16(y.zw));
}

void write_row(uint form, uint64_t row, uint n, uint i4, vec4 x) {
  if (form == 0) write_floats(row, n, i4, x);
  if (form == 1) write_bytes(row, n / 32, i4, x);
  if (form == 2) write_halves(row, i4, x);
}

vec4 read_row(uint64_t row, uint n, uint i4) {
  uint i = 4 * i4;
  if (ALIGNED != 0) return A4(row).v[i4];
  if (i + 4 <= n) return F4(row).v[i4];
  vec4 x = vec4(0);
  for (uint j = 0; i + j < n; ++j) x[j] = F1(row).v[i + j];
  return x;
}
