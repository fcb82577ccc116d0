// Heads in shared memory: normed, then rotated by the column's position.
shared float head[1024];

// sin and cos of a turn given as a fraction of 2^32: the quadrant exactly, then polynomials on -pi/4...pi/4.
vec2 cos_sin(uint turn) {
  uint quadrant = (turn + 0x20000000u) >> 30;
  float x = float(int(turn - (quadrant << 30))) * 1.4629180792671596e-9;  // 2 pi / 2^32
  float z = x * x;
  float s = x * (1.0 + z * (-0.16666666 + z * (8.3333310e-3 + z * (-1.9840874e-4 + z * 2.7525562e-6))));
  float c = 1.0 + z * (-0.5 + z * (0.041666665 + z * (-1.3888889e-3 + z * (2.4801587e-5 - z * 2.7557319e-7))));
  if ((quadrant & 1) != 0) { float t = c; c = -s; s = t; }
  return (quadrant & 2) != 0 ? -vec2(c, s) : vec2(c, s);
}

// Position times a frequency that is a fraction of 2^64 turns (low word, high word), as a fraction of 2^32.
uint turn_of(uint position, uvec2 frequency) {
  uint high, low;
  umulExtended(position, frequency.x, high, low);
  return position * frequency.y + high;
}

void load_head(uint64_t x, uint dim, bool normed, uint64_t weight, float eps) {
  float by = 1.0;
  if (normed) {
    float squares = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < dim; i += gl_WorkGroupSize.x) squares += F1(x).v[i] * F1(x).v[i];
    by = inversesqrt(workgroup_sum(squares) / float(dim) + eps);
  }
  for (uint i = gl_LocalInvocationID.x; i < dim; i += gl_WorkGroupSize.x)
    head[i] = F1(x).v[i] * by * (weight != 0 ? F1(weight).v[i] : 1.0);
  barrier();
}

// Entry i of the head after the rotation.  PAIRS: 0 none, 1 halves, 2 neighbours.
float turned(uint i, uint pairs, uint position, uint64_t frequencies, uint dims) {
  if (pairs == 0 || i >= dims) return head[i];
  uint half_ = dims / 2, pair = pairs == 1 ? i % half_ : i / 2;
  bool first = pairs == 1 ? i < half_ : (i & 1) == 0;
  uint other = pairs == 1 ? (first ? i + half_ : i - half_) : i ^ 1u;
  vec2 t = cos_sin(turn_of(position, U2(frequencies).v[pair]));
  return first ? head[i] * t.x - head[other] * t.y : head[other] * t.y + head[i] * t.x;
}
