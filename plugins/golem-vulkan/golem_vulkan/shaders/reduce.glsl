// Sums and maxima over a workgroup, known to every thread of it.
shared float partial[64];

float workgroup_sum(float x) {
  x = subgroupAdd(x);
  barrier();
  if (subgroupElect()) partial[gl_SubgroupID] = x;
  barrier();
  float total = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) total += partial[i];
  return total;
}

float workgroup_max(float x) {
  x = subgroupMax(x);
  barrier();
  if (subgroupElect()) partial[gl_SubgroupID] = x;
  barrier();
  float most = partial[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) most = max(most, partial[i]);
  return most;
}
