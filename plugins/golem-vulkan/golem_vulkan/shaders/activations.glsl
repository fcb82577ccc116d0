// Functions of one number, by the numbers that the host gives them.
const uint COPY = 0, GELU = 1, SILU = 2, SIGMOID = 3, SOFTPLUS = 4, SOFTCAP = 5, SCALE = 6, GELU_ERF = 7, RELU = 8, ELU = 9,
  CLIP = 10;

float soft_tanh(float x) {  // of any size; the built-in one may overflow
  float e = exp(-2.0 * abs(x));
  return sign(x) * (1.0 - e) / (1.0 + e);
}

// erf to 1.2e-7: W. J. Cody's rational forms would need three ranges; this is the series below 2 and erfc's
// continued fraction above.
float error_function(float x) {
  float a = abs(x), y;
  if (a < 2.0) {
    float term = a, square = a * a;
    y = a;
    for (int n = 1; n < 28; ++n) {
      term *= -square / float(n);
      y += term / float(2 * n + 1);
    }
    y *= 1.1283791670955126;
  } else {
    float fraction = 0.0;
    for (int n = 24; n > 0; --n) fraction = 0.5 * float(n) / (a + fraction);
    y = 1.0 - exp(-a * a) * 0.5641895835477563 / (a + fraction);
  }
  return x < 0.0 ? -y : y;
}

float exp_minus_one(float x) {  // for small x, of which exp(x) - 1 would keep little
  float term = x, sum = x;
  for (int n = 2; n < 10; ++n) {
    term *= x / float(n);
    sum += term;
  }
  return sum;
}

float activate(uint kind, float x, float by, float most) {
  switch (kind) {
    case GELU: return 0.5 * x * (1.0 + soft_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case SILU: return x / (1.0 + exp(min(-x, 80.0)));
    case SIGMOID: return 1.0 / (1.0 + exp(min(-x, 80.0)));
    case SOFTPLUS: { float e = exp(-abs(x)), s = e < 1e-3 ? e - 0.5 * e * e : log(1.0 + e); return max(x, 0.0) + s; }
    case SOFTCAP: return by * soft_tanh(x / by);
    case SCALE: return x * by;
    case GELU_ERF: return 0.5 * x * (1.0 + error_function(0.7071067811865476 * x));
    case RELU: return max(x, 0.0);
    case ELU: return x > 0.0 ? x : x > -0.5 ? exp_minus_one(x) : exp(x) - 1.0;
    case CLIP: return min(max(x, by), most);
    default: return x;
  }
}

vec4 activate4(uint kind, vec4 x, float by, float most) {
  vec4 y;
  for (uint j = 0; j < 4; ++j) y[j] = activate(kind, x[j], by, most);
  return y;
}
