/**
 * @file The mechanism prefix, which finds unlisted texts: import 'hushmote/prefix' adds it to those of the client.
 *
 * It draws one of a text's `prefixes` by weight and reports its slot by pgr. For privacy and source see
 * device/ldp_prefix.py.
 */
import { MECHANISMS, check, drawn, points, takeInt, takeWeights } from './hushmote.js';

MECHANISMS.prefix = (exp, fields) => {
  const { epsilon, slots, prefixes } = exp;
  check(prefixes?.length, 'prefix is for a text with prefixes');
  const q = takeInt(fields, 'q', 2, 4096);
  return drawn(exp, takeWeights(fields, prefixes.length, 1), (i, offset) => {
    const [codes, respond] = points(epsilon, slots, q, offset);
    const place = BigInt(slots) ** BigInt(i);
    const slotOf = (index, nothing) => (index === null ? nothing : Number((BigInt(index) / place) % BigInt(slots)));
    return [codes, (index, rng) => respond(slotOf(index, rng.below(slots)), rng)]; // drawn in any case
  });
};
