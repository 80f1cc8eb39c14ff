// The control for a reading: a slider with a field, or a choice.
import { element, indexName, number } from './words.js';

/** Return a text as a number, with a comma or a point as the decimal sign; throw TypeError for any other text. */
export function plainNumber(text) {
  const plain = text.trim().replace('−', '-');
  if (!/^[+-]?(\d+[.,]?\d*|[.,]\d+)$/.test(plain)) {
    throw new TypeError(`“${text.trim()}” is not a reading. Type digits with at most one comma or point, such as 21.5.`);
  }
  return Number(plain.replace(',', '.'));
}

/** Fill a box with the controls for an experiment's readings; return functions that read them.
 *
 * value() returns the reading, or throws TypeError if nothing is chosen or the typed text is not a number. words()
 * returns the reading as text. chosen() returns whether a reading is chosen. beyond() returns a sentence if a number
 * is outside the bounds, otherwise "".
 * @param changed called after each change
 */
export function readingInput(box, exp, unit, preset, changed) {
  if (exp.type === 'number') return numberInput(box, exp, unit, preset, changed);
  const names = Array.from({ length: exp.domain }, (_, i) => indexName(exp, i));
  // The client maps any text that is not a label to "other"; no label is the empty text.
  const values = exp.type === 'bool' ? [false, true] : [...exp.labels, ''];
  const radios = names.map((_, i) => element('input', { type: 'radio', name: 'reading', value: i }));
  radios.forEach((radio) => radio.addEventListener('change', changed));
  box.replaceChildren(
    element('fieldset', {}, element('legend', {}, 'Reading'), ...names.map((name, i) => element('label', {}, radios[i], ` ${name}`))),
  );
  const at = () => radios.findIndex((radio) => radio.checked);
  const value = () => {
    if (at() < 0) throw new TypeError('Choose a reading above first.');
    return values[at()];
  };
  return { value, words: () => names[at()], chosen: () => at() >= 0, beyond: () => '' };
}

function numberInput(box, exp, unit, preset, changed) {
  const [low, high] = [exp.low / 1000, exp.high / 1000];
  const step = Math.max(10 ** Math.floor(Math.log10((high - low) / 100)), 0.001);
  const start = preset ?? Math.round((low + (high - low) * 0.66) / step) * step;
  const slider = element('input', { type: 'range', id: 'slider', min: low, max: high, step });
  // Use a text field, because a number field silently drops commas and would turn 21,5 into 215.
  const field = element('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', id: 'reading' });
  slider.value = field.value = Number(start.toFixed(3));
  slider.addEventListener('input', () => {
    field.value = slider.value;
    changed();
  });
  field.addEventListener('input', () => {
    try {
      slider.value = plainNumber(field.value);
    } catch {
      // The page shows the error when the reading is reported.
    }
    changed();
  });
  box.replaceChildren(
    element('p', { class: 'field' }, element('label', { for: 'slider' }, `Slide it${unit && ` (${unit})`}`), slider),
    element('p', { class: 'field' }, element('label', { for: 'reading' }, `or type it${unit && ` (${unit})`}`), field),
  );
  const value = () => plainNumber(field.value);
  const beyond = () => {
    const x = value();
    if (x < low) return `${number(x)} is below ${number(low)}, so it counts in the lowest bin.`;
    return x > high ? `${number(x)} is above ${number(high)}, so it counts in the highest bin.` : '';
  };
  return { value, words: () => `${number(value())}${unit && ` ${unit}`}`, chosen: () => true, beyond };
}
