/**
 * @file The mechanism sw, for means. Import 'hushmote/sw' to add it to the client.
 *
 * For privacy, utility and citation see device/ldp_sw.py.
 */
import { MECHANISMS, ONE, SMALL, check, takeInt, truthThreshold } from './hushmote.js';

MECHANISMS.sw = (exp, fields) => {
  const { epsilon, domain } = exp;
  check(exp.type === 'number' && !exp.none, 'sw requires numbers without missing');
  const reach = takeInt(fields, 'reach', 0, 2 ** 23);
  const inside = 2 * reach + 1;
  const threshold = truthThreshold(epsilon, domain - 1, inside);
  // Otherwise a code inside is not more likely than one outside, so e^epsilon would bound the wrong ratio.
  check(BigInt(threshold) * BigInt(domain - 1) > BigInt(ONE - threshold) * BigInt(inside), SMALL);
  exp.codes = domain + 2 * reach;
  return (index, rng) => {
    // All three are always drawn, so timing does not reveal whether the code is inside.
    const truthful = rng.bernoulli(threshold);
    const near = index + rng.below(inside);
    const far = rng.below(domain - 1);
    return [far + (far >= index) * inside, near][+truthful];
  };
};
