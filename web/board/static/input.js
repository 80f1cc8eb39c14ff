// The reading: a slider with a field, or a choice.
import { element, indexName, number } from './words.js';

/** Put the controls for an experiment's readings into a box; {value(), words()} of what is set there. */
export function readingInput(box, exp, unit, preset) {
  if (exp.type === 'number') return numberInput(box, exp, unit, preset);
  const names = Array.from({ length: exp.domain }, (_, i) => indexName(exp, i));
  // What is not among the labels is "other"; no label is empty.
  const values = exp.type === 'bool' ? [false, true] : [...exp.labels, ''];
  const radios = names.map((_, i) => element('input', { type: 'radio', name: 'reading', value: i }));
  radios[0].checked = true;
  box.replaceChildren(
    element('fieldset', {}, element('legend', {}, 'Reading'), ...names.map((name, i) => element('label', {}, radios[i], ` ${name}`))),
  );
  const at = () => radios.findIndex((radio) => radio.checked);
  return { value: () => values[at()], words: () => names[at()] };
}

function numberInput(box, exp, unit, preset) {
  const [low, high] = [exp.low / 1000, exp.high / 1000];
  const step = Math.max(10 ** Math.floor(Math.log10((high - low) / 100)), 0.001);
  const start = preset ?? Math.round((low + (high - low) * 0.66) / step) * step;
  const slider = element('input', { type: 'range', id: 'slider', min: low, max: high, step });
  const field = element('input', { type: 'number', id: 'reading', step: 'any', required: '' });
  slider.value = field.value = Number(start.toFixed(3));
  slider.addEventListener('input', () => (field.value = slider.value));
  field.addEventListener('input', () => (slider.value = field.value));
  box.replaceChildren(
    element('p', { class: 'field' }, element('label', { for: 'slider' }, `Slide it${unit && ` (${unit})`}`), slider),
    element('p', { class: 'field' }, element('label', { for: 'reading' }, `or type it${unit && ` (${unit})`}`), field),
  );
  return { value: () => Number(field.value), words: () => `${number(Number(field.value))}${unit && ` ${unit}`}` };
}
