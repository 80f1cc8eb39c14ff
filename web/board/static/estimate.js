// Estimates for rr, grr and olh from a histogram of codes, computed like hushmote.server.estimate.
// If C[v] of n reports support value v, its frequency is (C[v]/n - q) / (p - q). Every statistic is therefore
// the mean of a weight over the reports, and its error follows from the weight's standard deviation. See
// docs/mathematics.md.

const ONE = 2 ** 30;
const Z = 1.959963984540054; // 95%
export const MAX_WORK = 10_000_000;

/** Return the values that each code supports. */
function supports({ g, t, seeds, domain }) {
  if (!t) return Array.from({ length: domain }, (_, v) => [v]);
  const codes = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const cells = Array.from({ length: g }, () => []);
    for (let v = 0; v < domain; v++) {
      let cell = 0;
      for (let i = 0, node = v, s = seed; i < t; i++) {
        cell += (node % g) * (s % g);
        node = Math.floor(node / g);
        s = Math.floor(s / g);
      }
      cells[cell % g].push(v);
    }
    codes.push(...cells);
  }
  return codes;
}

/** Return the nearest nonnegative shares that sum to 1. */
function simplex(values) {
  const descending = [...values].sort((a, b) => b - a);
  let total = 0;
  let excess = 0;
  descending.forEach((x, i) => {
    total += x;
    if (x > (total - 1) / (i + 1)) excess = (total - 1) / (i + 1);
  });
  return values.map((x) => Math.max(x - excess, 0));
}

export const canEstimate = (exp) =>
  ['rr', 'grr', 'olh'].includes(exp.mechanism) && exp.code_count * exp.domain <= MAX_WORK;

/** Return a function that maps code counts and groups of values to {share, low, high} for each group. */
export function estimator(exp) {
  const level = exp.levels[0];
  const { g, t, seeds, domain } = level;
  const codes = supports(level);
  const p = level.threshold / ONE;
  const lie = (1 - p) / (g - 1);
  const collision = t ? ((seeds + 1) / g - 1) / seeds : 0;
  const scale = 1 / (p - (p * collision + (1 - collision) * lie));
  const q = p - 1 / scale;
  // All frequencies must sum to 1, so the difference is divided equally among them.
  const even = t && g ** t !== domain;
  return (counts, groups) => {
    const n = counts.reduce((a, b) => a + b, 0);
    if (n < 2) return null;
    const supported = new Float64Array(domain);
    codes.forEach((values, code) => values.forEach((v) => (supported[v] += counts[code])));
    let shares = Array.from(supported, (c) => (c / n - q) * scale);
    const missing = even ? (1 - shares.reduce((a, b) => a + b, 0)) / domain : 0;
    shares = shares.map((x) => x + missing);
    // Codes with few expected reports often have none, so half of each code's probability comes from the
    // estimated shares.
    const implied = simplex(shares);
    const chance = codes.map((values, code) => {
      const mass = values.reduce((sum, v) => sum + implied[v], 0);
      return (lie + (p - lie) * mass) / (2 * seeds) + counts[code] / (2 * n);
    });
    return groups.map((values) => {
      const member = new Uint8Array(domain);
      values.forEach((v) => (member[v] = 1));
      const weight = codes.map((supporting) => {
        const hit = supporting.reduce((sum, v) => sum + member[v], 0);
        return scale * (hit - (even ? (values.length * supporting.length) / domain : 0));
      });
      const mean = weight.reduce((sum, w, code) => sum + w * chance[code], 0);
      let second = 0;
      let third = 0;
      weight.forEach((w, code) => {
        second += chance[code] * (w - mean) ** 2;
        third += chance[code] * (w - mean) ** 3;
      });
      const variance = second / n;
      const share = values.reduce((sum, v) => sum + shares[v], 0);
      const shift = variance > 1e-15 ? (Z * Z * (third / n ** 2 / variance)) / 2 : 0;
      const score = Math.hypot(shift, Z * Math.sqrt(variance));
      const normal = Z * Math.sqrt(variance);
      return { share, low: share + Math.min(shift - score, -normal), high: share + Math.max(shift + score, normal) };
    });
  };
}
