/**
 * @file Logarithmic bins, for numbers with `scale` "log". Import 'hushmote/scale' to add them to the client.
 *
 * The edges are defined in device/ldp_scale.py.
 */
import { SIMPLE, check } from './hushmote.js';

const MAX_BINS = 256;
const equalBins = SIMPLE.number;

/** Return the edges in milli-units. Products of an edge and growth exceed 2^53, so both are BigInts. */
function logEdges(low, high, bins) {
  const series = (growth) => {
    const edges = [BigInt(low)];
    for (let i = 1; i <= bins && edges[i - 1] <= high; i++) {
      const step = (edges[i - 1] * growth) >> 20n;
      edges.push(edges[i - 1] + (step || 1n));
    }
    return edges;
  };
  let growth = 0n;
  for (let bit = 2n ** 39n; bit; bit >>= 1n) if (series(growth | bit).at(-1) <= high) growth |= bit;
  return [...series(growth).slice(0, -1).map(Number), high];
}

SIMPLE.number = (fields) => {
  const { low, high, scale } = fields;
  const reading = equalBins(fields);
  if (scale === undefined) return reading;
  delete fields.scale;
  check(scale === 'log', `unsupported scale ${typeof scale === 'string' ? scale : '?'}`);
  check(low > 0, 'scale log requires low above 0');
  const { domain } = reading;
  check(domain <= Math.min(MAX_BINS, high - low), 'scale log requires at most 256 bins of at least 0.001');
  const edges = logEdges(low, high, domain).slice(1, -1);
  const at = (x) => {
    if (reading.at(x) === undefined) return undefined; // the wrong type
    const milli = Math.floor(Number(x) * 1000 + 0.5);
    return edges.reduce((count, edge) => count + (milli >= edge), 0); // every edge, whatever the reading
  };
  return { domain, at };
};
