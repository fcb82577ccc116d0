// Writes four entries of a row in the form that its readers want.
//   0  float32
//   1  8-bit blocks of 32: the bytes of the whole row, then for each block its scale d (float32) and the sums of its
//      two halves (int16); x = d * byte
//   2  float16, of x / HALF_SCALE, which keeps the large activations of some models finite
//   3  the same, sixteen rows together as fragments (`fragments.glsl`)
//   4  the same, as fragments of sixteen entries by sixteen rows, in the order in which invocations hold them
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

uvec2 halves(vec4 x) {
  vec4 y = clamp(x / HALF_SCALE, -HALF_MOST, HALF_MOST);
  return uvec2(packHalf2x16(y.xy), packHalf2x16(y.zw));
}

void write_halves(uint64_t row, uint i4, vec4 x) { U2(row).v[i4] = halves(x); }

void write_half(uint64_t row, uint i, float x) {
  H1(row).v[i] = float16_t(clamp(x / HALF_SCALE, -HALF_MOST, HALF_MOST));
}

// Of row `row` of rows of n entries.
void write_fragments(uint64_t base, uint row, uint n, uint i4, vec4 x) {
  uint64_t fragment = base + (uint64_t(row / 16) * (n / 16) + i4 / 4) * 512;
  U2(fragment + (row % 8 * 4 + i4 % 4) * 16 + row / 8 % 2 * 8).v[0] = halves(x);
}

// For as many rows as there are workgroups in y, in sixteens.
void write_turned(uint64_t base, uint row, uint i4, vec4 x) {
  vec4 y = clamp(x / HALF_SCALE, -HALF_MOST, HALF_MOST);
  for (uint j = 0; j < 4; ++j) {
    uint i = 4 * i4 + j;
    uint64_t fragment = base + (uint64_t(i / 16) * (gl_NumWorkGroups.y / 16) + row / 16) * 512;
    uint place = (i % 8 * 4 + row % 8 / 2) * 16 + (i / 8 % 2 * 2 + row / 8 % 2) * 4 + row % 2 * 2;
    H1(fragment + place).v[0] = float16_t(y[j]);
  }
}

// `start` is where the row begins in each of those that are `stride` bytes apart.
void write_row(uint form, uint64_t base, uint row, uint stride, uint start, uint n, uint i4, vec4 x) {
  uint64_t at = base + uint64_t(row) * stride + start;
  if (form == 0) write_floats(at, n, i4, x);
  if (form == 1) write_bytes(at, n / 32, i4, x);
  if (form == 2) write_halves(at, i4, x);
  if (form == 3) write_fragments(base, row, n, i4, x);
  if (form == 4) write_turned(base, row, i4, x);
}

vec4 read_row(uint64_t row, uint n, uint i4) {
  uint i = 4 * i4;
  if (ALIGNED != 0) return A4(row).v[i4];
  if (i + 4 <= n) return F4(row).v[i4];
  vec4 x = vec4(0);
  for (uint j = 0; i + j < n; ++j) x[j] = F1(row).v[i + j];
  return x;
}
